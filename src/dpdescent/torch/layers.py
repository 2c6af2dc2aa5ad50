r"""Gradients of layers, row by row, from what goes into a layer and what comes back to it.

A layer of activations a and output gradients b has, for each row, a weight gradient that is a sum over positions t,

.. math:: G = \sum_t b_t a_t^T, \qquad |G|^2 = \sum_{s,t} (a_s \cdot a_t)(b_s \cdot b_t).

With one position the norm is the product of two lengths. With several it comes from two Gram matrices, or from G
itself where that is the smaller, or takes less work and is not large (`_is_formed`, a rule of shapes). Sums over rows
with weights are one matrix product, so no row's gradient of a large layer is ever formed.

**Lengths** are computed in float64 from the numbers that the module has computed: products of two float32 numbers are
exact there, and neither vanish nor overflow; vectors of 2^300 and more, which float64 modules may have, count as
infinite. A norm that comes from Gram matrices is a sum of terms of either sign, which may cancel, and a long gradient
would look short. So 2^-20 of the square of :math:`B = \sum_t |a_t||b_t|`, which no term exceeds, is added to the
squared norm, and a row of length at most C after weighting has a weighted B of at most 2^10 C.

**Lemma (sums).** Let every row be at most C long after weighting, and let two tables differ in one row. Then the
computed sums differ by at most what the row adds, and 2^-9 C more.

*Proof.* A sum of N terms in whatever order, with a rounding error of u for each operation, is off by at most
:math:`\gamma_N = Nu/(1 - Nu)` times the sum of the absolute terms (Higham 2002, section 3.1).

1. Outer products of float32 numbers, and gradients that are formed in float32, are summed in float32, u = 2^-24, in
   groups of N = 100 rows, each of which is :math:`|b||a| \le C` or :math:`|G| \le C` long, so a group is off by
   :math:`\gamma_N N C`. Only the group of the row that differs has another error in the other table:
   :math:`2 \gamma_N N C \le 0.0012 C`. Up to six groups, which are 600 C long together, are added in float32 too,
   and the five additions are off by 5 u 600 C in either table: 0.0004 C together. Both factors are scaled
   beforehand, the right one to a length of 1 at most; a formed gradient is not, and its weight is rounded to float32.
   That rounds each number to within 2^-22 of itself, except for those that vanish, of which none adds 2^-60. A row of
   which a factor, or the formed gradient, is longer than 2^60 holds zeros here and is summed below, without changing
   where others are summed.
2. All else is summed in float64, u = 2^-53, with at most m = 2^12 rows and N = 2^17 terms of all their positions
   (`MOST_ROWS`, `MOST_POSITIONS`), off by :math:`\gamma_N 2^{10} m C < 2^{-14} C`, in either table. Groups are added
   in float64 as well, at most 2^12 of them.

The squares of all parameters' parts add up to C^2 for each row, and so the parts of the errors add up to no more
than if all were in one. The sum of 0.0012, 0.0004, 2^-13 and 2^-20 is less than 2^-9. ∎

The first part needs products that are rounded as float32 numbers. Where the caller lets them be shorter
(`torch.set_float32_matmul_precision`, `torch.autocast`), and on devices other than the processor, they are summed in
float64.

**Recurrent layers** are, by their gates, two linear layers each, of inputs and of states, at all places of a
sequence. The layers of torch compute all places in one piece, into which nothing can look. Here their equations are
written out, so that what enters the gates and what comes back to them is known. The parameters are those of the
layer.

References
----------
Goodfellow, I. (2015). Efficient per-example gradient computations. arXiv:1510.01799.
Li, X. et al. (2022). Large language models can be strong differentially private learners. arXiv:2110.05679.
Bu, Z. et al. (2022). Scalable and efficient training of large convolutional neural networks with differential
privacy. arXiv:2205.10683.
Higham, N. J. (2002). Accuracy and stability of numerical algorithms, 2nd ed. SIAM.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, reduce
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_ROWS = 2**12  # that are summed at once
_GROUP, _GROUPS = 100, 6  # rows whose products are summed in float32, and groups that are added in it
MOST_POSITIONS = 2**17  # of all rows that are summed at once
_READING = 32  # products that a number of a formed gradient takes the time of
_MOST_FORMED = 2**17  # numbers of a gradient that is formed for speed
_CANCELLATION = 2.0**-20
_MODERATE = 2.0**60  # lengths that can be scaled in float32
_LARGEST = 2.0**300  # from here on, lengths of float64 modules count as infinite


class ParameterGradients(ABC):
    """The gradients of one parameter, one for each row."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return their squared lengths in float64, too short by no more than its rounding."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum over rows of weight times gradient in float64, in the shape of the parameter.

        A row of weight zero adds nothing, whatever it holds.
        """


class Formed(ParameterGradients):
    """Gradients that are small enough to be held: a tensor of shape (rows, *shape of the parameter)."""

    def __init__(self, gradients: Tensor) -> None:
        self._flat = gradients.flatten(1) if gradients.dim() > 1 else gradients[:, None]
        self._shape = gradients.shape[1:]

    @cached_property
    def _all_lengths(self) -> Tensor:
        return _lengths(self._flat, 1)

    def squared_norms(self) -> Tensor:
        return self._all_lengths.square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if not _has_full_float32(self._flat):
            return self._sum_in_float64(weights)
        moderate = self._all_lengths <= _MODERATE
        some = weights.where(moderate, 0.0)
        total = _sum_of_groups(some.float()[:, None], _of_weight(self._flat, some)).reshape(self._shape)
        return total if bool(moderate.all()) else total + self._sum_in_float64(weights.where(~moderate, 0.0))

    def _sum_in_float64(self, weights: Tensor) -> Tensor:
        flat = weights.double() @ _of_weight(self._flat, weights).double()
        return flat.reshape(self._shape)


class Outer(ParameterGradients):
    """Gradients b a^T of one position: ``left`` holds b and ``right`` holds a, one in each line."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self._left, self._right = left, right

    @cached_property
    def _both_lengths(self) -> tuple[Tensor, Tensor]:
        return _lengths(self._left, 1), _lengths(self._right, 1)

    def squared_norms(self) -> Tensor:
        left, right = self._both_lengths
        return (left * right).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if not _has_full_float32(self._left):
            return self._sum_in_float64(weights)
        # Each row by itself, so that none decides how others are summed.
        moderate = torch.maximum(*self._both_lengths) <= _MODERATE
        some = weights.where(moderate, 0.0)
        left, right, lengths = (_of_weight(side, some) for side in (self._left, self._right, self._both_lengths[1]))
        scales = lengths.clamp_min(1 / _MODERATE)  # of the right side, which is at most 1 long without them
        total = _sum_of_groups(left * (some * scales).float()[:, None], right / scales.float()[:, None])
        return total if bool(moderate.all()) else total + self._sum_in_float64(weights.where(~moderate, 0.0))

    def _sum_in_float64(self, weights: Tensor) -> Tensor:
        left, right, lengths = (
            _of_weight(side, weights) for side in (self._left, self._right, self._both_lengths[1])
        )
        scales = lengths.clamp_min(1 / _MODERATE)
        return (left.double() * (weights.double() * scales)[:, None]).T @ (right.double() / scales[:, None])


