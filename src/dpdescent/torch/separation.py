"""Whether a way to gradients keeps rows apart: what belongs to a row must not change with the others of its batch.

It is tried on public rows, in the mode of the training. Two batches hold the same numbers in some rows and different
ones in all others, and random layers draw the same numbers for both, by one seed. Losses, lengths and the weighted
sum of the rows that are the same must then be the same to the last bit. What is tried:

places
    On 37 rows, each one is kept while each other one is replaced.
contents
    Others become random rows, copies of a kept one, zeros, large and huge ones, infinite ones and what is no number,
    which no factor hides. All rows are random normal numbers, also small and large ones, numbers between 0 and 1,
    counts, flags, negative ones, and numbers with gaps: cells that are no number, or codes such as -1 and 999, for
    which a module may put the mean of a batch. Whole numbers are 0 and 1, bytes, and up to the size of the smallest
    table of vectors.
named numbers
    In small batches, cells hold the numbers that the module and its loss name in their code or keep in attributes and
    variables: the token of a padding or a code for what is not known, of which one row has more than another.
targets
    Real ones between 0 and 1, of 0 and 1, and with gaps; whole ones of 0 and 1, of as many classes as there are
    outputs, or of 3, 10 and 100 where outputs are no tensor, and -100, which losses ignore.
chance
    A module that draws random numbers is tried with 88 seeds, so that one that mixes in a fraction p of its passes is
    missed with probability (1 - p)^88 at most.
weights
    The initial ones, others beside them, and others beside their opposites, as a gate may be closed at first.
numbers of rows
    All from 2 to 37, many beyond, the numbers that the code names and those next to them, and the most that a
    training computes at once, which is always among them.
branches
    `torch.func` must be able to map the module over batches, which it refuses where numbers in rows decide what is
    computed.

All of this is a test and no proof: a module that is made to pass it can still mix rows, for instance at one number of
rows that is not tried, or seldom and by chance that no generator of torch, numpy or Python gives, such as that of the
operating system. Ways that compute each row by itself do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from .layers import writing_out
from .module_checks import generator_states, named_numbers, secret_randomness
from .row_gradients import Batch, ModuleGradients, unchanged

ROWS = 37  # a prime, so that no group of rows divides it
_SEEDS = 88
_SIZES = (*range(2, ROWS), 40, 48, 50, 60, 64, 72, 80, 96, 100, 128, 200, 256, 500, 512, 1000, 1024, 2048)
_BYTES = 256
_Found = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
_MOVED = 0.5  # in sizes of the parameters

Content = Literal["drawn", "copied", "zero", "large", "huge", "infinite", "no number"]
_Real = Literal["normal", "small", "large", "uniform", "negative", "counts", "flags", "coded", "missing"]
_CODES = (0.0, 1.0, -1.0, 9.0, -9.0, 99.0, -99.0, 999.0, -999.0)  # that stand for a number which is not known
_CLASSES = (3, 10, 100)
_GAPS = ((1.0, 0.0, 1.0), (0.5, 0.0, 1.0), (0.5, 0.5, 0.5))  # shares of a kept row, and of another before and after
_BEYOND = ((1.0, 0.0, 1.0),)
_FARTHER = 2.0**20  # times as much
_IGNORED = -100  # by losses of torch, unless they are told another one
_FACTORS: dict[Content, float] = {"zero": 0.0, "large": 2.0**20, "huge": 2.0**100, "infinite": math.inf}


def mixing(
    way: ModuleGradients, probe: Batch, most_rows: int, sizes: Iterable[int] = (), *, branches: bool = True
) -> str | None:
    """Return in which trial on public rows one row changed what belongs to another, or None if none has shown it.

    The way is left as it was, its parameters to the last bit. ``probe`` has public rows of the shapes of the data;
    with at most one row at once there is nothing to try. ``sizes`` are tried besides a fixed list. With ``branches``
    a module that `torch.func` cannot map over batches counts as one that mixes rows: it may branch on what they hold,
    or have a layer that `torch.func` does not know.

    **Privacy** A matter of the module, the loss and of shapes.
    """
    if most_rows < 2:
        return None
    rows = min(ROWS, most_rows)
    try:
        if branches and way.together and _branches_on_rows(way, probe, rows):
            return "numbers in rows decide what is computed, or torch.func cannot tell whether they do"
        trials = _Trials(way, probe, rows)
        if not way.together:
            return trials.few()
        named = named_numbers(way.module, way.loss)
        beside = {int(each) + step for each in named for step in (-1, 0, 1)}
        wanted = sorted({*_SIZES, *sizes, *beside, most_rows - 1, most_rows})
        return (
            trials.contents()
            or trials.named(named)
            or trials.parameters()
            or trials.chance()
            or trials.numbers_of_rows(wanted, most_rows)
        )
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return "some public rows cannot be computed"


@dataclass(frozen=True)
class _Kind:
    """Of which kind public rows are: how real numbers are distributed, and below which number whole ones are.

    ``ignored`` whole targets are -100, half of them.
    """

    real: _Real | None = "normal"
    below: int | None = None
    target: _Real | None = None
    classes: int | None = None
    ignored: bool = False

    def rows(self, probe: Batch, count: int, seed: int) -> Batch:
        """Return random rows. What has no distribution or bound is that of given rows in the same place."""
        generator = torch.Generator().manual_seed(seed)

        def draw(each: Tensor, real: _Real | None, below: int | None) -> Tensor:
            shape = (count, *each.shape[1:])
            if each.is_floating_point() and real is not None:
                return _numbers(real, shape, generator).to(each)
            if not each.is_floating_point() and below is not None:
                return torch.randint(0, below, shape, generator=generator).to(each)
            return each.gather(0, torch.randint(0, len(probe), shape, generator=generator).to(each.device))

        inputs = tuple(draw(each, self.real, self.below) for each in probe.inputs)
        targets = draw(probe.targets, self.target, self.classes)
        if self.ignored:
            left_out = torch.rand(targets.shape, generator=generator) < 0.5
            targets = targets.masked_fill(left_out.to(targets.device), _IGNORED)
        return Batch(inputs, targets)


def _numbers(real: _Real, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if real in ("uniform", "negative"):  # as the brightness of pixels
        return (1 if real == "uniform" else -1) * torch.rand(shape, generator=generator)
    if real in ("counts", "flags"):
        return torch.randint(0, 256 if real == "counts" else 2, shape, generator=generator)
    numbers = torch.randn(shape, generator=generator)
    if real in ("coded", "missing"):
        codes = torch.tensor(_CODES if real == "coded" else [math.nan])
        chosen = codes[torch.randint(0, len(codes), shape, generator=generator)]
        return torch.where(torch.rand(shape, generator=generator) < 0.5, chosen, numbers)
    return {"normal": 1.0, "small": 2.0**-10, "large": 2.0**10}[real] * numbers


_ORDINARY = _Kind()


class _Trials:
    """Pairs of batches that differ in some rows, and whether what belongs to the others is the same."""

    def __init__(self, way: ModuleGradients, probe: Batch, rows: int) -> None:
        self._way, self._probe, self._rows = way, probe, more_rows(probe, rows)
        self._splits = _splits(rows)
        self._real = any(each.is_floating_point() for each in probe.inputs)

    def few(self) -> str | None:
        """Try some contents: what is computed row by row should not need it."""
        same = self._same(self._rows, 0, self._with("drawn", "copied", "large", "no number"))
        return None if same else "what belongs to a row changes with other rows"

    def contents(self) -> str | None:
        """Try all pairs of places, and all contents."""
        ordinary: tuple[Content, ...] = ("drawn", "copied", "zero")
        every = [(split, ordinary[turn % 3]) for turn, split in enumerate(self._splits)]
        same = self._same(self._rows, 0, every + self._with("large", "huge", "infinite", "no number"))
        ordinary_rows = self._found(self._rows, 0)
        same = same and all(self._same_of_kind(kind, ordinary_rows) for kind in self._kinds())
        return None if same else f"what belongs to a row changes with what other rows of {len(self._rows)} hold"

    def named(self, numbers: Sequence[float]) -> str | None:
        """Try cells that hold a number, its opposite or twice as much, among two rows."""
        for number in numbers:
            for place in range(len(self._probe.inputs) + 1):
                if not self._same_with_gaps(number, place):
                    return f"what belongs to a row changes with other rows, where cells hold {number:.12g}"
        return None

    def _same_with_gaps(self, number: float, place: int) -> bool:
        """Return whether the loss of a row stays the same; a number that no row can hold is not tried."""
        part = [*self._probe.inputs, self._probe.targets][place]
        if part.dtype is torch.bool or part.is_complex():
            return True
        if part.is_floating_point():
            codes = dict.fromkeys([number, -number], (_GAPS, 1.0)) | dict.fromkeys(
                [2 * number, -2 * number] if number else [], (_BEYOND, _FARTHER)
            )
        else:
            span = torch.iinfo(part.dtype)
            fits = number == int(number) and span.min <= number <= span.max and part.device.type == "cpu"
            codes = {number: (_GAPS, 1.0)} if fits else {}
        return all(self._same_with_code(place, code, *how) for code, how in codes.items())

    def _same_with_code(
        self, place: int, code: float, gaps: Sequence[tuple[float, float, float]], factor: float
    ) -> bool:
        """Return the same where shares of the cells of one part are a code, and of others after that a multiple."""
        kept = torch.tensor([True, False])
        for seed, shares in enumerate(gaps):
            rows = [_ORDINARY.rows(self._probe, 2, turn) for turn in range(3)]
            codes = code, code, code * factor
            try:
                row, before, after = (
                    _with_gaps(rows[turn], place, codes[turn], shares[turn], turn) for turn in range(3)
                )
                found = []
                for other in (before, after):
                    with secret_randomness(seed), torch.no_grad():
                        found.append(self._way.losses(_joined(row, other, kept))[:1])
            except Exception:  # an index that a table of vectors does not have, or a number that is too large
                return True
            if not _equal(*found):
                return False
        return True

    def parameters(self) -> str | None:
        """Try other parameters, where what is hidden at the first may show."""
        for sign in (1, -1):
            with moved_parameters(self._way.parameters, sign):
                if not self._same(self._rows, 0, self._with("drawn", "copied", "no number")):
                    return "what belongs to a row changes with other rows, at other parameters than the initial ones"
        return None

    def chance(self) -> str | None:
        """Try many seeds, if random numbers are drawn at all: every fourth of them with gradients."""
        if not self._draws():
            return None
        for seed in range(1, _SEEDS + 1):
            half = _half(len(self._rows), seed)
            same = self._same_losses(self._rows, seed, half)
            if not same or (seed % 4 == 0 and not self._same(self._rows, seed, [(half, "drawn")])):
                return "what belongs to a row changes with other rows, by the random numbers that are drawn"
        return None

    def numbers_of_rows(self, sizes: Sequence[int], most: int) -> str | None:
        """Try other numbers of rows: the losses of each, and the gradients of the most."""
        for size in (each for each in sizes if 2 <= each <= most):
            if not self._same_losses(more_rows(self._probe, size), size, _half(size, size)):
                return f"what belongs to a row changes with other rows, in a batch of {size} rows"
        half = _half(most, 0)
        same = self._same(more_rows(self._probe, most), 0, [(half, "drawn"), (~half, "drawn")])
        return None if same else f"what belongs to a row changes with other rows, in a batch of {most} rows"

    def _kinds(self) -> list[_Kind]:
        """Return other kinds of rows, of which a module or a loss may refuse some.

        What may be refused as an index is not tried on other devices than the processor, where it would end them.
        """
        others: tuple[_Real, ...] = ("small", "large", "uniform", "negative", "counts", "flags", "coded", "missing")
        kinds = [_Kind(each) for each in others] if self._real else []
        tables = [
            each.num_embeddings
            for each in self._way.module.modules()
            if isinstance(each, nn.Embedding | nn.EmbeddingBag)
        ]
        whole = [each for each in self._probe.inputs if not each.is_floating_point()]
        local = self._probe.targets.device.type == "cpu"
        if tables and whole:
            kinds.append(_Kind(below=min(tables)))
        if whole and (local or all(each.dtype in (torch.uint8, torch.bool) for each in whole)):
            kinds.append(_Kind(below=_BYTES))
        return kinds + self._kinds_of_targets(local)

    def _kinds_of_targets(self, local: bool) -> list[_Kind]:
        if self._probe.targets.is_floating_point():
            return [_Kind(target=each) for each in ("flags", "coded", "missing")]
        if not local:
            return []
        with secret_randomness(0), torch.no_grad(), unchanged(self._way.module):
            outputs = self._way.module(*self._probe.copy().inputs)
        many = isinstance(outputs, Tensor) and outputs.dim() > 1
        kinds = [_Kind(classes=each) for each in ([outputs.shape[1]] if many else _CLASSES)]
        return [*kinds, *(replace(each, ignored=True) for each in [_ORDINARY, *kinds])]

    def _same_of_kind(self, kind: _Kind, ordinary: _Found) -> bool:
        """Try rows of a kind among rows of that kind, and among ordinary ones, which they may outweigh."""
        rows = kind.rows(self._probe, len(self._rows), 0)
        try:
            before = self._found(rows, 0)
        except Exception:
            return True
        changes: list[tuple[Tensor, Content]] = [(half, "drawn") for half in self._splits[:2]]
        return self._unmoved(before, rows, 0, changes, kind) and self._unmoved(
            ordinary, self._rows, 0, changes[:1], kind
        )

    def _with(self, *contents: Content) -> list[tuple[Tensor, Content]]:
        wanted = [each for each in contents if self._real or each in ("drawn", "copied")]
        return [(half, each) for each in wanted for half in self._splits[:2]]

    def _same(self, rows: Batch, seed: int, changes: Sequence[tuple[Tensor, Content]]) -> bool:
        """Return whether losses, lengths and the weighted sum of kept rows stay the same with every change."""
        return self._unmoved(self._found(rows, seed), rows, seed, changes, _ORDINARY)

    def _unmoved(
        self, before: _Found, rows: Batch, seed: int, changes: Sequence[tuple[Tensor, Content]], kind: _Kind
    ) -> bool:
        """Return the same, given what was found for the rows before."""
        for turn, (kept, content) in enumerate(changes):
            try:
                after = self._found(self._changed(rows, kept, content, turn, kind), seed)
            except Exception:
                if content in ("infinite", "no number"):  # a module may refuse them: then it computes no row
                    continue
                raise
            (*exact, sums), (*others, other_sums) = before(kept), after(kept)
            if not all(_equal(one, other) for one, other in zip(exact, others, strict=True)):
                return False
            # Parallel devices may add float64 numbers in another order each time.
            if not torch.allclose(sums, other_sums, rtol=0, atol=1e-9):
                return False
        return True

    def _found(self, rows: Batch, seed: int) -> _Found:
        """Return what belongs to a set of rows, as a function of the set."""
        with secret_randomness(seed):
            gradients = self._way.of(rows.copy())
        losses, norms = gradients.losses, gradients.norms()
        weights = torch.linspace(0.5, 1.0, len(rows), dtype=torch.float64, device=norms.device)
        weights = weights / norms.clamp_min(1e-30)

        def of(kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            counted = kept.to(norms.device) & torch.isfinite(norms) & torch.isfinite(losses)
            sums = gradients.weighted_sum(weights.where(counted, 0.0))
            return losses[kept], norms[kept], torch.cat([each.reshape(-1) for each in sums])

        return of

    def _same_losses(self, rows: Batch, seed: int, kept: Tensor) -> bool:
        """Return whether losses of kept rows stay the same without gradients, as in a search for a step size."""
        found = []
        for batch in (rows, self._changed(rows, kept, "drawn", seed, _ORDINARY)):
            with secret_randomness(seed), torch.no_grad():
                found.append(self._way.losses(batch)[kept])
        return _equal(*found)

    def _changed(self, rows: Batch, kept: Tensor, content: Content, turn: int, kind: _Kind) -> Batch:
        """Return the rows with others instead of those that are not kept."""
        if content == "copied":
            places = torch.nonzero(kept)[:, 0]
            others = rows[places[turn % len(places)].expand(len(rows))]
        else:
            others = kind.rows(self._probe, len(rows), turn + 1)
        values = [*others.inputs, others.targets]
        for place, each in enumerate(values):
            if content in _FACTORS and each.is_floating_point() and place + 1 < len(values):
                values[place] = each * _FACTORS[content]
            elif content == "no number" and each.is_floating_point():
                values[place] = torch.full_like(each, math.nan)
        return _joined(rows, Batch(tuple(values[:-1]), values[-1]), kept)

    def _draws(self) -> bool:
        """Return whether a pass draws random numbers from the generators that all share."""
        if self._rows.targets.device.type != "cpu":
            return True
        with secret_randomness(0):
            before = generator_states()
            self._way.losses(self._rows)
            return before != generator_states()


def _joined(rows: Batch, others: Batch, kept: Tensor) -> Batch:
    *inputs, targets = (
        one.where(kept.to(one.device).reshape(-1, *(1 for _ in one.shape[1:])), other)
        for one, other in zip((*rows.inputs, rows.targets), (*others.inputs, others.targets), strict=True)
    )
    return Batch(tuple(inputs), targets)


def _with_gaps(rows: Batch, place: int, code: float, share: float, seed: int) -> Batch:
    """Return the rows, where a share of the cells of one part are a code."""
    parts, generator = [*rows.inputs, rows.targets], torch.Generator().manual_seed(seed)
    part = parts[place]
    order = torch.rand(len(part), part[0].numel(), generator=generator).argsort(1).reshape(part.shape)
    held = order < math.ceil(share * part[0].numel())
    parts[place] = part.masked_fill(held.to(part.device), code if part.is_floating_point() else int(code))
    return Batch(tuple(parts[:-1]), parts[-1])


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _splits(rows: int) -> list[Tensor]:
    """Return sets of kept rows, such that for any two rows one of the sets has the first and not the second."""
    places = torch.arange(rows)
    digits = [(places >> digit) % 2 == 0 for digit in range(max(1, (rows - 1).bit_length()))]
    return [each for digit in digits for each in (digit, ~digit)]


def _half(rows: int, seed: int) -> Tensor:
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed)) < (rows + 1) // 2


def _branches_on_rows(way: ModuleGradients, probe: Batch, count: int) -> bool:
    """Return whether what is computed for a batch depends on numbers in its rows, as far as `torch.func` tells.

    Of a batch of one row it cannot tell: a module may have a branch for several rows alone.
    """
    rows = more_rows(probe, count)
    both = [torch.stack([each, each.flip(0)]) for each in (*rows.inputs, rows.targets)]

    def losses(*given: Tensor) -> Tensor:
        with writing_out(way.module.modules()), unchanged(way.module):
            return way.loss(way.module(*given[:-1]), given[-1])

    try:
        with secret_randomness(0), torch.no_grad():
            torch.func.vmap(losses, randomness="different")(*both)
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return True
    return False


@contextmanager
def moved_parameters(parameters: Mapping[str, Tensor], sign: int) -> Iterator[None]:
    """Move parameters to random places beside them, or beside their opposites, and put them back to the last bit."""
    generator = torch.Generator().manual_seed(0)
    before = [each.detach().clone() for each in parameters.values()]
    try:
        for each, start in zip(parameters.values(), before, strict=True):
            size = float(start.double().square().mean().sqrt())
            if not size:
                size = math.sqrt(max(1, start.shape[0] if start.dim() else 1) / max(1, start.numel()))
            noise = torch.randn(start.shape, generator=generator).to(start)
            each.data.copy_(sign * start + _MOVED * size * noise)
        yield
    finally:
        for each, start in zip(parameters.values(), before, strict=True):
            each.data.copy_(start)


# Public rows --------------------------------------------------------------------------------------------------


def more_rows(probe: Batch, count: int) -> Batch:
    """Return so many public rows, of which the first are those that are given."""
    added = _ORDINARY.rows(probe, max(0, count - len(probe)), 0)
    pairs = zip((*probe.inputs, probe.targets), (*added.inputs, added.targets), strict=True)
    *inputs, targets = (torch.cat([one[:count], other]) for one, other in pairs)
    return Batch(tuple(inputs), targets)
