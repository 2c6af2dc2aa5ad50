r"""Gradients of layers, row by row, from what goes into a layer and what comes back to it.

A layer of activations a and output gradients b has, for each row, a weight gradient that is a sum over positions t,

.. math:: G = \sum_t b_t a_t^T, \qquad |G|^2 = \sum_{s,t} (a_s \cdot a_t)(b_s \cdot b_t).

With one position the norm is the product of two lengths. With several it comes from two Gram matrices, or from G
itself where that is the smaller. Sums over rows with weights are one matrix product, so no row's gradient of a large
layer is ever formed.

**Rounding.** Lengths and sums are computed in float64 from the numbers that the module has computed, so that what a
row adds is as long as its weight says to within 2^-30, whatever its numbers: products of two float32 numbers are
exact in float64, and neither vanish nor overflow. A norm that comes from Gram matrices is a sum of terms of either
sign, which may cancel, and a long gradient would look short. So 2^-30 of the square of
:math:`\sum_t |a_t||b_t|`, which no term exceeds, is added to the squared norm.

References
----------
Goodfellow, I. (2015). Efficient per-example gradient computations. arXiv:1510.01799.
Li, X. et al. (2022). Large language models can be strong differentially private learners. arXiv:2110.05679.
Bu, Z. et al. (2022). Scalable and efficient training of large convolutional neural networks with differential
privacy. arXiv:2205.10683.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from math import prod

from torch import Tensor, float64, linalg, nn
from torch.nn import functional

__all__ = ["RULES", "ParameterGradients", "Rule", "held_numbers"]

_CANCELLATION = 2.0**-30


class ParameterGradients(ABC):
    """The gradients of one parameter, one for each row."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return their squared lengths in float64, too short by no more than its rounding."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum over rows of weight times gradient in float64, in the shape of the parameter."""


class Formed(ParameterGradients):
    """Gradients that are small enough to be held: a tensor of shape (rows, *shape of the parameter)."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients

    def squared_norms(self) -> Tensor:
        return _lengths(self._gradients.flatten(1), 1).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        flat = weights.double() @ self._gradients.flatten(1).double()
        return flat.reshape(self._gradients.shape[1:])


class Outer(ParameterGradients):
    """Gradients b a^T of one position: ``left`` holds b and ``right`` holds a, one in each line."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self._left, self._right = left, right

    def squared_norms(self) -> Tensor:
        return (_lengths(self._left, 1) * _lengths(self._right, 1)).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return (self._left.double() * weights.double()[:, None]).T @ self._right.double()


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
        left = (self._left.double() * weights.double()[:, None, None, None]).permute(1, 2, 0, 3).flatten(2)
        right = self._right.permute(1, 0, 3, 2).flatten(1, 2).double()
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
        weighted = (self._left.double() * weights.double()[:, None, None]).flatten(0, 1)
        total = weighted.new_zeros(self._shape)
        return total.index_add_(0, self._tokens.flatten(), weighted)


def _lengths(vectors: Tensor, dimension: int) -> Tensor:
    """Return Euclidean lengths in float64, where no square of a float32 number vanishes or overflows."""
    lengths: Tensor = linalg.vector_norm(vectors, dim=dimension, dtype=float64)
    return lengths


def _summed_positions(left: Tensor, right: Tensor, shape: tuple[int, ...]) -> ParameterGradients:
    """Return gradients of several positions, as Gram matrices or formed, by which of the two is the smaller."""
    (features, positions), inputs = left.shape[2:], right.shape[2]
    if positions * positions <= features * inputs:
        return Positions(left, right, shape)
    formed = left @ right.transpose(2, 3)
    return Formed(formed.reshape(left.shape[0], *shape))


def _linear(layer: nn.Module, entered: Tensor, returned: Tensor) -> Iterator[tuple[Tensor, ParameterGradients]]:
    if _trained(layer.weight):
        if entered.dim() == 2:
            yield layer.weight, Outer(returned, entered)
        else:
            left, right = (
                side.flatten(1, -2).transpose(1, 2).unsqueeze(1).contiguous() for side in (returned, entered)
            )
            yield layer.weight, _summed_positions(left, right, tuple(layer.weight.shape))
    if _trained(layer.bias):
        yield layer.bias, Formed(returned.flatten(1, -2).sum(1) if returned.dim() > 2 else returned)


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


def held_numbers(layer: nn.Module, entered: Tensor, returned: Tensor) -> int:
    """Return how many numbers a row needs while the gradients of a layer are computed: a rule of shapes."""
    rows = max(1, entered.shape[0])
    held = int(entered.numel() + 2 * returned.numel()) // rows
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        positions = prod(returned.shape[2:])
        held += positions * prod(layer.weight.shape[1:]) * layer.groups
        held += min(2 * layer.groups * positions**2, layer.weight.numel())
    elif isinstance(layer, nn.Linear | nn.Embedding):
        positions = returned.numel() // (rows * returned.shape[-1])
        held += min(2 * positions**2, layer.weight.numel()) if positions > 1 else 0
    return int(held)