class Positions(ParameterGradients):
    """Gradients sum_t b_t a_t^T in groups, from tensors of shape (rows, groups, features, positions)."""

    def __init__(self, left: Tensor, right: Tensor, shape: tuple[int, ...]) -> None:
        self._left, self._right, self._shape = left, right, shape

    def squared_norms(self) -> Tensor:
        sides = (self._left.double(), self._right.double())
        grams = [side.transpose(2, 3) @ side for side in sides]
        bound = (_lengths(sides[0], 2) * _lengths(sides[1], 2)).sum(2)
        exact = (grams[0] * grams[1]).sum((1, 2, 3))
        return exact.clamp_min(0) + _CANCELLATION * bound.square().sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        kept = _of_weight(self._left, weights)
        left = (kept.double() * weights.double()[:, None, None, None]).permute(1, 2, 0, 3).flatten(2)
        right = _of_weight(self._right, weights).permute(1, 0, 3, 2).flatten(1, 2).double()
        return (left @ right).reshape(self._shape)


class Looked(ParameterGradients):
    """Gradients of a table of vectors: ``tokens`` of shape (rows, positions) say to which line each ``left`` goes."""

    def __init__(self, left: Tensor, tokens: Tensor, shape: tuple[int, ...]) -> None:
        self._left, self._tokens, self._shape = left, tokens, shape

    def squared_norms(self) -> Tensor:
        same = self._tokens[:, :, None] == self._tokens[:, None, :]
        left = self._left.double()
        products = left @ left.transpose(1, 2)
        bound = _lengths(left, 2).sum(1)
        return (products * same).sum((1, 2)).clamp_min(0) + _CANCELLATION * bound.square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        weighted = (_of_weight(self._left, weights).double() * weights.double()[:, None, None]).flatten(0, 1)
        total = weighted.new_zeros(self._shape)
        return total.index_add_(0, self._tokens.flatten(), weighted)


