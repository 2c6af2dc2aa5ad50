"""Forms of rows: tuples and dictionaries, several targets, a loss that the module computes, several views of a row.

Inside, a row is always a few tensors for the module and one target. A `RowForm` takes other rows apart, and puts them
together again where the module and the loss are called. It is read from the first row, whose form is public.

**Views.** With ``views=K`` a row is read K times, or shown K times to the random layers of the module, and its loss
is the mean over the views. Its gradient is their mean before it is clipped, so that a row is charged once however
many views it has (De et al. 2022).

References
----------
De, S. et al. (2022). Unlocking high-accuracy differentially private image classification through scale.
arXiv:2204.13650.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from ..errors import InvalidParameter, require_positive_integer
from .row_gradients import Loss

_REMEDY = "pass a TensorDataset, a pair of arrays, or a data set that has a length and is read by position"
_LABELS = "labels"


@dataclass(frozen=True)
class RowForm:
    """What the parts of a row are."""

    #: By which the module takes its inputs; None if it takes them by position.
    names: tuple[str, ...] | None
    #: The names of several targets, how many there are, or None for a single one.
    targets: tuple[str, ...] | int | None
    single: str | None = None  # the name of a single target in a dictionary
    own: bool = False  # whether the module computes the loss itself, from inputs and targets
    views: int = 1  # how many views of a row there are

    @classmethod
    def of(cls, row: Any, targets: str | Sequence[str] | None, own: bool, views: int) -> RowForm:
        """Return the form of a public row, or of columns of rows."""
        count = require_positive_integer("views", views)
        if isinstance(row, Mapping):
            wanted = _LABELS if targets is None else targets
            given = (wanted,) if isinstance(wanted, str) else tuple(wanted)
            missing = [each for each in given if each not in row]
            if missing or len(given) == len(row):
                held, wrong = (", ".join(map(repr, each)) for each in (row, given))
                raise InvalidParameter(
                    f"a row is a dictionary of {held}, and its target is {wrong}: pass targets=, the name of what "
                    "the loss compares with, or several names"
                )
            names = tuple(each for each in row if each not in given)
            if isinstance(wanted, str):
                return cls(names, None, wanted, own, count)
            return cls(names, given, None, own, count)
        if targets is not None:
            raise InvalidParameter("targets= names parts of dictionaries, and rows are none here: leave it out")
        if not isinstance(row, tuple | list) or len(row) < 2:
            raise InvalidParameter(f"a row must be a tuple of inputs and a target, or a dictionary: {_REMEDY}")
        last = row[-1]
        if isinstance(last, Mapping):
            return cls(None, tuple(last), None, own, count)
        return cls(None, len(last) if _several(last) else None, None, own, count)

    @property
    def plain(self) -> bool:
        """Whether a row is a tuple of inputs and one target already, and seen once."""
        return self.names is None and self.targets is None and not self.own and self.views == 1

    @property
    def count(self) -> int:
        """How many targets there are."""
        return self.targets if isinstance(self.targets, int) else 1 if self.targets is None else len(self.targets)

    def parts(self, row: Any) -> list[Any]:
        """Return the inputs of a row and its targets, one after the other; the last one is the target inside."""
        if self.names is not None:
            target_names = (self.single,) if isinstance(self.targets, int | None) else self.targets
            if len(row) != len(self.names) + len(target_names):
                raise ValueError("a row has other parts than the first one")
            found = [row[each] for each in (*self.names, *target_names)]
        else:
            if not isinstance(row, tuple | list) or len(row) < 2:
                raise InvalidParameter(f"a row must be a tuple of inputs and a target, or a dictionary: {_REMEDY}")
            *inputs, last = row
            found = [*inputs, *self._targets_of(last)]
        return [*found, found[-1]] if self.own else found

    def _targets_of(self, last: Any) -> list[Any]:
        if isinstance(self.targets, tuple):
            return [last[each] for each in self.targets]
        if self.targets is None:
            return [last]
        if len(last) != self.targets:
            raise ValueError("a row has another number of targets than the first one")
        return list(last)

    def reader(self, module: nn.Module, loss: Loss | None) -> tuple[nn.Module, Loss]:
        """Return a module and a loss of the tensors inside, given those of the caller."""
        if loss is None and not self.own:
            raise InvalidParameter("there is no loss: pass one")
        if self.plain:
            assert loss is not None
            return module, loss
        return _FormedModule(module, self), _OwnLoss() if self.own else _FormedLoss(loss, self)

    def call(self, module: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Return what the module returns."""
        if self.names is None:
            return module(*inputs)
        known = [*self.names]
        if self.own:
            known += [str(self.single)] if isinstance(self.targets, int | None) else [*self.targets]
        return module(**dict(zip(known, inputs, strict=True)))

    def joined(self, targets: Sequence[Tensor]) -> Any:
        """Return targets as the loss of the caller takes them."""
        if self.targets is None:
            return targets[0]
        return tuple(targets) if isinstance(self.targets, int) else dict(zip(self.targets, targets, strict=True))


