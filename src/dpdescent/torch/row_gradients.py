"""Gradients of a module, row by row: their lengths, and their sum with a weight for each row.

Three ways lead there, and the first that is right is taken:

``RecordedGradients``
    One backward pass to the outputs of the layers, from which `dpdescent.torch.layers` computes lengths and sums.
``MappedGradients``
    `torch.func` forms every row's gradient: for layers without a rule, and for weights that are used twice, where the
    lengths of the uses do not add up to that of their sum.
``LoopedGradients``
    One backward pass for each row, for modules that `torch.func` cannot map.

`dpdescent.torch.gradient_choice` tells which of them is right.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .layers import RULES, Formed, Note, ParameterGradients, affine_map, has_gates, held_numbers, writing_out

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Rows of a data set: what goes into the module, and what comes out of it ideally.

    Rows that are ``absent`` hold a place and nothing else: they add nothing to a sum.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    absent: Tensor | None = None

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    def __getitem__(self, rows: Any) -> Batch:
        absent = None if self.absent is None else self.absent[rows]
        return Batch(tuple(each[rows] for each in self.inputs), self.targets[rows], absent)

    def copy(self) -> Batch:
        """Return the same rows in tensors of their own, for a module or a loss that changes what it is given."""
        return Batch(tuple(each.clone() for each in self.inputs), self.targets.clone(), self.absent)

    def without(self, rows: Tensor, blank: Batch) -> Batch:
        """Return a batch of the same shape, in which some rows are absent and the first one of ``blank`` instead."""
        held = self.copy()
        for each, instead in zip((*held.inputs, held.targets), (*blank.inputs, blank.targets), strict=True):
            each[rows] = instead[0]
        return Batch(held.inputs, held.targets, rows if self.absent is None else self.absent | rows)


class RowGradients(ABC):
    """The losses of some rows, and their gradients with respect to all trained parameters. Unreleased data."""

    losses: Tensor

    @abstractmethod
    def norms(self) -> Tensor:
        """Return the Euclidean length of every row's gradient, in float64."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weight times gradient in float64, in the shapes of the parameters.

        A row of weight zero adds nothing, whatever its gradient is. Lengths times weights are at most C for all rows
        of which the sum is to be trusted (`dpdescent.torch.layers`).
        """


class ModuleGradients(ABC):
    """A way to the gradients of a module's rows.

    ``loss`` maps outputs and targets to one number for each row.
    """

    together = False  # whether rows pass through the module side by side

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module, self.loss = module, loss
        self.parameters = trained_parameters(module)
        self.rows_at_once = 1
        self.mixing: str | None = None  # in which trial rows were mixed side by side, if that kept from doing so

    @abstractmethod
    def of(self, batch: Batch) -> RowGradients:
        """Return the gradients of the rows of a batch."""

    @abstractmethod
    def losses(self, batch: Batch) -> Tensor:
        """Return the loss of every row, which no other row of the batch changes."""

    def losses_together(self, batch: Batch) -> Tensor:
        """Return the losses of one pass over all rows, after which the module and the batch are as before."""
        given = batch.copy()
        with unchanged(self.module):
            return self.loss(self.module(*given.inputs), given.targets)


@contextmanager
def unchanged_buffers(module: nn.Module) -> Iterator[None]:
    """Give a pass copies of the buffers of a module, and put back what it has changed nevertheless.

    A backward pass after this one finds the buffers of its forward pass as they were left.
    """
    owned = [(owner._buffers, dict(owner._buffers)) for owner in module.modules()]
    held = {id(each): each for _, buffers in owned for each in buffers.values() if each is not None}
    copies = {key: each.clone() for key, each in held.items()}
    kept = {key: each.clone() for key, each in held.items()}
    try:
        for own, buffers in owned:
            own.update({name: copies[id(each)] for name, each in buffers.items() if each is not None})
        yield
    finally:
        for own, buffers in owned:
            own.clear()
            own.update(buffers)
        for key, each in held.items():  # they may have other names as well
            if not torch.equal(each, kept[key]):
                with torch.no_grad():
                    each.copy_(kept[key])


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Put back buffers, and attributes that a pass has set, as counters of passes and caches are."""
    owned = [(vars(owner), dict(vars(owner))) for owner in module.modules()]
    try:
        with unchanged_buffers(module):
            yield
    finally:
        for held, attributes in owned:
            for name in held.keys() - attributes.keys():
                del held[name]
            held.update(attributes)


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained by their names, each once."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


