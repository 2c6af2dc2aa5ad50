"""The command line: ``dpdescent demo | schema | fit | predict | explain | ledger | ...``.

Messages show only paid or public quantities, and no cell of a table. Exit codes: 0 done, 1 refused with a named error
or failed with an unexpected one, 2 wrong usage, 130 interrupted.
"""

from .commands import app as app, main as main
