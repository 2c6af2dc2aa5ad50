r"""Changes of a loss at many step sizes from one look at each row: what a private backtracking search compares.

Row i stands at ``p`` and moves with slope ``v`` (see `dpdescent.exact.scores`), so that a step ``a`` changes its
loss by ``l(p - a v) - l(p)``. Instead of computing that for every row and every step, the rows are counted once in
a grid of public nodes ``(p_j, v_k)``, and changes are computed at the nodes. A row counts at the four nodes around
it, with the weights ``1 - s, s`` times ``1 - t, t``, where (s, t) is its place within its cell. So what a row adds
is a bilinear function of its place in a public table, and the cost does not grow with the number of steps.

Nodes are closest around the bend of the loss and around slope 0, and double their distance with the distance from
there: they are at ``2^e (1 + r/8) - 1`` for r = 0..7, as the leading bits of a floating-point number are. The place
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
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidParameter, require_finite, require_positive
from . import blas
from .grids import ceil_log2
from .scores import Loss
from .sums import LARGEST_BLOCK, require_real

__all__ = ["StepwiseScores"]

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_CELL_BITS = 3  # 8 cells to an octave, on either side
_START_OCTAVES, _SLOPE_OCTAVES = 4, 5
_START_NODES, _SLOPE_NODES = (2 * (octaves << _CELL_BITS) + 1 for octaves in (_START_OCTAVES, _SLOPE_OCTAVES))
_NODES = _START_NODES * _SLOPE_NODES
_START_BITS, _SLOPE_BITS = 5, 11  # of the place within a cell
_START_SAMPLES, _SLOPE_SAMPLES = 4, 2  # of the loss in a cell
_STEPS_AT_ONCE = 16  # of a table, to limit memory
_WEIGHT_BITS = _START_BITS + _SLOPE_BITS
_TABLE_BITS = 18  # of a change; with the weight 34, which leave room for 2^27 rows in int64
_MANTISSA, _BIAS = 23, 127  # of float32
_LARGEST_EXPONENT = 200  # of a move: its square is finite
# Two sums are taken at once, the lower one below 2^34 and 2^29 in a block of 2^17 rows.
_COUNT_SHIFT, _START_SHIFT = 34, 29
_LEAST_BOUND, _LARGEST_BOUND = 2.0**-100, 2.0**100  # 1/unit is then a normal float32


@dataclass(frozen=True)
class StepwiseScores:
    """Total changes of the loss at m step sizes, each row's change at step j within [-D_j, D_j].

    Parameters
    ----------
    steps : tuple of float
        Step sizes above 0.
    bounds : tuple of float
        D_j, public, between 2^-100 and 2^100; lowered to a multiple of the unit, by less than one part in 2^17.
    loss : callable
        ``loss(positions)`` returns the loss at each position (float64, same shape).
    start_width, slope_width : float
        Public: nodes are an eighth of this apart up to this far from the centre. They reach 15 and 31 times as
        far. The width of slopes is met up to a factor of sqrt(2).
    centre : float
        Where the loss bends: a node.

    Attributes
    ----------
    units : ndarray
        The unit of each total.

    Notes
    -----
    **Privacy.** Unit: one row. The nodes, and the table of step j, integers in [-D_j / u_j, D_j / u_j] for the unit
    u_j = 2^(e(D_j) - 18), are functions of public numbers. A row has four weights, integers that are not negative
    and add up to 2^16; they depend on its own start and slope alone, by elementwise operations, and are such for
    every start and slope (infinite, or NaN: it stands still at the centre). So it adds to total j, in units of
    2^-16 u_j, an integer of size at most 2^16 D_j / u_j: the total has the sensitivity ``bounds[j]`` if a row is
    removed, and twice that if it is replaced, however coarse the nodes are. They matter for utility only.

    Totals are exact: counts of a block of 2^17 rows add up to 2^33, and their products with a table to at most
    2^51, which float64 holds in any order (Lemma 1, `dpdescent.exact.blas`). Blocks are added in int64, without
    overflow for up to 2^28 rows: refuse more.

    Examples
    --------
    >>> import numpy as np
    >>> scores = StepwiseScores((1.0, 0.5), (2.0, 1.0), lambda p: p * p / 2)
    >>> totals = scores.block(np.array([1.0, 2.0]), np.array([1.0, 1.5]))  # to 0 and 0.5, or to 0.5 and 1.25
    >>> np.round(totals * scores.units, 1)
    array([-2.4, -1.4])
    """

    steps: tuple[float, ...]
    bounds: tuple[float, ...]
    loss: Loss
    start_width: float = 2.0
    slope_width: float = 1.0
    centre: float = 0.0
    units: Float64Array = field(init=False, compare=False)

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
        exponents = [ceil_log2(bound) - _TABLE_BITS for bound in self.bounds]
        whole = [math.ldexp(math.floor(math.ldexp(d, -e)), e) for d, e in zip(self.bounds, exponents, strict=True)]
        object.__setattr__(self, "bounds", tuple(whole))
        object.__setattr__(self, "units", np.ldexp(1.0, np.array(exponents) - _WEIGHT_BITS))

    @property
    def limits(self) -> Float64Array:
        """The bounds in multiples of their units."""
        return np.array(self.bounds) / self.units

    def block(self, starts: ArrayLike, slopes: ArrayLike) -> Int64Array:
        """Return the m totals in multiples of `units`; totals of several sets of rows add up."""
        start, slope = require_real("starts", starts), require_real("slopes", slopes)
        if start.ndim != 1 or start.shape != slope.shape:
            raise InvalidParameter(f"expected n starts and n slopes, got {start.shape} and {slope.shape}")
        longest = max(self.steps)
        far = round(math.log2(self.slope_width) + math.log2(longest))
        farthest = math.ldexp(1.0, min(max(far, -_LARGEST_EXPONENT), _LARGEST_EXPONENT))
        total = np.zeros(len(self.steps), dtype=np.int64)
        with np.errstate(all="ignore"):  # infinities are cut
            tables = self._integers(longest, farthest)
            for rows in blas.row_blocks(start.size, LARGEST_BLOCK, LARGEST_BLOCK):
                counts = self._counts(start[rows], slope[rows], longest / farthest)
                if blas.blas_is_exact():
                    total += (tables @ counts.astype(np.float64)).astype(np.int64)
                else:
                    total += tables.astype(np.int64) @ counts
        return total

    def _integers(self, longest: float, farthest: float) -> Float64Array:
        """Return the tables: for every step a row of integers, one for each node."""
        relative = (np.array(self.steps) / longest).astype(np.float32)  # the same in most searches of a run
        changes = _changes(self.loss, self.centre, self.start_width, farthest, relative.tobytes())
        units = (self.units * 2.0**_WEIGHT_BITS)[:, np.newaxis]
        limits = (self.limits * 2.0**-_WEIGHT_BITS).astype(np.float32)[:, np.newaxis]  # integers below 2^24
        integers = changes * (1 / units).astype(np.float32)
        np.rint(integers, out=integers)
        np.clip(integers, -limits, limits, out=integers)
        return integers.astype(np.float64)

    def _counts(self, starts: Float64Array, slopes: Float64Array, per_slope: float) -> Int64Array:
        """Return how much the rows of one block count at each node; a row counts 2^16 in all."""
        if math.isnan(np.dot(starts, slopes)):
            missing = np.isnan(starts) | np.isnan(slopes)
            starts, slopes = np.where(missing, self.centre, starts), np.where(missing, 0.0, slopes)
        width = self.start_width
        along = _place(starts, 1 / width, self.centre / width, _START_OCTAVES, _START_BITS)
        across = _place(slopes, per_slope, 0.0, _SLOPE_OCTAVES, _SLOPE_BITS)
        cells = along >> _START_BITS
        cells *= _SLOPE_NODES
        cells += across >> _SLOPE_BITS
        along &= (1 << _START_BITS) - 1
        across &= (1 << _SLOPE_BITS) - 1
        both = (along * across).astype(np.float64)
        both += 2.0**_COUNT_SHIFT
        places = along.astype(np.float64)
        places *= 2.0**_START_SHIFT
        places += across.astype(np.float64)
        sums = (np.bincount(cells, weights, minlength=_NODES).astype(np.int64) for weights in (both, places))
        return _at_nodes(*(total.reshape(_START_NODES, _SLOPE_NODES) for total in sums)).ravel()


def _place(values: Float64Array, scale: float, centre: float, octaves: int, bits: int) -> NDArray[np.int32]:
    """Return places among the nodes, in multiples of 2^-bits, from 0 to that of the last node."""
    scaled = np.multiply(values, scale).astype(np.float32)
    if centre != 0:
        scaled -= np.float32(centre)
    sign = scaled.view(np.int32) >> 31  # -1 or 0
    np.abs(scaled, out=scaled)
    scaled += np.float32(1)
    places = scaled.view(np.int32)  # infinity and NaN are the largest
    shift = _MANTISSA - _CELL_BITS - bits
    places -= (_BIAS << _MANTISSA) - (1 << (shift - 1))
    places >>= shift
    np.minimum(places, octaves << (_CELL_BITS + bits), out=places)
    places ^= sign  # turns the sign where it is -1
    places -= sign
    places += octaves << (_CELL_BITS + bits)
    return places


def _at_nodes(both: Int64Array, places: Int64Array) -> Int64Array:
    """Return the counts at the nodes from the sums of places in the cells."""
    rows, products = both >> _COUNT_SHIFT, both & ((1 << _COUNT_SHIFT) - 1)
    along, across = places >> _START_SHIFT, places & ((1 << _START_SHIFT) - 1)
    along, across = along << _SLOPE_BITS, across << _START_BITS
    counts: Int64Array = (rows << _WEIGHT_BITS) - along - across + products
    # Rows in the last cells are at their first node, so nothing is lost beyond them.
    counts[1:] += (along - products)[:-1]
    counts[:, 1:] += (across - products)[:, :-1]
    counts[1:, 1:] += products[:-1, :-1]
    return counts


@lru_cache(maxsize=16)
def _changes(loss: Loss, centre: float, width: float, farthest: float, relative_steps: bytes) -> Float32Array:
    """Return the table of changes: a row for each step, and in it the nodes."""
    start_nodes, slope_nodes = _nodes(_START_OCTAVES), _nodes(_SLOPE_OCTAVES)
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


def _values(loss: Loss, positions: Float64Array) -> Float64Array:
    values = loss(positions.ravel())
    if values.shape != (positions.size,) or values.dtype != np.float64:
        raise InvalidParameter(f"a loss must return one float64 per position, got {values.dtype} {values.shape}")
    return values.reshape(positions.shape)


def _nodes(octaves: int) -> Float64Array:
    """Return the nodes in widths, from 1 - 2^octaves to 2^octaves - 1."""
    octave, rest = np.divmod(np.arange((octaves << _CELL_BITS) + 1), 1 << _CELL_BITS)
    right = np.ldexp(1 + rest / 2**_CELL_BITS, octave) - 1
    return np.concatenate([-right[:0:-1], right])


def _samples(nodes: Float64Array, count: int) -> Float64Array:
    """Return ``count`` points in the cell after each node but the last."""
    within = (np.arange(count) + 0.5) / count
    points: Float64Array = nodes[:-1, np.newaxis] + np.diff(nodes)[:, np.newaxis] * within
    return points.ravel()


def _closest(samples: Float64Array, nodes: Float64Array, still: int | None = None) -> Float64Array:
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
