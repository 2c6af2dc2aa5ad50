r"""Rows of a data set for torch: read by position, and never before they are paid for, except for their shapes.

What a row adds to a sum over a batch: its clipped gradient, its place in a histogram, or the fall of its loss.

**Rows keep their places.** The last digits of a row's gradient depend on the shape of the batch and on the row's
place in it, since they decide in which order products are summed. Removing a row would therefore change what the
others add, and where a module nearly fits its rows, last digits are all that is left of a gradient. So a row that is
removed, or cannot be computed, leaves its place to a public row that adds nothing. Then two tables that differ in one
row are computed in tensors of the same shapes, in which all other rows hold the same numbers at the same places, and
what they add is the same to the last bit. This takes for granted that torch computes what belongs to one row of a
batch from that row, the parameters and the shapes alone (`dpdescent.torch.gradient_choice` tries it on public rows).
Parts of a batch are added as whole numbers of a lattice, without rounding, so only the part with the row that differs
is another one.

**Lengths.** Bins lie at powers of two. A row with a gradient of length :math:`2^{k+f}`, 0 <= f < 1, counts 1 - f in
bin k and f in bin k + 1, so its vector is at most 1 long. Lengths below 2^-7 share the lowest bin.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ..arrays import Floats, Integers
from ..curator import Sampling
from ..errors import InfiniteValue, InvalidParameter, MissingValue
from ..statement import Origin, public_fact
from .row_forms import LoaderRows, RowForm
from .row_gradients import Batch, ModuleGradients, RowGradients
from .training_plan import Clipping

_REMEDY = "pass a TensorDataset, a pair of arrays, or a data set that has a length and is read by position"
_PADDING = "pad them to one length (torch.nn.utils.rnn.pad_sequence), and let the module ignore what is padded"
_PROBE_ROWS = 3


class DatasetRows:
    """The rows of a data set. Each is a tuple of one or more inputs and a target.

    Batches are put on ``device``. ``targets`` are the parts of rows that are dictionaries which the loss compares
    with, unless the module has its ``own_loss``; each row is seen in so many ``views``. ``classes`` are the public
    labels of which a row has one, which become their positions; without them targets stay as they are.

    **Privacy** The number of rows, and the shape and type of one row, are taken to be public. Cells of arrays are
    examined once, for values that are not numbers; otherwise no row is read here. Rows of another shape or type than
    the first add nothing, and whether there are any is told by released counts alone (`absence_told`): the length of
    a text, for instance, is not public. Rows of another label than the ``classes`` are absent as well.
    """

    def __init__(
        self,
        dataset: Any,
        device: torch.device,
        classes: int | Sequence[int] | None = None,
        *,
        targets: str | Sequence[str] | None = None,
        own_loss: bool = False,
        views: int = 1,
    ) -> None:
        self._device, self._reader = device, None
        self._classes = None if classes is None else _sorted_classes(classes)
        self._tensors: tuple[Tensor, ...] | None = None
        self.batch_size, workers = None, 0
        if isinstance(dataset, DataLoader):
            self.batch_size, workers = dataset.batch_size, dataset.num_workers
            dataset = LoaderRows(dataset)
        self._dataset = dataset
        if isinstance(dataset, TensorDataset):
            dataset = tuple(dataset.tensors)
        if isinstance(dataset, tuple | list | Mapping) and not _lists_rows(dataset):
            self.form = RowForm.of(dataset, targets, own_loss, views)
            self._tensors = tuple(_tensor(each) for each in self.form.parts(dataset))
        elif isinstance(dataset, IterableDataset):
            raise InvalidParameter(f"an IterableDataset cannot be sampled by chance, row by row: {_REMEDY}")
        elif not hasattr(dataset, "__getitem__"):
            raise InvalidParameter(f"a {type(dataset).__name__} is no data set: {_REMEDY}")
        if self._tensors is not None:
            _require_tensors(self._tensors)
            self.count = int(self._tensors[0].shape[0])
        else:
            self.count = _length(dataset)
        if not self.count:
            raise InvalidParameter("the data set has no rows")
        if self._tensors is not None:
            one = [each[:1] for each in self._tensors]
            self._shapes = _shapes([each[0] for each in self._seen(one)])
        else:
            first = dataset[0]
            self.form = RowForm.of(first, targets, own_loss, views)
            try:
                self._shapes = _shapes(self._parts(0, first))
            except (TypeError, ValueError, RuntimeError):
                raise InvalidParameter(
                    "the parts of the first row cannot be made tensors: let the data set return numbers alone"
                ) from None
            if workers:
                self._reader = _Workers(self, workers)
        if self._classes is not None:
            shape, kind = self._shapes[-1]
            if shape or kind.is_floating_point or kind.is_complex:
                name = str(kind).removeprefix("torch.")
                raise InvalidParameter(
                    f"the target of a row is {name} of shape {shape}, and with classes= it must be one whole number: "
                    "convert the labels, or leave classes out"
                )

    @property
    def classes(self) -> int | None:
        """How many classes are declared, if any are."""
        return None if self._classes is None else len(self._classes)

    @property
    def public_classes(self) -> tuple[str, ...]:
        """What the statement says of declared classes."""
        if self._classes is None:
            return ()
        return (public_fact("classes", f"{len(self._classes)} of them", Origin.ARGUMENT),)

    @property
    def remark(self) -> str | None:
        """What the statement says of rows that are read one by one, whatever they hold."""
        if self._tensors is not None:
            return None
        row = ", ".join(f"{str(dtype).removeprefix('torch.')} of shape {shape}" for shape, dtype in self._shapes)
        return (
            f"a row is {row}, as the first one; rows of another shape or type, or that cannot be read, add nothing, "
            "and released counts alone tell of them: pad sequences to one length (torch.nn.utils.rnn.pad_sequence)"
        )

    def batch(self, chosen: Integers) -> Batch:
        """Return the rows at these positions. One that cannot be read, or is of another shape, is absent."""
        absent = None
        if self._tensors is not None:
            at = torch.from_numpy(chosen)
            found = self._seen([each[at] for each in self._tensors])
        else:
            found = [torch.zeros((chosen.size, *shape), dtype=dtype) for shape, dtype in self._shapes]
            rows = self._reader.rows(chosen) if self._reader is not None else map(self._row, chosen.tolist())
            read = [_put(row, [each[place] for each in found]) for place, row in enumerate(rows)]
            if not all(read):
                absent = torch.tensor(read, device=self._device).logical_not()
        *inputs, targets = (each.to(self._device) for each in found)
        if self._classes is not None:
            targets, unknown = _positions(self._classes.to(self._device), targets)
            if bool(unknown.any()):
                absent = unknown if absent is None else absent | unknown
        return Batch(tuple(inputs), targets, absent)

    def _row(self, position: int) -> list[Tensor] | None:
        """Return the parts of the row at a position, or None unless they have the public shapes and types."""
        try:
            parts = self._parts(position, self._dataset[position])
            return [each.detach() for each in parts] if _shapes(parts) == self._shapes else None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # whatever it is, it would tell of the row
            return None

    def _parts(self, position: int, row: Any) -> list[Tensor]:
        """Return the parts of the row at a position, as it was read. Of several views, each is another reading."""
        first = [torch.as_tensor(each) for each in self.form.parts(row)]
        if self.form.views == 1:
            return first
        read = [[each.clone() for each in first]]
        for _ in range(self.form.views - 1):
            again = self.form.parts(self._dataset[position])
            read.append([torch.as_tensor(each).clone() for each in again])
        together = [torch.stack(each) for each in zip(*read, strict=True)]
        return [*together[:-1], read[0][-1]]

    def _seen(self, parts: list[Tensor]) -> list[Tensor]:
        """Return rows of tensors with as many views of each input as there are."""
        if self.form.views == 1:
            return parts
        views = (each.unsqueeze(1).repeat_interleave(self.form.views, 1) for each in parts[:-1])
        return [*views, parts[-1]]

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
        if self._classes is not None:
            targets = targets.long().remainder(len(self._classes))
        return Batch(tuple(inputs), targets)


def _sorted_classes(classes: int | Sequence[int]) -> Tensor:
    """Return declared labels in order, or raise what is wrong with them."""
    if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
        labels = np.arange(max(0, int(classes)))
    else:
        labels = np.unique(np.asarray(classes))
    if labels.size < 2 or labels.dtype.kind not in "iub":
        raise InvalidParameter(
            "classes must be a number of labels from 0 on, or two or more labels that are whole numbers, got "
            f"{classes}"
        )
    return torch.from_numpy(labels.astype(np.int64))


def _positions(classes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of labels among the classes, and which labels are none of them."""
    wide = targets.to(torch.int64)
    places = torch.searchsorted(classes, wide).clamp_max(len(classes) - 1)
    unknown = classes[places] != wide
    return places.where(~unknown, 0), unknown


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