def _lengths(vectors: Tensor, dimension: int) -> Tensor:
    """Return Euclidean lengths in float64, where no square of a float32 number vanishes or overflows.

    A float64 number below 2^-537 has a square of zero. It can make a long product only with numbers that are so large
    that they count as infinite here.
    """
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=dimension, dtype=torch.float64)
    return lengths.where(lengths < _LARGEST, torch.inf)


def _of_weight(rows: Tensor, weights: Tensor) -> Tensor:
    """Return rows, with zeros for those of weight zero, which may hold what is not finite."""
    counted = weights != 0
    if bool(counted.all()):
        return rows
    return rows.where(counted.reshape(-1, *(1 for _ in rows.shape[1:])), 0)


def _has_full_float32(values: Tensor) -> bool:
    """Return whether products of float32 numbers are rounded as such, and not as a shorter type that is allowed."""
    if values.device.type != "cpu" or values.dtype is not torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    try:
        return bool(torch.get_float32_matmul_precision() == "highest")
    except RuntimeError:  # it is set for one backend alone
        return False


def _sum_of_groups(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of left^T and right, in float32 for some groups of rows and in float64 over all of them."""
    some = _GROUP * _GROUPS
    sums = (_sum_in_float32(*sides).double() for sides in zip(left.split(some), right.split(some), strict=True))
    return reduce(Tensor.add_, sums)


def _sum_in_float32(left: Tensor, right: Tensor) -> Tensor:
    first, *others = zip(left.split(_GROUP), right.split(_GROUP), strict=True)
    total = first[0].T @ first[1]
    part = torch.empty_like(total)
    for one, other in others:
        total += torch.mm(one.T, other, out=part)
    return total


def _summed_positions(left: Tensor, right: Tensor, shape: tuple[int, ...]) -> ParameterGradients:
    """Return gradients of several positions, as Gram matrices or formed."""
    groups, features, positions = left.shape[1:]
    if not _is_formed(groups, features, right.shape[2], positions):
        return Positions(left, right, shape)
    formed = left @ right.transpose(2, 3)
    return Formed(formed.reshape(left.shape[0], *shape))


def _is_formed(groups: int, features: int, inputs: int, positions: int) -> bool:
    """Return whether gradients are formed instead of Gram matrices: where they are smaller, or it takes less work.

    Forming takes one product in float32, and a length and a sum that read it from memory, each number of which takes
    the time of some products. Gram matrices and their sum are computed in float64, where products take twice as long.
    """
    numbers = features * inputs
    if positions * positions > numbers:
        return True
    forming = numbers * (positions + _READING)
    grams = 2 * (numbers * positions + positions * positions * (features + inputs))
    return groups * numbers <= _MOST_FORMED and forming <= grams


def _linear(layer: nn.Module, entered: Tensor, returned: Tensor) -> Iterator[tuple[Tensor, ParameterGradients]]:
    yield from affine_map(layer.weight, layer.bias, entered, returned)


def affine_map(
    weight: Tensor, bias: Tensor | None, entered: Tensor, returned: Tensor
) -> Iterator[tuple[Tensor, ParameterGradients]]:
    """Yield the gradients of a matrix and a shift, from what it was applied to and what comes back."""
    if _trained(weight):
        if entered.dim() == 2:
            yield weight, Outer(returned, entered)
        else:
            left, right = (
                side.flatten(1, -2).transpose(1, 2).unsqueeze(1).contiguous() for side in (returned, entered)
            )
            yield weight, _summed_positions(left, right, tuple(weight.shape))
    if bias is not None and _trained(bias):
        yield bias, Formed(returned.flatten(1, -2).sum(1) if returned.dim() > 2 else returned)


def _convolution(layer: nn.Module, entered: Tensor, returned: Tensor) -> Iterator[tuple[Tensor, ParameterGradients]]:
    if _trained(layer.weight):
        rows, groups = entered.shape[0], layer.groups
        left = returned.reshape(rows, groups, layer.out_channels // groups, -1)
        right = _patches(layer, entered).reshape(rows, groups, prod(layer.weight.shape[1:]), -1)
        yield layer.weight, _summed_positions(left, right, tuple(layer.weight.shape))
    if _trained(layer.bias):
        yield layer.bias, Formed(_over_positions(returned))


def _over_positions(returned: Tensor) -> Tensor:
    """Return the sum over positions of a tensor of shape (rows, channels, *positions)."""
    return returned.reshape(*returned.shape[:2], -1).sum(2)


def _patches(layer: nn.Module, entered: Tensor) -> Tensor:
    """Return what the kernel sees at each position: (rows, channels, *kernel, *positions), as a view if it can be."""
    if any(layer._reversed_padding_repeated_twice):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        entered = functional.pad(entered, layer._reversed_padding_repeated_twice, mode=mode)
    spatial = len(layer.kernel_size)
    for axis, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        entered = entered.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    positions, kernel = range(2, 2 + spatial), range(2 + spatial, 2 + 2 * spatial)
    return entered.permute(0, 1, *kernel, *positions)


def _embedding(layer: nn.Module, entered: Tensor, returned: Tensor) -> Iterator[tuple[Tensor, ParameterGradients]]:
    if _trained(layer.weight):
        tokens, left = (
            entered.reshape(entered.shape[0], -1),
            returned.reshape(entered.shape[0], -1, returned.shape[-1]),
        )
        if layer.padding_idx is not None:
            left = left * (tokens != layer.padding_idx)[:, :, None]
        yield layer.weight, Looked(left, tokens, tuple(layer.weight.shape))


def _affine(normalised: Callable[[nn.Module, Tensor], Tensor]) -> Rule:
    """Return the rule of a layer that scales and shifts what it has normalised, by one number for each channel."""

    def rule(layer: nn.Module, entered: Tensor, returned: Tensor) -> Iterator[tuple[Tensor, ParameterGradients]]:
        if _trained(layer.weight):
            yield layer.weight, Formed(_over_positions(returned * normalised(layer, entered)))
        if _trained(layer.bias):
            yield layer.bias, Formed(_over_positions(returned))

    return rule


def _layer_norm(layer: nn.Module, entered: Tensor, returned: Tensor) -> Iterator[tuple[Tensor, ParameterGradients]]:
    shape = tuple(layer.normalized_shape)
    rows = (entered.shape[0], -1, *shape)
    if _trained(layer.weight):
        if isinstance(layer, nn.LayerNorm):
            normalised = functional.layer_norm(entered, shape, eps=layer.eps)
        else:
            normalised = functional.rms_norm(entered, shape, eps=layer.eps)
        yield layer.weight, Formed((returned * normalised).reshape(rows).sum(1))
    if _trained(getattr(layer, "bias", None)):
        yield layer.bias, Formed(returned.reshape(rows).sum(1))


def _trained(parameter: Tensor | None) -> bool:
    return parameter is not None and bool(parameter.requires_grad)


Rule = Callable[[nn.Module, Tensor, Tensor], Iterator[tuple[Tensor, ParameterGradients]]]

_instance_norm = _affine(lambda layer, entered: functional.instance_norm(entered, eps=layer.eps))

#: How the gradients of a layer follow from its input and from the gradient of its output. Subclasses have none of it.
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _layer_norm,
    nn.GroupNorm: _affine(lambda layer, entered: functional.group_norm(entered, layer.num_groups, eps=layer.eps)),
    nn.InstanceNorm1d: _instance_norm,
    nn.InstanceNorm2d: _instance_norm,
    nn.InstanceNorm3d: _instance_norm,
}


def held_numbers(layer: nn.Module, entered: Tensor, returned: Tensor) -> tuple[int, int]:
    """Return how many numbers a row needs while the gradients of a layer are computed, and how many positions it has.

    A rule of shapes. Of a layer with gates ``returned`` are the gates.
    """
    rows = max(1, entered.shape[0])
    held = int(entered.numel() + 2 * returned.numel()) // rows
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        positions, groups = prod(returned.shape[2:]), layer.groups
        inputs, features = prod(layer.weight.shape[1:]), layer.out_channels // groups
        held += positions * inputs * groups
    elif isinstance(layer, nn.Linear | nn.Embedding | nn.RNNBase):
        positions, groups = returned.numel() // (rows * returned.shape[-1]), 1
        features, inputs = returned.shape[-1], 1 if isinstance(layer, nn.Embedding) else entered.shape[-1]
        held += 8 * returned.numel() // rows if isinstance(layer, nn.RNNBase) else 0
        if positions == 1:
            return held, 1
    else:
        return held, 1
    if isinstance(layer, nn.Embedding) or not _is_formed(groups, features, inputs, positions):
        # Gram matrices, and copies of both sides in float64
        return int(held + 4 * groups * positions**2 + 2 * held), positions
    return int(held + groups * features * inputs), positions


#: Takes the parameters of gates, what enters them, and the gates themselves, of which the gradient is asked.
Note = Callable[[Tensor, Tensor | None, Tensor, Tensor], None]
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)


def has_gates(layer: nn.Module) -> bool:
    """Return whether the equations of a layer are written here."""
    return type(layer) in RECURRENT and not layer.proj_size


@contextmanager
def writing_out(layers: Iterable[nn.Module], noting: Callable[[nn.Module], Note] | None = None) -> Iterator[None]:
    """Compute recurrent layers by their equations, which `torch.func` maps over rows and whose gates can be noted."""
    gated = [layer for layer in layers if has_gates(layer)]
    before = [vars(layer).get("forward") for layer in gated]
    try:
        for layer in gated:
            vars(layer)["forward"] = _written_out(layer, None if noting is None else noting(layer))
        yield
    finally:
        for layer, forward in zip(gated, before, strict=True):
            vars(layer).pop("forward", None)
            if forward is not None:
                vars(layer)["forward"] = forward


def _written_out(layer: nn.Module, note: Note | None) -> Callable[..., Any]:
    """Return the forward function of a recurrent layer, which tells of all gates."""

    def forward(values: Tensor, state: Any = None) -> Any:
        if not isinstance(values, Tensor) or values.dim() != 3:
            raise TypeError("sequences are tensors of shape (rows, length, features)")
        inner = values if layer.batch_first else values.transpose(0, 1)
        ways, cells = 2 if layer.bidirectional else 1, type(layer) is nn.LSTM
        shape = (layer.num_layers * ways, inner.shape[0], layer.hidden_size)
        given = state if cells and state is not None else (state, None)
        first, second = (inner.new_zeros(shape) if each is None else each for each in given)
        last: list[tuple[Tensor, Tensor]] = []
        for level in range(layer.num_layers):
            found = []
            for way in range(ways):
                place = level * ways + way
                suffix = f"_l{level}{'_reverse' if way else ''}"
                outputs, *end = _run(layer, suffix, inner, first[place], second[place], note)
                found.append(outputs)
                last.append((end[0], end[1]))
            inner = torch.cat(found, 2) if ways > 1 else found[0]
            if layer.dropout and layer.training and level + 1 < layer.num_layers:
                inner = functional.dropout(inner, layer.dropout)
        states, inside = (torch.stack(each) for each in zip(*last, strict=True))
        outputs = inner if layer.batch_first else inner.transpose(0, 1)
        return outputs, ((states, inside) if cells else states)

    return forward


def _run(
    layer: nn.Module, suffix: str, values: Tensor, state: Tensor, inside: Tensor, note: Note | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states at all places of one layer in one direction, and the last ones."""
    weight, weight_state = (getattr(layer, f"weight_{kind}{suffix}") for kind in ("ih", "hh"))
    bias, bias_state = (getattr(layer, f"bias_{kind}{suffix}", None) for kind in ("ih", "hh"))
    entering = functional.linear(values, weight, bias)
    at, shifts, shift = entering.unbind(1), None, entering
    if note is not None and type(layer) is nn.GRU:
        # Added to what the states give to the gates: its gradient is theirs, in one piece.
        shift = torch.zeros_like(entering, requires_grad=torch.is_grad_enabled())
        shifts = shift.unbind(1)
    places = range(len(at))
    before, after = [state] * len(at), [state] * len(at)
    for place in reversed(places) if suffix.endswith("reverse") else places:
        before[place] = state
        hidden = functional.linear(state, weight_state, bias_state)
        if type(layer) is nn.LSTM:
            state, inside = _lstm(at[place] + hidden, inside)
        elif type(layer) is nn.GRU:
            state = _gru(at[place], hidden if shifts is None else hidden + shifts[place], state)
        else:
            squash = torch.tanh if layer.nonlinearity == "tanh" else torch.relu
            state = squash(at[place] + hidden)
        after[place] = state
    if note is not None:
        note(weight, bias, values, entering)
        note(weight_state, bias_state, torch.stack(before, 1), shift)
    return torch.stack(after, 1), state, inside


def _lstm(gates: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    enter, forget, new, leave = gates.chunk(4, 1)
    inside = forget.sigmoid() * inside + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * inside.tanh(), inside


def _gru(entering: Tensor, hidden: Tensor, state: Tensor) -> Tensor:
    size = state.shape[1]
    reset, keep = (entering[:, : 2 * size] + hidden[:, : 2 * size]).sigmoid().chunk(2, 1)
    new = (entering[:, 2 * size :] + reset * hidden[:, 2 * size :]).tanh()
    return new + keep * (state - new)
