"""The curator of a module: what it charges and when, what it releases, and what it refuses."""

import copy
import math
import os
import random
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import Dataset, IterableDataset, TensorDataset  # noqa: E402

from dpdescent.accounting import FixedSchedule, FixedSizeSampled, Gaussian, PoissonSampled  # noqa: E402
from dpdescent.curator import Sampling  # noqa: E402
from dpdescent.curator.batches import draw_rows  # noqa: E402
from dpdescent.errors import (  # noqa: E402
    BudgetExhausted,
    InfiniteValue,
    InvalidParameter,
    MissingValue,
    RowDependence,
    UnsupportedCost,
)
from dpdescent.ledger import Ledger  # noqa: E402
from dpdescent.noise import Randomness  # noqa: E402
from dpdescent.torch import PrivateTraining, fit  # noqa: E402
from dpdescent.torch.dataset_rows import (  # noqa: E402
    DatasetRows,
    length_counts,
    loss_falls,
    on_lattice,
    typical_length,
)
from dpdescent.torch.failing_rows import sum_rows  # noqa: E402
from dpdescent.torch.row_gradients import Batch, unchanged_buffers  # noqa: E402
from dpdescent.torch.step_rules import Auto, LineSearch  # noqa: E402
from dpdescent.torch.training_plan import ROUNDING  # noqa: E402
from plain_networks import tried_once  # noqa: E402, F401

pytestmark = pytest.mark.usefixtures("tried_once")

N = 60
DELTA = 1e-9  # so small that Renyi divergences pay, which is the quickest to plan
cross_entropy = nn.CrossEntropyLoss(reduction="none")


def table(seed=0, rows=N):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 3, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def flat(module):
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()])


def training_of(module=None, data=None, loss=cross_entropy, **settings):
    given = {"epsilon": 2.0, "delta": DELTA, "steps": 4, "batch_size": 20, "random_state": 0} | settings
    return PrivateTraining(module or network(), data if data is not None else table(), loss, **given)


class Watched(Dataset):
    """Rows that note when they are read."""

    def __init__(self, data, noted):
        self.data, self.noted = data, noted

    def __len__(self):
        return len(self.data[0])

    def __getitem__(self, row):
        self.noted.append("row")
        return self.data[0][row], self.data[1][row]


# Charges ------------------------------------------------------------------------------------------------------


def gradients_of(training, most=20):
    """Return how many gradients a training still gives."""
    for count in range(most):
        try:
            training.draw()
            training.gradient()
        except BudgetExhausted:
            return count
    return most


def test_a_copy_of_a_training_takes_no_step_that_was_paid_for_once():
    training = training_of()
    training.draw()
    training.gradient()
    copied = copy.deepcopy(training)
    assert gradients_of(copied) == 3
    assert gradients_of(training) == 0


def test_a_forked_child_takes_no_step_that_its_parent_has_paid_for():
    training = training_of()
    training.buy_steps()
    child = os.fork()
    if child == 0:
        taken = 1
        try:
            taken = gradients_of(training)
        finally:
            os._exit(taken)
    assert os.waitpid(child, 0)[1] == 0
    assert gradients_of(training) == 4


def test_all_steps_are_charged_before_a_row_is_read():
    read = []
    account = Ledger(5.0, 1e-4, currency="approximate")
    training = training_of(data=Watched(table(), read), ledger=account)
    assert read == ["row"]  # its shape, which is public
    assert account.entries == training.ledger.entries == ()
    training.draw()
    assert read == ["row"]
    assert [type(entry.cost) for entry in account.entries] == [FixedSchedule]
    assert account.entries[0].cost == training.ledger.entries[0].cost == training.plan.schedule
    training.gradient()
    assert len(read) > 1
    for _ in range(3):
        training.draw()
        training.gradient()
    assert len(account.entries) == len(training.ledger.entries) == 1


def test_a_refused_charge_reads_nothing_and_changes_nothing():
    read, account = [], Ledger(5.0, 1e-4, currency="approximate")
    module, data = network(), Watched(table(), read)
    training = training_of(module, data, ledger=account)
    before = [each.detach().clone() for each in module.parameters()]
    other = training_of(ledger=account, epsilon=4.0)
    other.draw()
    for _ in range(2):  # a second try is refused like the first
        with pytest.raises(BudgetExhausted):
            training.draw()
    with pytest.raises(BudgetExhausted, match="draw"):
        training.gradient()
    assert read == ["row"]
    assert training.ledger.entries == ()
    assert len(account.entries) == 1
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
    assert all(each.grad is None for each in module.parameters())


def test_an_account_that_cannot_pay_leaves_the_module_as_it_was():
    module, account = network(), Ledger(1.0, 1e-4, currency="approximate")
    before = flat(module)
    with pytest.raises(BudgetExhausted):
        fit(module, table(), cross_entropy, epsilon=2.0, delta=DELTA, steps=4, ledger=account)
    assert torch.equal(before, flat(module))
    assert account.entries == ()


def test_the_charge_is_for_the_batches_and_the_noise_that_are_drawn():
    training = training_of(delta=1e-5)
    (part,) = training.plan.schedule.parts
    assert part == PoissonSampled(20 / N, (Gaussian(training.plan.noise_multiplier),))
    assert training.plan.schedule.steps == 4
    assert training.plan.schedule.pure() <= 2.0
    assert (
        FixedSchedule((PoissonSampled(20 / N, (Gaussian(0.99 * training.plan.noise_multiplier),)),), 4, 1e-5).pure()
        > 2
    )
    (part,) = training_of(adjacency="replace-one").plan.schedule.parts
    assert type(part) is FixedSizeSampled


@pytest.mark.parametrize("currency", ["rdp", "zcdp", "gdp"])
def test_an_account_in_another_currency_pays_the_sum_of_the_steps(currency):
    account = Ledger(4.0, DELTA, currency=currency)
    training = training_of(ledger=account)
    training.draw()
    assert training.ledger.currency == account.currency
    assert 0 < account.spent <= training.ledger.budget
    assert account.entries[0].cost.failure == 0


def test_an_account_of_pure_epsilons_cannot_pay_for_gaussian_noise():
    account = Ledger(4.0, 1e-5, currency="pure")
    with pytest.raises(UnsupportedCost):
        training_of(ledger=account)
    assert account.entries == ()


def test_an_account_of_people_cannot_pay_for_single_rows():
    account = Ledger(4.0, 1e-5, currency="gdp", unit="one person")
    with pytest.raises(InvalidParameter, match="protects one person"):
        training_of(ledger=account)
    assert account.entries == ()


def test_each_step_answers_once_and_no_more_steps_than_were_charged():
    training = training_of(steps=2)
    with pytest.raises(BudgetExhausted, match="draw"):
        training.gradient()
    for _ in range(2):
        training.draw()
        training.gradient()
        with pytest.raises(BudgetExhausted, match="draw"):
            training.gradient()
    with pytest.raises(BudgetExhausted, match="2 steps"):
        training.draw()