def _lists_rows(dataset: Any) -> bool:
    """Return whether a list holds rows and not columns: its first element is a tuple or a dictionary."""
    return isinstance(dataset, list) and bool(dataset) and isinstance(dataset[0], tuple | Mapping)


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


def _shapes(parts: Sequence[Tensor]) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
    return tuple((tuple(each.shape), each.dtype) for each in parts)


def _put(row: Sequence[Tensor] | None, places: Sequence[Tensor]) -> bool:
    """Copy a row to its places, before the next one is read: a data set may use one buffer for all of its rows."""
    if row is None:
        return False
    try:
        for place, each in zip(places, row, strict=True):
            place.copy_(each)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # of a kind that cannot be copied
        return False
    return True


class _Workers:
    """Processes that read rows, as those of a DataLoader; they are started once."""

    def __init__(self, rows: DatasetRows, count: int) -> None:
        self._positions: list[int] = []
        self._loader = DataLoader(
            _Read(copy.copy(rows)),
            sampler=self._positions,
            batch_size=None,
            num_workers=count,
            persistent_workers=True,
        )

    def rows(self, chosen: Integers) -> Iterator[list[Tensor] | None]:
        """Return the rows at these positions in their order."""
        self._positions[:] = chosen.tolist()
        return iter(self._loader)


