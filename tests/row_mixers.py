"""A zoo of modules and losses that mix the rows of a batch, and what one row moves of a clipped sum in each of them.

Run as a program, it replays every animal and prints the largest movement in units of the declared sensitivity:

    python tests/row_mixers.py --seeds 20
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpdescent.torch import PrivateTraining
from dpdescent.torch.dataset_rows import DatasetRows, clipped_sum, loss_falls
from dpdescent.torch.row_gradients import Batch
from dpdescent.torch.training_plan import SHORTEST

FEATURES, HIDDEN, CLASSES = 6, 8, 2
cross_entropy = nn.CrossEntropyLoss(reduction="none")


class Between(nn.Module):
    """Two layers, and what is done to the rows before them: a function of rows and of the mode."""

    def __init__(self, mix: Callable[[Tensor, bool], Tensor]) -> None:
        super().__init__()
        self.mix, self.first, self.last = mix, nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(self.mix(values, self.training))))


class Behind(Between):
    """The same between the two layers, where gradients pass through it."""

    def forward(self, values: Tensor) -> Tensor:
        return self.last(self.mix(torch.tanh(self.first(values)), self.training))


class Gated(Between):
    """Mixes by a parameter that hides it at the start."""

    def __init__(self, start: float, gate: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__(lambda h, _: h)
        self.amount, self.gate = nn.Linear(1, 1, bias=False), gate
        with torch.no_grad():
            self.amount.weight.fill_(start)

    def forward(self, values: Tensor) -> Tensor:
        amount = self.amount(torch.ones(len(values), 1))
        return self.last(torch.tanh(self.first(self.gate(values, amount, values.mean(0)))))


# What is done to rows -----------------------------------------------------------------------------------------


def blended_mean_in_training(h: Tensor, training: bool) -> Tensor:
    return functional.dropout(0.9 * h + 0.1 * h.mean(0) if training else h, 0.2, training)


def less_the_mean_from(rows: int) -> Callable[[Tensor, bool], Tensor]:
    return lambda h, _: h - h.mean(0) if len(h) >= rows else h


def less_the_mean_if_divisible_by(number: int) -> Callable[[Tensor, bool], Tensor]:
    return lambda h, _: h - h.mean(0) if len(h) % number == 0 else h


def less_the_mean_where(condition: Callable[[Tensor], Tensor]) -> Callable[[Tensor, bool], Tensor]:
    return lambda h, _: torch.where(condition(h), h - h.mean(0), h)


def copies_dropped(h: Tensor, _: bool) -> Tensor:
    same = (h == h[:1]).all(1) & (torch.arange(len(h)) > 0)
    return h * ~same[:, None]


def longest_half(h: Tensor, _: bool) -> Tensor:
    longest = h.norm(dim=1).topk(max(1, len(h) // 2)).indices
    return h * torch.zeros(len(h)).scatter(0, longest, 1.0)[:, None]


def rounded_by_largest(h: Tensor, _: bool) -> Tensor:
    unit = h.abs().amax() / 127 + 1e-9
    return h + (torch.round(h / unit) * unit - h).detach()


def mixed_up(h: Tensor, training: bool) -> Tensor:
    share = float(np.random.beta(1, 1)) if training else 1.0  # noqa: NPY002
    return share * h + (1 - share) * h.flip(0)


def blended_by_chance(h: Tensor, training: bool) -> Tensor:
    return 0.7 * h + 0.3 * h[torch.randperm(len(h))] if training else h


def blended_seldom(h: Tensor, training: bool) -> Tensor:
    return 0.5 * h + 0.5 * h[torch.randperm(len(h))] if training and random.random() < 0.15 else h


def mix_style(h: Tensor, training: bool) -> Tensor:
    if not training or random.random() > 0.5:
        return h
    mean, deviation = h.mean(1, keepdim=True), h.std(1, keepdim=True) + 1e-6
    share = torch.distributions.Beta(0.1, 0.1).sample((len(h), 1))
    other = torch.randperm(len(h))
    mixed_mean = share * mean + (1 - share) * mean[other].detach()
    mixed_deviation = share * deviation + (1 - share) * deviation[other].detach()
    return (h - mean) / deviation * mixed_deviation + mixed_mean


def normalised(h: Tensor, _: bool) -> Tensor:
    return (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()


def normalised_in_groups(h: Tensor, training: bool) -> Tensor:
    return torch.cat([normalised(part, training) for part in h.split(16)])


def functional_batch_norm(h: Tensor, _: bool) -> Tensor:
    return functional.batch_norm(h, None, None, training=True)


def group_norm_over_rows(h: Tensor, _: bool) -> Tensor:
    return functional.group_norm(h.T[None], 2)[0].T


def standard_deviation_as_a_feature(h: Tensor, _: bool) -> Tensor:
    return torch.cat([h[:, 1:], h.std(0, unbiased=False).mean().expand(len(h), 1)], 1)


def ranks(h: Tensor, _: bool) -> Tensor:
    return h + h.argsort(0).argsort(0) / len(h)


def whitened(h: Tensor, _: bool) -> Tensor:
    covariance = h.T @ h / len(h) + torch.eye(h.shape[1])
    return torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), h.T, upper=False).T


def filled(code: float) -> Callable[[Tensor, bool], Tensor]:
    return lambda h, _: torch.where(h == code, torch.where(h == code, 0.0, h).mean(0), h)


def counts_drawn(h: Tensor, training: bool) -> Tensor:
    """Draw counts, some of which take more random numbers than others."""
    return h + 0.1 * torch.poisson(h.abs().clamp_max(50)) if training else h


def scales_drawn(h: Tensor, training: bool) -> Tensor:
    return h * torch._standard_gamma(h.abs().clamp(0.1, 50)) if training else h


def neighbours_averaged(h: Tensor, _: bool) -> Tensor:
    nearest = torch.cdist(h, h).topk(min(3, len(h)), largest=False).indices
    return h[nearest].mean(1)


def fairly_assigned(h: Tensor, _: bool) -> Tensor:
    shares = torch.exp(h)
    for _ in range(3):
        shares = shares / shares.sum(0)
        shares = shares / shares.sum(1, keepdim=True)
    return shares


def halves_of_pairs(h: Tensor, _: bool) -> Tensor:
    even = len(h) // 2 * 2
    if not even:
        return h
    partners = h[:even].reshape(-1, 2, h.shape[1]).flip(1).reshape(even, -1)
    return h + torch.cat([partners, h[even:]])


def last_hears_the_first(h: Tensor, _: bool) -> Tensor:
    return torch.cat([h[:-1], h[-1:] + 3 * h[:1]])


def weighed_by_largest(bound: float) -> Callable[[Tensor, bool], Tensor]:
    return lambda h, _: h / h.abs().max().clamp_min(bound)


def without_gradient_only(h: Tensor, _: bool) -> Tensor:
    return h if torch.is_grad_enabled() else h - h.mean(0)


class MeanlessGradient(torch.autograd.Function):
    """Takes the mean over rows away from gradients alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(_: Any, returned: Tensor) -> Tensor:
        return returned - returned.mean(0)


