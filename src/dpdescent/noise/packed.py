r"""Many draws of discrete Gaussian noise at once, from a quarter of the random bits.

The law and the cells are those of `dpdescent.noise.lattice`; here 48 bits make a proposal. Of these, 12 begin the
uniform real that chooses the cell, 11 begin the one that accepts, one is the sign, and 24 are the offset inside the
cell. Where the first digits of a real do not decide, further ones are read, and `dpdescent.noise.lattice` decides.

**Lemma (exactness).** The draws are independent and within the same total variation of their law, given a float32
exponential within 2^-20 of the true one on [-1.3, 0].

*Proof.* Cells: an interval of length 2^-12 that lies inside one cell decides for it, and otherwise the real is
continued to 64 bits, from which the other sampler goes on. Offsets: of 24 bits, those below the largest multiple of
the width are kept, which makes all offsets equally likely. Acceptance: let h be the 11 bits, so that the real u is
within 2^-12 of (h + 1/2)/2^11. The float32 value e of exp(-x) is within 2^-19 of the true one, because x <= 1.3
carries a relative error below 2^-21. If the two are more than 2^-12 + 2^-18 apart, u and exp(-x) are ordered as they
are, and otherwise u is continued to 64 bits. No decision depends on the bits of another, and all that were read for a
proposal are dropped with it. QED

Proposals are made in blocks that stay in the cache. A block of 4 b proposals takes 3 b words: the first b hold 16
bits of each proposal, its cell and four digits of the coin, and the other 2 b the 32 bits that are left. Then come
the words for proposals that are left in doubt.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..arrays import Booleans, Integers
from .bits import Bits
from .lattice import CELLS_PER_SCALE, GaussianCells, accept_proposals, gaussian_table

MANY = 2**16  # fewer draws are not worth the tables of packing
LARGEST_WIDTH = 2**20  # of a cell: at most one in 16 of the offsets of 24 bits is then rejected
_BLOCK = 2**15
_IN_DOUBT = -1
_CELL_BITS, _COIN_BITS, _OFFSET_BITS = 12, 11, 24
_HIGH_COIN_BITS = 16 - _CELL_BITS
_LOW_COIN_BITS = _COIN_BITS - _HIGH_COIN_BITS
_GAP = 2.0 ** -(_COIN_BITS + 1) + 2.0**-18


def packed_gaussian(bits: Bits, scale: int, size: int) -> Integers:
    """Return ``size`` draws, for a scale of cells no wider than `LARGEST_WIDTH`."""
    draws = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        kept = _block(bits, scale, min(_BLOCK, int((size - filled) * 1.05) + 8))
        taken = min(kept.size, size - filled)
        draws[filled : filled + taken] = kept[:taken]
        filled += taken
    return draws


def _block(bits: Bits, scale: int, proposals: int) -> NDArray[np.int32]:
    """Return the accepted ones of some proposals, whose number is rounded up to a multiple of four."""
    width = scale // CELLS_PER_SCALE
    quarter = -(-proposals // 4)
    words = bits.words(3 * quarter).astype("<u8", copy=False)  # the same halves on every machine
    short, long = words[:quarter].view("<u2"), words[quarter:].view("<u4")
    cells = _cells(bits, short >> np.uint16(_HIGH_COIN_BITS))
    offset_bits = long & np.uint32(2**_OFFSET_BITS - 1)
    offsets = offset_bits % np.uint32(width)
    coins = (short & np.uint16(2**_HIGH_COIN_BITS - 1)) << np.uint16(_LOW_COIN_BITS)
    coins |= (long >> np.uint32(32 - _LOW_COIN_BITS)).astype(np.uint16)
    keep = _accept(bits, coins, cells, offsets, scale)
    keep &= offset_bits < np.uint32(2**_OFFSET_BITS // width * width)
    # No value reaches 2^31: the last cell ends before 20 scales, which are at most 20 * 2^24.
    values = cells.astype(np.int32)
    values *= np.int32(width)
    values += offsets.view(np.int32)
    minus = -((long >> np.uint32(_OFFSET_BITS)) & np.uint32(1)).view(np.int32)  # -1 for a negative draw, and else 0
    keep &= (values | ~minus) != 0  # minus zero is rejected, so that zero counts once
    values ^= minus
    values -= minus
    return values[keep]


def _cells(bits: Bits, prefixes: NDArray[np.uint16]) -> NDArray[np.int16]:
    """Return the cell that the first 12 bits of a real choose, with further bits where these do not decide."""
    cells: NDArray[np.int16] = np.take(_first_digits(), prefixes)
    doubtful = np.flatnonzero(cells == _IN_DOUBT)
    leading = prefixes[doubtful].astype(np.uint64) << np.uint64(64 - _CELL_BITS)
    continued = leading | (bits.words(doubtful.size) >> np.uint64(_CELL_BITS))
    cells[doubtful] = gaussian_table().draw(bits, continued, force_exact=False)
    return cells


def _accept(
    bits: Bits, coins: NDArray[np.uint16], cells: NDArray[np.int16], offsets: NDArray[np.uint32], scale: int
) -> Booleans:
    """Decide for each proposal whether the real that starts with its coin is below exp(-U (2kW + U)/(2 s^2))."""
    exponents = offsets.astype(np.float32)
    exponents *= np.float32(1 / scale)
    exponents *= exponents + cells.astype(np.float32) * np.float32(2 / CELLS_PER_SCALE)
    exponents *= np.float32(-0.5)
    excess = coins.astype(np.float32)
    excess += np.float32(0.5)
    excess *= np.float32(2.0**-_COIN_BITS)
    excess -= np.exp(exponents, out=exponents)
    accepted: Booleans = excess < 0
    doubtful = np.flatnonzero(np.abs(excess, out=excess) <= np.float32(_GAP))
    leading = coins[doubtful].astype(np.uint64) << np.uint64(64 - _COIN_BITS)
    continued = leading | (bits.words(doubtful.size) >> np.uint64(_COIN_BITS))
    cell, offset = (each[doubtful].astype(np.int64) for each in (cells, offsets))
    accepted[doubtful] = accept_proposals(bits, continued, GaussianCells(), cell, offset, scale, force_exact=False)
    return accepted


@cache
def _first_digits() -> NDArray[np.int16]:
    """Return the cell of every interval [p, p + 1) 2^-12, or a mark where it holds a boundary."""
    unread = 64 - _CELL_BITS
    first = np.arange(2**_CELL_BITS, dtype=np.uint64) << np.uint64(unread)
    last = first | np.uint64(2**unread - 1)
    leading = gaussian_table().leading
    lower, upper = np.searchsorted(leading, first, side="left"), np.searchsorted(leading, last, side="right")
    return np.where(lower == upper, lower, _IN_DOUBT).astype(np.int16)
