r"""Changes of a loss at many step sizes from one pass over the rows: what a private backtracking search compares.

Row i stands at ``p`` and moves with slope ``v`` (see `dpdescent.exact.step_scores`), so that a step ``a`` changes its
loss by ``l(p - a v) - l(p)``. Instead of computing that for every row and every step, the rows are counted once in
a grid of public nodes ``(p_j, v_k)``, and changes are computed at the nodes. A row counts at the four nodes around
it, with the weights ``1 - s, s`` times ``1 - t, t``, where (s, t) is its place within its cell. So what a row adds
is a bilinear function of its place in a public table, and the cost does not grow with the number of steps.

Nodes are closest around the bend of the loss and around slope 0, and double their distance with the distance from
there: they are at ``2^e (1 + r/c) - 1`` for r = 0..c-1, as the leading bits of a floating-point number are. The place
of a row is hence read from the bits of ``1 + |x|``. Beyond the last node a row counts at the last node.

Interpolation overestimates what is convex, and blurs kinks. So the table is not the change at the nodes, but the
piecewise bilinear function, 0 at slope 0, that is closest to the change in the mean square (de Boor 1978, chapter
XIV): its error is orthogonal to all such functions, that is to say zero on average over rows whose density is one.

References
----------
C. de Boor. A Practical Guide to Splines. 1978.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Floats, Integers
from ..errors import InvalidParameter, require_finite, require_positive
from . import machine
from .clipped_sums import require_real
from .step_scores import Loss

Float32Array = NDArray[np.float32]

_START_OCTAVES, _SLOPE_OCTAVES = 5, 5
_START_CELL_BITS, _SLOPE_CELL_BITS = 2, 3  # 4 and 8 cells to an octave, on either side
_START_NODES = 2 * (_START_OCTAVES << _START_CELL_BITS) + 1
_SLOPE_NODES = 2 * (_SLOPE_OCTAVES << _SLOPE_CELL_BITS) + 1
_NODES = _START_NODES * _SLOPE_NODES
_START_BITS, _SLOPE_BITS = 5, 11  # of the place within a cell
_START_SAMPLES, _SLOPE_SAMPLES = 4, 2  # of the loss in a cell
_STEPS_AT_ONCE = 16  # of a table, to limit memory
_WEIGHT_BITS = _START_BITS + _SLOPE_BITS
_TABLE_BITS = 18  # of a change; with the weight 34, which leave room for 2^27 rows in int64
_MANTISSA, _BIAS = 23, 127  # of float32
_LARGEST_EXPONENT = 200  # of a move: its square is finite
_BLOCK_BITS = 16  # of the number of rows in a block
_PACKED_BITS = _WEIGHT_BITS + _BLOCK_BITS  # two sums are taken at once, the lower one below 2^32 in a block
_LEAST_BOUND, _LARGEST_BOUND = 2.0**-100, 2.0**100  # 2^18 over a bound is then a normal float32


@dataclass(frozen=True)
class StepwiseScores:
    """Total changes of the loss at m step sizes, each row's change at step j within [-D_j, D_j].

    Notes
    -----
    **Privacy.** Unit: one row. The nodes, and the tables, whose entries are integers in [-2^18, 2^18] for every
    step, are functions of public numbers. A row has four weights, integers that are not negative and add up to 2^16;
    they depend on its own start and slope alone, by elementwise operations, and are such for every start and slope
    (infinite, or NaN: it stands still at the centre). So it adds to every total an integer of size at most 2^34:
    that is the sensitivity of a total if a row is removed, and twice that if it is replaced, whatever the bounds and
    however coarse the nodes are. Bounds and nodes matter for utility only.

    Totals are exact. In a block of 2^16 rows the places s < 2^5 and t < 2^11 of rows in their cells are summed as
    2^32 + t and as s (2^32 + t). The sums of t and of s t are below 2^32, so they can be told from the rest, and the
    whole is at most 31 2^16 (2^32 + 2^11) < 2^53. Counts add up to 2^32, and their products with a table to at most
    2^50. float64 holds such sums in any order (Lemma 1, `dpdescent.exact.machine`). Blocks are added in int64,
    without overflow for up to 2^28 rows; callers must refuse more.

    Examples
    --------
    >>> import numpy as np
    >>> scores = StepwiseScores((1.0, 0.5), (2.0, 1.0), lambda p: p * p / 2)
    >>> totals = scores.block(np.array([1.0, 2.0]), np.array([1.0, 1.5]))  # to 0 and 0.5, or to 0.5 and 1.25
    >>> np.round(totals / scores.limit * scores.bounds, 1)
    array([-2.4, -1.4])
    """

    steps: tuple[float, ...]  # step sizes above 0
    bounds: tuple[float, ...]  # D_j, public, between 2^-100 and 2^100
    loss: Loss  # ``loss(positions)`` returns the loss at each position (float64, same shape)
    #: Public: nodes are a quarter (of starts) or an eighth (of slopes) of this apart up to this far from the centre,
    #: and reach 31 times as far. The width of slopes is met up to a factor of sqrt(2).
    start_width: float = 1.0
    slope_width: float = 1.0
    centre: float = 0.0  # where the loss bends: a node
    #: 2^34. A total is counted in multiples of D_j / ``limit``, of which a row adds at most ``limit``.
    limit: ClassVar[int] = 1 << (_TABLE_BITS + _WEIGHT_BITS)

    def __post_init__(self) -> None:
        if not self.steps or len(self.steps) != len(self.bounds):
            raise InvalidParameter(f"expected one bound for each step, got {len(self.steps)} and {len(self.bounds)}")
        for name in ("start_width", "slope_width"):
            require_positive(name, getattr(self, name))
        require_finite("centre", self.centre)
        if not all(step > 0 and math.isfinite(step) for step in self.steps):
            raise InvalidParameter("steps must be finite and above 0")
        if not all(_LEAST_BOUND <= bound <= _LARGEST_BOUND for bound in self.bounds):
            raise InvalidParameter("bounds must lie between 2^-100 and 2^100: choose other units")

    def block(self, starts: ArrayLike, slopes: ArrayLike) -> Integers:
        """Return the m totals in multiples of D_j / `limit`; totals of several sets of rows add up.

        Starts and slopes are rounded to float32, which is finer than places among the nodes.
        """
        per_slope = max(self.steps) / self._farthest
        total = np.zeros(len(self.steps), dtype=np.int64)
        with np.errstate(all="ignore"):  # infinities are clipped
            start, slope = require_real("starts", starts, np.float32), require_real("slopes", slopes, np.float32)
            if start.ndim != 1 or start.shape != slope.shape:
                raise InvalidParameter(f"expected n starts and n slopes, got {start.shape} and {slope.shape}")
            for rows in machine.row_blocks(start.size, 1 << _BLOCK_BITS, 1 << _BLOCK_BITS):
                counts = self._counts(start[rows], slope[rows], per_slope)
                if machine.blas_is_exact():
                    total += (self._tables @ counts.astype(np.float64)).astype(np.int64)
                else:
                    total += self._tables.astype(np.int64) @ counts
        return total

    @cached_property
    def _farthest(self) -> float:
        """A power of two: how far the longest step leads at the width of slopes, up to a factor of sqrt(2)."""
        far = round(math.log2(self.slope_width) + math.log2(max(self.steps)))
        return math.ldexp(1.0, min(max(far, -_LARGEST_EXPONENT), _LARGEST_EXPONENT))

    @cached_property
    def _tables(self) -> Floats:
        """For every step a row of integers, one for each node; computed once for all blocks."""
        relative = (np.array(self.steps) / max(self.steps)).astype(np.float32)  # the same in most searches of a run
        changes = _changes(self.loss, self.centre, self.start_width, self._farthest, relative.tobytes())
        integers = changes * (2.0**_TABLE_BITS / np.array(self.bounds)).astype(np.float32)[:, np.newaxis]
        np.rint(integers, out=integers)
        np.clip(integers, -(2.0**_TABLE_BITS), 2.0**_TABLE_BITS, out=integers)
        return integers.astype(np.float64)

    def _counts(self, starts: Float32Array, slopes: Float32Array, per_slope: float) -> Integers:
        """Return how much the rows of one block count at each node; a row counts 2^16 in all."""
        along, across = starts * np.float32(1 / self.start_width), slopes * np.float32(per_slope)
        if self.centre != 0:
            along -= np.float32(self.centre / self.start_width)
        if math.isnan(np.dot(along, across)):
            missing = np.isnan(along) | np.isnan(across)
            along[missing] = across[missing] = 0.0
        start = _places(along, _START_OCTAVES, _START_CELL_BITS + _START_BITS)
        slope = _places(across, _SLOPE_OCTAVES, _SLOPE_CELL_BITS + _SLOPE_BITS)
        cells = start >> _START_BITS
        cells *= _SLOPE_NODES
        cells += slope >> _SLOPE_BITS
        cells += _NODES // 2  # the node in the middle is that of place 0
        start &= (1 << _START_BITS) - 1
        slope &= (1 << _SLOPE_BITS) - 1
        low = slope.astype(np.float64)
        low += 2.0**_PACKED_BITS
        high = start.astype(np.float64)
        high *= low
        cells = cells.astype(np.intp)
        return _at_nodes(*(np.bincount(cells, packed, minlength=_NODES).astype(np.int64) for packed in (low, high)))


def _places(values: Float32Array, octaves: int, bits: int) -> NDArray[np.int32]:
    """Overwrite ``values``, in widths, with their places among the nodes, in multiples of 2^-bits of an octave."""
    sign = values.view(np.int32) >> 31  # -1 or 0
    np.abs(values, out=values)
    values += np.float32(1)
    np.fmin(values, np.float32(1 << octaves), out=values)  # that is also the least of it and NaN
    places = values.view(np.int32)
    shift = _MANTISSA - bits
    places -= (_BIAS << _MANTISSA) - (1 << (shift - 1))
    places >>= shift
    places ^= sign  # turns the sign where it is -1
    places -= sign
    return places


def _at_nodes(low: Integers, high: Integers) -> Integers:
    """Return the counts at the nodes from sums in the cells: of 1 and t, and of s and s t, for the places (s, t)."""
    rest = (1 << _PACKED_BITS) - 1
    across, products = (low & rest) << _START_BITS, high & rest
    along = high >> _PACKED_BITS << _SLOPE_BITS
    counts: Integers = (low >> _PACKED_BITS << _WEIGHT_BITS) - along - across + products
    # Rows in the last cells are at their first node, so nothing is lost beyond them.
    counts[_SLOPE_NODES:] += (along - products)[:-_SLOPE_NODES]
    counts[1:] += (across - products)[:-1]
    counts[_SLOPE_NODES + 1 :] += products[: -_SLOPE_NODES - 1]
    return counts


@lru_cache(maxsize=16)
def _changes(loss: Loss, centre: float, width: float, farthest: float, relative_steps: bytes) -> Float32Array:
    """Return the table of changes: a row for each step, and in it the nodes."""
    start_nodes = _nodes(_START_OCTAVES, _START_CELL_BITS)
    slope_nodes = _nodes(_SLOPE_OCTAVES, _SLOPE_CELL_BITS)
    starts = centre + width * _samples(start_nodes, _START_SAMPLES)[:, np.newaxis, np.newaxis]
    moves = farthest * _samples(slope_nodes, _SLOPE_SAMPLES)
    steps = np.frombuffer(relative_steps, dtype=np.float32).astype(np.float64)
    table = np.empty((steps.size, _NODES), dtype=np.float32)
    with np.errstate(all="ignore"):
        here = _values(loss, starts)
        for first in range(0, steps.size, _STEPS_AT_ONCE):
            some = steps[first : first + _STEPS_AT_ONCE, np.newaxis]
            change = np.nan_to_num(_values(loss, starts - some * moves) - here, nan=0.0)  # starts, steps, slopes
            change = np.moveaxis(_closest(change, start_nodes), 2, 0)  # slopes, starts, steps
            change = _closest(change, slope_nodes, still=slope_nodes.size // 2)
            table[first : first + _STEPS_AT_ONCE] = np.nan_to_num(change.T.reshape(len(some), -1))
    table.flags.writeable = False
    return table


def _values(loss: Loss, positions: Floats) -> Floats:
    values = loss(positions.ravel())
    if values.shape != (positions.size,) or values.dtype != np.float64:
        raise InvalidParameter(f"a loss must return one float64 per position, got {values.dtype} {values.shape}")
    return values.reshape(positions.shape)


def _nodes(octaves: int, cell_bits: int) -> Floats:
    """Return the nodes in widths, from 1 - 2^octaves to 2^octaves - 1, with 2^cell_bits cells to an octave."""
    octave, rest = np.divmod(np.arange((octaves << cell_bits) + 1), 1 << cell_bits)
    right = np.ldexp(1 + rest / 2**cell_bits, octave) - 1
    return np.concatenate([-right[:0:-1], right])


def _samples(nodes: Floats, count: int) -> Floats:
    """Return ``count`` points in the cell after each node but the last."""
    within = (np.arange(count) + 0.5) / count
    points: Floats = nodes[:-1, np.newaxis] + np.diff(nodes)[:, np.newaxis] * within
    return points.ravel()


def _closest(samples: Floats, nodes: Floats, still: int | None = None) -> Floats:
    """Return the values at the nodes of the piecewise linear function that is closest to the samples (first axis).

    At the node ``still`` it is 0: a row that does not move does not change. The normal equations are tridiagonal;
    elimination is elementwise, so that the bits are the same everywhere.
    """
    cells = samples.reshape(nodes.size - 1, -1, *samples.shape[1:])
    count = cells.shape[1]
    right = (np.arange(count) + 0.5) / count
    gaps = np.diff(nodes)
    own, next_to = float(np.dot(right, right)) * gaps, float(np.dot(right, 1 - right)) * gaps
    diagonal = np.append(own, 0.0) + np.append(0.0, own)
    values = np.zeros((nodes.size, *samples.shape[1:]))
    for sample, share in enumerate(right):
        values[:-1] += (1 - share) * (gaps * cells[:, sample].T).T
        values[1:] += share * (gaps * cells[:, sample].T).T
    if still is not None:
        values[still] = next_to[still - 1] = next_to[still] = 0.0
    for k in range(1, nodes.size):
        factor = next_to[k - 1] / diagonal[k - 1]
        diagonal[k] -= factor * next_to[k - 1]
        values[k] -= factor * values[k - 1]
    values[-1] /= diagonal[-1]
    for k in range(nodes.size - 2, -1, -1):
        values[k] = (values[k] - next_to[k] * values[k + 1]) / diagonal[k]
    return values
