"""Correlated noise of networks: which rows are in which batches, what a row changes, and what is never kept."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from dpdescent.accounting import FixedSchedule, Gaussian, PoissonSampled  # noqa: E402
from dpdescent.accounting.banded import bands_for  # noqa: E402
from dpdescent.curator.release import watched_by  # noqa: E402
from dpdescent.errors import BudgetExhausted, InvalidParameter  # noqa: E402
from dpdescent.ledger import Ledger  # noqa: E402
from dpdescent.torch import PrivateTraining, fit  # noqa: E402
from dpdescent.torch.correlated_noise import Cycle  # noqa: E402
from plain_networks import tried_once  # noqa: E402, F401

pytestmark = pytest.mark.usefixtures("tried_once")

N, DELTA = 60, 1e-9  # so small that Renyi divergences pay, which is the quickest to plan
cross_entropy = nn.CrossEntropyLoss(reduction="none")


def table(rows=N):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, 3, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def training_of(data=None, **settings):
    given = {"epsilon": 2.0, "delta": DELTA, "steps": 11, "batch_size": 18, "random_state": 0, "bands": 3} | settings
    return PrivateTraining(network(), data if data is not None else table(), cross_entropy, **given)


def run(training, rate=0.05):
    """Take all steps, and return the noisy gradients."""
    found = []
    for _ in range(training.drawn, training.steps):
        training.draw()
        noisy = training.gradient()
        with torch.no_grad():
            for each, along in zip(training.parameters, noisy, strict=True):
                each.sub_(along, alpha=rate)
        found.append(torch.cat([each.reshape(-1) for each in noisy]).double().numpy())
    return found


def batches(training):
    """Note the positions of every batch that is read."""
    noted, read = [], training._rows.batch

    def batch(chosen):
        noted.append(np.asarray(chosen))
        return read(chosen)

    training._rows.batch = batch
    return noted


# What a row changes -------------------------------------------------------------------------------------------


def totals_with_and_without(row, **settings):
    """Return what goes to the door at each step with a row and, given the same answers, without it."""
    inputs, targets = table()
    broken = targets.clone()
    broken[row] = 17  # no such class: the row keeps its place and adds nothing
    answers, totals = [], ([], [])

    def record(release, draw):
        totals[0].append(release.total.values)
        answers.append(draw())
        return answers[-1]

    def repeat(release, _):
        totals[1].append(release.total.values)
        return answers[len(totals[1]) - 1]

    training = training_of((inputs, targets), **settings)
    read = batches(training)
    with watched_by(record):
        run(training)
    with watched_by(repeat):
        run(training_of((inputs, broken), **settings))
    taken = [step for step, rows in enumerate(read) if row in rows]
    return training.plan, taken, [one - other for one, other in zip(*totals, strict=True)]


@pytest.mark.parametrize(("bands", "clip"), [(2, None), (3, 0.3)])
def test_a_row_moves_the_outputs_of_its_windows_alone_and_each_by_no_more_than_is_paid_for(bands, clip):
    reached = []
    for row in (1, 7):
        plan, taken, moved = totals_with_and_without(row, bands=bands, clip_norm=clip, epsilon=8.0)
        assert taken
        assert len({step % bands for step in taken}) == 1
        inside = {step + k for step in taken for k in range(bands)}
        assert all(not each.any() for step, each in enumerate(moved) if step not in inside)
        bound = plan.sensitivity.zero_out / plan.unit
        for step in taken:
            window = np.concatenate(moved[step : step + bands])
            assert np.linalg.norm(window) <= bound
            if step + bands <= plan.steps:
                shares = [np.linalg.norm(each) / np.linalg.norm(moved[step]) for each in moved[step : step + bands]]
                np.testing.assert_allclose(shares, plan.bands.weights, atol=1e-4)
                reached.append(np.linalg.norm(window) / bound)
    assert max(reached) > (0.98 if clip else 0.5)


def test_a_row_in_no_batch_changes_nothing():
    for row in range(30):
        _, taken, moved = totals_with_and_without(row, batch_size=4, steps=3)
        if not taken:
            assert not any(each.any() for each in moved)
            break
    else:
        pytest.fail("all rows were in a batch")


def test_the_first_release_is_no_part_of_the_correlation():
    """The length of gradients has noise for itself, and the steps after it begin a correlation of their own."""
    training = training_of(clip_norm=None)
    seen = []

    def watch(release, draw):
        seen.append(release)
        return draw()

    with watched_by(watch):
        training.draw()
        training.measure_length()
        run(training)
    plan = training.plan
    alone, gradient = seen[0].total.sensitivity.zero_out, seen[1].total.sensitivity.zero_out
    assert alone == plan.alone.sensitivity.zero_out
    assert gradient == plan.sensitivity.zero_out
    assert gradient / alone == pytest.approx(plan.bands.length, rel=1e-4)
    assert seen[0].mechanism == seen[1].mechanism == Gaussian(plan.noise_multiplier)
    assert len(seen) == plan.steps


# Batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "bands", "size"), [(12, 3, 18), (10, 4, 15), (7, 2, 30)])
def test_a_row_is_in_batches_of_one_group_that_has_its_turn_once_in_a_cycle(steps, bands, size):
    training = training_of(steps=steps, bands=bands, batch_size=size)
    read = batches(training)
    run(training)
    assert len(read) == steps
    turns = {row: {step % bands for step, rows in enumerate(read) if row in rows} for row in range(N)}
    assert all(len(each) <= 1 for each in turns.values())
    times = np.bincount(np.concatenate(read), minlength=N)
    assert times.max() <= training.plan.schedule.steps == math.ceil(steps / bands)


def test_batches_have_the_size_by_which_they_are_divided():
    rows, steps = 4000, 200
    training = training_of(table(rows), steps=steps, bands=5, batch_size=200, noise="float")
    read = batches(training)
    run(training)
    found = np.array([each.size for each in read])
    # Of groups as well as of batches: six deviations of the mean over 200 batches, once in 10^9 runs.
    assert abs(found.mean() - 200) < 6 * math.sqrt(200 / steps)
    groups = training._cycle._groups
    assert np.bincount(groups).min() > 800 - 6 * math.sqrt(800)
    assert abs(np.corrcoef(groups[1:], groups[:-1])[0, 1]) < 0.1  # not by position


def test_every_row_of_a_group_is_in_its_batch_if_there_are_as_many_groups_as_batches_in_an_epoch():
    training = training_of(batch_size=20, bands=3, steps=6)
    assert training.plan.schedule.parts == (Gaussian(training.plan.noise_multiplier),)
    read = batches(training)
    run(training)
    assert sorted(np.concatenate(read[:3]).tolist()) == list(range(N))
    assert all(np.array_equal(one, other) for one, other in zip(read[:3], read[3:], strict=True))


# Prices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "bands"), [(11, 3), (12, 3), (10, 1)])
def test_a_run_is_charged_for_a_batch_of_the_group_in_every_cycle(steps, bands):
    plan = training_of(steps=steps, bands=bands).plan
    noise = Gaussian(plan.noise_multiplier)
    assert plan.schedule.parts == (PoissonSampled(0.3 * bands, (noise,)),)
    assert plan.schedule.steps == math.ceil(steps / bands)
    assert plan.schedule.failure == pytest.approx(DELTA)
    assert plan.steps == steps
    assert plan.schedule.pure() <= 2.0
    stronger = PoissonSampled(0.3 * bands, (Gaussian(0.99 * plan.noise_multiplier),))
    assert FixedSchedule((stronger,), plan.schedule.steps, plan.schedule.failure).pure() > 2.0
    change = plan.alone.sensitivity.zero_out
    assert plan.sensitivity.zero_out >= change * np.linalg.norm(plan.bands.weights)


@pytest.mark.parametrize("currency", ["rdp", "gdp"])
def test_an_account_in_another_currency_pays_for_the_cycles(currency):
    account = Ledger(4.0, DELTA, currency=currency)
    training = training_of(ledger=account)
    run(training)
    price = training.plan.currency.price
    assert account.spent == pytest.approx(4 * price(training.plan.schedule.step))
    assert account.spent <= account.budget


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bands": 4}, "at most 3"),  # 4 groups of 15 rows cannot give a batch of 18
        ({"bands": 12, "batch_size": 2}, "at most 11"),
        ({"bands": 2, "adjacency": "replace-one"}, "zero-out"),
        ({"bands": 2, "search_steps": 3}, "searches"),
        ({"bands": 0}, "bands"),
        ({"bands": 1.5}, "bands"),
        ({"bands": 3, "epsilon": None, "noise_multiplier": 1.0}, "finite epsilon"),
    ],
)
def test_bands_that_cannot_be_are_refused_before_a_charge(settings, message):
    account = Ledger(4.0, 1e-5, currency="approximate", relation=settings.get("adjacency", "zero-out"))
    with pytest.raises(InvalidParameter, match=message):
        training_of(ledger=account, **settings)
    assert account.entries == ()


def test_bands_whose_noise_would_not_fit_into_memory_are_refused():
    module = nn.Linear(2**20, 64)
    rows = torch.zeros(8, 2**20), torch.zeros(8, dtype=torch.long)
    with pytest.raises(InvalidParameter, match="memory"):
        PrivateTraining(module, rows, cross_entropy, epsilon=2.0, delta=DELTA, steps=4, batch_size=2, bands=2)


def test_the_number_of_bands_follows_from_the_budget():
    chosen = [training_of(table(600), steps=60, bands=None, epsilon=each, batch_size=30).plan for each in (0.3, 8.0)]
    assert chosen[0].bands.count < chosen[1].bands.count
    for plan in chosen:
        alone = training_of(table(600), steps=60, bands=1, epsilon=plan.epsilon, batch_size=30).plan

        def noise(plan):
            return plan.noise_multiplier * plan.sensitivity.zero_out * plan.bands.spread(60)

        assert noise(plan) <= noise(alone) * (1 + 1e-9)
    assert noise(chosen[1]) < 0.75 * noise(alone)
    for settings in ({"adjacency": "replace-one"}, {"search_steps": 3}, {"batch_size": N}):
        assert training_of(bands=None, **settings).plan.bands.count == 1


def test_the_statement_says_bands_and_batches():
    result = fit(network(), table(), cross_entropy, epsilon=2.0, delta=DELTA, steps=9, batch_size=15, bands=3)
    (remark,) = [each for each in result.privacy_["remarks"] if "bands" in each]
    assert "3 bands" in remark
    assert "probability 0.75; 3 such batches" in remark
    alone = fit(network(), table(), cross_entropy, epsilon=2.0, delta=DELTA, steps=9, batch_size=15, bands=1)
    assert not any("bands" in each for each in alone.privacy_["remarks"])


# Noise --------------------------------------------------------------------------------------------------------


def test_noise_is_the_inverse_of_the_weights_applied_to_independent_draws():
    broken = table()[0], torch.full((N,), 17)  # rows add nothing, and what is released is noise
    module = nn.Linear(3, 2)
    module.weight = nn.Parameter(torch.zeros(2, 3))
    steps = 40
    training = PrivateTraining(
        nn.Sequential(nn.Linear(3, 50), nn.Linear(50, 2)),
        broken,
        cross_entropy,
        epsilon=2.0,
        delta=DELTA,
        steps=steps,
        batch_size=18,
        bands=3,
    )
    plan = training.plan
    noises = np.array(run(training)) * plan.sampling.size
    fresh = noises.copy()
    for k, weight in enumerate(plan.bands.weights[1:], 1):
        fresh[k:] += weight * noises[:-k]
    deviation = plan.noise_multiplier * plan.sensitivity.zero_out
    draws = fresh.size
    # Five deviations of each estimate: a false alarm once in a million runs.
    assert abs(fresh.std() / deviation - 1) < 5 / math.sqrt(2 * draws)
    for lag in (1, 2, 3):
        assert abs((fresh[lag:] * fresh[:-lag]).mean()) < 5 * deviation**2 / math.sqrt(draws - lag)
    assert (noises[1:] * noises[:-1]).mean() < -0.2 * deviation**2
    partial = np.cumsum(noises, axis=0)
    expected = deviation * plan.bands.spread(steps)
    assert partial.std() == pytest.approx(expected, rel=0.2)


def test_what_is_carried_is_computed_exactly_for_the_largest_noise():
    bands, generator = bands_for(16, 100), np.random.default_rng(0)
    cycle, kept = Cycle(bands, 5), []
    for step in range(40):
        expected = [0] * 5
        for k in range(1, min(15, step) + 1):
            expected = [e + bands.numerators[k] * int(v) for e, v in zip(expected, kept[step - k], strict=True)]
        assert cycle.carried(step).tolist() == [each // 1024 for each in expected]
        kept.append(generator.integers(-(2**38), 2**38, 5))
        cycle.keep(step, kept[-1].astype(float))


@pytest.mark.parametrize("count", [2, 3])
def test_rounding_what_is_carried_is_in_the_sensitivity(count):
    """A row that adds one unit to each coordinate moves each later output of its window by a whole unit as well."""
    plan = training_of(bands=count).plan
    shifts = [np.ones(plan.parameters)]
    with_row, without = (Cycle(plan.bands, plan.parameters) for _ in range(2))
    for step in range(count):
        carried = [cycle.carried(step) for cycle in (with_row, without)]
        if step:
            shifts.append(carried[1] - carried[0])  # what leaves is the sum less this
        for cycle, added in ((with_row, shifts[0] if step == 0 else 0.0), (without, 0.0)):
            cycle.keep(step, np.zeros(plan.parameters) - added)
    moved, exact = np.linalg.norm(shifts), plan.bands.length * np.linalg.norm(shifts[0])
    assert moved > 1.05 * exact
    change = plan.bands.length * plan.alone.sensitivity.zero_out
    assert plan.sensitivity.zero_out - change >= (moved - exact) * plan.unit


def test_a_step_without_a_gradient_begins_a_new_correlation():
    cycle = Cycle(bands_for(4, 20), 2)
    for step in (0, 1, 3):
        if step == 3:
            assert not cycle.carried(step).any()
        cycle.carried(step)
        cycle.keep(step, np.full(2, 1024.0 * 1024))
    carried = cycle.carried(4)
    assert (carried == bands_for(4, 20).numerators[1] * 1024).all()  # of step 3, and of none before it


# Copies and runs that go on -----------------------------------------------------------------------------------


def test_copies_share_the_turns_and_the_groups():
    training = training_of()
    training.draw()
    training.gradient()
    copies = [copy.deepcopy(training) for _ in range(2)]
    for each in copies:
        assert each._cycle is training._cycle
    copies[0].draw()
    copies[0].gradient()
    for each in (copies[1], training):
        each.draw()
        with pytest.raises(BudgetExhausted, match="copy"):
            each.gradient()
        each.draw()
    training.gradient()


def test_a_run_that_goes_on_begins_a_cycle_with_new_groups_and_independent_noise():
    training = training_of(steps=14, epsilon=8.0)
    for _ in range(4):
        training.draw()
        training.gradient()
    before = training._cycle._groups.copy()
    training.skip_to(4)
    assert training.drawn == 6  # the next step at which every row was in two windows at most
    training.draw()
    assert not training._cycle.carried(6).any()
    read = batches(training)
    training.gradient()
    assert not np.array_equal(before, training._cycle._groups)
    assert read


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [1, 3, 5, 7, 10, 11])
def test_no_row_is_in_more_windows_than_were_paid_for_wherever_a_run_was_stopped(stopped):
    times = np.zeros(N, int)
    for _ in range(2):
        first = training_of(random_state=None, batch_size=20)  # every row of a group is in its batch
        read = batches(first)
        for _ in range(stopped):
            first.draw()
            first.gradient()
        second = training_of(random_state=None, batch_size=20)
        read_again = batches(second)
        second.skip_to(stopped)
        run(second)
        times = np.maximum(times, np.bincount(np.concatenate([*read, *read_again]), minlength=N))
    assert times.max() <= first.plan.schedule.steps == 4


class Killed(BaseException):
    pass


def test_a_checkpoint_holds_neither_noise_nor_groups_and_goes_on_at_a_cycle(tmp_path):
    path = tmp_path / "run.pt"
    given = {"epsilon": 8.0, "delta": DELTA, "steps": 23, "batch_size": 15, "bands": 4, "checkpoint": path}

    def stop(share):
        if share > 0.5:
            raise Killed

    with pytest.raises(Killed):
        fit(network(), table(), cross_entropy, progress=stop, **given)
    content = torch.load(path, weights_only=True)
    assert content["begun"] % 4 == 0
    assert set(content) == {
        "format", "version", "run", "account", "settings", "begun", "parameters", "state", "history", "absence"
    }  # fmt: skip
    assert set(content["state"]) == {"average", "start", "measured", "rate", "shortest"}
    assert set(content["settings"]) == {
        "method", "epsilon", "private", "delta", "schedule", "steps", "bands", "rows", "relation", "clip", "shapes"
    }  # fmt: skip
    result = fit(network(), table(), cross_entropy, **given)
    steps = [each.step for each in result.history]
    assert steps == sorted(set(steps))
    assert steps[-1] == 22
    with pytest.raises(InvalidParameter, match="another"):
        fit(network(), table(), cross_entropy, **given | {"bands": 2})


def test_an_interrupted_run_loses_whole_cycles_and_no_more(tmp_path):
    path, given = tmp_path / "run.pt", {"epsilon": 8.0, "delta": DELTA, "steps": 16, "batch_size": 15, "bands": 4}

    def stop(share):
        if share >= 6 / 16:
            raise Killed

    with pytest.raises(Killed):
        fit(network(), table(), cross_entropy, progress=stop, checkpoint=path, **given)
    result = fit(network(), table(), cross_entropy, checkpoint=path, **given)
    assert [each.step for each in result.history] == [0, 1, 2, 3, *range(8, 16)]