class _Read(Dataset[Any]):  # type: ignore[misc]
    """Rows by their positions; of one that cannot be read there is None."""

    def __init__(self, rows: DatasetRows) -> None:
        self._rows = rows

    def __getitem__(self, position: int) -> list[Tensor] | None:
        row = self._rows._row(position)
        return None if row is None else [each.clone() for each in row]


_LOWEST, _HIGHEST = -7, 32  # 2^-7 is next to SHORTEST, below which no length counts
BINS = _HIGHEST - _LOWEST + 1
_BEYOND_CHANCE = 4.5  # deviations below the expected number of rows; by chance, three times in a million batches
_CERTAIN = 6.0  # deviations of the noise, beyond which a bin is believed; by chance, once in 10^7 histograms


def clipped_sum(way: ModuleGradients, batch: Batch, clipping: Clipping, shortest: float, unit: float) -> Tensor:
    """Return the sum of clipped gradients in whole multiples of ``unit``; rows that are not finite add nothing."""
    found = way.of(batch)
    norms = found.norms()
    weights = clipping.weights(norms, shortest).where(_counted(batch, found, norms), 0.0)
    return on_lattice(torch.cat([each.reshape(-1) for each in found.weighted_sum(weights)]), unit)


def length_counts(way: ModuleGradients, batch: Batch) -> Tensor:
    """Return the histogram of lengths. Those outside of 2^-7 and 2^32 count in the outermost bins."""
    found = way.of(batch)
    norms = found.norms()
    norms = norms[_counted(batch, found, norms)]
    places = norms.clamp_min(2.0**_LOWEST).log2().clamp_max(_HIGHEST) - _LOWEST
    lower = places.floor().clamp_max(BINS - 2)
    counts = torch.zeros(BINS, dtype=torch.float64, device=norms.device)
    counts.index_add_(0, lower.long(), lower + 1 - places)
    counts.index_add_(0, lower.long() + 1, places - lower)
    return counts


