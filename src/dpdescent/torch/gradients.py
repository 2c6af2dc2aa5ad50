"""Gradients of a module, row by row: their lengths, and their sum with a weight for each row.

Three ways lead there, and the first that is right is taken:

``RecordedGradients``
    One backward pass to the outputs of the layers, from which `dpdescent.torch.layers` computes lengths and sums.
``MappedGradients``
    `torch.func` forms every row's gradient: for layers without a rule, and for weights that are used twice, where the
    lengths of the uses do not add up to that of their sum.
``LoopedGradients``
    One backward pass for each row, for modules that `torch.func` cannot map.

Which of them is right is tried on a few public rows of the shapes of the data, against one row at a time: a matter of
the module and of shapes, never of the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InvalidParameter
from .layers import RULES, ParameterGradients, held_numbers

__all__ = [
    "Batch",
    "Loss",
    "ModuleGradients",
    "RowGradients",
    "choose_gradients",
    "trained_parameters",
    "unchanged_buffers",
]

Loss = Callable[[Tensor, Tensor], Tensor]
_HELD_NUMBERS = 2**24  # while a part of a batch is worked on: 64 MB of float32
_TOLERANCE = 1e-3
_PROBE_ROWS = 3


@dataclass(frozen=True)
class Batch:
    """Rows of a data set: what goes into the module, and what comes out of it ideally."""

    inputs: tuple[Tensor, ...]
    targets: Tensor

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    def __getitem__(self, rows: Any) -> Batch:
        return Batch(tuple(each[rows] for each in self.inputs), self.targets[rows])


class RowGradients(ABC):
    """The losses of some rows, and their gradients with respect to all trained parameters. Unreleased data."""

    losses: Tensor

    @abstractmethod
    def norms(self) -> Tensor:
        """Return the Euclidean length of every row's gradient."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weight times gradient, in the shapes of the parameters."""


class ModuleGradients(ABC):
    """A way to the gradients of a module's rows.

    Parameters
    ----------
    module : nn.Module
    loss : callable
        Maps outputs and targets to one number for each row.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module, self.loss = module, loss
        self.parameters = trained_parameters(module)
        self.rows_at_once = 1

    @abstractmethod
    def of(self, batch: Batch) -> RowGradients:
        """Return the gradients of the rows of a batch."""

    def losses(self, batch: Batch) -> Tensor:
        """Return the loss of every row; buffers are as before afterwards, so that no row changes what comes next."""
        with unchanged_buffers(self.module):
            return self.loss(self.module(*batch.inputs), batch.targets)


@contextmanager
def unchanged_buffers(module: nn.Module) -> Iterator[None]:
    """Put back what a pass has changed in the buffers of a module, and leave alone what it has not."""
    before = [
        (owner, name, each, each.clone())
        for owner in module.modules()
        for name, each in owner._buffers.items()
        if each is not None
    ]
    try:
        yield
    finally:
        for owner, name, each, kept in before:
            owner._buffers[name] = each
            if not torch.equal(each, kept):
                with torch.no_grad():
                    each.copy_(kept)


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained by their names, each once."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


# One backward pass to the outputs of the layers ---------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A layer was called: with this input, at that place of the graph."""

    layer: nn.Module
    entered: Tensor
    version: int
    edge: Any