# One backward pass to the outputs of the layers ---------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A layer was called: with this input, at that place of the graph. The rule gives the gradients that follow."""

    layer: nn.Module
    entered: Tensor
    version: int
    edge: Any
    rule: Callable[[Tensor, Tensor], Iterable[tuple[Tensor, ParameterGradients]]]


class RecordedGradients(ModuleGradients):
    """Lengths and sums from the inputs of the layers and the gradients of their outputs."""

    together = True

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__(module, loss)
        self._layers = [
            each for each in module.modules() if any(p.requires_grad for p in each.parameters(recurse=False))
        ]

    def has_rules(self) -> bool:
        """Return whether every layer with trained parameters has a rule, and no parameter has two layers."""
        known = all(
            has_gates(each) or (type(each) in RULES and set(each._parameters) <= {"weight", "bias"})
            for each in self._layers
        )
        uses = sum(sum(p.requires_grad for p in each.parameters(recurse=False)) for each in self._layers)
        return known and uses == len(self.parameters)

    def of(self, batch: Batch) -> RowGradients:
        calls: list[_Call] = []
        with _recording(self._layers, calls):
            losses = self.losses_together(batch)
        returned = torch.autograd.grad(losses.sum(), [call.edge for call in calls], allow_unused=True)
        parts: list[tuple[Tensor, ParameterGradients]] = []
        for call, gradient in zip(calls, returned, strict=True):
            if call.entered._version != call.version:
                raise RuntimeError("the input of a layer was changed in place")
            if gradient is not None:
                parts += call.rule(call.entered, gradient)
        return _RecordedRows(losses.detach(), list(self.parameters.values()), parts)

    def losses(self, batch: Batch) -> Tensor:
        return self.losses_together(batch)

    def numbers_per_row(self, batch: Batch) -> tuple[int, int]:
        """Return how many numbers a row needs and how many positions it has, as the shapes of public rows tell."""
        calls: list[_Call] = []
        outputs: list[Tensor] = []
        with _recording(self._layers, calls, outputs), torch.no_grad():
            self.losses_together(batch)
        held = [held_numbers(call.layer, call.entered, out) for call, out in zip(calls, outputs, strict=True)]
        return sum(numbers for numbers, _ in held), max((positions for _, positions in held), default=1)


@contextmanager
def _recording(layers: list[nn.Module], calls: list[_Call], outputs: list[Tensor] | None = None) -> Iterator[None]:
    """Note every call of the layers, and its place in the graph before anybody can change the output in place."""

    def call(layer: nn.Module, entered: Tensor, output: Tensor, rule: Callable[..., Any]) -> None:
        edge = torch.autograd.graph.get_gradient_edge(output) if output.requires_grad else None
        calls.append(_Call(layer, entered.detach(), entered._version, edge, rule))
        if outputs is not None:
            outputs.append(output)

    def note(layer: nn.Module, entered: tuple[Tensor, ...], output: Tensor) -> None:
        call(layer, entered[0], output, partial(RULES[type(layer)], layer))

    def gates(layer: nn.Module) -> Note:
        return lambda weight, bias, entered, out: call(layer, entered, out, partial(affine_map, weight, bias))

    hooks = [layer.register_forward_hook(note) for layer in layers if type(layer) in RULES]
    try:
        with writing_out(layers, gates):
            yield
    finally:
        for hook in hooks:
            hook.remove()


class _RecordedRows(RowGradients):
    def __init__(
        self, losses: Tensor, parameters: list[nn.Parameter], parts: list[tuple[Tensor, ParameterGradients]]
    ) -> None:
        self.losses, self._parameters, self._parts = losses, parameters, parts

    def norms(self) -> Tensor:
        # Lengths of one parameter's uses add up to no less than that of their sum, should a layer be called twice.
        lengths: dict[int, Tensor] = {}
        for parameter, part in self._parts:
            key, squared = id(parameter), part.squared_norms()
            lengths[key] = (lengths[key].sqrt() + squared.sqrt()).square() if key in lengths else squared
        total = torch.zeros_like(self.losses, dtype=torch.float64)
        for squared in lengths.values():
            total = total + squared
        return total.sqrt()

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        sums: dict[int, Tensor] = {}
        for parameter, part in self._parts:
            added = part.weighted_sum(weights)
            sums[id(parameter)] = sums[id(parameter)] + added if id(parameter) in sums else added
        return [sums[id(each)] if id(each) in sums else _zeros(each) for each in self._parameters]


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, dtype=torch.float64)


