"""What a method may need from a loss, and the check that it gets it before anything is charged."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from ..errors import UnsupportedLoss

if TYPE_CHECKING:
    from .contract import Loss

__all__ = ["Need", "require_needs"]


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


def require_needs(method: str, needs: Iterable[Need], loss: Loss) -> None:
    """Raise `UnsupportedLoss` if a method called ``method`` needs something that the loss does not offer."""
    missing = frozenset(needs) - loss.offers
    for need in Need:  # in the order of the enumeration, so that the message is always the same
        if need in missing:
            lack, remedy = _LACKS[need]
            lack = lack.format(loss=type(loss).__name__, outputs=loss.outputs)
            raise UnsupportedLoss(f"method {method!r} needs {lack}: {remedy}")