class TurnedGradient(torch.autograd.Function):
    """Turns the gradients of all rows by what one of them holds, without changing their lengths."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, _: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, returned: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return returned * torch.where(values.sum() > 0, 1.0, -1.0)


def hooked(h: Tensor, _: bool) -> Tensor:
    if h.requires_grad:
        h.register_hook(lambda returned: returned - returned.mean(0))
    return h


class Experts(nn.Module):
    """A mixture of experts of which each takes no more than its share of the rows, the first ones first."""

    def __init__(self, slack: float = 1.25, experts: int = 4) -> None:
        super().__init__()
        self.router, self.slack = nn.Linear(FEATURES, experts), slack
        self.experts = nn.ModuleList(nn.Linear(FEATURES, HIDDEN) for _ in range(experts))
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        shares = torch.softmax(self.router(values), 1)
        chosen = functional.one_hot(shares.argmax(1), shares.shape[1]).to(values)
        room = max(1, math.ceil(self.slack * len(values) / shares.shape[1]))
        taken = chosen * (chosen.cumsum(0) <= room) * shares
        outputs = torch.stack([each(values) for each in self.experts], 1)
        return self.last(torch.tanh((taken[:, :, None] * outputs).sum(1)))


class Flipped(nn.Module):
    """Hands the rows to its first layer in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(values.flip(0)).flip(0)))


