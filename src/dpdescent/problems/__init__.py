"""What is minimised: the loss of one row, its derivatives, and the bounds that follow from public knowledge."""

from .adversary import Adversary
from .frame import Frame
from .linear import LinearProblem
from .losses import Hinge, Huber, HuberisedHinge, Logistic, Loss, Multinomial, Sigmoid, Squared
from .penalties import L2, NonConvex, Penalty
from .whitening import Whitening

__all__ = [
    "L2",
    "Adversary",
    "Frame",
    "Hinge",
    "Huber",
    "HuberisedHinge",
    "LinearProblem",
    "Logistic",
    "Loss",
    "Multinomial",
    "NonConvex",
    "Penalty",
    "Sigmoid",
    "Squared",
    "Whitening",
]
