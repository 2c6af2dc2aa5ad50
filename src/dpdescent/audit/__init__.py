"""The auditor: lower bounds on epsilon, from runs, with stated confidence.

A proof says how large epsilon is at most. An audit says how large it is at least: it runs a mechanism on two
neighbouring tables, tries to tell the outcomes apart, and concludes what epsilon would have to be. A bound above the
claim refutes it. A bound below proves nothing, but how far below tells how tight claim and attack are.
"""

from .auditor import ATTACKS, audit, audit_named, default_runs
from .bounds import canary_bound
from .mechanisms import MECHANISMS
from .report import Report, draw_report

__all__ = [
    "ATTACKS",
    "MECHANISMS",
    "Report",
    "audit",
    "audit_named",
    "canary_bound",
    "default_runs",
    "draw_report",
]
