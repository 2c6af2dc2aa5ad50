"""Rows that are read block by block give the answers of rows in memory to the last bit, and after a charge."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpdescent.accounting import ExponentialMechanism, Gaussian
from dpdescent.curator import ArraySource, BlockSource, Computed, Curator, LatticeNoise, PartWork, kept_rows, marks
from dpdescent.curator.kept_rows import KeptRows, SpillFile, new_digest, pack, packed_blocks, unpack, unpacked
from dpdescent.errors import (
    BudgetExhausted,
    DatasetFormatError,
    InvalidParameter,
    OutputNotWritable,
    UnsupportedSource,
)
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.queries import QUERIES, BestStep, Gradient, MeanRowNorm, Sum
from dpdescent.queries.query import Tree
from every_query import PROBLEMS, examples, plan_of, table_of
from parts import Parts

ROWS = 60
CUTS = {"one part": (), "unequal parts": (1, 1, 8, 41), "single rows": tuple(range(1, ROWS))}


def curator(
    source: Any, problem: Any, relation: str = "zero-out", rate: float = 1.0, epsilon: float = 1e6
) -> Curator:
    ledger = Ledger(epsilon, 1e-6, relation=relation, currency="gdp")
    noise = LatticeNoise(Randomness(3))
    return Curator(source, problem, ledger, ROWS, noise=noise, batch_rate=rate)


@pytest.mark.parametrize("name", ["logistic", "short rows", "multinomial", "squared"])
@pytest.mark.parametrize("kind", sorted(QUERIES))
def test_every_sum_is_answered_as_in_memory_and_nothing_else_is_answered(kind: str, name: str) -> None:
    problem, (rows, labels) = PROBLEMS[name], table_of(name, 1, ROWS)
    placed = ArraySource(problem.grid.place(rows), labels, problem.grid)
    for query in examples(kind, name, "zero-out"):
        for rate in (1.0, 0.5):
            memory = curator(placed, problem, rate=rate)
            streamed = curator(BlockSource(Parts(rows, labels, (1, 1, 8, 41)), problem.grid), problem, rate=rate)
            try:
                plan = plan_of(memory, query)
            except InvalidParameter:  # made for a table of another length
                continue
            if not isinstance(plan, Sum | Tree):
                with pytest.raises(UnsupportedSource, match="in one place"):
                    streamed.answer(query)
                assert not streamed.ledger.entries
                continue
            for _ in range(2):  # twice, so that what was kept is used as well
                np.testing.assert_equal(streamed.answer(query), memory.answer(query))


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
@pytest.mark.parametrize("kind", sorted(QUERIES))
def test_what_is_sent_to_the_rows_can_be_pickled(kind: str, name: str) -> None:
    problem = PROBLEMS[name]
    rows, labels = table_of(name, 1, ROWS)
    for query in examples(kind, name, "zero-out"):
        try:
            plan = plan_of(curator(ArraySource(rows, labels, problem.grid), problem), query)
        except InvalidParameter:
            continue
        if isinstance(plan, Sum) and not plan.per_row and not plan.picks:
            work = pickle.loads(pickle.dumps(PartWork(plan.block, (), ())))
            expected, *_ = PartWork(plan.block, (), ())(iter([(rows, labels)]), [])
            np.testing.assert_array_equal(work(iter([(rows, labels)]), [])[0], expected)


def steps_of_a_descent(asked: Curator, steps: int = 4) -> list[Any]:
    """Ask as a line search does: a gradient, the best step along it, and on from there by carried margins."""
    weights, released = np.zeros(asked.problem.shape), []
    sizes = np.array([0.0, 0.5, 2.0, 8.0])
    for _ in range(steps):
        gradient = asked.answer(Gradient(weights, 1.0, Gaussian(0.5), keep_margins=True))
        chosen = asked.answer(BestStep(weights, gradient, sizes, ExponentialMechanism(4.0), ceiling=2.0))
        weights = weights - sizes[chosen] * gradient
        released += [gradient, chosen]
    return released


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("keep_rows", [True, False])
def test_carried_margins_are_those_of_rows_in_memory(cuts: str, keep_rows: bool) -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks = Parts(rows, labels, CUTS[cuts])
    streamed = curator(BlockSource(blocks, problem.grid, keep_rows=keep_rows), problem)
    memory = curator(ArraySource(rows, labels, problem.grid), problem)
    np.testing.assert_equal(steps_of_a_descent(streamed), steps_of_a_descent(memory))
    # Eight queries, and one pass over the rows for each, unless they are kept.
    assert len(blocks.reads) == len(blocks.parts) * (1 if keep_rows else 8)


def test_sparse_rows_are_kept_and_summed_as_dense_ones_are() -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    answers = [
        steps_of_a_descent(curator(BlockSource(Parts(stored, labels, (20,)), problem.grid), problem))
        for stored in (rows, sparse.csr_array(rows))
    ]
    np.testing.assert_equal(*answers)


def test_rows_that_are_not_on_the_grid_are_put_there() -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    wild = rows + 2.0**-30
    wild[0, 0], wild[1, 0], wild[2, 1] = np.nan, np.inf, -7.0
    streamed = curator(BlockSource(Parts(wild, labels), problem.grid), problem)
    memory = curator(ArraySource(problem.grid.place(wild), labels, problem.grid), problem)
    query = Gradient(np.ones(3), 1.0, Gaussian(1.0))
    np.testing.assert_array_equal(streamed.answer(query), memory.answer(query))


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_block_is_read_only_after_the_charge_and_never_for_a_refusal(rate: float) -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks = Parts(rows, labels, (20,))
    asked = curator(BlockSource(blocks, problem.grid, keep_rows=False), problem, rate=rate, epsilon=1.0)
    blocks.ledger = asked.ledger
    for count in (1, 2):
        asked.answer(MeanRowNorm(asked.gaussian(0.3 * asked.budget)))
        assert set(blocks.reads) == {count}
        blocks.reads.clear()
    with pytest.raises(BudgetExhausted):
        asked.answer(MeanRowNorm(asked.gaussian(0.9 * asked.budget)))
    assert not blocks.reads


class Changing(Parts):
    """A table of which one part is not what it was when it was opened."""

    change: Any = None

    def read(self, part: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        for features, labels, told in super().read(part):
            yield *self.change(features, labels), told


@pytest.mark.parametrize(
    "change",
    [
        lambda features, labels: (features[:-1], labels[:-1]),
        lambda features, labels: (np.vstack([features, features]), np.append(labels, labels)),
        lambda features, labels: (features[:, 1:], labels),
        lambda features, labels: (features, labels[:-1]),
    ],
    ids=["shorter", "longer", "narrower", "fewer labels"],
)
def test_a_table_that_changes_is_a_named_error_and_never_a_wrong_sum(change: Any) -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks = Changing(rows, labels, (20,))
    blocks.change = change
    asked = curator(BlockSource(blocks, problem.grid), problem)
    with pytest.raises(DatasetFormatError, match="open it again") as problem_found:
        asked.answer(MeanRowNorm(Gaussian(1.0)))
    assert not any(character.isdigit() for character in str(problem_found.value))  # no block size is shown
    assert len(asked.ledger.entries) == 1  # it was charged before the rows were read, and stays charged


def test_dense_blocks_that_belong_to_somebody_else_are_refused() -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)

    class Borrowed(Parts):
        def read(self, part: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
            rows.setflags(write=False)
            yield rows, labels, marks(rows, labels)

    with pytest.raises(InvalidParameter, match="written over"):
        BlockSource(Borrowed(rows, labels), problem.grid).map_sum(lambda *_: np.zeros(1, np.int64))


@pytest.mark.parametrize("place", [0, 19], ids=["first row", "last row"])
@pytest.mark.parametrize("changed", ["cell", "label", "order"])
def test_other_rows_in_the_places_of_those_that_were_read_before_are_refused(changed: str, place: int) -> None:
    """Their clip factors would be those of other rows: a long row would enter a sum by the factor of a short one."""
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks = Parts(rows.copy(), labels.copy(), (20,))
    asked = curator(BlockSource(blocks, problem.grid, keep_rows=False), problem)
    query = Gradient(np.ones(3), 1.0, Gaussian(1.0))
    for _ in range(2):
        asked.answer(query)
    if changed == "cell":
        blocks.features[place, 0] += 2.0**-problem.grid.exponent * (-1 if blocks.features[place, 0] > 0 else 1)
    elif changed == "label":
        blocks.labels[place] *= -1
    else:
        blocks.features[[place, 40]], blocks.labels[[place, 40]] = rows[[40, place]], labels[[40, place]]
    with pytest.raises(DatasetFormatError, match="open it again") as found:
        asked.answer(query)
    assert not any(character.isdigit() for character in str(found.value))
    assert len(asked.ledger.entries) == 3


def test_a_last_block_of_the_wrong_shape_is_never_left_out() -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)

    class Short(Parts):
        def read(self, part: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
            told = marks(rows, labels)
            yield rows[:30].copy(), labels[:30], told[:30]
            yield rows[31:].copy(), labels[30:], told[30:]

    source = BlockSource(Short(rows, labels), problem.grid)
    with pytest.raises(DatasetFormatError, match="open it again"):
        source.map_sum(lambda rows, _: np.array([len(rows)]))


def test_a_full_disk_is_a_named_error_for_numbers_and_none_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks = Parts(rows, labels, (20,))

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    asked = curator(BlockSource(blocks, problem.grid), problem)
    weights = np.ones(3)
    loss = QUERIES["MeanLoss"](weights, Gaussian(1.0))  # needs no numbers of single rows
    memory = curator(ArraySource(rows, labels, problem.grid), problem)
    for _ in range(2):
        assert asked.answer(loss) == memory.answer(loss)
    assert len(blocks.reads) == 4  # read again, because they could not be kept
    with pytest.raises(OutputNotWritable, match="TMPDIR"):
        asked.answer(Gradient(weights, 1.0, Gaussian(1.0)))
    assert len(asked.ledger.entries) == 3
    monkeypatch.undo()
    # Nothing half-written is used later.
    other = Gradient(weights, 1.0, Gaussian(1.0))
    fresh, kept = (curator(source, problem) for source in (ArraySource(rows, labels, problem.grid), asked._source))
    np.testing.assert_array_equal(kept.answer(other), fresh.answer(other))


def test_rows_are_not_kept_where_there_is_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    room = type("Usage", (), {"free": 4 * rows.size})
    monkeypatch.setattr("dpdescent.curator.kept_rows.shutil.disk_usage", lambda _: room)
    blocks = Parts(rows, labels)
    source = BlockSource(blocks, problem.grid)
    for _ in range(3):
        source.map_sum(lambda rows, _: np.array([len(rows)]))
    assert len(blocks.reads) == 3


def test_numbers_that_are_no_longer_needed_leave_no_file_behind() -> None:
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    asked = curator(BlockSource(Parts(rows, labels), problem.grid), problem)

    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    steps_of_a_descent(asked, 2)
    before = files()
    steps_of_a_descent(asked, 6)
    assert files() <= before + 1


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("together", [1, 31, 10**6])
def test_packed_blocks_are_the_same_rows_again(
    together: int, kind: Any, stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "_MOST_ROWS", together)
    grid = PROBLEMS["logistic"].grid
    rows, labels = table_of("logistic", 2, ROWS)
    cuts = [slice(0, 9), slice(9, 30), slice(30, 31), slice(31, ROWS)]
    packed = packed_blocks(((stored(rows[some]), labels[some]) for some in cuts), grid, kind)
    assert all(arrays[0].dtype == kind for _, arrays, _ in packed)
    lengths = {1: [9, 21, 1, ROWS - 31], 31: [31, ROWS - 31], 10**6: [ROWS]}[together]
    assert [shape for shape, *_ in packed] == [(length, rows.shape[1]) for length in lengths]

    def first(block: Any, _: Any) -> np.ndarray:
        return (block.toarray() if sparse.issparse(block) else block)[:, 0]  # a view of dense rows

    def added(block: Any, *_: Any) -> np.ndarray:
        return np.rint(1e6 * block.sum(axis=0)).astype(np.int64)

    work = PartWork(added, (0,), (Computed(first, ()),))
    for _ in range(2):
        total, (numbers,) = work(unpacked(packed), [])
        np.testing.assert_array_equal(numbers, rows[:, 0])
    np.testing.assert_array_equal(total, sum(added(rows[some]) for some in cuts))


def test_an_empty_table_has_no_source() -> None:
    with pytest.raises(InvalidParameter, match="at least one part"):
        BlockSource(type("None", (), {"parts": [], "lengths": []})(), PROBLEMS["logistic"].grid)


@pytest.mark.parametrize("bound", [2.0**-140, 2.0**-90, 0.3, 1.0, 2.0**90, 2.0**140])
def test_rows_on_any_grid_have_the_same_bits_after_they_were_packed(bound: float) -> None:
    grid = FeatureGrid(bound, 3)
    placed = grid.place(bound * np.random.default_rng(2).uniform(-1, 1, (40, 3)).round(2))
    np.testing.assert_array_equal(unpack(placed.shape, pack([placed], grid)), placed)
    stored = sparse.csr_array(placed)
    np.testing.assert_array_equal(unpack(placed.shape, pack([stored], grid)).toarray(), placed)
    placed[:, -1] = 0.0  # the shape does not follow from the cells
    ((again, _),) = unpacked([(placed.shape, pack([sparse.csr_array(placed)], grid), np.ones(40))])
    np.testing.assert_array_equal(again.toarray(), placed)
    assert not again.data.flags.writeable
    assert not unpack(placed.shape, pack([placed], grid, np.float64)).flags.writeable


def test_a_disk_that_takes_a_few_bytes_at_a_time_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, content, start: write(file, content[:5], start))
    monkeypatch.setattr(os, "preadv", lambda file, buffers, start: read(file, [buffers[0][:7]], start))
    file, arrays = SpillFile(), [np.arange(9.0), np.arange(12, dtype=np.float32).reshape(3, 4), np.empty((0, 2))]
    places = [file.write(each) for each in arrays]
    for place, each in zip(places, arrays, strict=True):
        found = file.read(place)
        np.testing.assert_array_equal(found, each)
        assert found.dtype == each.dtype
        assert not found.flags.writeable


def test_blocks_that_overflow_are_silent_and_kept_rows_keep_their_empty_columns() -> None:
    grid = FeatureGrid(1.0, 3)
    rows, labels = grid.place(np.array([[0.5, 1.0, 0.0], [0.25, 0.0, 0.0]] * 2)), np.ones(4)
    source = BlockSource(Parts(rows, labels, (2, 2)), grid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = source.map_sum(lambda some, _: np.array([np.isinf(some * 1e308 * 1e308).sum()]))
    assert total == 6
    kept = KeptRows(lambda *_: iter([(sparse.csr_array(rows), labels)]), rows.size, grid)
    list(kept(0, 4, new_digest()))
    found = kept.again(0)
    assert found is not None
    ((again, _),) = found[1]
    np.testing.assert_array_equal(again.toarray(), rows)
