"""The auditor: lower bounds on epsilon, from runs, with stated confidence; and replays of estimators on neighbours.

A proof says how large epsilon is at most. An audit says how large it is at least: it runs a mechanism on two
neighbouring tables, tries to tell the outcomes apart, and concludes what epsilon would have to be. A bound above the
claim refutes it. A bound below proves nothing, but how far below tells how tight claim and attack are.

A replay (`replay`) needs no statistics: it fits an estimator to neighbouring tables with the same released answers,
and whatever differs then was not paid for.
"""

from .auditor import ATTACKS, audit, audit_named, default_runs
from .findings import Leak, ReplayReport, Report, canary_bound, draw_report
from .neighbouring import Neighbour
from .replay import replay
from .row_separation import RowSeparation, rows_separate
from .worst_cases import MECHANISMS

__all__ = [
    "ATTACKS",
    "MECHANISMS",
    "Leak",
    "Neighbour",
    "ReplayReport",
    "Report",
    "RowSeparation",
    "audit",
    "audit_named",
    "canary_bound",
    "default_runs",
    "draw_report",
    "replay",
    "rows_separate",
]