# Every row's gradient is formed -------------------------------------------------------------------------------


class _FormedRows(RowGradients):
    def __init__(self, losses: Tensor, gradients: list[Tensor]) -> None:
        self.losses, self._gradients = losses.detach(), [Formed(each.detach()) for each in gradients]

    def norms(self) -> Tensor:
        return torch.stack([each.squared_norms() for each in self._gradients]).sum(0).sqrt()

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        return [each.weighted_sum(weights) for each in self._gradients]


class MappedGradients(ModuleGradients):
    """`torch.func.vmap` over rows, each of which is a batch by itself."""

    def of(self, batch: Batch) -> RowGradients:
        gradients, losses = self._mapped(torch.func.grad_and_value(self._loss_of_row), batch)
        return _FormedRows(losses, [gradients[name] for name in self.parameters])

    def losses(self, batch: Batch) -> Tensor:
        losses: Tensor = self._mapped(self._loss_of_row, batch)
        return losses

    def _mapped(self, function: Callable[..., Any], batch: Batch) -> Any:
        current = {name: each.detach() for name, each in self.parameters.items()}
        # As many targets as rows, and as many dimensions as the module expects: every row is a batch of one.
        given = batch.copy()
        inputs = tuple(each.unsqueeze(1) for each in given.inputs)
        mapped = torch.func.vmap(function, in_dims=(None, 0, 0), randomness="different")
        return mapped(current, inputs, given.targets.unsqueeze(1))

    def _loss_of_row(self, current: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        with writing_out(self.module.modules()), unchanged(self.module):
            return self.loss(torch.func.functional_call(self.module, current, inputs), target).sum()


class LoopedGradients(ModuleGradients):
    """One backward pass for each row.

    Each of several rows has random numbers of its own, by its place: one row may draw more of them than another.
    """

    def of(self, batch: Batch) -> RowGradients:
        parameters = list(self.parameters.values())
        losses, gradients = [], []
        for loss in self._losses_of_rows(batch):
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            losses.append(loss.detach())
            gradients.append(
                [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
            )
        return _FormedRows(torch.stack(losses), [torch.stack(each) for each in zip(*gradients, strict=True)])

    def losses(self, batch: Batch) -> Tensor:
        return torch.stack(list(self._losses_of_rows(batch)))

    def _losses_of_rows(self, batch: Batch) -> Iterator[Tensor]:
        rows = len(batch)
        seed = int(torch.randint(1, 2**62, ())) if rows > 1 else 0
        for row in range(rows):
            if rows > 1:
                seed_generators(seed + row)
            yield self.losses_together(batch[row : row + 1]).sum()
        if rows > 1:
            seed_generators(seed - 1)  # whatever the last row has drawn


def seed_generators(seed: int) -> None:
    """Seed the generators of Python, numpy and torch that all share."""
    random.seed(seed)
    np.random.seed([seed % 2**32, seed >> 32])  # noqa: NPY002
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # the other keeps a traceback for each call where there is no CUDA
        torch.default_generator.manual_seed(seed)


# With respect to inputs -----------------------------------------------------------------------------------------


class InputGradients(ModuleGradients):
    """Gradients with respect to the real inputs of rows that pass side by side, which any module has."""

    together = True

    def of(self, batch: Batch) -> RowGradients:
        given = batch.copy()
        real = [each.requires_grad_() for each in given.inputs if each.is_floating_point()]
        with unchanged(self.module):
            losses = self.loss(self.module(*given.inputs), given.targets)
        found = torch.autograd.grad(losses.sum(), real, materialize_grads=True) if real else []
        return _FormedRows(losses, [*found, losses.new_zeros(len(losses), 1)])

    def losses(self, batch: Batch) -> Tensor:
        return self.losses_together(batch)
