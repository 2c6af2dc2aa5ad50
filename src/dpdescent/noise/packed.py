r"""Many draws of discrete Gaussian noise at once, from a third of the random bits.

The law and the cells are those of `dpdescent.noise.lattice`; here one 64-bit word makes a proposal. Its 16 highest
bits begin the uniform real that chooses the cell, the next 15 the one that accepts, then comes the sign, and the 32
lowest bits are the offset inside the cell. Where the first digits of a real do not decide, further ones are read, and
`dpdescent.noise.lattice` decides.

**Lemma (exactness).** The draws are independent and within the same total variation of their law, given a float32
exponential within 2^-20 of the true one on [-1.3, 0].

*Proof.* Cells: an interval of length 2^-16 that lies inside one cell decides for it, and otherwise the real is
continued to 64 bits, from which the other sampler goes on. Offsets: of 32 bits, those below the largest multiple of
the width are kept, which makes all offsets equally likely. Acceptance: let h be the 15 bits, so that the real u is
within 2^-16 of (h + 1/2)/2^15. The float32 value e of exp(-x) is within 2^-19 of the true one, because x <= 1.3
carries a relative error below 2^-21. If the two are more than 2^-16 + 2^-18 apart, u and exp(-x) are ordered as they
are, and otherwise u is continued to 64 bits. No decision depends on the bits of another, and all that were read for a
proposal are dropped with it. QED

Proposals are made in blocks that stay in the cache. A block takes one word for each of its proposals, and then the
words for those that are left in doubt.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from .bits import Bits
from .lattice import GaussianCells, accept_proposals, gaussian_table
from .scales import CELLS_PER_SCALE

__all__ = ["LARGEST_WIDTH", "MANY", "packed_gaussian"]

MANY = 2**16  # fewer draws are not worth the tables of packing
LARGEST_WIDTH = 2**26  # of a cell: at most one in 64 of the offsets of 32 bits is then rejected
_BLOCK = 2**15
_IN_DOUBT = -1
_COIN_BITS = 15
_GAP = 2.0**-16 + 2.0**-18


def packed_gaussian(bits: Bits, scale: int, size: int) -> NDArray[np.int64]:
    """Return ``size`` draws, for a scale of cells no wider than `LARGEST_WIDTH`."""
    draws = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        kept = _block(bits, scale, min(_BLOCK, int((size - filled) * 1.05) + 8))
        taken = min(kept.size, size - filled)
        draws[filled : filled + taken] = kept[:taken]
        filled += taken
    return draws


def _block(bits: Bits, scale: int, proposals: int) -> NDArray[np.int64]:
    """Return the accepted ones of some proposals."""
    width = scale // CELLS_PER_SCALE
    words = bits.words(proposals)
    cells = _cells(bits, words)
    offset_words = words.astype(np.uint32)  # the lowest 32 bits
    offsets = offset_words - offset_words // np.uint32(width) * np.uint32(width)
    keep = _accepted(bits, words, cells, offsets, scale)
    keep &= offset_words <= np.uint32(2**32 // width * width - 1)
    values = cells.astype(np.int64)
    values *= width
    values += offsets
    minus = -((words >> np.uint64(32)) & np.uint64(1)).astype(np.int64)  # -1 for a negative draw, and else 0
    keep &= (values | ~minus) != 0  # minus zero is rejected, so that zero counts once
    values ^= minus
    values -= minus
    return values[keep]


def _cells(bits: Bits, words: NDArray[np.uint64]) -> NDArray[np.int16]:
    """Return the cell that the 16 highest bits of each word choose, with further bits where these do not decide."""
    prefixes = words >> np.uint64(48)
    cells: NDArray[np.int16] = np.take(_first_digits(), prefixes)
    doubtful = np.flatnonzero(cells == _IN_DOUBT)
    continued = (prefixes[doubtful] << np.uint64(48)) | (bits.words(doubtful.size) >> np.uint64(16))
    cells[doubtful] = gaussian_table().draw(bits, continued, force_exact=False)
    return cells


def _accepted(
    bits: Bits,
    words: NDArray[np.uint64],
    cells: NDArray[np.int16],
    offsets: NDArray[np.uint32],
    scale: int,
) -> NDArray[np.bool_]:
    """Decide for each proposal whether its real is below exp(-U (2kW + U)/(2 s^2))."""
    digits = (words >> np.uint64(33)).astype(np.uint16) & np.uint16(2**_COIN_BITS - 1)
    exponents = offsets.astype(np.float32)
    exponents *= np.float32(1 / scale)
    exponents *= exponents + cells.astype(np.float32) * np.float32(2 / CELLS_PER_SCALE)
    exponents *= np.float32(-0.5)
    excess = digits.astype(np.float32)
    excess += np.float32(0.5)
    excess *= np.float32(2.0**-_COIN_BITS)
    excess -= np.exp(exponents, out=exponents)
    accepted: NDArray[np.bool_] = excess < 0
    doubtful = np.flatnonzero(np.abs(excess, out=excess) <= np.float32(_GAP))
    leading = digits[doubtful].astype(np.uint64) << np.uint64(64 - _COIN_BITS)
    continued = leading | (bits.words(doubtful.size) >> np.uint64(_COIN_BITS))
    cell, offset = (each[doubtful].astype(np.int64) for each in (cells, offsets))
    accepted[doubtful] = accept_proposals(bits, continued, GaussianCells(), cell, offset, scale, force_exact=False)
    return accepted


@cache
def _first_digits() -> NDArray[np.int16]:
    """Return the cell of every interval [p, p + 1) 2^-16, or a mark where it holds a boundary."""
    first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    last = first | np.uint64(2**48 - 1)
    leading = gaussian_table().leading
    lower, upper = np.searchsorted(leading, first, side="left"), np.searchsorted(leading, last, side="right")
    return np.where(lower == upper, lower, _IN_DOUBT).astype(np.int16)
