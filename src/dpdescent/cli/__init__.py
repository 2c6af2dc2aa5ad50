"""The command line: ``dpdescent demo | fit | predict | compare | reproduce | datasets | schema | ledger``.

Messages show only paid or public quantities. Exit codes: 0 done, 1 refused with a named error, 2 wrong usage.
"""

from .commands import app
from .entry import main

__all__ = ["app", "main"]