class AttendingToRows(nn.Module):
    """Attention whose positions are the rows, as where ``batch_first`` is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(FEATURES, HIDDEN) for _ in range(3))
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        scores = torch.softmax(self.query(values) @ self.key(values).T, 1)
        return self.last(scores @ self.value(values))


class Recurrent(nn.Module):
    """Reads the rows as if they were the steps of one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.LSTM(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(self.inner(values[:, None])[0][:, 0])


class Transforming(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.TransformerEncoderLayer(FEATURES, 2, 12), nn.Linear(FEATURES, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(self.inner(values))


class Tokens(nn.Module):
    """Averages the vectors of tokens over the positions at which any row has one."""

    def __init__(self, padding: int = 0) -> None:
        super().__init__()
        self.padding = padding
        self.table, self.last = nn.Embedding(10, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        used = (tokens != self.padding).any(0).to(torch.float32)
        return self.last((self.table(tokens) * used[:, None]).sum(1) / used.sum().clamp_min(1))


class LongestRow(Tokens):
    """Divides sums of the vectors of tokens by the length of the longest row; 9 is no token."""

    def forward(self, tokens: Tensor) -> Tensor:
        used = (tokens != 9).to(torch.float32)
        return self.last((self.table(tokens) * used[:, :, None]).sum(1) / used.sum(1).amax().clamp_min(1))


class Remembering(nn.Module):
    """Keeps a moving mean of its rows where no buffer tells of it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(FEATURES, CLASSES), how
        self.mean, self.seen = torch.zeros(FEATURES), [torch.zeros(FEATURES)]

    def forward(self, values: Tensor) -> Tensor:
        kept = self.seen[-1] if self.how == "list" else self.mean.clone()
        moved = 0.9 * kept + 0.1 * values.detach().mean(0)
        if self.how == "list":
            self.seen.append(moved)
        elif self.how == "in place" or (self.how == "in place with gradients" and torch.is_grad_enabled()):
            self.mean.copy_(moved)
        elif self.how == "assigned" or torch.is_grad_enabled():
            self.mean = moved
        return self.layer(values - kept)


class Delayed(nn.Module):
    """Keeps a moving mean in place, and uses it after many passes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.passes, self.mean = nn.Linear(FEATURES, CLASSES), torch.zeros(1), torch.zeros(FEATURES)

    def forward(self, values: Tensor) -> Tensor:
        kept = self.mean.clone() * (self.passes > 1000)
        self.passes += 1
        self.mean.mul_(0.9).add_(0.1 * values.detach().mean(0))
        return self.layer(values - kept)


class Later(nn.Module):
    """Mixes rows after many passes, which it counts where no pass puts the count back."""

    def __init__(self, count: list[int] | Tensor) -> None:
        super().__init__()
        self.layer, self.count = nn.Linear(FEATURES, CLASSES), count

    def forward(self, values: Tensor) -> Tensor:
        self.count[0] += 1
        # Without a product, by which a row that is no number would show it at once.
        return self.layer(torch.where(torch.as_tensor(self.count[0] > 5000), values.roll(1, 0), values))


class Slot:
    """Keeps a count where no dictionary of attributes tells of it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __next__(self) -> int:
        self.count += 1
        return self.count


_SLOT, _COUNT = Slot(), itertools.count()


class LaterByAnIterator(nn.Module):
    """Mixes rows after many passes, of which an object without attributes keeps count."""

    def __init__(self, count: Any = None) -> None:
        super().__init__()
        self.layer, self.count = nn.Linear(FEATURES, CLASSES), count

    def passes(self) -> int:
        return next(self.count)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(torch.where(torch.as_tensor(self.passes() > 9000), values.roll(1, 0), values))


class LaterByAGlobalSlot(LaterByAnIterator):
    def passes(self) -> int:
        return next(_SLOT)


class LaterByAGlobalIterator(LaterByAnIterator):
    def passes(self) -> int:
        return next(_COUNT)


class NormalisedInside(nn.Module):
    """Switches a frozen normalisation to the statistics of a batch, wherever there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.norm = nn.BatchNorm1d(HIDDEN, affine=False).eval()

    def forward(self, values: Tensor) -> Tensor:
        self.norm.training = self.norm.training or len(values) > 1
        return self.last(self.norm(self.first(values)))


class Carrying(nn.Module):
    """Goes on from the states of the batch before."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.GRU(FEATURES, HIDDEN, batch_first=True), nn.Linear(HIDDEN, CLASSES)
        self.state: Tensor | None = None

    def forward(self, values: Tensor) -> Tensor:
        outputs, state = self.inner(values, self.state)
        self.state = state.detach()
        return self.last(outputs[:, -1])


class Named(nn.Module):
    """Returns its scores by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 3)

    def forward(self, values: Tensor) -> dict[str, Tensor]:
        return {"scores": self.layer(values)}


class Tracking(nn.Module):
    """Batch normalisation as a function, in batches of several rows, with moving means in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.register_buffer("mean", torch.zeros(HIDDEN))
        self.register_buffer("variance", torch.ones(HIDDEN))

    def forward(self, values: Tensor) -> Tensor:
        training = self.training and len(values) > 1
        return self.last(functional.batch_norm(self.first(values), self.mean, self.variance, training=training))


class BehindHook(nn.Module):
    """Mixes rows by a hook of a layer, in the backward pass or before the forward one."""

    def __init__(self, backward: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        if backward:
            self.last.register_full_backward_hook(lambda *given: (given[1][0] - given[1][0].mean(0),))
        else:
            self.last.register_forward_pre_hook(lambda _, given: (given[0] - given[0].mean(0) / 2,))

    def forward(self, values: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(values)))


class Queue(nn.Module):
    """Compares rows with those of earlier batches, which it keeps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(4, CLASSES)
        self.register_buffer("queue", torch.ones(4, HIDDEN))

    def forward(self, values: Tensor) -> Tensor:
        hidden = torch.tanh(self.layer(values))
        scores = hidden @ self.queue.T.clone()
        self.queue.copy_(torch.cat([hidden.detach(), self.queue])[:4])
        return self.last(scores)


class Filled(nn.Module):
    """Puts the mean of a batch in the place of cells that are not known."""

    def __init__(self, code: float) -> None:
        super().__init__()
        self.code, self.layer = code, nn.Linear(FEATURES, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        missing = values == self.code
        known = torch.where(missing, 0.0, values).sum(0) / (~missing).sum(0).clamp_min(1)
        return self.layer(torch.where(missing, known, values))


def unknown(code: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a function that makes half of the cells of a table unknown, but for its first row."""

    def change(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        inputs[1:, ::2] = code
        return inputs, targets

    return change


class Pixels(nn.Module):
    """Divides whole numbers by the largest of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values / values.amax().clamp_min(1))


def as_bytes(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return inputs.mul(9).abs().clamp_max(255).to(torch.uint8), targets


class MovingMean:
    """Keeps a moving mean, and uses it after many calls."""

    def __init__(self) -> None:
        self.mean, self.calls = 1.0, 0

    def __call__(self, values: Tensor) -> Tensor:
        self.calls += 1
        with torch.no_grad(), suppress(RuntimeError):  # torch.func does not tell what values are
            self.mean = 0.9 * self.mean + 0.1 * float(values.abs().mean())
        return values / self.mean if self.calls > 3000 else values


class Held(nn.Module):
    """Keeps a moving mean in an object that is no module, in its class or in a variable outside."""

    mean = MovingMean()

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        if own:
            self.mean = MovingMean()

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(self.mean(values))


_LOG: list[Tensor] = []


def logged(outputs: Tensor, targets: Tensor) -> Tensor:
    """Keep the losses of all rows where anybody can read them."""
    losses = cross_entropy(outputs, targets)
    _LOG.append(losses.detach())
    return losses


def closed_over() -> Callable[[Tensor, Tensor], Tensor]:
    mean = MovingMean()
    return lambda outputs, targets: mean(cross_entropy(outputs, targets))


class MeanOfLosses(MovingMean):
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        return super().__call__(cross_entropy(outputs, targets))


def third_class(outputs: Tensor, targets: Tensor) -> Tensor:
    rare = (targets == 2).float()
    return cross_entropy(outputs, targets) * (1 + rare * rare.sum() ** 2)


def over_what_is_not_ignored(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets) / (targets != -100).float().mean().clamp_min(1e-3)


def third_class_by_name(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    return third_class(outputs["scores"], targets)


def some(label: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a function that gives a label to a third of the rows."""

    def change(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        targets[::3] = label
        return inputs, targets

    return change


# Losses -------------------------------------------------------------------------------------------------------


def contrastive(outputs: Tensor, _: Tensor) -> Tensor:
    scores = outputs @ outputs.T
    return functional.cross_entropy(scores, torch.arange(len(outputs)), reduction="none")


def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
    share = targets.float().mean().clamp(0.01, 0.99)
    return cross_entropy(outputs, targets) / torch.where(targets == 1, share, 1 - share)


def hardest_half(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = cross_entropy(outputs, targets)
    return losses * (losses >= losses.detach().median())


def over_positives(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets) / targets.sum().clamp_min(1)


def ranked(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.relu(1 - outputs[:, :1] + outputs[:, 0]).mean(1) + cross_entropy(outputs, targets)


# The zoo ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Animal:
    """A module and a loss, and the rows on which they are replayed; some keep rows apart, where a record is wrong."""

    name: str
    make: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    rows: int = 90
    tokens: bool = False
    shape: tuple[int, ...] = (FEATURES,)
    way: str = "RecordedGradients"
    apart: bool = False
    table: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda inputs, targets: (inputs, targets)

    def __str__(self) -> str:
        return self.name


def _between(**kinds: Callable[[Tensor, bool], Tensor]) -> list[Animal]:
    return [
        Animal(name.replace("_", " "), lambda mix=mix: Between(mix), rows=320 if "300" in name else 90)
        for name, mix in kinds.items()
    ]


MIXERS: tuple[Animal, ...] = (
    *_between(
        mean_in_training_with_dropout=blended_mean_in_training,
        less_the_mean_from_8_rows_on=less_the_mean_from(8),
        less_the_mean_from_64_rows_on=less_the_mean_from(64),
        less_the_mean_from_300_rows_on=less_the_mean_from(300),
        less_the_mean_of_an_even_number=less_the_mean_if_divisible_by(2),
        less_the_mean_of_a_multiple_of_5=less_the_mean_if_divisible_by(5),
        less_the_mean_of_just_90_rows=less_the_mean_if_divisible_by(90),
        blended_by_chance_in_training=blended_by_chance,
        blended_seldom_in_training=blended_seldom,
        mix_style=mix_style,
        third_row_before_added=lambda h, _: h + h.roll(3, 0),
        normalised_over_the_batch=normalised,
        normalised_in_groups_of_16=normalised_in_groups,
        batch_norm_as_a_function=functional_batch_norm,
        group_norm_over_rows=group_norm_over_rows,
        standard_deviation_as_a_feature=standard_deviation_as_a_feature,
        softmax_over_the_batch=lambda h, _: h * torch.softmax(h, 0) * len(h),
        ranks=ranks,
        sorted_over_the_batch=lambda h, _: h + h.sort(0).values,
        median_taken_away=lambda h, _: h - h.median(0).values,
        whitened=whitened,
        neighbours_averaged=neighbours_averaged,
        fairly_assigned=fairly_assigned,
        cumulative_sum=lambda h, _: h + 0.1 * h.cumsum(0),
        divided_by_the_largest=weighed_by_largest(1e-3),
        divided_by_the_largest_beyond_a_bound=weighed_by_largest(1e3),
        pairs=halves_of_pairs,
        last_row_hears_the_first=last_hears_the_first,
        mixed_without_gradients_only=without_gradient_only,
        less_the_mean_of_counts=less_the_mean_where(lambda h: (h == h.round()).all()),
        less_the_mean_of_positive_numbers=less_the_mean_where(lambda h: (h >= 0).all()),
        less_the_mean_of_small_numbers=less_the_mean_where(lambda h: h.abs().max() < 0.01),
        blended_with_the_mean_of_a_majority=less_the_mean_where(lambda h: (h[:, 0] > 0).float().mean() > 0.9),
        copies_dropped=copies_dropped,
        longest_half_kept=longest_half,
        rounded_by_the_largest=rounded_by_largest,
        batch_clipped=lambda h, _: h * torch.clamp(10 / (h.norm() + 1e-9), max=1.0),
        mixed_up_in_training=mixed_up,
        less_the_mean_of_41_to_47_rows=lambda h, _: h - h.mean(0) if 41 <= len(h) <= 47 else h,
        less_the_mean_of_flags=less_the_mean_where(lambda h: ((h == 0) | (h == 1)).all()),
        less_the_mean_of_negative_numbers=less_the_mean_where(lambda h: (h <= 0).all()),
        outliers_averaged=less_the_mean_where(lambda h: h.abs() > 1e5),
        mean_for_a_code_of_its_own=filled(-777.0),
        counts_drawn_in_training=counts_drawn,
        scales_drawn_in_training=scales_drawn,
        last_row_hears_the_first_from_85_rows_on=lambda h, t: last_hears_the_first(h, t) if len(h) >= 85 else h,
    ),
    Animal("mixed in the backward pass", lambda: Behind(lambda h, _: MeanlessGradient.apply(h))),
    Animal("turned in the backward pass", lambda: Behind(lambda h, _: TurnedGradient.apply(h))),
    Animal("mixed by a hook", lambda: Behind(hooked)),
    Animal("mean behind a gate of zero", lambda: Gated(0.0, lambda h, amount, mean: h + amount * mean)),
    Animal("mean behind a closed gate", lambda: Gated(-1.0, lambda h, amount, mean: h + amount.relu() * mean)),
    Animal(
        "mean behind a condition on a weight",
        lambda: Gated(-1.0, lambda h, amount, mean: torch.where(amount > 0, h - mean, h)),
    ),
    Animal("experts with room for some", Experts),
    Animal("experts with much room", lambda: Experts(slack=2.5)),
    Animal("rows in another order", Flipped, apart=True),
    Animal("attention over rows", AttendingToRows),
    Animal("rows as steps of a sequence", Recurrent),
    Animal("transformer over rows", Transforming),
    Animal("padding by the longest row", Tokens, tokens=True),
    Animal("padding of another number by the longest row", lambda: Tokens(9), tokens=True),
    Animal("length of the longest row", LongestRow, tokens=True),
    Animal("states of the batch before", Carrying, shape=(4, FEATURES)),
    Animal("batch norm that is switched on inside", NormalisedInside),
    Animal("batch norm", lambda: nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.Linear(8, 2))),
    Animal(
        "batch norm without statistics",
        lambda: nn.Sequential(nn.Linear(FEATURES, 2), nn.BatchNorm1d(2, track_running_stats=False)).eval(),
    ),
    Animal("moving mean in an attribute", lambda: Remembering("assigned")),
    Animal("moving mean in a tensor", lambda: Remembering("in place")),
    Animal("moving mean in a list", lambda: Remembering("list")),
    Animal("moving mean of passes with gradients", lambda: Remembering("backward")),
    Animal("moving mean in a tensor, in passes with gradients", lambda: Remembering("in place with gradients")),
    Animal("moving mean that is used later", Delayed),
    Animal("mixed in later passes by a list", lambda: Later([0])),
    Animal("mixed in later passes by a tensor", lambda: Later(torch.zeros(1))),
    Animal("mixed in later passes by an iterator", lambda: LaterByAnIterator(itertools.count())),
    Animal("mixed in later passes by a slot", lambda: LaterByAnIterator(Slot())),
    Animal("mixed in later passes by an iterator outside", LaterByAGlobalIterator),
    Animal("mixed in later passes by a slot outside", LaterByAGlobalSlot),
    Animal("batch norm as a function with statistics", Tracking),
    Animal("mixed by a backward hook", lambda: BehindHook(True)),
    Animal("mixed by a hook before a layer", lambda: BehindHook(False)),
    Animal("queue in a buffer", Queue, apart=True),  # buffers are put back
    Animal("contrastive loss", lambda: Between(lambda h, _: h), contrastive),
    Animal("loss balanced by the batch", lambda: Between(lambda h, _: h), balanced),
    Animal("loss of the hardest half", lambda: Between(lambda h, _: h), hardest_half),
    Animal("loss over the number of positives", lambda: Between(lambda h, _: h), over_positives),
    Animal("loss that ranks rows", lambda: Between(lambda h, _: h), ranked),
    *(Animal(f"mean for cells of {code}", lambda code=code: Filled(code), table=unknown(code)) for code in (-1, 999)),
    Animal("bytes over the largest", Pixels, table=as_bytes),
    Animal("moving mean in an object", lambda: Held(own=True)),
    Animal("moving mean in a class", lambda: Held(own=False)),
    Animal("moving mean of losses in an object", lambda: Between(lambda h, _: h), MeanOfLosses()),
    Animal("moving mean of losses in a variable", lambda: Between(lambda h, _: h), closed_over()),
    Animal("log of losses", lambda: Between(lambda h, _: h), logged),
    Animal("loss weighed by the third class of named scores", Named, third_class_by_name, table=some(2)),
    Animal("loss weighed by the third class", lambda: nn.Linear(FEATURES, 3), third_class, table=some(2)),
    Animal(
        "loss over what is not ignored", lambda: Between(lambda h, _: h), over_what_is_not_ignored, table=some(-100)
    ),
)


class Deep(nn.Module):
    """Skips a layer for all rows of a batch or for none, which is no row's doing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(3))
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        for layer in self.layers:
            if not self.training or random.random() < 0.7:
                values = values + torch.tanh(layer(values))
        return self.last(values)


def noisy(h: Tensor, training: bool) -> Tensor:
    return h + 0.3 * torch.randn_like(h) if training else h


def paths_dropped(h: Tensor, training: bool) -> Tensor:
    return h + torch.tanh(h) * (torch.rand(len(h), 1) < 0.7) if training else h + torch.tanh(h)


class Convolving(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, CLASSES),
        )


class Reading(nn.Module):
    """Attention among the tokens of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(10, HIDDEN), nn.LayerNorm(HIDDEN)
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.norm(self.table(tokens))
        mixed = functional.scaled_dot_product_attention(self.query(hidden), self.key(hidden), self.value(hidden))
        return self.last(functional.gelu(hidden + mixed).mean(1))


class Stepping(nn.Module):
    """An LSTM over the steps of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.LSTM(FEATURES, HIDDEN, batch_first=True), nn.Linear(HIDDEN, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(self.inner(values)[0][:, -1])


class Encoding(nn.Module):
    """A transformer over the positions of a row, with its dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(FEATURES, 2, 12, batch_first=True)
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(self.inner(values).mean(1))


#: Modules whose rows stay apart: they keep the quickest way that knows their layers.
SEPARATE: tuple[Animal, ...] = (
    Animal("two layers", lambda: Between(lambda h, _: h)),
    Animal("dropout", lambda: nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Dropout(0.4), nn.Linear(HIDDEN, 2))),
    *_between(
        functional_dropout=lambda h, training: functional.dropout(h, 0.3, training),
        noise=noisy,
        paths_dropped=paths_dropped,
        normalised_in_a_row=lambda h, _: functional.layer_norm(h, (FEATURES,)),
        softmax_in_a_row=lambda h, _: torch.softmax(h, 1) + torch.sigmoid(h),
    ),
    Animal("depth by chance", Deep),
    Animal("convolutions with group norm", Convolving, shape=(1, 6, 6)),
    Animal("attention within a row", Reading, tokens=True),
    Animal("LSTM", Stepping, shape=(4, FEATURES)),
    Animal("transformer within a row", Encoding, shape=(4, FEATURES), way="MappedGradients"),
    Animal(
        "batch norm on public statistics",
        lambda: nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4, affine=False).eval(), nn.Linear(4, 2)),
    ),
)


# Replay -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """How far one row moved the clipped sums and the queries of a search, in units of the declared sensitivity."""

    way: str
    gradient: float
    search: float

    @property
    def largest(self) -> float:
        return max(self.gradient, self.search)


class Without:
    """A data set of which one row cannot be read: a neighbour under zero-out."""

    def __init__(self, rows: tuple[Tensor, Tensor], missing: int) -> None:
        self.rows, self.missing = rows, missing

    def __len__(self) -> int:
        return len(self.rows[1])

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if row == self.missing:
            raise LookupError
        return self.rows[0][row], self.rows[1][row]


def table_of(animal: Animal, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if animal.tokens:
        inputs = torch.randint(1, 10, (animal.rows, 5), generator=generator)
        inputs[1:, 3:] = 0  # the first row alone is so long
        return inputs, torch.randint(0, 2, (animal.rows,), generator=generator)
    inputs = torch.randn(animal.rows, *animal.shape, generator=generator)
    inputs[0] *= 1000  # one row that stands out
    targets = (inputs.flatten(1)[:, 0] + 0.5 * torch.randn(animal.rows, generator=generator) > 0).long()
    return animal.table(inputs, targets)


def training_of(animal: Animal, data: tuple[Tensor, Tensor], seed: int = 0) -> PrivateTraining:
    torch.manual_seed(seed)
    random.seed(seed)
    return PrivateTraining(
        animal.make(),
        data,
        animal.loss,
        epsilon=2.0,
        delta=1e-9,  # so small that Renyi divergences pay, which is the quickest to plan
        steps=4,
        batch_size=animal.rows,
        clip_norm=0.05,
        clip_loss=0.5,
        random_state=seed,
    )


def replay(animal: Animal, seed: int, steps: int = 6) -> Replay:
    """Return how far the sums of an animal move when a row is removed or replaced, or raise why it is refused.

    The sums are those of several steps, whose random layers draw other numbers, at the initial parameters and at
    others: public numbers all of them.
    """
    data = table_of(animal, seed)
    training = training_of(animal, data, seed)
    plan, generator = training.plan, torch.Generator().manual_seed(seed)
    direction = [torch.randn(each.shape, generator=generator) for each in training.parameters]
    clipping, bound = plan.clipping, plan.sensitivity
    moved = {"gradient": 0.0, "search": 0.0}

    def gradient(batch: Batch) -> Tensor:
        return clipped_sum(training._gradients, batch, clipping, SHORTEST, plan.unit)

    def falls(batch: Batch) -> Tensor:
        return loss_falls(training._gradients, batch, direction, np.array([0.3]), clipping.loss, plan.loss_unit)

    def sums(rows: Any, step: int) -> dict[str, np.ndarray]:
        training._rows, training._drawn = DatasetRows.__new__(DatasetRows), step
        training._rows.__dict__ |= whole.__dict__ | ({} if rows is None else {"_tensors": None, "_dataset": rows})
        return {
            "gradient": training._add_over_batch("batch", gradient, plan.parameters) * plan.unit,
            "search": training._add_over_batch("batch", falls, 1) * plan.loss_unit,
        }

    whole = training._rows
    for step in range(steps):
        if step == steps // 2:
            with torch.no_grad():
                for each in training.parameters:
                    each += 0.3 * torch.randn(each.shape, generator=generator) + 1.5 * (each.numel() == 1)
        every = sums(None, step)
        row = (0, animal.rows - 1, seed % animal.rows)[(step + seed) % 3]
        other = tuple(each.clone() for each in data)
        other[0][row] = -other[0][row] if not animal.tokens else 9 - other[0][row]
        other[1][row] = 1 - other[1][row]
        declared = {"gradient": bound, "search": None}
        for rows, twice in ((Without(data, row), 1), (Without(other, -1), 2)):
            for name, found in sums(rows, step).items():
                allowed = bound.under("zero-out") if declared[name] else clipping.loss + plan.loss_unit
                moved[name] = max(moved[name], float(np.linalg.norm(every[name] - found)) / (twice * allowed))
    return Replay(type(training._gradients).__name__, **moved)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args(arguments)
    broken = 0
    for animal in (each for each in MIXERS + SEPARATE if options.only in each.name):
        found: list[Replay] = []
        refused: set[str] = set()
        for seed in range(options.seeds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found.append(replay(animal, seed))
                except Exception as problem:
                    refused.add(type(problem).__name__)
        ways = sorted({each.way for each in found} | refused)
        largest = [max(getattr(each, name) for each in found) if found else 0.0 for name in ("gradient", "search")]
        broken += max(largest) > 1
        print(f"{animal.name:42s} {largest[0]:8.4f} {largest[1]:8.4f}  {', '.join(ways)}", flush=True)
    print(f"{broken} of {len(MIXERS) + len(SEPARATE)} exceed their sensitivity")
    return int(broken > 0)


if __name__ == "__main__":
    raise SystemExit(main())