def test_the_statement_names_what_was_charged_and_assumed():
    result = fit(network(), table(), cross_entropy, epsilon=2.0, delta=DELTA, steps=3, random_state=0)
    statement = result.privacy_
    assert statement["epsilon"] == 2.0
    assert statement["delta"] == DELTA
    assert statement["relation"] == "zero-out"
    assert statement["steps"] == 3
    assert statement["mechanisms"] == {"fixed-schedule": 1}
    assert statement["spent_epsilon"] <= 2.0
    assert statement["randomness"] == "seeded (not for release)"
    assert "rounding" in statement["arithmetic"]
    assert any("60" in each for each in statement["assumed_public"])
    assert [each.step for each in result.history] == [0, 1, 2]


# Answers ------------------------------------------------------------------------------------------------------


class Silent:
    """Noise that is none, to see the sums themselves; it notes what it was asked to release."""

    def __init__(self, seed=0):
        self.randomness, self.description, self.asked = Randomness(seed), "none", []

    def release(self, total, cost, relation, *, symmetric=False):
        self.asked.append((total, cost, relation))
        return total.to_float() if isinstance(cost, Gaussian) else int(np.argmax(total.values >= 0))


def silenced(training, seed=0):
    training._noise = Silent(seed)
    return training


def released_sum(training):
    training.draw()
    training.gradient()
    return training._noise.asked[-1][0]


def chosen_rows(training, step=1, rows=N):
    return draw_rows(Randomness(0).stream("batch", step), rows, training.plan.sampling)


@pytest.mark.parametrize("clip", [0.3, 100.0, None])
def test_a_gradient_is_the_clipped_sum_of_its_batch_over_its_public_size(clip):
    module = network()
    training = silenced(training_of(module, clip_norm=clip))
    inputs, targets = table()
    expected = [torch.zeros_like(each) for each in module.parameters()]
    for row in np.flatnonzero(chosen_rows(training)):
        loss = cross_entropy(module(inputs[row : row + 1]), targets[row : row + 1])
        gradient = torch.autograd.grad(loss.sum(), list(module.parameters()))
        length = math.sqrt(sum(float(each.square().sum()) for each in gradient))
        weight = 1 / max(length, 1.0) if clip is None else min(1.0, clip / length)
        for total, each in zip(expected, gradient, strict=True):
            total += weight * each / 20
    training.draw()
    lattice = training.plan.unit / 20
    for found, each in zip(training.gradient(shortest=1.0), expected, strict=True):
        torch.testing.assert_close(found, each, rtol=1e-5, atol=1e-7 + lattice)
    assert all(each.grad is not None for each in module.parameters())


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("clip", [0.05, 1.0, None])
def test_a_neighbouring_table_moves_every_sum_by_no_more_than_was_declared(clip, relation):
    inputs, targets = table()
    reached, given = 0.0, {"clip_norm": clip, "adjacency": relation, "batch_size": 50}
    whole = released_sum(silenced(training_of(data=(inputs, targets), **given)))
    for row in range(3):
        moved = inputs.clone(), targets.clone()
        moved[0][row] = 1e3 * (row + 1) * (-1) ** row
        moved[1][row] = 1 - moved[1][row]
        sums = [whole, released_sum(silenced(training_of(data=moved, **given)))]
        # Both sums are rounded to the lattice, each coordinate by half a unit.
        lattice = math.sqrt(sums[0].values.size) * sums[0].unit
        bound = (1.0 if clip is None else clip) * (1 + ROUNDING) + lattice
        assert sums[0].sensitivity.under(relation) == bound * (2 if relation == "replace-one" else 1)
        # A replaced row moves a sum by twice what a removed one does, and zero-out is judged by removals below.
        moved_by = float(np.linalg.norm(sums[0].to_float() - sums[1].to_float()))
        assert moved_by <= 2 * (1.0 if clip is None else clip) * (1 + ROUNDING)
        reached = max(reached, moved_by / (2 * (1.0 if clip is None else clip)))
    assert reached > 0.3


@pytest.mark.parametrize("clip", [0.05, None])
def test_a_row_that_cannot_be_computed_is_a_removed_row(clip):
    # Under zero-out a removed row adds nothing; so does a row with a target that no class has, or without a number.
    inputs, targets = table()
    training = silenced(training_of(clip_norm=clip, batch_size=50))
    whole = released_sum(training)
    rows = np.flatnonzero(chosen_rows(training))
    bound = 1.0 if clip is None else clip
    for row in rows[:3]:
        broken = targets.clone()
        broken[row] = 17
        without = released_sum(silenced(training_of(data=(inputs, broken), clip_norm=clip, batch_size=50)))
        moved_by = float(np.linalg.norm(whole.to_float() - without.to_float()))
        assert 0.5 * bound < moved_by <= bound * (1 + ROUNDING)
        nan = Watched((inputs.clone(), targets), [])
        nan.data[0][row, 1] = math.nan
        other = released_sum(silenced(training_of(data=nan, clip_norm=clip, batch_size=50)))
        assert np.abs(other.values - without.values).max() * without.unit < 1e-5


class Panic(BaseException):
    """What libraries that are not written in Python raise."""


class Spoiled(Dataset):
    """A table of which one row cannot be used."""

    def __init__(self, data, row, how):
        self.data, self.row, self.how = data, row, how

    def __len__(self):
        return len(self.data[0])

    def __getitem__(self, row):
        inputs, target = self.data[0][row], self.data[1][row]
        if row != self.row:
            return inputs, target
        if self.how in ("raises", "panics"):
            raise OSError("this file cannot be read") if self.how == "raises" else Panic(inputs)
        return {
            "sparse": (inputs.to_sparse(), target),
            "shape": (inputs[:1], target),
            "type": (inputs.double(), target),
            "no pair": inputs,
            "nan": (inputs * math.nan, target),
            "infinite": (inputs + math.inf, target),
            "no such class": (inputs, target + 17) if not target.is_floating_point() else (inputs, target * math.nan),
        }[self.how]


def fitted_table(size, rows=200):
    """A module and rows that it fits up to the rounding of float32, which differs with a row's place in a batch."""
    torch.manual_seed(1)
    module = nn.Linear(50, 2)
    inputs = torch.rand(rows, 50) * size
    with torch.no_grad():
        outputs = module(inputs)
        shifted = torch.cat([outputs[:1], module(inputs[1:].clone())])
    targets = torch.where(
        outputs > shifted, (outputs + shifted) / 2, torch.where(outputs == shifted, outputs, outputs + 100 * size)
    )
    return module, inputs, targets


def squares(outputs, targets):
    return (outputs - targets).square().sum(1)


