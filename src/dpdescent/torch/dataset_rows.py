"""Rows of a data set for torch: read by position, and never before they are paid for, except for their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ..arrays import Integers
from ..errors import InfiniteValue, InvalidParameter, MissingValue
from .row_gradients import Batch

_REMEDY = "pass a TensorDataset, a pair of arrays, or a data set that has a length and is read by position"
_PADDING = "pad them to one length (torch.nn.utils.rnn.pad_sequence), and let the module ignore what is padded"
_PROBE_ROWS = 3


class DatasetRows:
    """The rows of a data set. Each is a tuple of one or more inputs and a target.

    Parameters
    ----------
    dataset : TensorDataset, tuple of arrays or tensors, or map-style Dataset
    device : torch.device
        Where batches are put.

    Notes
    -----
    **Privacy** The number of rows, and the shape and type of one row, are taken to be public. Cells of arrays are
    examined once, for values that are not numbers; otherwise no row is read here. Rows of another shape or type than
    the first add nothing, and neither whether there are any nor how many is told: the length of a text, for instance,
    is not public.
    """

    def __init__(self, dataset: Any, device: torch.device) -> None:
        self._device = device
        self._tensors: tuple[Tensor, ...] | None = None
        self._dataset = dataset
        if isinstance(dataset, TensorDataset):
            self._tensors = tuple(dataset.tensors)
        elif isinstance(dataset, tuple | list):
            self._tensors = tuple(_tensor(each) for each in dataset)
        elif isinstance(dataset, IterableDataset):
            raise InvalidParameter(f"an IterableDataset cannot be sampled by chance, row by row: {_REMEDY}")
        elif not hasattr(dataset, "__getitem__"):
            raise InvalidParameter(f"a {type(dataset).__name__} is no data set: {_REMEDY}")
        if self._tensors is not None:
            _require_tensors(self._tensors)
            self.count = int(self._tensors[0].shape[0])
            self._shapes = tuple((tuple(each.shape[1:]), each.dtype) for each in self._tensors)
        else:
            self.count = _length(dataset)
            self._shapes = _shapes(dataset[0]) if self.count else ()
        if not self.count:
            raise InvalidParameter("the data set has no rows")

    @property
    def remark(self) -> str | None:
        """What the statement says of rows that are read one by one, whatever they hold."""
        if self._tensors is not None:
            return None
        row = ", ".join(f"{str(dtype).removeprefix('torch.')} of shape {shape}" for shape, dtype in self._shapes)
        return (
            f"a row is {row}, as the first one; rows of another shape or type, or that cannot be read, add nothing, "
            "and how many is not told: pad sequences to one length (torch.nn.utils.rnn.pad_sequence)"
        )

    def batch(self, chosen: Integers) -> Batch:
        """Return the rows at these positions. One that cannot be read, or is of another shape, is absent."""
        absent = None
        if self._tensors is not None:
            at = torch.from_numpy(chosen)
            found = [each[at] for each in self._tensors]
        else:
            found = [torch.zeros((chosen.size, *shape), dtype=dtype) for shape, dtype in self._shapes]
            read = [self._read(int(i), [each[place] for each in found]) for place, i in enumerate(chosen)]
            if not all(read):
                absent = torch.tensor(read, device=self._device).logical_not()
        *inputs, targets = (each.to(self._device) for each in found)
        return Batch(tuple(inputs), targets, absent)

    def _read(self, position: int, places: Sequence[Tensor]) -> bool:
        """Copy the row at a position to its places, and return whether it is one of the public shapes and types.

        It is copied before the next one is read, as a data set may use one buffer for all of its rows.
        """
        try:
            row = _row(self._dataset[position])
            if tuple((tuple(each.shape), each.dtype) for each in row) != self._shapes:
                return False
            for place, each in zip(places, row, strict=True):
                place.copy_(each.detach())
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # whatever it is, it would tell of the row
            return False
        return True

    def probes(self) -> tuple[Batch, Batch]:
        """Return public rows of the same shapes, to be tried in this order.

        The first differ from each other in all that they hold, so that a module that mixes rows shows it: random real
        numbers, and whole numbers of 0 and 1. Where a module or a loss does not take those, the second hold random
        real inputs and zeros for all else.
        """
        return self._probe(different=True), self._probe(different=False)

    def _probe(self, different: bool) -> Batch:
        generator = torch.Generator().manual_seed(0)
        rows: list[Tensor] = []
        for position, (shape, dtype) in enumerate(self._shapes):
            whole = (_PROBE_ROWS, *shape)
            if dtype.is_floating_point and position + 1 < len(self._shapes):
                values = torch.randn(whole, generator=generator)
            elif not different:
                values = torch.zeros(whole)
            elif dtype.is_floating_point:
                values = torch.rand(whole, generator=generator)
            else:
                values = torch.randint(0, 2, whole, generator=generator)
                values[1] = 1 - values[0]
            rows.append(values.to(dtype))
        *inputs, targets = (each.to(self._device) for each in rows)
        return Batch(tuple(inputs), targets)


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidParameter(f"the rows of an array differ in shape: {_PADDING}") from None
    if array.dtype.kind not in "fiub":
        raise InvalidParameter(f"arrays must hold numbers, got the type {array.dtype}: encode them first")
    return torch.from_numpy(np.ascontiguousarray(array))


def _require_tensors(tensors: Sequence[Tensor]) -> None:
    if len(tensors) < 2:
        raise InvalidParameter(f"a row has at least an input and a target: {_REMEDY}")
    for each in tensors:
        if each.is_nested:
            raise InvalidParameter(f"the rows of a nested tensor differ in shape: {_PADDING}")
        if each.layout is not torch.strided:
            raise InvalidParameter("rows of sparse tensors cannot be read by position: call to_dense()")
    if any(each.dim() == 0 for each in tensors) or len({each.shape[0] for each in tensors}) > 1:
        raise InvalidParameter("inputs and targets must have the same number of rows")
    for position, each in enumerate(tensors):
        if not each.dtype.is_floating_point or bool(torch.isfinite(each).all()):
            continue
        name = "targets" if position + 1 == len(tensors) else f"inputs {position}" if len(tensors) > 2 else "inputs"
        if bool(torch.isnan(each).any()):
            raise MissingValue(f"the {name} contain NaN: fill the cells in or drop the rows")
        raise InfiniteValue(f"the {name} contain infinity: replace the cells or drop the rows")


def _length(dataset: Dataset[Any]) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        raise InvalidParameter(
            f"the data set does not know its length, and sums are divided by it: {_REMEDY}"
        ) from None


def _row(item: Any) -> tuple[Tensor, ...]:
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise InvalidParameter(f"a row must be a tuple of inputs and a target: {_REMEDY}")
    return tuple(torch.as_tensor(each) for each in item)


def _shapes(item: Any) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
    return tuple((tuple(each.shape), each.dtype) for each in _row(item))
