"""A check that the sum of a loss over rows is a sum of functions of single rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter, RowDependence, require_positive_integer
from .sums import LatticeSum

__all__ = ["check_row_independence"]

Int64Array = NDArray[np.int64]

_REMEDY = (
    "Its sensitivity is then not the clip norm, and no noise scale would be right. Compute each row's value from "
    "that row and public numbers only: no batch means, batch norms, ranks, row counts or positions; take margins "
    "from FeatureGrid.margins and elementary functions from dpdescent.exact, whose last digits do not depend "
    "on the other rows"
)


def check_row_independence(row_sum: Callable[..., Any], *rows: Any, samples: int = 16, seed: int = 0) -> None:
    """Raise `RowDependence` unless ``row_sum`` adds up contributions of single rows.

    For ``S = row_sum`` and sampled rows i, in exact integers: ``S(D) - S(D without i) = S({i})``; S does not
    change if the rows are permuted; ``S(D) = S(D[:k]) + S(D[k:])``; no rows give 0; and calling twice gives the same.

    Parameters
    ----------
    row_sum : callable
        Maps a block of rows (the same slice of all arrays of ``rows``) to an int64 array or a `LatticeSum`.
    *rows : ndarray or CSR
        Arrays that share the first axis, at least 2 rows.
    samples : int, optional
        How many rows are left out, one at a time, and at how many places the rows are split in two. The last rows are
        always among them, because a BLAS computes them by another kernel.
    seed : int, optional
        Chooses the rows, the splits and the permutation.

    Notes
    -----
    **Privacy.** Whether this raises depends on the rows it is given: run it on synthetic or public rows while you
    develop a loss, and never on the private table. Passing is evidence and not a proof; failing is a proof.

    Examples
    --------
    >>> import numpy as np
    >>> losses = np.array([0.5, 0.25, 1.0])
    >>> check_row_independence(lambda block: np.rint(block * 4).astype(np.int64).sum(keepdims=True), losses)
    """
    if not rows or len({block.shape[0] for block in rows}) != 1 or rows[0].shape[0] < 2:
        raise InvalidParameter("pass arrays that share their first axis, with at least 2 rows")
    count = int(rows[0].shape[0])
    samples = min(require_positive_integer("samples", samples), count)
    generator = np.random.Generator(np.random.Philox(seed))

    def evaluate(index: NDArray[np.intp]) -> Int64Array:
        return _integers(row_sum(*(block[index] for block in rows)))

    everything = np.arange(count)
    total = evaluate(everything)
    if not np.array_equal(evaluate(everything), total):
        raise RowDependence(f"the loss gives two results for the same rows. {_REMEDY}.")
    if np.any(evaluate(everything[:0])):
        raise RowDependence(f"the loss gives a nonzero sum for no rows. {_REMEDY}.")
    for _ in range(3):
        if not np.array_equal(evaluate(generator.permutation(count)), total):
            raise RowDependence(f"the sum changes with the order of the rows. {_REMEDY}.")
    last = everything[-min(4, count) :]
    for cut in np.union1d(generator.choice(np.arange(1, count), min(samples, count - 1), replace=False), last):
        if not np.array_equal(evaluate(everything[:cut]) + evaluate(everything[cut:]), total):
            raise RowDependence(f"the sum changes if rows are processed in two blocks, cut at row {cut}. {_REMEDY}.")
    for left_out in np.union1d(generator.choice(count, samples, replace=False), last):
        without = evaluate(np.delete(everything, left_out))
        if not np.array_equal(total - without, evaluate(everything[left_out : left_out + 1])):
            raise RowDependence(f"leaving out row {left_out} changes what other rows contribute. {_REMEDY}.")


def _integers(result: Any) -> Int64Array:
    values = result.values if isinstance(result, LatticeSum) else result
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise InvalidParameter("a row sum must return an int64 array or a LatticeSum: clip and round to a grid first")
    return np.atleast_1d(values)
