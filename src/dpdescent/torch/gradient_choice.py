"""Which way to the gradients of rows is right for a module.

It is tried on public rows of the shapes of the data, against one row at a time: a matter of the module and of shapes,
never of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from ..errors import DPDescentError, InvalidParameter, RowDependence
from ..exact import keep_freed_memory
from .layers import MOST_POSITIONS, MOST_ROWS
from .module_checks import generator_states, require_no_memory, secret_randomness
from .row_gradients import (
    Batch,
    LoopedGradients,
    Loss,
    MappedGradients,
    ModuleGradients,
    RecordedGradients,
    RowGradients,
)
from .separation import mixing, moved_parameters

_HELD_NUMBERS = 2**24  # while a part of a batch is worked on: 64 MB of float32
_TOLERANCE = 1e-3
_TOLERANCE_ELSEWHERE = 1e-2  # at parameters that nobody has chosen, where more may cancel
_PROBE_ROWS = 3


def choose_gradients(
    module: nn.Module, loss: Loss, probe: Batch, most_rows: int = MOST_ROWS, sizes: Sequence[int] = ()
) -> ModuleGradients:
    """Return the quickest way that gives the gradients of single rows on public rows, or raise why there is none.

    The module is left as it was: its mode, its parameters and its buffers. ``probe`` has at least three public rows
    of the shapes of the data. Where rows pass through the module side by side, no more than ``most_rows`` are
    computed at once; ``sizes`` are those that batches are likely to have.

    **Privacy** The choice rests on the module, the loss and the shapes of rows. Rows that a module mixes are told
    apart in the second way, where each is a batch by itself. So are those of a module that does one thing or another
    depending on what rows hold, which public rows may not show: `torch.func` refuses to map it. And so are those of
    a module that counts its passes where nothing puts the count back, as it may mix rows later on. What is tried, and
    what that leaves open, is in `dpdescent.torch.separation`.
    """
    keep_freed_memory()  # every step needs the same megabytes again
    try:
        LoopedGradients(module, loss).of(probe)
    except Exception as problem:
        raise InvalidParameter(
            f"the gradient of a single row cannot be computed on public rows ({problem}): check that the module "
            "takes a batch of one row"
        ) from None
    try:
        changes = require_no_memory(module, loss, probe)
        return _quickest(module, loss, probe, most_rows, sizes, changes)
    except (RuntimeError, ValueError) as problem:
        if isinstance(problem, DPDescentError):
            raise
        # What an earlier pass has left does not fit, for instance a state of fewer rows, or numbers of a mapped one.
        raise RowDependence(
            f"a pass over public rows fails once others have passed ({problem}): keep nothing of a pass in the "
            "module, the loss or a variable outside of them"
        ) from None


def _quickest(
    module: nn.Module, loss: Loss, probe: Batch, most_rows: int, sizes: Sequence[int], changes: bool
) -> ModuleGradients:
    few = probe[:_PROBE_ROWS]
    recorded, mapped = RecordedGradients(module, loss), MappedGradients(module, loss)
    looped = LoopedGradients(module, loss)
    numbers = sum(each.numel() for each in mapped.parameters.values())
    mapped.rows_at_once = looped.rows_at_once = rows_at_once(numbers)
    found = "it holds something that changes with passes, so that a later one may mix rows" if changes else None
    if not changes and _records(recorded, mapped, few):
        held, positions = recorded.numbers_per_row(probe)
        at_once = max(1, min(most_rows, rows_at_once(held), MOST_POSITIONS // positions))
        recorded.rows_at_once = at_once
        found = mixing(recorded, probe, at_once, (*sizes, *(size % at_once for size in sizes)))
        if found is None:
            return recorded
    with _repeatable(module, loss, probe):
        maps = _agrees(mapped, few)
    chosen: ModuleGradients = mapped if maps and mixing(mapped, probe, mapped.rows_at_once) is None else looped
    chosen.mixing = found
    return chosen


def _records(recorded: RecordedGradients, mapped: MappedGradients, few: Batch) -> bool:
    """Return whether a record of layers gives the gradients of single rows, as far as a few of them tell."""
    if not recorded.has_rules():
        return False
    with _repeatable(recorded.module, recorded.loss, few):
        if not (_maps(mapped, few) and _agrees(recorded, few) and _agrees_elsewhere(recorded, few)):
            return False
    # In the mode of training a row that is alone draws the same random numbers both ways.
    return _agrees_elsewhere(recorded, few[:1])


def rows_at_once(numbers: int) -> int:
    """Return how many rows are computed at once that hold so many numbers each."""
    return min(MOST_ROWS, max(1, _HELD_NUMBERS // max(1, numbers)))


def _maps(way: MappedGradients, rows: Batch) -> bool:
    """Return whether neither branches nor shapes of a pass depend on what rows hold, as far as `torch.func` tells."""
    try:
        way.losses(rows)
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return False
    return True


def _agrees(way: ModuleGradients, rows: Batch) -> bool:
    """Return whether lengths and a weighted sum are those of one row at a time, at the present parameters."""
    try:
        return _is_like(way.of(rows), LoopedGradients(way.module, way.loss).of(rows), _TOLERANCE)
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return False


def _agrees_elsewhere(way: ModuleGradients, rows: Batch) -> bool:
    """Return the same at other parameters: a weight may be used once more, behind a layer that is zero at first."""
    for sign in (1, -1):
        with moved_parameters(way.parameters, sign):
            try:
                with secret_randomness(0):
                    found = way.of(rows)
                with secret_randomness(0):
                    single = LoopedGradients(way.module, way.loss).of(rows)
            except Exception:
                return False
        finite = torch.isfinite(single.losses).all() and torch.isfinite(single.norms()).all()
        if bool(finite) and not _is_like(found, single, _TOLERANCE_ELSEWHERE):
            return False
    return True


def _is_like(found: RowGradients, single: RowGradients, tolerance: float) -> bool:
    weights = torch.arange(1, len(single.losses) + 1).to(single.losses)
    lengths = single.norms()
    scale = float(lengths.max())
    return bool(
        torch.allclose(found.losses, single.losses, rtol=tolerance, atol=tolerance)
        and torch.allclose(found.norms(), lengths, rtol=tolerance, atol=tolerance * scale)
        and all(
            torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale)
            for one, other in zip(found.weighted_sum(weights), single.weighted_sum(weights), strict=True)
        )
    )


@contextmanager
def _repeatable(module: nn.Module, loss: Loss, probe: Batch) -> Iterator[None]:
    """Switch off random layers, so that rows in a batch can be compared with rows that are alone.

    Only what is known to be random is switched off. If that is not enough, the whole module is.
    """
    everything = list(module.modules())
    modes = [each.training for each in everything]
    random = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
    try:
        for each in everything:
            each.training = each.training and not isinstance(each, random)
        rows, before = LoopedGradients(module, loss), generator_states()
        places = [slice(row, row + 1) for row in range(len(probe))]
        with torch.no_grad():  # row by row, as several at once have generators of their own
            first, second = (torch.cat([rows.losses(probe[row]) for row in places]) for _ in range(2))
        if generator_states() != before or not torch.equal(first, second):
            module.eval()
        yield
    finally:
        for each, mode in zip(everything, modes, strict=True):
            each.training = mode
