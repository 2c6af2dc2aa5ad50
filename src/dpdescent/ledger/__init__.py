"""The ledger: a privacy filter that refuses before the budget is overspent, and an append-only record.

Nothing is computed from the data before the ledger has accepted its cost. A refusal raises and changes nothing;
a smaller request may follow. Amounts are added exactly, as fractions, so no sum of roundings ever slips over
the budget.

A ledger may live in memory or in a file. In a file every entry is on the disk before ``spend`` returns, so a
crash or a kill never forgets a charge, and processes that share the file share one budget. A copy never carries
the right to spend: copying returns the ledger itself, a text or a pickled one comes back read-only, and a forked
child must use a file.

``budget`` decides. ``history`` holds what was accepted, adds it up, and says what a budget needs of the place where
the record is kept; ``sqlite_store`` is such a place, in a file.
``privacy_ledger`` is the ledger that people hold; ``sharing`` charges several of them at once, and a whole run;
``old_format`` moves the files of earlier releases.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .budget import ONE_ROW as ONE_ROW, unit_in_words as unit_in_words
from .history import Entry as Entry, Line as Line, Origin as Origin
from .privacy_ledger import Ledger as Ledger
from .sharing import (
    afford_jointly as afford_jointly,
    require_affordable as require_affordable,
    require_distinct as require_distinct,
    require_funds as require_funds,
    reserving as reserving,
    spend_jointly as spend_jointly,
)

if TYPE_CHECKING:
    from .old_format import import_lines as import_lines

_, __getattr__ = lazy_names(__name__, {"old_format": "import_lines"})