@pytest.mark.parametrize(
    "how", ["shape", "type", "no pair", "raises", "panics", "sparse", "nan", "infinite", "no such class"]
)
@pytest.mark.parametrize(("clip", "size"), [(1.0, 1000.0), (None, 100.0)])
def test_a_row_that_is_removed_does_not_change_the_rounding_of_the_others(how, clip, size):
    """Last digits are all that is left of the gradients of rows that are fitted, and here they are clipped to C."""
    module, inputs, targets = fitted_table(size)
    row = 1
    sums = [
        released_sum(silenced(training_of(module, data, squares, batch_size=200, clip_norm=clip, steps=1)))
        for data in (Spoiled((inputs, targets), None, ""), Spoiled((inputs, targets), row, how))
    ]
    moved_by = float(np.linalg.norm(sums[0].to_float() - sums[1].to_float()))
    assert moved_by <= 1 + 1e-4
    # The sum without the row is that of a table which never had it, with the others at their places.
    alone = silenced(training_of(module, (inputs, targets), squares, batch_size=200, clip_norm=clip, steps=1))
    before = alone._gradients.of(alone._rows.batch(np.arange(200)))
    weights = alone.plan.clipping.weights(before.norms())
    weights[row] = 0.0
    expected = torch.cat([each.reshape(-1) for each in before.weighted_sum(weights)])
    assert np.abs(sums[1].to_float() - expected.numpy()).max() <= sums[1].unit


def test_the_table_of_the_test_above_breaks_a_sum_over_rows_that_move_up():
    """Taking the row out of the tensors moves the sum by more than C."""
    module, inputs, targets = fitted_table(1000.0)
    training = training_of(module, (inputs, targets), squares, batch_size=200, steps=1)
    sums = []
    for rows in (np.arange(200), np.arange(1, 200)):
        found = training._gradients.of(training._rows.batch(rows))
        weights = training.plan.clipping.weights(found.norms())
        sums.append(torch.cat([each.reshape(-1) for each in found.weighted_sum(weights)]))
    with torch.no_grad():
        if torch.equal(module(inputs)[1:], module(inputs[1:].clone())):
            pytest.skip("products are rounded alike at all places on this machine")
    assert float((sums[0] - sums[1]).norm()) > 1 + ROUNDING


def test_rows_that_fail_only_together_are_taken_one_by_one():
    class Crowded(nn.Linear):
        def forward(self, values):
            if len(values) > 3:
                raise RuntimeError("too many")
            return super().forward(values)

    torch.manual_seed(0)
    module, data = Crowded(3, 2), table()
    found = released_sum(silenced(training_of(module, data, batch_size=N, steps=1)))
    plain = nn.Linear(3, 2)
    plain.load_state_dict(module.state_dict())
    expected = released_sum(silenced(training_of(plain, data, batch_size=N, steps=1)))
    np.testing.assert_allclose(found.to_float(), expected.to_float(), atol=1e-4)