class _FormedModule(nn.Module):  # type: ignore[misc]
    """Calls a module with the inputs of rows, and keeps targets beside its outputs for a loss that has several."""

    def __init__(self, module: nn.Module, form: RowForm) -> None:
        super().__init__()
        self.module, self.form = module, form
        self.train(module.training)
        for name, each in module.named_modules():  # the mode of each part is its own
            self.module.get_submodule(name).training = each.training

    def forward(self, *parts: Tensor) -> Any:
        form = self.form
        if form.own:
            rows = range(len(parts[0]))
            return torch.stack([self._own_loss([each[row : row + 1] for each in parts]) for row in rows])
        if form.views > 1:
            parts = tuple(each.flatten(0, 1) for each in parts)
        count = len(parts) - (form.count - 1)
        outputs = form.call(self.module, parts[:count])
        return (outputs, *parts[count:]) if form.count > 1 else outputs

    def _own_loss(self, row: list[Tensor]) -> Tensor:
        """Return the loss of a batch of one row, of one view or the mean of several."""
        if self.form.views > 1:
            row = [each.flatten(0, 1) for each in row]
        found = self.form.call(self.module, row)
        loss = found.get("loss") if isinstance(found, Mapping) else getattr(found, "loss", None)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise InvalidParameter(
                "the module returns no loss for a row and its target: pass a loss, which maps outputs and targets to "
                "one number for each row"
            )
        return loss.reshape(())


class _FormedLoss:
    """Compares outputs with all targets of a row; the loss of a row is the mean over its views."""

    def __init__(self, loss: Loss | None, form: RowForm) -> None:
        self.loss, self.form = loss, form

    def __call__(self, outputs: Any, last: Tensor) -> Tensor:
        assert self.loss is not None
        several = self.form.count > 1
        views = self.form.views
        wanted = [*(outputs[1:] if several else ()), last if views == 1 else last.repeat_interleave(views, 0)]
        losses = self.loss(outputs[0] if several else outputs, self.form.joined(wanted))
        return losses if views == 1 else losses.reshape(len(last), views).mean(1)


class _OwnLoss:
    def __call__(self, losses: Tensor, targets: Tensor) -> Tensor:
        return losses


# Rows that are not of one shape ---------------------------------------------------------------------------------


class PaddedRows(Dataset[Any]):  # type: ignore[misc]
    """A data set whose rows hold sequences of different lengths, padded or cut to one public length.

    Parameters
    ----------
    dataset : map-style Dataset or sequence
        Rows are tuples or dictionaries. Every tensor in them that has dimensions is a sequence along the first one.
    length : int
        Public.
    values : number, or tuple or dict of numbers
        What to pad with, for all parts of a row or for each: the token of a padding, or -100 for targets of a
        language model, which losses ignore.

    Examples
    --------
    >>> import torch
    >>> from dpdescent.torch import PaddedRows
    >>> rows = [{"input_ids": [5, 6], "labels": [6, 7]}, {"input_ids": [1, 2, 3, 4], "labels": [2, 3, 4, 5]}]
    >>> padded = PaddedRows(rows, 3, {"input_ids": 0, "labels": -100})
    >>> padded[0]["labels"].tolist(), padded[1]["input_ids"].tolist()
    ([6, 7, -100], [1, 2, 3])
    """

    def __init__(self, dataset: Any, length: int, values: Any = 0) -> None:
        self._dataset, self._values = dataset, values
        self._length = require_positive_integer("length", length)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, position: int) -> Any:
        row, values = self._dataset[position], self._values
        if isinstance(row, Mapping):
            named = values if isinstance(values, Mapping) else dict.fromkeys(row, values)
            return {name: self._padded(each, named.get(name, 0)) for name, each in row.items()}
        given = values if isinstance(values, tuple | list) else [values] * len(row)
        return tuple(self._padded(each, value) for each, value in zip(row, given, strict=True))

    def _padded(self, values: Any, value: float) -> Tensor:
        tensor = torch.as_tensor(values)
        if not tensor.dim():
            return tensor
        cut = tensor[: self._length]
        rest = [0, 0] * (cut.dim() - 1) + [0, self._length - len(cut)]
        return functional.pad(cut, rest, value=value)


class LoaderRows(Dataset[Any]):  # type: ignore[misc]
    """The rows of a DataLoader, each of which passes through its collate function by itself."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._dataset, self._collate = loader.dataset, loader.collate_fn
        self._batched = loader.batch_sampler is not None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, position: int) -> Any:
        row = self._dataset[position]
        return _mapped(_only_row, self._collate([row])) if self._batched else self._collate(row)


def _only_row(values: Any) -> Tensor:
    (row,) = torch.as_tensor(values)
    return row


def _mapped(function: Callable[[Any], Tensor], value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _mapped(function, each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_mapped(function, each) for each in value)
    return function(value)


def _several(target: Any) -> bool:
    """Return whether a target is a tuple of tensors, and not the numbers of one."""
    return isinstance(target, tuple) and any(isinstance(each, Tensor | np.ndarray) for each in target)
