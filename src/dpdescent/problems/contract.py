r"""The contract of a loss: what it must compute, the facts it declares, and what it may offer beyond that.

A row with features x and label y has the margin t = x . w and the loss l(t, y). Everything a solver can ask about
the row follows from l, its derivative (the *residual*) and its second derivative (the *curvature*):

- gradient: l'(t) x, so its norm is |l'(t)| |x|;
- Hessian: l''(t) x x', positive semidefinite for convex losses.

Values are elementwise functions of exact margins, built from `dpdescent.exact.elementary`, so that the value of a
row depends on that row alone.

**What must be written.** The methods ``values``, ``residuals`` and ``curvatures``, and the facts ``labels``,
``lipschitz``, ``smoothness``, ``curvature_lipschitz`` and ``convex``. A class without one of them cannot be
instantiated. A guarantee may rest on each of these facts, and nothing can check them: they are promised by whoever
writes the loss.

**What may be written.** A loss that is a function of one position has a profile, from which the scores of many steps
are looked up in a table instead of being computed for every row. A loss of y t inherits it from `MarginLoss`, and one
of t - y from `DifferenceLoss`. Other abilities are ``typical_curvatures``, ``bounded``, ``best_constant`` and
``largest``. A loss has only the abilities that it defines. No default guesses one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import InvalidParameter
from .labels import Labels
from .needs import Need

__all__ = ["DifferenceLoss", "Loss", "MarginLoss"]

Floats = NDArray[np.float64]


class Loss(ABC):
    """A loss of one margin, or of K margins, and its derivatives in them."""

    #: Number of margins a row has.
    outputs: int = 1
    #: Whether the labels are signs and l is one falling function of y t: the same for both labels.
    falling: bool = False
    #: Whether l is max(0, 1 - y t), whose duality gap certifies a minimiser in spite of the kink.
    hinge: bool = False
    #: For margins longer than this, l'' times the length of the margin is below 2^-60.
    flat_beyond: float = math.inf
    #: Where the profile bends most.
    centre: float = 0.0

    # Facts that every loss declares --------------------------------------------------------------------------

    @property
    @abstractmethod
    def labels(self) -> Labels:
        """The labels for which all constants hold."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """The largest ``|l'|``: the loss of a row of norm at most R is (lipschitz * R)-Lipschitz in the weights."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """The largest ``|l''|``; infinite for losses with a kink."""

    @property
    @abstractmethod
    def curvature_lipschitz(self) -> float:
        """The largest ``|l'''|``; infinite for losses whose curvature jumps."""

    @property
    @abstractmethod
    def convex(self) -> bool:
        """Whether l is convex in the margins, so that Hessians are positive semidefinite."""

    # What every loss computes --------------------------------------------------------------------------------

    @abstractmethod
    def values(self, margins: Floats, labels: Floats) -> Floats:
        """Return l(t, y), shape (n,); never negative."""

    @abstractmethod
    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        """Return dl/dt, the shape of ``margins``."""

    @abstractmethod
    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        """Return the second derivative in the margin, shape (n,)."""

    def short_residuals(self, margins: Floats, labels: Floats) -> Floats:
        """Return `residuals` with at least 26 correct bits, of which a clipped sum keeps about 20."""
        return self.residuals(margins, labels)

    def curvature_products(self, margins: Floats, labels: Floats, along: Floats) -> Floats:
        """Return the second derivative applied to a change ``along`` of the margins, in their shape."""
        return self.curvatures(margins, labels) * along

    # What follows from the facts -----------------------------------------------------------------------------

    def understood(self, labels: Floats) -> Floats:
        """Return labels for which the constants hold, for any numbers; see `Labels.understood`."""
        return self.labels.understood(labels)

    @property
    def class_weights(self) -> Floats:
        """The public weight of every class, 1 for a loss without weights; empty where labels are numbers."""
        return np.ones(self.labels.number_of_classes)

    @property
    def corners(self) -> int:
        """A row's residuals lie in the convex hull of 0 and so many points, each at most ``lipschitz`` long.

        There is 1 if l only falls or only rises, and 2 for any other loss of one margin; a loss of several margins
        must say.
        """
        if self.outputs > 1:
            raise InvalidParameter(f"{type(self).__name__} has several margins and does not declare its corners")
        return 1 if self.falling else 2

    @property
    def curvature_rank(self) -> int:
        """Largest rank of the second derivative in the margins."""
        return self.outputs

    @property
    def curvature_trace(self) -> float:
        """Largest trace of the second derivative in the margins."""
        return self.outputs * self.smoothness

    def largest(self, reach: float) -> float:
        """Return a bound on the loss of a row whose margins are at most ``reach`` long, over all labels.

        By default it is the largest loss at 0 plus what the slope can add. For numeric labels it is infinite, because
        the loss does not declare for which of them it is largest.
        """
        every = self.labels.every
        if every is None:
            return math.inf
        margins = np.zeros(every.size if self.outputs == 1 else (every.size, self.outputs))
        start = float(np.max(self.values(margins, every)))
        return start + self.lipschitz * reach if reach > 0 else start

    def least(self, reach: float) -> float:
        """Return a lower bound on the loss of a row whose margins are at most ``reach`` long, over all labels."""
        return 0.0

    @property
    def offers(self) -> frozenset[Need]:
        """Everything that a method may ask of this loss."""
        smooth = math.isfinite(self.smoothness)
        facts = {
            Need.CONVEX: self.convex,
            Need.SMOOTH: smooth,
            Need.SMOOTH_CURVATURE: math.isfinite(self.curvature_lipschitz),
            Need.BOUNDED_SLOPE: math.isfinite(self.lipschitz),
            Need.BOUNDED_VERSION: self.bounded() is not None,
            Need.ONE_MARGIN: self.outputs == 1,
            Need.CERTIFICATE: self.convex and (smooth or self.hinge),
            Need.CORNERS: self.outputs == 1 or self._defines("corners"),
            Need.LARGEST_LOSS: math.isfinite(self.largest(0.0)),
            Need.CONSTANT: self._defines("best_constant"),
        }
        return frozenset(need for need, offered in facts.items() if offered)

    def _defines(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(Loss, name)

    # Abilities that a loss may have --------------------------------------------------------------------------

    def bounded(self) -> Loss | None:
        """Return this loss if its slope is bounded, or a substitute with a bounded slope; None if there is none.

        A substitute is as convex and as smooth as the loss itself.
        """
        return self if math.isfinite(self.lipschitz) else None

    def best_constant(self, noisy: Floats) -> Any:
        """Return the margin, or the K margins, that fit best if they are the same for every row.

        ``noisy`` holds the number of rows in each class, or the mean label alone where labels are numbers; both may
        lie outside of what is possible, since noise was added to them.
        """
        raise InvalidParameter(f"{type(self).__name__} does not say which constant fits best")

    @property
    def has_typical_curvatures(self) -> bool:
        """Whether the residual of a row and its label determine its curvature."""
        return self._defines("typical_curvatures")

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        """Return the second derivative where the first is ``residuals``, shape (n,); at most `smoothness`.

        For K margins it is the mean of the K second derivatives, each weighted by its own value.
        """
        raise InvalidParameter(f"{type(self).__name__} has no curvature that its residual determines")

    @property
    def has_profile(self) -> bool:
        """Whether the loss is a function of one position, which moves along a line with the weights."""
        return self._defines("profile") and self._defines("line")

    def profile(self, positions: Floats) -> Floats:
        """Return the loss as a function of one position, for instance y t or t - y."""
        raise InvalidParameter(f"{type(self).__name__} is no function of one position: use its values")

    @property
    def tabulated(self) -> Callable[[Floats], Floats]:
        """The `profile` as a function that equals that of a loss of the same class and attributes.

        A table of it is then made once per process. Methods of two objects are never equal, and a loss that was sent
        to another process is another object for each question.
        """
        try:
            attributes = (type(self), *sorted(vars(self).items()))
            hash(attributes)
        except TypeError:  # attributes that cannot be compared in general, for instance arrays
            return self.profile
        return _Profile(self, attributes)

    def line(self, margins: Floats, along: Floats, labels: Floats, kind: DTypeLike = np.float64) -> tuple[Any, Any]:
        """Return where every row stands and how fast it moves, as positions of `profile`, rounded to ``kind``."""
        raise InvalidParameter(f"{type(self).__name__} is no function of one position: use its values")

    def table(self, ceiling: float | None) -> tuple[float, float] | None:
        """Return the interval on which the profile is tabulated for scores up to ``ceiling``; None for no table."""
        return None


@dataclass(frozen=True)
class _Profile:
    loss: Loss = field(compare=False)
    attributes: tuple[Any, ...]

    def __call__(self, positions: Floats) -> Floats:
        return self.loss.profile(positions)


class MarginLoss(Loss):
    """A loss of two classes that depends on y t alone, y being -1 or 1."""

    labels = Labels.signs()

    def profile(self, positions: Floats) -> Floats:
        return self.values(positions, np.ones_like(positions))

    def line(self, margins: Floats, along: Floats, labels: Floats, kind: DTypeLike = np.float64) -> tuple[Any, Any]:
        return (labels * margins).astype(kind, copy=False), (labels * along).astype(kind, copy=False)

    def largest(self, reach: float) -> float:
        # A loss that is convex or only falls is largest at an end.
        if self.convex or self.falling:
            return float(self.profile(np.array([-reach, reach])).max())
        return float(self.profile(np.zeros(1))[0]) + self.lipschitz * reach

    def least(self, reach: float) -> float:
        if not self.falling:
            return 0.0
        sloped = max(0.0, self.largest(0.0) - self.lipschitz * reach)
        return max(sloped, float(self.profile(np.array([reach]))[0]))


class DifferenceLoss(Loss):
    """A loss of a number that depends on t - y alone."""

    def profile(self, positions: Floats) -> Floats:
        return self.values(positions, np.zeros_like(positions))

    def line(self, margins: Floats, along: Floats, labels: Floats, kind: DTypeLike = np.float64) -> tuple[Any, Any]:
        return (margins - labels).astype(kind, copy=False), along.astype(kind, copy=False)

    def largest(self, reach: float) -> float:
        farthest = np.array([-reach - self.labels.high, reach - self.labels.low])
        if self.convex:
            return float(self.profile(farthest).max())
        return float(self.profile(np.zeros(1))[0]) + self.lipschitz * float(np.abs(farthest).max())
