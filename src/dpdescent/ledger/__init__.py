"""The ledger: a filter that refuses before the budget is overspent, and an append-only record.

Nothing is computed from the data before the ledger has accepted its cost. A refusal raises and changes nothing;
a smaller request may follow. Amounts are added exactly, as fractions, so no sum of roundings ever slips over
the budget.

A ledger may live in memory or in a file. In a file every entry is on the disk before ``spend`` returns, so a
crash or a kill never forgets a charge, and processes that share the file share one budget. A copy never carries
the right to spend: copying returns the ledger itself, a text or a pickled one comes back read-only, and a forked
child must use a file.

``filter`` holds the budget and decides, and ``tally`` adds up what it has accepted. ``journal`` says what the filter
needs of the place where the record is kept, and ``file`` is such a place. ``book`` is the ledger that people hold;
``joint`` charges several of them at once, and ``reservation`` a whole run.
"""

from .book import Ledger
from .entries import Entry, Line, Origin
from .filter import ONE_ROW
from .imports import import_lines
from .joint import afford_jointly, require_affordable, require_distinct, spend_jointly
from .reservation import require_funds, reserving

__all__ = [
    "ONE_ROW",
    "Entry",
    "Ledger",
    "Line",
    "Origin",
    "afford_jointly",
    "import_lines",
    "require_affordable",
    "require_distinct",
    "require_funds",
    "reserving",
    "spend_jointly",
]