class RecordedGradients(ModuleGradients):
    """Lengths and sums from the inputs of the layers and the gradients of their outputs."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__(module, loss)
        self._layers = [
            each for each in module.modules() if any(p.requires_grad for p in each.parameters(recurse=False))
        ]

    def has_rules(self) -> bool:
        """Return whether every layer with trained parameters has a rule, and no parameter has two layers."""
        own = [set(each._parameters) for each in self._layers]
        known = all(type(each) in RULES for each in self._layers) and all(
            names <= {"weight", "bias"} for names in own
        )
        uses = sum(sum(p.requires_grad for p in each.parameters(recurse=False)) for each in self._layers)
        return known and uses == len(self.parameters)

    def of(self, batch: Batch) -> RowGradients:
        calls: list[_Call] = []
        with _recording(self._layers, calls):
            losses = self.losses(batch)
        returned = torch.autograd.grad(losses.sum(), [call.edge for call in calls], allow_unused=True)
        parts: list[tuple[Tensor, ParameterGradients]] = []
        for call, gradient in zip(calls, returned, strict=True):
            if call.entered._version != call.version:
                raise RuntimeError("the input of a layer was changed in place")
            if gradient is not None:
                parts += RULES[type(call.layer)](call.layer, call.entered, gradient)
        return _RecordedRows(losses.detach(), list(self.parameters.values()), parts)

    def numbers_per_row(self, batch: Batch) -> int:
        """Return how many numbers a row needs, as the shapes of public rows tell."""
        calls: list[_Call] = []
        outputs: list[Tensor] = []
        with _recording(self._layers, calls, outputs), torch.no_grad():
            self.losses(batch)
        return sum(held_numbers(call.layer, call.entered, out) for call, out in zip(calls, outputs, strict=True))


@contextmanager
def _recording(layers: list[nn.Module], calls: list[_Call], outputs: list[Tensor] | None = None) -> Iterator[None]:
    """Note every call of the layers, and its place in the graph before anybody can change the output in place."""

    def note(layer: nn.Module, entered: tuple[Tensor, ...], output: Tensor) -> None:
        edge = torch.autograd.graph.get_gradient_edge(output) if output.requires_grad else None
        calls.append(_Call(layer, entered[0].detach(), entered[0]._version, edge))
        if outputs is not None:
            outputs.append(output)

    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
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
        total = torch.zeros_like(self.losses)
        for squared in lengths.values():
            total = total + squared
        return total.sqrt()

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        sums: dict[int, Tensor] = {}
        for parameter, part in self._parts:
            added = part.weighted_sum(weights)
            sums[id(parameter)] = sums[id(parameter)] + added if id(parameter) in sums else added
        return [sums[id(each)] if id(each) in sums else torch.zeros_like(each) for each in self._parameters]


# Every row's gradient is formed -------------------------------------------------------------------------------


class _FormedRows(RowGradients):
    def __init__(self, losses: Tensor, gradients: list[Tensor]) -> None:
        self.losses, self._gradients = losses.detach(), [each.detach() for each in gradients]

    def norms(self) -> Tensor:
        return torch.stack([each.flatten(1).square().sum(1) for each in self._gradients]).sum(0).sqrt()

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        return [(weights @ each.flatten(1)).reshape(each.shape[1:]) for each in self._gradients]


class MappedGradients(ModuleGradients):
    """`torch.func.vmap` over rows, each of which is a batch by itself."""

    def of(self, batch: Batch) -> RowGradients:
        current = {name: each.detach() for name, each in self.parameters.items()}
        # As many targets as rows, and as many dimensions as the module expects: every row is a batch of one.
        inputs = tuple(each.unsqueeze(1) for each in batch.inputs)
        gradients, losses = torch.func.vmap(
            torch.func.grad_and_value(self._loss_of_row), in_dims=(None, 0, 0), randomness="different"
        )(current, inputs, batch.targets.unsqueeze(1))
        return _FormedRows(losses, [gradients[name] for name in self.parameters])

    def _loss_of_row(self, current: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        with unchanged_buffers(self.module):
            return self.loss(torch.func.functional_call(self.module, current, inputs), target).sum()


class LoopedGradients(ModuleGradients):
    """One backward pass for each row."""

    def of(self, batch: Batch) -> RowGradients:
        parameters = list(self.parameters.values())
        losses, gradients = [], []
        for row in range(len(batch)):
            loss = self.losses(batch[row : row + 1]).sum()
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            losses.append(loss.detach())
            gradients.append(
                [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
            )
        return _FormedRows(torch.stack(losses), [torch.stack(each) for each in zip(*gradients, strict=True)])


# Which way is right -------------------------------------------------------------------------------------------


def choose_gradients(module: nn.Module, loss: Loss, probe: Batch) -> ModuleGradients:
    """Return the quickest way that gives the gradients of single rows on public rows.

    Parameters
    ----------
    module : nn.Module
        Left as it was, its mode and its buffers included.
    loss : callable
    probe : Batch
        At least three public rows of the shapes of the data.

    Notes
    -----
    **Privacy** The choice rests on the module, the loss and the shapes of rows. Rows that a module mixes are told
    apart in the second way, where each is a batch by itself.
    """
    numbers = sum(each.numel() for each in trained_parameters(module).values())
    try:
        LoopedGradients(module, loss).of(probe)
    except Exception as problem:
        raise InvalidParameter(
            f"the gradient of a single row cannot be computed on public rows ({problem}): check that the module "
            "takes a batch of one row"
        ) from None
    recorded = RecordedGradients(module, loss)
    with _repeatable(module, loss, probe):
        if recorded.has_rules() and _agrees(recorded, probe):
            recorded.rows_at_once = max(1, _HELD_NUMBERS // max(1, recorded.numbers_per_row(probe)))
            return recorded
        mapped = MappedGradients(module, loss)
        mapped.rows_at_once = max(1, _HELD_NUMBERS // max(1, numbers))
        if _agrees(mapped, probe):
            return mapped
    looped = LoopedGradients(module, loss)
    looped.rows_at_once = mapped.rows_at_once
    return looped


def _agrees(way: ModuleGradients, probe: Batch) -> bool:
    """Return whether lengths and a weighted sum are those of one row at a time."""
    rows = probe[:_PROBE_ROWS]
    single = LoopedGradients(way.module, way.loss).of(rows)
    weights = torch.arange(1, len(rows) + 1).to(single.losses)
    try:
        found = way.of(rows)
        norms, sums = found.norms(), found.weighted_sum(weights)
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return False
    scale = float(single.norms().max())
    return bool(
        torch.allclose(found.losses, single.losses, rtol=_TOLERANCE, atol=_TOLERANCE)
        and torch.allclose(norms, single.norms(), rtol=_TOLERANCE, atol=_TOLERANCE * scale)
        and all(
            torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * scale)
            for one, other in zip(sums, single.weighted_sum(weights), strict=True)
        )
    )


@contextmanager
def _repeatable(module: nn.Module, loss: Loss, probe: Batch) -> Iterator[None]:
    """Switch off random layers, so that two passes over the same rows can be compared.

    Only what is known to be random is switched off, so that rows are told apart as in training. If that is not
    enough, the whole module is.
    """
    everything = list(module.modules())
    modes = [each.training for each in everything]
    random = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
    try:
        for each in everything:
            each.training = each.training and not isinstance(each, random)
        rows = LoopedGradients(module, loss)
        with torch.no_grad():
            first, second = (rows.losses(probe) for _ in range(2))
        if not torch.equal(first, second):
            module.eval()
        yield
    finally:
        for each, mode in zip(everything, modes, strict=True):
            each.training = mode