class InPlace(nn.Module):
    """Scales its input in place, as image networks do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, values):
        return self.layer(values.mul_(0.1))


class InPlaceTwice(InPlace):
    def forward(self, values):
        return super().forward(values) @ self.layer.weight[:, :2]


class InPlaceByBranch(InPlace):
    def forward(self, values):
        return super().forward(values if float(values.detach().max()) < math.inf else -values)


@pytest.mark.parametrize("family", [InPlace, InPlaceTwice, InPlaceByBranch])
def test_a_row_that_fails_does_not_let_others_be_changed_in_place_once_more(family):
    torch.manual_seed(0)
    module, (inputs, targets) = family(), table()
    broken = targets.clone()
    broken[7] = 17

    def loss(outputs, wanted):
        return cross_entropy(outputs, wanted.floor_divide_(10))

    sums = [
        released_sum(silenced(training_of(module, (30 * inputs, 10 * wanted), loss, batch_size=N)))
        for wanted in (targets, broken)
    ]
    moved_by = float(np.linalg.norm(sums[0].to_float() - sums[1].to_float()))
    assert 1e-3 < moved_by <= 1 + ROUNDING


def test_a_row_that_fails_leaves_its_place_to_a_public_one_and_absent_rows_stay_absent():
    seen = []

    def add(part):
        if bool((part.targets == 9).any()):
            raise ValueError
        seen.append(part)
        return part.targets.long()[~part.absent].sum()

    absent = torch.tensor([False, False, False, True])
    part = Batch((torch.arange(4.0)[:, None],), torch.tensor([1, 9, 3, 4]), absent)
    blank = Batch((torch.full((3, 1), 7.0),), torch.full((3,), 5))
    assert int(sum_rows(add, [part], blank)) == 1 + 3
    assert [each.absent.tolist() for each in seen[:-1]] == [[False, True], [False]]
    assert seen[-1].targets.tolist() == [1, 5, 3, 4]
    assert seen[-1].inputs[0][:, 0].tolist() == [0, 7, 2, 3]
    assert seen[-1].absent.tolist() == [False, True, False, True]
    assert part.targets.tolist() == [1, 9, 3, 4]


def test_an_error_of_a_row_that_fails_by_chance_is_never_heard():
    # Rows fail in company, and by themselves whenever they are tried a second time.
    tried = set()

    def add(part):
        row = float(part.targets[0])
        if len(part) > 1 or row in tried or row == 2:
            raise Panic(part)
        tried.add(row)
        return part.targets.long()

    rows = Batch((torch.zeros(4, 1),), torch.arange(4.0) + 1)
    assert int(sum_rows(add, [rows], rows)) == 1 + 3 + 4


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_from_outside_is_no_row_that_fails(stop):
    class Stopping(Watched):
        def __getitem__(self, row):
            if self.noted:
                raise stop
            return super().__getitem__(row)

    def add(_):
        raise stop

    rows = Batch((torch.zeros(2, 1),), torch.zeros(2))
    with pytest.raises(stop):
        sum_rows(add, [rows], rows)
    with pytest.raises(stop):
        DatasetRows(Stopping(table(), []), torch.device("cpu")).batch(np.arange(2))


def test_a_row_of_infinite_loss_adds_nothing_though_its_gradient_is_finite():
    inputs, targets = table()
    row = int(np.flatnonzero(chosen_rows(training_of(batch_size=50)))[0])
    marked, broken = targets.clone().double(), targets.clone().double()
    marked[row], broken[row] = 2.0, 17.0

    def loss(outputs, wanted):
        losses = cross_entropy(outputs, wanted.long().clamp_max(1).where(wanted != 17, 17))
        return losses + torch.where(wanted == 2, math.inf, 0.0)

    sums = [
        released_sum(silenced(training_of(data=(inputs, each), loss=loss, batch_size=50)))
        for each in (marked, broken)
    ]
    np.testing.assert_allclose(sums[0].to_float(), sums[1].to_float(), atol=1e-5)


def test_noise_has_the_scale_that_was_charged():
    # 7 x 40 coordinates of pure noise around one sum: the mean square has a relative deviation of sqrt(2/1,040), and
    # six of them are a false alarm once in 5e8 runs; noise that is 30% too small or too large is caught.
    module, noisy = network(), []
    exact = silenced(training_of(module, steps=40))
    training = training_of(module, steps=40)
    for _ in range(40):
        for each in (exact, training):
            each.draw()
        without = torch.cat([each.reshape(-1).clone() for each in exact.gradient()])
        noisy.append(torch.cat([each.reshape(-1) for each in training.gradient()]) - without)
    drawn = torch.stack(noisy).double()
    expected = training.plan.noise_multiplier * (1 + ROUNDING) / 20
    assert training.deviation == pytest.approx(expected, rel=1e-4)
    assert training.deviation > expected
    ratio = float(drawn.square().mean()) / expected**2
    assert abs(ratio - 1) < 6 * math.sqrt(2 / drawn.numel())
    assert 6 * math.sqrt(2 / drawn.numel()) < 0.3


def test_an_empty_batch_still_gives_noise():
    training = training_of(batch_size=1, steps=40)
    empty = [step for step in range(1, 41) if not chosen_rows(training, step).any()]
    assert empty
    for _ in range(empty[0]):
        training.draw()
        gradient = training.gradient()
    assert all(bool((each != 0).all()) for each in gradient)


def test_batches_are_cut_without_changing_their_sum():
    whole, cut = (silenced(training_of(batch_size=50)) for _ in range(2))
    cut._gradients.rows_at_once = 3
    one, other = released_sum(whole), released_sum(cut)
    np.testing.assert_allclose(one.to_float(), other.to_float(), atol=1e-5)


@pytest.mark.parametrize("method", ["sgd", "adam"])
def test_with_hardly_any_noise_methods_follow_their_optimiser_on_the_same_batches(method):
    module, plain = network(), network()
    fit(
        module,
        table(),
        cross_entropy,
        epsilon=1e9,
        delta=DELTA,
        method=method,
        learning_rate=0.1,
        clip_norm=10.0,
        steps=6,
        batch_size=20,
        bands=1,
        random_state=0,
    )
    optimiser = (torch.optim.SGD if method == "sgd" else torch.optim.Adam)(plain.parameters(), lr=0.1)
    inputs, targets = table()
    for step in range(1, 7):
        chosen = torch.from_numpy(draw_rows(Randomness(0).stream("batch", step), N, Sampling("zero-out", N, 20 / N)))
        optimiser.zero_grad()
        (cross_entropy(plain(inputs[chosen]), targets[chosen]).sum() / 20).backward()
        optimiser.step()
    found, wanted, start = (
        nn.utils.parameters_to_vector(m.parameters()).detach() for m in (module, plain, network())
    )
    assert float((found - wanted).norm()) < 0.005 * float((wanted - start).norm())


def test_auto_begins_with_steps_whose_length_follows_from_the_noise_and_from_gradients():
    module = network()
    length = float(flat(module).norm())
    result = fit(module, table(), cross_entropy, epsilon=0.5, delta=DELTA, steps=30, bands=1, random_state=0)
    training = training_of(epsilon=0.5, steps=30, batch_size=None, clip_norm=None)
    shape = [1 - t / 30 for t in range(30)]
    walked = training.deviation * math.sqrt(sum(each**2 for each in shape))
    first = 0.27 / (walked * math.sqrt(result.history[0].gradient_norm))
    assert first < 2 * length
    assert result.history[0].step_size == 0.0  # it measures
    rates = [each.step_size * (1 - 0.9**each.step) / shape[each.step] for each in result.history[1:]]
    assert rates[0] == pytest.approx(first)
    changes = np.abs(np.diff(np.log(rates)))
    assert 0 < changes.max() <= 3 / (4 * math.sqrt(30)) + 1e-9
    rich = fit(network(), table(), cross_entropy, epsilon=1e6, delta=DELTA, steps=30, bands=1, random_state=0)
    sizes = [each.step_size * (1 - 0.9**each.step) / shape[each.step] for each in rich.history[1:]]
    assert sizes[0] == pytest.approx(2 * length)
    assert max(sizes) <= 2 * length * (1 + 1e-9)


def rate_after(slope, bands):
    """Return the learning rate of `auto` after gradients that point along what was walked, or against it."""
    training = training_of(steps=40, bands=bands, batch_size=15, clip_norm=None, epsilon=0.5)
    rule = Auto(training)
    begun, numbers = rule._rate, training.plan.parameters
    rule._start -= 1.0
    for _ in range(40):
        rule._adapt([torch.full((numbers,), slope * training.deviation / math.sqrt(numbers))])
    return rule._rate / begun


@pytest.mark.parametrize("bands", [1, 4])
def test_steps_become_longer_while_the_loss_falls_and_shorter_while_it_rises(bands):
    assert rate_after(-0.3, bands) > 1.5
    assert rate_after(0.3, bands) < 0.7


def test_a_large_tensor_without_a_slope_does_not_hide_those_of_small_ones():
    training = training_of(steps=40, bands=1, batch_size=15, clip_norm=None, epsilon=0.5)
    rule = Auto(training)
    begun, sizes = rule._rate, [each.numel() for each in training.parameters]
    rule._start -= 1.0
    large = sizes.index(max(sizes))
    scores = [0.0 if place == large else -2.0 for place in range(len(sizes))]
    deviation = training.deviation
    rule._adapt(
        [
            torch.full(each.shape, score * deviation / math.sqrt(each.numel()))
            for score, each in zip(scores, training.parameters, strict=True)
        ]
    )
    lengths = np.sqrt(sizes)
    joined = np.sqrt(lengths) @ scores / math.sqrt(lengths.sum())
    together = lengths @ scores / math.sqrt(lengths @ lengths)
    assert joined < together < 0
    assert rule._rate / begun == pytest.approx(math.exp(-joined / (4 * math.sqrt(40))), rel=1e-5)


def test_scores_of_noise_alone_change_steps_by_little():
    training = training_of(steps=40, clip_norm=None, epsilon=0.5)
    rule, generator, changes = Auto(training), torch.Generator().manual_seed(0), []
    for _ in range(200):
        rule._rate, rule._recent = 1.0, []
        rule._start = torch.cat([each.detach().reshape(-1) for each in training.parameters]).double() - 1
        for _ in range(40):
            noise = [torch.randn(each.shape, generator=generator) for each in training.parameters]
            rule._adapt([training.deviation * each for each in noise])
        changes.append(math.log(rule._rate))
    assert np.std(changes) == pytest.approx(0.25, rel=0.25)
    assert abs(np.mean(changes)) < 0.08


def lengths_of(data, module):
    found = []
    for row in range(len(data[0])):
        loss = cross_entropy(module(data[0][row : row + 1]), data[1][row : row + 1]).sum()
        gradient = torch.autograd.grad(loss, list(module.parameters()))
        found.append(math.sqrt(sum(float(each.square().sum()) for each in gradient)))
    return np.array(found)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_row_counts_for_one_in_the_histogram_of_lengths_and_is_shared_by_two_bins(clip):
    data, module = table(), network()
    training = silenced(training_of(module, clip_norm=clip, epsilon=50.0))
    training.draw()
    found = training.measure_length()
    chosen = chosen_rows(training)
    places = np.log2(lengths_of(data, module)[chosen]) + 7
    expected = np.zeros(40)
    for place in places:
        expected[math.floor(place)] += 1 - place % 1
        expected[math.floor(place) + 1] += place % 1
    ((counted, cost, _),) = training._noise.asked
    bound = 1.0 if clip is None else clip
    np.testing.assert_allclose(counted.to_float() / bound, expected, atol=1e-5)
    assert cost == training.plan.gradient
    assert counted.sensitivity == training.plan.sensitivity
    certain = np.where(expected > 6 * training.plan.noise_multiplier, expected, 0.0)
    assert certain.any()
    assert found == pytest.approx(2.0 ** (certain @ np.arange(-7, 33) / certain.sum()), rel=1e-4)
    with pytest.raises(BudgetExhausted, match="draw"):
        training.gradient()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_no_length_counts_for_more_than_one_and_close_lengths_are_close(scale):
    # Lengths at powers of two, and a last digit beside them: with whole bins, a digit would move a row by sqrt(2).
    class Rows:
        losses = torch.zeros(3)

        def __init__(self, norms):
            self._norms = torch.tensor(norms, dtype=torch.float64)

        def norms(self):
            return self._norms

        def of(self, batch):
            return self

    batch = Batch((torch.zeros(3, 1),), torch.zeros(3))

    def counts(norms):
        return length_counts(Rows(norms), batch)

    near = counts([scale, scale, math.nan]) - counts([scale * (1 + 1e-7), scale, math.inf])
    assert float(near.norm()) < 1e-6
    one = counts([scale, math.nan, math.inf])
    assert float(one.sum()) == pytest.approx(1.0)
    assert 0.7 < float(one.norm()) <= 1.0
    assert float(one.min()) >= 0.0


def test_a_length_that_noise_hides_is_that_of_public_rows():
    inputs, targets = table()
    training = training_of(epsilon=0.01, data=(1000 * inputs, targets), clip_norm=None)
    training.draw()
    assert training.measure_length() == training.public_length
    assert training.public_length == training_of().public_length
    noise = np.array([5.9, 0.0, -8.0] + [0.0] * 37)
    assert typical_length(noise, 1.0) is None
    assert typical_length(noise, 0.9) == 2.0**-7


def test_no_gradient_is_divided_by_less_than_a_hundredth():
    """Rows that are fitted up to rounding errors would count for much."""
    inputs, targets = table()
    data = (inputs, torch.zeros_like(targets))
    sums = []
    for shortest in (0.01, 1e-12):
        module = network()
        with torch.no_grad():
            module[-1].bias[0] += 12.0  # every row is nearly certain of its class
        training = silenced(training_of(module, data=data, clip_norm=None, epsilon=50.0))
        training.draw()
        training.gradient(shortest)
        sums.append(training._noise.asked[0][0].values)
    np.testing.assert_array_equal(*sums)
    assert lengths_of(data, module).max() < 0.01


def test_a_bin_is_believed_beyond_six_deviations_under_either_relation():
    for relation, change in (("zero-out", 1.0), ("replace-one", 2.0)):
        training = training_of(adjacency=relation, clip_norm=None, epsilon=50.0)
        counts = np.zeros(40)
        counts[10] = 6.1 * change * training.plan.noise_multiplier
        training._release_sum = lambda _, __, ___, counts=counts: counts
        training.draw()
        assert training.measure_length() == pytest.approx(2.0**3)
        training.draw()
        training._release_sum = lambda _, __, ___, counts=counts: counts * 0.95
        assert training.measure_length() == training.public_length


def test_auto_divides_by_the_length_that_it_has_measured():
    asked = []
    training = training_of(steps=20, clip_norm=None)
    training.measure_length = lambda: 0.7
    training.gradient = lambda shortest: asked.append(shortest) or [torch.zeros_like(p) for p in training.parameters]
    rule = Auto(training)
    for step in range(3):
        rule.advance(step)
    assert asked == [0.7, 0.7]
    resumed = Auto(training)
    resumed.restore(rule.state())
    resumed.advance(3)
    assert asked.pop() == 0.7
    short = training_of(steps=19, clip_norm=None)
    short.gradient = training.gradient
    Auto(short).advance(0)
    assert asked[2:] == [short.public_length]


@pytest.mark.parametrize("shortest", [0.0, -1.0, math.nan, math.inf])
def test_a_shortest_length_is_a_positive_number_or_nothing_is_read(shortest):
    read = []
    training = training_of(data=Watched(table(), read), clip_norm=None)
    training.draw()
    with pytest.raises(InvalidParameter, match="shortest"):
        training.gradient(shortest)
    assert read == ["row"]
    training.gradient()


def test_defaults_are_rules_of_the_number_of_rows():
    training = training_of(steps=None, batch_size=None)
    size = math.ceil(math.sqrt(6 * N))
    assert training.plan.sampling.rate == size / N
    assert training.steps == math.ceil(3 * N / size)
    assert training_of(steps=None, epochs=10).steps == 30
    longer = training_of(steps=None, epochs=12, batch_size=None)
    assert longer.plan.sampling.rate == 38 / N  # sqrt(2 * 60 * 12) = 37.9
    assert longer.steps == 19
    assert training_of(steps=None, epochs=50, batch_size=None).plan.sampling.rate == 1


def test_a_run_is_repeated_by_its_seed_and_by_nothing_else():
    def weights(seed):
        module = network()
        fit(module, table(), cross_entropy, epsilon=2.0, delta=DELTA, steps=2, random_state=seed)
        return flat(module)

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert not torch.equal(weights(None), weights(None))


class OneBuffer(Watched):
    """Rows that are all read into the same place."""

    def __getitem__(self, row):
        inputs, target = super().__getitem__(row)
        self.buffer = getattr(self, "buffer", inputs.clone()).copy_(inputs)
        return self.buffer, target


def test_rows_are_read_from_any_data_set_alike():
    inputs, targets = table()
    given = [(inputs, targets), (inputs.numpy(), targets.numpy()), TensorDataset(inputs, targets)]
    given += [Watched((inputs, targets), []), OneBuffer((inputs, targets), [])]
    sums = [released_sum(silenced(training_of(data=each))).values for each in given]
    assert all(np.array_equal(sums[0], each) for each in sums[1:])


class Ragged(Watched):
    """Sequences of which some are shorter."""

    def __getitem__(self, row):
        inputs, target = super().__getitem__(row)
        return (inputs if row % 5 == 0 else inputs[:2]), target


def test_the_statement_says_that_rows_of_other_shapes_are_left_out_whether_there_are_any_or_not():
    def remarks(data):
        found = fit(network(), data, cross_entropy, epsilon=2.0, delta=DELTA, steps=1, random_state=0).privacy_
        return found["remarks"]

    ragged, even = remarks(Ragged(table(), [])), remarks(Watched(table(), []))
    assert ragged == even
    assert any("float32 of shape (3,), int64 of shape ()" in each and "pad_sequence" in each for each in ragged)
    assert not any("pad_sequence" in each for each in remarks(table()))


def test_several_inputs_come_before_the_target():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 2)

        def forward(self, one, other):
            return self.layer(torch.cat([one, other], 1))

    inputs, targets = table()
    training_of(Two(), (inputs, 2 * inputs, targets)).draw()


class Remembering(nn.Module):
    """Centres rows by a mean that it keeps in a buffer, and keeps its last rows as well."""

    def __init__(self, assigns):
        super().__init__()
        self.layer, self.assigns = nn.Linear(3, 2), assigns
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        centred = x - self.mean
        moved = self.mean + x.detach().mean(0)
        if self.assigns:
            self.mean = moved
        else:
            self.mean.copy_(moved)
        self.kept = x
        return self.layer(centred)


@pytest.mark.parametrize("assigns", [False, True])
@pytest.mark.parametrize("rows_at_once", [1, 3, 100])
def test_a_module_cannot_remember_rows(assigns, rows_at_once):
    module = nn.Sequential(Remembering(assigns), nn.Dropout(0.0))
    training = silenced(training_of(module, batch_size=50))
    training._gradients.rows_at_once = rows_at_once
    found = released_sum(training).to_float()
    plain = nn.Sequential(nn.Linear(3, 2))
    plain[0].load_state_dict(module[0].layer.state_dict())
    np.testing.assert_allclose(found, released_sum(silenced(training_of(plain, batch_size=50))).to_float(), atol=1e-5)
    assert torch.equal(module[0].mean, torch.zeros(3))
    assert not hasattr(module[0], "kept")
    assert module.training
    assert module[1].training


def test_buffers_that_a_pass_sets_or_adds_are_gone_after_it():
    module = nn.Linear(1, 1)
    module.register_buffer("kept", None)
    with unchanged_buffers(module):
        module.kept = torch.ones(2)
        module.register_buffer("added", torch.ones(2))
    assert dict(module._buffers) == {"kept": None}


class Stateful(nn.Module):
    """Keeps a mean of its rows, where no buffer tells of it."""

    def __init__(self):
        super().__init__()
        self.layer, self.mean = nn.Linear(3, 2), 0.0

    def forward(self, values):
        self.mean = 0.99 * self.mean + 0.01 * float(values.mean())
        return self.layer(values - self.mean)


class Drawing(nn.Module):
    """Has a generator of its own, whose numbers anybody may know."""

    def __init__(self):
        super().__init__()
        self.layer, self.seed = nn.Linear(3, 2), 0

    def forward(self, values):
        self.seed += 1
        return self.layer(values + torch.randn(3, generator=torch.Generator().manual_seed(self.seed)))


def test_a_module_that_cannot_be_copied_is_refused():
    module = network()
    module.kept = module(torch.zeros(1, 3))
    with pytest.raises(InvalidParameter, match="copied"):
        training_of(module)


def test_frozen_parameters_are_not_moved():
    module = network()
    module[0].requires_grad_(False)
    before = module[0].weight.detach().clone()
    fit(module, table(), cross_entropy, epsilon=2.0, delta=DELTA, steps=3, random_state=0)
    assert torch.equal(module[0].weight, before)
    assert module[0].weight.grad is None


def test_a_warning_about_rows_is_never_heard():
    def loss(outputs, targets):
        warnings.warn(f"the largest output is {outputs.max():g}", UserWarning, stacklevel=1)
        return cross_entropy(outputs, targets)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = released_sum(silenced(training_of(loss=loss)))
    assert heard == []
    # A loss that formats numbers is computed row by row, with last digits of its own.
    assert np.abs(found.values - released_sum(silenced(training_of())).values).max() <= 2


# Searches -----------------------------------------------------------------------------------------------------


def test_a_search_finds_the_first_step_that_lowers_the_clipped_loss_by_its_demand():
    module = network()
    training = silenced(training_of(module, delta=1e-5, search_steps=4, clip_loss=2.0))
    training.draw()
    gradient = training.gradient()
    before = [each.detach().clone() for each in module.parameters()]
    training.first_step(gradient, [8.0, 2.0, 0.5], [0.0, 0.01, 0.0])
    queries = training._noise.asked[-1][0]
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
    inputs, targets = table()
    chosen = torch.from_numpy(draw_rows(Randomness(0).stream("search batch", 1), N, training.plan.sampling))

    def loss():
        with torch.no_grad():
            return float(cross_entropy(module(inputs[chosen]), targets[chosen]).clamp(0, 2).double().sum())

    here, expected = loss(), []
    for size, demand in ((8.0, 0.0), (2.0, 0.01), (0.5, 0.0)):
        with torch.no_grad():
            for each, start, along in zip(module.parameters(), before, gradient, strict=True):
                each.copy_(start - size * along)
        expected.append(here - loss() - 20 * demand)
    np.testing.assert_allclose(queries.to_float(), expected, atol=1e-5)
    assert queries.sensitivity.zero_out == 2.0 + queries.unit
    assert queries.sensitivity.replace_one == 2 * (2.0 + queries.unit)


def test_no_row_moves_a_query_by_more_than_its_clipped_loss():
    inputs, targets = table()
    direction = [torch.ones_like(each) for each in network().parameters()]

    def queries(data):
        training = silenced(training_of(data=data, delta=1e-5, search_steps=2, clip_loss=0.5, batch_size=60))
        training.draw()
        training.first_step(direction, [5.0, -5.0], [0.0, 0.0])
        return training._noise.asked[-1][0].to_float()

    whole, largest = queries((inputs, targets)), 0.0
    for row in range(8):
        broken = targets.clone()
        broken[row] = 17
        moved = float(np.abs(whole - queries((inputs, broken))).max())
        assert moved <= 0.5 * (1 + ROUNDING)
        largest = max(largest, moved)
    assert largest > 0.2


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf, 1e30])
def test_a_loss_that_is_no_number_moves_a_query_by_its_bound_at_most(strange):
    # The row's loss is 0.1 at the parameters, and strange after a step, or the other way round.
    class Losses:
        def __init__(self, first, then):
            self.first, self.then, self.parameters = first, then, {"weight": torch.zeros(1)}

        def losses(self, _):
            return torch.tensor([self.then if float(self.parameters["weight"]) else self.first])

    for first, then in ((0.1, strange), (strange, 0.1)):
        falls = loss_falls(
            Losses(first, then), Batch((), torch.zeros(1)), [torch.ones(1)], np.array([1.0]), 0.5, 2.0**-20
        )
        assert abs(int(falls[0])) <= 0.5 * 2**20


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_sum_that_is_not_finite_is_never_rounded_to_whole_numbers(bad):
    with pytest.raises(ArithmeticError):
        on_lattice(torch.tensor([0.0, bad]), 1.0)


def test_an_absent_row_adds_nothing_to_a_query():
    class Falling:
        parameters = {"weight": torch.zeros(1)}  # noqa: RUF012

        def losses(self, _):
            return torch.tensor([0.3, 0.4]) * (1 - self.parameters["weight"])

    def fall(*absent):
        batch = Batch((), torch.zeros(2), torch.tensor(absent))
        return int(loss_falls(Falling(), batch, [-torch.ones(1)], np.array([1.0]), 0.5, 2.0**-20)[0])

    assert [fall(False, True), fall(True, False)] == [round(0.3 * 2**20), round(0.4 * 2**20)]
    assert fall(True, True) == 0
    assert fall(False, False) == fall(False, True) + fall(True, False)


def test_a_seeded_training_that_goes_on_has_other_streams_than_at_first():
    whole, resumed = training_of(), training_of()
    resumed.skip_to(2)
    assert resumed._noise.randomness != whole._noise.randomness


class Centred(nn.Module):
    """A network that subtracts the mean of its batch, one row or many."""

    def __init__(self, first):
        super().__init__()
        self.first, self.last = first, nn.Linear(4, 2)

    def forward(self, inputs):
        hidden = self.first(inputs).flatten(1)
        return self.last(hidden + torch.softmax(hidden @ hidden.T, 1) @ hidden)


class Unmapped(Centred):
    """The same, with a branch on numbers that torch.func does not take."""

    def forward(self, inputs):
        return super().forward(inputs) * (1.0 if float(inputs.detach().sum()) < math.inf else 0.0)


@pytest.mark.parametrize("family", [Centred, Unmapped])
@pytest.mark.parametrize("tokens", [False, True])
def test_no_row_changes_what_another_adds_in_a_module_that_mixes_rows(family, tokens):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 5, (N, 1), generator=generator) if tokens else table()[0]
    torch.manual_seed(0)
    module = family(nn.Embedding(5, 4) if tokens else nn.Linear(3, 4))
    direction = [torch.randn(each.shape, generator=generator) for each in module.parameters()]

    def sums(rows):
        data = inputs[rows], table()[1][rows]
        training = silenced(
            training_of(module, data, delta=1e-5, search_steps=2, clip_loss=0.5, batch_size=len(rows))
        )
        training.draw()
        training.gradient()
        training.first_step(direction, [1.0, -1.0], [0.0, 0.0])
        return [asked[0].to_float() for asked in training._noise.asked[-2:]]

    whole = sums(range(N))
    for row in range(4):
        gradient, falls = (
            one - other for one, other in zip(whole, sums([i for i in range(N) if i != row]), strict=True)
        )
        assert np.linalg.norm(gradient) <= 1 + ROUNDING
        assert np.abs(falls).max() <= 0.5 * (1 + ROUNDING)


class Augmented(Watched):
    """Rows that are augmented by all of the generators that people use."""

    def __getitem__(self, row):
        inputs, target = super().__getitem__(row)
        self.noted[-1] = (random.random(), float(np.random.rand()), float(torch.rand(())))  # noqa: NPY002
        return inputs, target


def test_what_is_random_in_rows_and_layers_is_fresh_and_leaves_no_trace():
    def states():
        _, numbers, place, *_ = np.random.get_state()  # noqa: NPY002
        return random.getstate(), numbers.tolist(), place, torch.get_rng_state().tolist()

    def drawn(seed):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        seen = []
        module = nn.Sequential(network(), nn.Dropout(0.5))
        training = training_of(module, Augmented(table(), seen), random_state=seed, noise="float")
        before = states()
        training.draw()
        training.gradient()
        assert states() == before
        first = len(seen)
        training.draw()
        training.gradient()
        assert 1 < first < len(seen)
        assert not set(seen[:first]) & set(seen[first:])
        return seen[1:]  # the first is read for its shape, by the generators of the caller

    secret, again = set(drawn(None)), set(drawn(None))
    for generator in range(3):
        assert not {each[generator] for each in secret} & {each[generator] for each in again}
    assert drawn(3) == drawn(3) != drawn(4)


def test_searches_are_charged_and_answer_once_for_each_step():
    training = training_of(delta=1e-5, search_steps=3, steps=5)
    gradients, searches = training.plan.schedule.parts
    assert searches.parts == (training.plan.search,)
    assert gradients.parts == (training.plan.gradient,)
    training.draw()
    direction = training.gradient()
    training.first_step(direction, [1.0], [0.0])
    with pytest.raises(BudgetExhausted):
        training.first_step(direction, [1.0], [0.0])
    for wrong in ([[1.0] * 4, [0.0] * 4], [[1.0], []], [[math.nan], [0.0]], [[], []]):
        training.draw()
        with pytest.raises(InvalidParameter):
            training.first_step(direction, *wrong)
    unplanned = training_of()
    unplanned.draw()
    with pytest.raises(InvalidParameter, match="search_steps"):
        unplanned.first_step(direction, [1.0], [0.0])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_tenth_of_a_step_pays_for_its_search(noise):
    training = training_of(delta=1e-5, search_steps=8, search_noise=noise, batch_size=60)
    share = training.plan.search.zcdp() / (training.plan.search.zcdp() + training.plan.gradient.zcdp())
    assert 0.01 < share < 0.2


def test_blsgd_takes_the_shortest_step_when_its_search_fails(monkeypatch):
    monkeypatch.setattr(PrivateTraining, "first_step", lambda *_: None)
    result = fit(network(), table(), cross_entropy, epsilon=2.0, delta=1e-5, method="blsgd", steps=2, random_state=0)
    length = float(flat(network()).norm())
    for record in result.history:
        longest = (record.step + 1) / 10 * length / record.gradient_norm
        assert record.step_size == pytest.approx(longest * 0.6**4)


def test_blsgd_never_moves_by_more_than_the_initial_length_and_ends_in_the_middle_of_its_last_steps():
    start, length = flat(network()).double(), float(flat(network()).norm())
    module = network()
    training = training_of(module, steps=16, clip_norm=3.0)
    gradients = [[(t + 1.0) * torch.ones_like(p) for p in module.parameters()] for t in range(16)]
    training.draw, training.gradient = (lambda: None), (lambda: gradients.pop(0))
    training.first_step = lambda _, sizes, demands: 0 if len(sizes) == len(demands) == 5 else None
    rule, at, seen = LineSearch(training), start, []
    for t in range(16):
        if t == 13:  # another process goes on
            state, rule = rule.state(), LineSearch(training)
            rule.restore(state)
        record = rule.advance(t)
        unit = (t + 1) * math.sqrt(start.numel())
        assert record.step_size == pytest.approx(min(1.0, (t + 1) / 10) * length / unit)
        at = at - record.step_size * (t + 1)
        seen.append(at)
    rule.restore(rule.state())  # a run that was stopped after its last step
    for _ in range(2):
        rule.finish()
    torch.testing.assert_close(flat(module).double(), torch.stack(seen[12:]).mean(0), rtol=1e-4, atol=1e-5)


# Refusals -----------------------------------------------------------------------------------------------------


class Unsized(Dataset):
    def __getitem__(self, row):
        return torch.zeros(3), 0


class Streamed(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3), 0)])


def batch_normalised():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))


class Summed(nn.Sequential):
    def forward(self, tokens):
        return super().forward(tokens).sum(1)


def traced(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(module, torch.zeros(1, 3))


def token_table():
    return torch.randint(0, 4, (N, 3)), table()[1]


def frozen():
    return network().requires_grad_(False)


def with_cell(value):
    inputs, targets = table()
    inputs[5, 1] = value
    return inputs, targets


@pytest.mark.parametrize(
    ("wrong", "error", "remedy"),
    [
        ({"module": batch_normalised()}, RowDependence, "GroupNorm"),
        (
            {"module": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False).eval())},
            RowDependence,
            "GroupNorm",
        ),
        (
            {"module": nn.Sequential(nn.Unflatten(1, (3, 1)), nn.InstanceNorm1d(3, track_running_stats=True))},
            RowDependence,
            "track_running_stats=False",
        ),
        ({"module": nn.Sequential(nn.Embedding(4, 2, max_norm=1.0))}, RowDependence, "max_norm=None"),
        ({"module": nn.Sequential(nn.Embedding(4, 2, scale_grad_by_freq=True))}, RowDependence, "scale_grad_by_freq"),
        ({"module": Stateful()}, RowDependence, "keep nothing"),
        ({"module": Drawing()}, RowDependence, "generators"),
        (
            {"module": Summed(nn.Embedding(4, 2, sparse=True)), "data": token_table()},
            InvalidParameter,
            "sparse=False",
        ),
        ({"module": nn.EmbeddingBag(4, 2, sparse=True), "data": token_table()}, InvalidParameter, "sparse=False"),
        ({"module": traced(network())}, InvalidParameter, "TorchScript"),
        (
            {"module": nn.Sequential(traced(nn.Linear(3, 3)), nn.Linear(3, 2))},
            InvalidParameter,
            "0 is a TorchScript",
        ),
        ({"module": frozen()}, InvalidParameter, "requires_grad_"),
        ({"module": network().half()}, InvalidParameter, "float32"),
        ({"module": "network"}, InvalidParameter, "torch.nn.Module"),
        ({"device": "cuda"}, InvalidParameter, "module.to"),
        ({"loss": nn.CrossEntropyLoss()}, InvalidParameter, "reduction='none'"),
        ({"loss": nn.MSELoss(reduction="none")}, InvalidParameter, "shapes of the data"),
        ({"loss": lambda outputs, _: outputs}, InvalidParameter, "reduction='none'"),
        ({"loss": lambda outputs, _: outputs.detach().sum(1)}, InvalidParameter, "trainable"),
        ({"loss": lambda outputs, _: outputs.sum(1) - outputs.sum()}, RowDependence, "own output"),
        ({"data": with_cell(math.nan)}, MissingValue, "fill"),
        ({"data": with_cell(math.inf)}, InfiniteValue, "replace"),
        ({"data": Unsized()}, InvalidParameter, "length"),
        ({"data": Streamed()}, InvalidParameter, "IterableDataset"),
        ({"data": 3}, InvalidParameter, "TensorDataset"),
        ({"data": (torch.zeros(0, 3), torch.zeros(0).long())}, InvalidParameter, "no rows"),
        ({"data": (torch.zeros(4, 3), torch.zeros(5).long())}, InvalidParameter, "same number"),
        ({"data": (torch.zeros(4, 3),)}, InvalidParameter, "target"),
        ({"data": (np.array([["a"]]), np.zeros(1))}, InvalidParameter, "encode"),
        ({"data": ([torch.zeros(3), torch.zeros(2)], torch.zeros(2).long())}, InvalidParameter, "pad_sequence"),
        ({"data": ([[1.0, 2.0], [1.0]], [0, 1])}, InvalidParameter, "pad_sequence"),
        ({"data": (table()[0].to_sparse(), table()[1])}, InvalidParameter, "to_dense"),
        ({"epsilon": -1.0}, InvalidParameter, "epsilon"),
        ({"epsilon": 1e-14, "delta": 1e-12}, InvalidParameter, "fewer steps"),
        ({"delta": 1.0}, InvalidParameter, "delta"),
        ({"steps": 0}, InvalidParameter, "steps"),
        ({"epochs": 2}, InvalidParameter, "not both"),
        ({"batch_size": N + 1}, InvalidParameter, "at most"),
        ({"clip_norm": 0.0}, InvalidParameter, "clip_norm"),
        ({"clip_loss": -1.0}, InvalidParameter, "clip_loss"),
        ({"adjacency": "add"}, InvalidParameter, "zero-out"),
        ({"noise": "none"}, InvalidParameter, "exact"),
        ({"search_steps": 3, "search_noise": "none"}, InvalidParameter, "laplace"),
        ({"ledger": "ledger.json"}, InvalidParameter, "Ledger.open"),
        ({"ledger": Ledger(9.0, 1e-4, relation="replace-one")}, InvalidParameter, "adjacency"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_named_with_its_remedy_before_any_charge(wrong, error, remedy):
    account = wrong.get("ledger", Ledger(9.0, 1e-4, currency="approximate"))
    with pytest.raises(error, match=remedy):
        training_of(**({"ledger": account} | wrong))
    assert getattr(account, "entries", ()) == ()


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"method": "lbfgs"}, "'auto'"),
        ({"method": "sgd", "clip_norm": 1.0}, "learning_rate"),
        ({"method": "adam", "learning_rate": 0.1}, "clip_norm"),
        ({"method": "sgd", "learning_rate": -1.0, "clip_norm": 1.0}, "learning_rate"),
        ({"learning_rate": 0.1}, "no learning rate"),
        ({"clip_norm": 0.1}, "clips by itself"),
        ({"method": "blsgd", "learning_rate": 0.1}, "no learning rate"),
    ],
)
def test_fit_names_settings_that_a_method_does_not_take(wrong, remedy):
    with pytest.raises(InvalidParameter, match=remedy):
        fit(network(), table(), cross_entropy, **({"epsilon": 1.0, "delta": DELTA, "steps": 2} | wrong))


def test_batch_norm_on_public_statistics_is_trained_row_by_row():
    module = batch_normalised()
    module[1].eval()
    training = training_of(module)
    training.draw()
    training.gradient()


def test_a_failing_row_is_never_named():
    def loss(outputs, targets):
        if bool((targets > 1).any()):
            raise ValueError(f"label {targets.max()} in row")
        return cross_entropy(outputs, targets)

    inputs, targets = table()
    targets[7] = 9
    training = training_of(data=(inputs, targets), loss=loss, batch_size=N)
    training.draw()
    assert all(bool(torch.isfinite(each).all()) for each in training.gradient())


def test_the_python_of_the_page_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    block, mixing = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(mixing, {})
    assert "rows may be mixed" in capsys.readouterr().out
    exec(block, {})
    spent, noise, steps = map(float, capsys.readouterr().out.split())
    assert 2.9 < spent <= 3.0
    assert noise > 0.5
    assert steps == math.ceil(9000 / math.ceil(math.sqrt(18000)))
