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

**Labels** say what the label of a row may be, and make every number such a label. **Needs** are what a method may
take from a loss; `require_needs` refuses a loss that lacks one, before anything is charged.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import Floats
from ..errors import InvalidParameter, UnsupportedLoss, require_finite, require_positive_integer


class LabelKind(StrEnum):
    """Two classes as -1 and 1, K classes as 0 to K - 1, or numbers in an interval."""

    SIGNS = "signs"
    CLASSES = "classes"
    NUMBERS = "numbers"


@dataclass(frozen=True)
class Labels:
    """The labels for which the constants of a loss hold: their kind and their public range.

    Use `Labels.signs`, `Labels.classes` or `Labels.numbers`.

    Examples
    --------
    >>> import numpy as np
    >>> Labels.numbers(0, 1).understood(np.array([0.25, 7.0, -np.inf, np.nan]))
    array([0.25, 1.  , 0.  , 0.  ])
    """

    kind: LabelKind
    #: The least and the largest label.
    low: float
    high: float

    def __post_init__(self) -> None:
        if not require_finite("the least label", self.low) < require_finite("the largest label", self.high):
            raise InvalidParameter(f"labels need a least one below the largest, got {self.low} and {self.high}")

    @classmethod
    def signs(cls) -> Labels:
        """Return the labels -1 and 1 of two classes."""
        return cls(LabelKind.SIGNS, -1.0, 1.0)

    @classmethod
    def classes(cls, count: int) -> Labels:
        """Return the labels 0, 1, ..., ``count`` - 1."""
        return cls(LabelKind.CLASSES, 0.0, require_positive_integer("classes", count) - 1.0)

    @classmethod
    def numbers(cls, low: float, high: float) -> Labels:
        """Return all numbers from ``low`` to ``high``."""
        return cls(LabelKind.NUMBERS, float(low), float(high))

    @property
    def number_of_classes(self) -> int:
        """How many classes the labels tell apart: 2, K, or 0 where they are numbers."""
        if self.kind is LabelKind.NUMBERS:
            return 0
        return 2 if self.kind is LabelKind.SIGNS else int(self.high) + 1

    @property
    def every(self) -> Floats | None:
        """Every label there is, one of each; None where they are numbers."""
        if self.kind is LabelKind.NUMBERS:
            return None
        return np.array([-1.0, 1.0]) if self.kind is LabelKind.SIGNS else np.arange(self.high + 1)

    def understood(self, labels: Floats) -> Floats:
        """Return a label of this kind and range for each number; valid labels stay the same.

        Numbers above 0 become 1 and all others -1 for two classes. For classes and numbers, what is outside the range
        becomes the nearest end, and NaN counts as 0; fractions of a class are dropped.

        **Privacy** The function is elementwise and defined for every number, so that no row can raise an error, and
        the bounds that a loss states for its labels hold whatever a row contains.
        """
        if self.kind is LabelKind.SIGNS:
            return np.where(labels > 0, 1.0, -1.0)
        inside: Floats = np.clip(np.nan_to_num(labels), self.low, self.high)
        return np.trunc(inside) if self.kind is LabelKind.CLASSES else inside


class Need(StrEnum):
    """A property of a loss on which the guarantee or the steps of some method rest.

    Every member is derived from the constants that a loss declares (`Loss.offers`).
    """

    CONVEX = "convex"
    """Convex in its margins."""
    SMOOTH = "smooth"
    """A bounded second derivative, so no kinks."""
    SMOOTH_CURVATURE = "smooth-curvature"
    """A bounded third derivative."""
    BOUNDED_SLOPE = "bounded-slope"
    """A bounded first derivative."""
    BOUNDED_VERSION = "bounded-version"
    """A bounded first derivative, or another loss that stands in for this one and has it (`Loss.bounded`)."""
    ONE_MARGIN = "one-margin"
    """One margin per row, not one for every class."""
    CERTIFICATE = "certificate"
    """Minimisers can be certified: the loss is convex and smooth, or it is the hinge, whose dual is known."""
    CORNERS = "corners"
    """The residuals of a row are known to lie in the convex hull of 0 and `Loss.corners` points."""
    LARGEST_LOSS = "largest-loss"
    """The loss of a row at given weights has a public bound (`Loss.largest`)."""
    CONSTANT = "constant"
    """The best constant prediction follows from label counts or from the mean label (`Loss.best_constant`)."""


# What a loss without the need is said to be, and what to type instead.
_LACKS = {
    Need.CONVEX: ("a convex loss, and {loss} is none", "use the logistic loss, or method 'sgd'"),
    Need.SMOOTH: ("a smooth loss, and {loss} has a kink", "use loss='huberised-hinge', or method 'auto'"),
    Need.SMOOTH_CURVATURE: (
        "a loss with a bounded third derivative, and {loss} has none",
        "use the logistic loss, or method 'auto'",
    ),
    Need.BOUNDED_SLOPE: ("a loss with a bounded slope, and that of {loss} has no bound", "use method 'auto'"),
    Need.BOUNDED_VERSION: (
        "a loss with a bounded slope, and that of {loss} has no bound",
        "use a loss that is cut where it is steep, as Huber is, or method 'auto'",
    ),
    Need.ONE_MARGIN: (
        "a loss of one margin, for two classes or a number, and {loss} has {outputs}",
        "use two classes, or method 'auto'",
    ),
    Need.CERTIFICATE: (
        "a loss whose minimisers can be certified, and {loss} is neither smooth nor the hinge",
        "use loss='huberised-hinge', or method 'auto'",
    ),
    Need.CORNERS: (
        "to know in which hull the residuals of a row lie, and {loss} of several margins does not declare corners",
        "declare them, or use method 'outpert'",
    ),
    Need.LARGEST_LOSS: (
        "a public bound on the loss of a row, and {loss} declares none for its labels",
        "define its method largest, or use method 'auto'",
    ),
    Need.CONSTANT: (
        "a loss that says which constant fits best, and {loss} does not",
        "define its method best_constant, or use method 'auto'",
    ),
}


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

    def longest_residuals(self, margins: Floats) -> Floats:
        """Return the length of the longest residual that a row with such margins has with any class, shape (n,)."""
        found: Floats = np.zeros(len(margins))
        for label in () if self.labels.every is None else self.labels.every:
            residuals = self.short_residuals(margins, np.full(len(margins), label)).reshape(len(margins), -1)
            squares = np.zeros(len(margins))
            for own in residuals.T:  # one after the other: the bits of a row do not depend on the others
                squares += own * own
            found = np.maximum(found, np.sqrt(squares))
        return found

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
        to another process is another object for each query.
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


def require_needs(method: str, needs: Iterable[Need], loss: Loss) -> None:
    """Raise `UnsupportedLoss` if a method called ``method`` needs something that the loss does not offer."""
    missing = frozenset(needs) - loss.offers
    for need in Need:  # in the order of the enumeration, so that the message is always the same
        if need in missing:
            lack, remedy = _LACKS[need]
            lack = lack.format(loss=type(loss).__name__, outputs=loss.outputs)
            raise UnsupportedLoss(f"method {method!r} needs {lack}: {remedy}")
