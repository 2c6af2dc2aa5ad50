"""The auditor: lower bounds on epsilon, from runs, with stated confidence; and replays of estimators on neighbours.

A proof says how large epsilon is at most. An audit says how large it is at least: it runs a mechanism on two
neighbouring tables, tries to tell the outcomes apart, and concludes what epsilon would have to be. A bound above the
claim refutes it. A bound below proves nothing, but how far below tells how tight claim and attack are.

A replay (`replay`) needs no statistics: it fits an estimator to neighbouring tables with the same released answers,
and whatever differs then was not paid for.
"""

from .auditor import ATTACKS as ATTACKS, audit as audit, audit_named as audit_named, default_runs as default_runs
from .findings import (
    Leak as Leak,
    ReplayReport as ReplayReport,
    Report as Report,
    canary_bound as canary_bound,
    draw_report as draw_report,
    one_run_bound as one_run_bound,
)
from .neighbouring import Neighbour as Neighbour
from .one_fit import audit_one_fit as audit_one_fit
from .replay import replay as replay
from .row_separation import RowSeparation as RowSeparation, rows_separate as rows_separate
from .worst_cases import MECHANISMS as MECHANISMS
