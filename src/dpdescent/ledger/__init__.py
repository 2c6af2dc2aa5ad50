"""The ledger: a filter that refuses before the budget is overspent, and an append-only record.

Nothing is computed from the data before the ledger has accepted its cost. A refusal raises and changes nothing;
a smaller request may follow. Amounts are added exactly, as fractions, so no sum of roundings ever slips over
the budget.

A ledger may live in memory or in a file. In a file every entry is on the disk before ``spend`` returns, so a
crash or a kill never forgets a charge, and processes that share the file share one budget. A copy never carries
the right to spend: copying returns the ledger itself, a pickled one comes back read-only, and a forked child
must use a file.

``filter`` holds the budget and decides; ``journal`` says what it needs of the place where the record is kept, and
``file`` is such a place; ``joint`` charges several ledgers at once.
"""

from .entries import Entry
from .filter import Ledger
from .joint import afford_jointly, require_affordable, require_distinct, spend_jointly

__all__ = ["Entry", "Ledger", "afford_jointly", "require_affordable", "require_distinct", "spend_jointly"]