def on_lattice(total: Tensor, unit: float) -> Tensor:
    """Return the nearest whole multiples of a unit, as int64 on the processor."""
    if not bool(torch.isfinite(total).all()):
        raise ArithmeticError("a row has made the sum infinite")
    return (total.cpu() / unit).round_().to(torch.int64)


def _counted(batch: Batch, found: RowGradients, norms: Tensor) -> Tensor:
    finite = torch.isfinite(norms) & torch.isfinite(found.losses)
    return finite if batch.absent is None else finite & ~batch.absent


def typical_length(noisy: Floats, deviation: float) -> float | None:
    """Return the geometric mean of the lengths in bins that are full beyond doubt, or None if there are none."""
    counts = np.where(noisy > _CERTAIN * deviation, noisy, 0.0)
    total = float(counts.sum())
    if not total:
        return None
    return math.pow(2.0, float(counts @ np.arange(_LOWEST, _HIGHEST + 1)) / total)


def absence_told(counted: float, deviation: float, sampling: Sampling) -> str | None:
    """Return what a noisy number of rows tells of those that added nothing, or None if it tells nothing.

    ``counted`` rows of one batch have a finite length, with noise of that deviation.
    """
    chance = 0.0 if sampling.fixed_size else sampling.size * (1 - sampling.rate)
    margin = _BEYOND_CHANCE * math.sqrt(deviation**2 + chance)
    if counted + margin >= sampling.size:
        return None
    low, high = (max(0.0, counted + sign * margin) / sampling.size for sign in (-1, 1))
    return (
        f"{low:.0%} to {high:.0%} of the rows of the first batch added to it, as the histogram of lengths tells that "
        "was released: the others cannot be read or computed, have another shape or type than the first row, or no "
        "finite loss and gradient (a label that is none of the module's outputs, for instance: pass classes=), and "
        "add nothing"
    )


def loss_falls(
    gradients: ModuleGradients,
    batch: Batch,
    direction: Sequence[Tensor],
    step_sizes: Floats,
    bound: float,
    unit: float,
) -> Tensor:
    """Return the sum over rows of the fall of the clipped loss for each step size, in whole multiples of ``unit``.

    **Privacy** A row's clipped losses lie in [0, ``bound``], a loss that is not a number counting as the bound. Each
    fall is rounded by itself, so a row adds at most bound/unit + 1/2, and the sum of integers is exact.
    """
    parameters = list(gradients.parameters.values())
    before = [each.detach().clone() for each in parameters]
    here = _clipped_losses(gradients, batch, bound)
    falls = torch.zeros(step_sizes.size, dtype=torch.int64)
    present = 1 if batch.absent is None else (~batch.absent).cpu()
    try:
        for position, size in enumerate(step_sizes.tolist()):
            for each, start, along in zip(parameters, before, direction, strict=True):
                each.data.copy_(start - size * along)
            changes = (here - _clipped_losses(gradients, batch, bound)) / unit
            falls[position] = (changes.round().to(torch.int64) * present).sum()
    finally:
        for each, start in zip(parameters, before, strict=True):
            each.data.copy_(start)
    return falls


def _clipped_losses(gradients: ModuleGradients, batch: Batch, bound: float) -> Tensor:
    with torch.no_grad():
        losses = gradients.losses(batch).to("cpu", torch.float64)
    return losses.clamp(0.0, bound).nan_to_num(bound)
