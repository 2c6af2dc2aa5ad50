"""Sums over the rows without any protection: what privacy is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InvalidParameter
from .curator import Curator
from .sources import Floats


def sum_without_privacy(curator: Curator, function: Callable[[Any, Floats], Floats]) -> Floats:
    """Return the sum of a function of blocks of rows and labels, as exact as floating point has it. NOT PRIVATE.

    **Privacy** None. It is refused where a budget is kept: for a curator with a second ledger, with a ledger
    in a file, or with one that has paid for an answer already, since that ledger's promise would be broken.
    """
    ledger = curator.ledger
    if curator._account is not None or ledger.path is not None or ledger.entries:
        raise InvalidParameter(
            "an answer without privacy breaks the promise of a ledger: leave ledger out, and give the method a "
            "curator of its own"
        )
    with np.errstate(all="ignore"):
        return np.asarray(curator._source.map_sum(function), dtype=np.float64)
