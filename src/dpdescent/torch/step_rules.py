r"""How noisy gradients become steps.

``auto``
    No learning rate. Rows' gradients are divided by their lengths, or by the typical length at the initial parameters
    if that is longer, so that rows fade once they are fitted. The first step measures this length and moves nothing,
    if there are at least 20 steps; otherwise it is that of public random rows. Steps become shorter in proportion to
    what is left of the run (Defazio et al. 2023), :math:`s_t = 1 - t/T`, and

    .. math:: m_t = 0.9\,m_{t-1} + 0.1\,\tilde g_t, \qquad w_{t+1} = w_t - \eta s_t m_t/(1 - 0.9^{t+1}), \qquad
              \eta = \min\Big(\frac{0.27}{\tau\sqrt{s\sum_t s_t^2}},\ 2\max(1, |w_0|)\Big),

    where s is the typical length, and tau the standard deviation of the noise in a coordinate of a gradient; with
    correlated noise it is less by as much as the noise of partial sums. All steps together then move each coordinate
    by noise of deviation :math:`0.27/\sqrt s`, whatever the budget: less noise buys longer steps. The noise that this
    makes in the outputs of a row grows with the length of its gradient, and so networks with short gradients, as
    those of embeddings are, bear more of it. No step is longer than twice the length of the initial parameters, which
    takes over as the noise goes to zero. On Fashion-MNIST, where s is 5, the deviation is 0.12, which was chosen
    there with a cosine instead of the straight line; the root of s was chosen on the development tasks of
    `benchmarks/network_tasks.py`, where s itself is worse, and the 2 with a CNN on MNIST, where 1 is too short for
    epsilon 3 and 4 too long for epsilon 100.

    With this eta steps begin. How long they should be differs between tasks, and what was released so far tells
    whether they are too short: the product of a gradient with :math:`u_t = w_t - w_0` is the slope of the loss along
    all that has been walked. While it is negative, going farther lowers the loss; once the noise that has come to be
    in the parameters costs more than the steps gain, it is positive. Each tensor k of parameters has such a slope,
    and over its standard deviation from noise, :math:`\tau |u_{tk}|`, a score :math:`z_{tk}`. They are joined as

    .. math:: z_t = \sum_k |u_{tk}|^{1/2} z_{tk} \Big/ \Big(\sum_k |u_{tk}|\Big)^{1/2},

    which is cut to [-3, 3], and :math:`\eta \leftarrow \eta\,e^{-z_t/(4\sqrt T)}`. With weights :math:`|u_{tk}|` this
    would be the score of all parameters together, in which the noise of a large table of vectors hides the slopes of
    all others; with equal weights the smallest tensors would decide.
    Scores that are noise alone change eta by a factor of 1.3 or so. With correlated noise the gradients of the last b
    steps are added up with the weights of the bands, because in this sum the noise is independent of u_t. This is
    post-processing and costs nothing.
``blsgd``
    The step size is searched for privately among five, from long to short (Chen & Lee 2020, section 5.7). If the
    search fails, the shortest step is taken, so that all steps cost the same. The longest moves the parameters by
    t/10 of their initial length in step t, and from the tenth on by all of it: a first step that noise accepts does
    not ruin a network. The parameters that remain are the mean over the last quarter of the steps, because steps do
    not become shorter by themselves.
``blsgd-paper``
    The same as the paper has it: searches with Gaussian noise from a first step of 1 (the paper leaves it open), each
    step 0.8 times the one before, and once more so where all fail; after every ten steps the first becomes 1.2 times
    the longest that was chosen, if that is shorter. The parameters that remain are the last ones.
``sgd``, ``adam``
    Clipped gradients and a given learning rate (Abadi et al. 2016; Kingma & Ba 2015).

References
----------
Abadi, M. et al. (2016). Deep learning with differential privacy. arXiv:1607.00133.
Chen, C. & Lee, J. (2020). Stochastic adaptive line search for differentially private optimization. arXiv:2008.07978.
Defazio, A., Cutkosky, A., Mehta, H. & Mishchenko, K. (2023). Optimal linear decay learning rate schedules and
further refinements. arXiv:2310.07831.
Kingma, D. & Ba, J. (2015). Adam: a method for stochastic optimization. arXiv:1412.6980.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .training import PrivateTraining

_ACCUMULATED = 0.27  # noise of a parameter, over the root of the typical length of gradients
_MOMENTUM = 0.9
_LONGEST_STEP = 2.0  # in lengths of the initial parameters
_ADAPTATION, _CERTAIN = 0.25, 3.0
_WORTH_MEASURING = 20  # steps, of which the first is not too much for a measurement

# The line search, as in section 5.7 of its paper.
MOST_STEPS = 5
_DECREASE, _BACKTRACK = 0.001, 0.6
_WARM_UP = 10
#: How many steps a search of `PaperLineSearch` tries.
PAPER_STEPS = 20
_PAPER_BACKTRACK, _PAPER_WINDOW, _PAPER_STRETCH = 0.8, 10, 1.2


@dataclass(frozen=True)
class StepRecord:
    """What is public of a step: its number, its step size and the length of the noisy gradient.

    A step that measures has the size 0 and the length that it has found.
    """

    step: int
    step_size: float
    gradient_norm: float


class Method(ABC):
    """A rule of steps: it asks a training for released numbers, and moves the parameters."""

    def __init__(self, training: PrivateTraining) -> None:
        self.training = training
        self.parameters = training.parameters

    def advance(self, step: int) -> StepRecord:
        """Draw, measure and move."""
        self.training.draw()
        gradient = self._gradient()
        with torch.no_grad():
            size = self._move(step, gradient)
        return StepRecord(step, size, _length(gradient))

    def _gradient(self) -> list[Tensor]:
        return self.training.gradient()

    @abstractmethod
    def _move(self, step: int, gradient: list[Tensor]) -> float:
        """Move the parameters, and return the step size."""

    def finish(self) -> None:  # noqa: B027
        """Do what is left after the last step; doing it twice changes nothing."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on, as tensors and plain data."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of an earlier run."""


class Auto(Method):
    """Normalised gradients, momentum, steps that shrink to zero, and a learning rate that follows from the noise."""

    def __init__(self, training: PrivateTraining) -> None:
        super().__init__(training)
        total = training.steps
        self._shape = [1 - t / total for t in range(total)]
        self._noise = (
            training.deviation * math.sqrt(sum(each**2 for each in self._shape)) * training.plan.relative_spread
        )
        self._longest = _LONGEST_STEP * max(1.0, _length(self.parameters))
        self._average = [torch.zeros_like(each) for each in self.parameters]
        self._start = _flat(self.parameters)
        self._recent: list[Tensor] = []
        self._measured = 0
        self._begin_with(training.public_length)

    def advance(self, step: int) -> StepRecord:
        """Measure the length of gradients in the first of many steps, and move in all others."""
        if step > 0 or self.training.steps < _WORTH_MEASURING:
            return super().advance(step)
        self.training.draw()
        self._begin_with(self.training.measure_length())
        return StepRecord(step, 0.0, self._shortest)

    def _begin_with(self, typical: float) -> None:
        """Choose the first step size for gradients that are typically so long."""
        self._shortest = typical
        self._rate = min(_ACCUMULATED / (self._noise * math.sqrt(typical)), self._longest)

    def _gradient(self) -> list[Tensor]:
        return self.training.gradient(self._shortest)

    def _move(self, step: int, gradient: list[Tensor]) -> float:
        self._adapt(gradient)
        self._measured += 1
        size = self._rate * self._shape[step] / (1 - _MOMENTUM**self._measured)
        for each, average, measured in zip(self.parameters, self._average, gradient, strict=True):
            average.mul_(_MOMENTUM).add_(measured, alpha=1 - _MOMENTUM)
            each.sub_(average, alpha=size)
        return size

    def _adapt(self, gradient: list[Tensor]) -> None:
        """Lengthen steps while the loss falls along what they have come to, and shorten them while it rises."""
        moved = _flat(self.parameters) - self._start
        self._recent = [_flat(gradient), *self._recent][: self.training.plan.bands.count]
        output = torch.zeros_like(moved)
        for weight, each in zip(self.training.plan.bands.weights.tolist(), self._recent, strict=False):
            output.add_(each, alpha=weight)
        parts = [each.numel() for each in self.parameters]
        pairs = zip(output.split(parts), moved.split(parts), strict=True)
        slopes = [(float(one @ other), float(other.norm())) for one, other in pairs]
        walked = sum(length for _, length in slopes)
        if walked > 0:
            joined = sum(slope / math.sqrt(length) for slope, length in slopes if length > 0)
            score = min(max(joined / (self.training.deviation * math.sqrt(walked)), -_CERTAIN), _CERTAIN)
            stretched = self._rate * math.exp(-_ADAPTATION / math.sqrt(self.training.steps) * score)
            self._rate = min(stretched, self._longest)

    def state(self) -> dict[str, Any]:
        return {
            "average": self._average,
            "start": self._start,
            "measured": self._measured,
            "rate": self._rate,
            "shortest": self._shortest,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for mine, saved in zip(self._average, state["average"], strict=True):
            mine.copy_(saved)
        self._start.copy_(state["start"])
        self._measured, self._rate = int(state["measured"]), float(state["rate"])
        self._shortest = float(state["shortest"])


class Optimiser(Method):
    """An optimiser of torch with a given learning rate."""

    def __init__(self, training: PrivateTraining, name: str, learning_rate: float) -> None:
        super().__init__(training)
        family = torch.optim.SGD if name == "sgd" else torch.optim.Adam
        self._optimiser = family(self.parameters, lr=learning_rate)
        self._rate = learning_rate

    def _move(self, step: int, gradient: list[Tensor]) -> float:
        self._optimiser.step()
        return self._rate

    def state(self) -> dict[str, Any]:
        return dict(self._optimiser.state_dict())

    def restore(self, state: dict[str, Any]) -> None:
        self._optimiser.load_state_dict(state)


class LineSearch(Method):
    """A private search for the longest of falling step sizes that lowers the loss enough."""

    def __init__(self, training: PrivateTraining) -> None:
        super().__init__(training)
        self._farthest = max(1.0, _length(self.parameters))
        self._mean = [torch.zeros_like(each) for each in self.parameters]
        self._averaged = 0

    def _move(self, step: int, gradient: list[Tensor]) -> float:
        taken = self._search(step, gradient)
        for each, along in zip(self.parameters, gradient, strict=True):
            each.sub_(along, alpha=taken)
        if step >= self.training.steps * 3 // 4:
            self._averaged += 1
            for mean, each in zip(self._mean, self.parameters, strict=True):
                mean.lerp_(each, 1 / self._averaged)
        return taken

    def finish(self) -> None:
        """Move the parameters to the mean of those that count."""
        if self._averaged:
            with torch.no_grad():
                for mean, each in zip(self._mean, self.parameters, strict=True):
                    each.copy_(mean)

    def _search(self, step: int, gradient: list[Tensor]) -> float:
        length = _length(gradient)
        farthest = self._farthest * min(1.0, (step + 1) / _WARM_UP)
        sizes = [farthest / max(length, 1e-30) * _BACKTRACK**k for k in range(MOST_STEPS)]
        found = self.training.first_step(gradient, sizes, [_DECREASE * size * length**2 for size in sizes])
        return sizes[-1 if found is None else found]

    def state(self) -> dict[str, Any]:
        return {"farthest": self._farthest, "mean": self._mean, "averaged": self._averaged}

    def restore(self, state: dict[str, Any]) -> None:
        self._farthest = float(state["farthest"])
        for mine, saved in zip(self._mean, state["mean"], strict=True):
            mine.copy_(saved)
        self._averaged = int(state["averaged"])


class PaperLineSearch(Method):
    """The search of Chen & Lee (2020), section 5.7: a step shorter than all that it tried where it fails."""

    def __init__(self, training: PrivateTraining) -> None:
        super().__init__(training)
        self._first = 1.0
        self._chosen: list[float] = []

    def _move(self, step: int, gradient: list[Tensor]) -> float:
        squared = _length(gradient) ** 2
        *sizes, shorter = [self._first * _PAPER_BACKTRACK**k for k in range(PAPER_STEPS + 1)]
        found = self.training.first_step(gradient, sizes, [_DECREASE * size * squared for size in sizes])
        taken = shorter if found is None else sizes[found]
        for each, along in zip(self.parameters, gradient, strict=True):
            each.sub_(along, alpha=taken)
        self._chosen.append(taken)
        if len(self._chosen) == _PAPER_WINDOW:
            self._first, self._chosen = min(_PAPER_STRETCH * max(self._chosen), self._first), []
        return taken

    def state(self) -> dict[str, Any]:
        return {"first": self._first, "chosen": self._chosen}

    def restore(self, state: dict[str, Any]) -> None:
        self._first, self._chosen = float(state["first"]), list(map(float, state["chosen"]))


def _flat(vectors: Sequence[Tensor]) -> Tensor:
    """Return several tensors as one vector."""
    return torch.cat([each.detach().reshape(-1) for each in vectors]).double()


def _length(vectors: Sequence[Tensor]) -> float:
    """Return the Euclidean length of several tensors together."""
    return math.sqrt(sum(float(each.detach().double().square().sum()) for each in vectors))
