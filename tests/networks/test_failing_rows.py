"""Rows that cannot be computed: what they cost, what is said of them, and that they change nothing else."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from dpdescent.curator import Sampling  # noqa: E402
from dpdescent.errors import InvalidParameter, RowsWarning  # noqa: E402
from dpdescent.ledger import Ledger  # noqa: E402
from dpdescent.torch import PrivateTraining, fit  # noqa: E402
from dpdescent.torch.dataset_rows import DatasetRows, absence_told  # noqa: E402
from dpdescent.torch.failing_rows import sum_rows  # noqa: E402
from dpdescent.torch.row_gradients import Batch  # noqa: E402
from plain_networks import tried_once  # noqa: E402, F401

pytestmark = pytest.mark.usefixtures("tried_once")

DELTA = 1e-9
cross_entropy = nn.CrossEntropyLoss(reduction="none")


def table(rows=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 3, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def network(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


class Calls:
    """A loss that counts how often it is called."""

    def __init__(self, loss):
        self.loss, self.count = loss, 0

    def __call__(self, outputs, targets):
        self.count += 1
        return self.loss(outputs, targets)


def training_of(data, module=None, loss=cross_entropy, **settings):
    given = {"epsilon": 2.0, "delta": DELTA, "steps": 4, "random_state": 0} | settings
    return PrivateTraining(module or network(), data, loss, **given)


def sum_of(training):
    """Return the sum of a batch without its noise."""
    found = []

    class Noiseless:
        def release(self, query, total):
            found.append(total.copy())
            return np.zeros(total.size)

    training.draw()
    training._take = lambda *_: Noiseless()
    training.gradient()
    return found[0] * training.plan.unit


# Time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [[7], list(range(400))], ids=["one", "all"])
def test_labels_that_a_loss_does_not_know_take_no_pass_at_all(bad):
    inputs, targets = table()
    spoiled = targets.clone()
    spoiled[bad] = 5
    calls, sums = [], []
    for wanted in (targets, spoiled):
        training = training_of((inputs, wanted), batch_size=400)
        counted = training._gradients.loss = Calls(cross_entropy)
        sums.append(sum_of(training))
        calls.append(counted.count)
    assert calls[0] == calls[1]
    kept = training_of((inputs, targets), batch_size=400)
    batch = kept._rows.batch(np.arange(400))
    absent = torch.zeros(400, dtype=torch.bool)
    absent[bad] = True
    found = kept._gradients.of(batch.without(absent, kept._blank))
    weights = kept.plan.clipping.weights(found.norms()).where(~absent, 0.0)
    expected = torch.cat([each.reshape(-1) for each in found.weighted_sum(weights)]).numpy()
    assert np.abs(sums[1] - expected).max() <= training.plan.unit


def shares(outputs, targets):
    """A loss that refuses targets outside of 0 and 1 by an error."""
    return functional.binary_cross_entropy(torch.sigmoid(outputs[:, 0]), targets, reduction="none")


@pytest.mark.parametrize("bad", [[7], list(range(400))], ids=["one", "all"])
def test_rows_that_a_loss_refuses_for_another_reason_take_a_few_passes(bad):
    inputs, targets = table()
    targets = targets.float()
    targets[bad] = 1.5
    passes = []
    module = network(1)
    training = training_of((inputs, targets), module, shares, batch_size=400)
    reader = training._gradients.module
    training._surroundings = None  # the hook is not the caller's
    reader.register_forward_hook(lambda *_: passes.append(1))
    sum_of(training)
    assert 1 <= len(passes) <= 4


class Refusing(nn.Linear):
    """Refuses tokens by an error, whichever layer meets them."""

    def __init__(self):
        super().__init__(4, 2)
        self.table = nn.Embedding(50, 4)

    def forward(self, tokens):
        return super().forward(self.table(tokens).mean(1))


def test_tokens_outside_of_a_vocabulary_take_no_pass_at_all_wherever_they_are():
    tokens = torch.randint(0, 50, (300, 6), generator=torch.Generator().manual_seed(0))
    targets = tokens[:, 0] % 2
    passes = []
    for value in (0, 50, -3, 2**40):
        spoiled = tokens.clone()
        spoiled[3, 0] = spoiled[9, 5] = value
        training = training_of((spoiled, targets), Refusing(), batch_size=300)
        reader, count = training._gradients.module, []
        reader.register_forward_hook(lambda *_, count=count: count.append(1))
        sum_of(training)
        passes.append(len(count))
    assert passes == [1] * 4


def test_a_number_that_only_some_cells_refuse_is_no_reason_to_leave_a_row_out():
    class Counted(nn.Linear):
        """The first token says how many of the others count: there are no more than five."""

        def __init__(self):
            super().__init__(4, 2)
            self.counts, self.words = nn.Embedding(6, 4), nn.Embedding(50, 4)

        def forward(self, tokens):
            return super().forward(self.counts(tokens[:, 0]) + self.words(tokens[:, 1:]).mean(1))

    tokens = torch.full((100, 6), 40)
    tokens[:, 0] = 3
    training = training_of((tokens, tokens[:, 0] % 2), Counted(), batch_size=100)
    assert training._screen(training._rows.batch(np.arange(100))).absent is None


@pytest.mark.parametrize("ignored", [-100, 255, -1])
def test_a_label_that_a_loss_ignores_is_not_refused(ignored):
    def loss(outputs, targets):
        return functional.cross_entropy(outputs, targets, ignore_index=ignored, reduction="none")

    inputs, targets = table(100)
    targets[5], targets[6] = ignored, 3
    training = training_of((inputs, targets), loss=loss, batch_size=100)
    screened = training._screen(training._rows.batch(np.arange(100))).absent
    assert screened is None or torch.nonzero(screened)[:, 0].tolist() == [6]
    assert np.isfinite(sum_of(training)).all()


def test_halving_finds_the_rows_that_fail_and_no_others_in_few_calls():
    calls = []

    def add(part):
        calls.append(len(part))
        if bool((part.targets < 0).any()):
            raise ValueError
        return part.targets.long()[~part.absent].sum() if part.absent is not None else part.targets.long().sum()

    for bad in ([], [0], [511], [3, 4, 300]):
        calls.clear()
        targets = torch.arange(1, 513)
        targets[bad] = -1
        part = Batch((torch.zeros(512, 1),), targets)
        blank = Batch((torch.zeros(1, 1),), torch.zeros(1, dtype=torch.long))
        assert int(sum_rows(add, [part], blank)) == int(targets[targets > 0].sum())
        assert sum(calls) <= 512 * (1 if not bad else 4 + 2 * (len(bad) - 1))


# What is said -----------------------------------------------------------------------------------------------------


def trained(data, outputs=2, **settings):
    return fit(network(outputs), data, cross_entropy, epsilon=4.0, delta=1e-5, random_state=0, **settings)


def test_rows_that_add_nothing_are_remarked_on_from_the_released_count():
    inputs, targets = table(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not [each for each in trained((inputs, targets)).privacy_["remarks"] if "rows of the first" in each]
    for wrong, share in ((targets + 1, 0.5), (targets + 5, 0.0)):
        with pytest.warns(RowsWarning, match="classes="):
            result = trained((inputs, wrong))
        (remark,) = (each for each in result.privacy_["remarks"] if "rows of the first" in each)
        found = [float(each.rstrip("%")) / 100 for each in remark.split(" of ")[0].split(" to ")]
        assert found[0] <= share <= found[1] < 1


def test_ragged_rows_are_remarked_on():
    class Ragged(torch.utils.data.Dataset):
        def __len__(self):
            return 2000

        def __getitem__(self, row):
            return torch.zeros(3 if row % 20 == 0 else 2), torch.tensor(row % 2)

    with pytest.warns(RowsWarning, match="another shape"):
        trained(Ragged())


def test_a_count_says_no_more_than_it_tells():
    assert absence_told(600.0, 6.0, Sampling("zero-out", 60_000, 0.01)) is None
    assert absence_told(560.0, 6.0, Sampling("zero-out", 60_000, 0.01)) is None  # 1.6 deviations of the batch
    told = absence_told(300.0, 6.0, Sampling("zero-out", 60_000, 0.01))
    assert told is not None
    assert told.startswith("31% to 69% of the rows")
    fixed = Sampling("replace-one", 60_000, 0.01)
    assert absence_told(560.0, 6.0, fixed) is not None
    assert absence_told(580.0, 6.0, fixed) is None


# Declared classes -------------------------------------------------------------------------------------------------


def test_declared_classes_become_positions_and_other_labels_are_absent():
    inputs, targets = table(50)
    rows = DatasetRows((inputs, targets * 4 + 3), torch.device("cpu"), classes=(7, 3))
    batch = rows.batch(np.arange(50))
    assert torch.equal(batch.targets, targets)
    assert batch.absent is None
    labels = targets.clone()
    labels[[2, 9]] = torch.tensor([-4, 8])
    batch = DatasetRows((inputs, labels), torch.device("cpu"), classes=2).batch(np.arange(50))
    assert torch.nonzero(batch.absent)[:, 0].tolist() == [2, 9]
    assert batch.targets[[2, 9]].tolist() == [0, 0]


def test_labels_one_and_two_train_as_well_as_zero_and_one():
    inputs, targets = table(3000)
    module = network()
    fit(module, (inputs, targets + 1), cross_entropy, epsilon=4.0, delta=1e-5, random_state=0, classes=(1, 2))
    assert float((module(inputs).argmax(1) == targets).float().mean()) > 0.9


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"classes": 3}, "end it with a layer of 3 scores"),
        ({"classes": (1, 2, 5)}, "correct classes="),
        ({"classes": 1}, "two or more labels"),
        ({"classes": (0.5, 1.5)}, "whole numbers"),
        ({"classes": ("a", "b")}, "whole numbers"),
    ],
)
def test_classes_that_do_not_fit_the_module_are_refused_before_the_charge(settings, remedy):
    account = Ledger(2.0, 1e-5)
    with pytest.raises(InvalidParameter, match=remedy):
        trained(table(), ledger=account, **settings)
    assert not account.entries


def test_classes_need_one_whole_number_for_each_row():
    inputs, targets = table(40)
    for wrong in (targets.float(), targets[:, None]):
        with pytest.raises(InvalidParameter, match="one whole number"):
            trained((inputs, wrong), classes=2)


def test_one_score_for_two_classes_is_allowed():
    def loss(outputs, targets):
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction="none")

    inputs, targets = table(60)
    training = training_of((inputs, targets + 1), network(1), loss, classes=(1, 2))
    assert training.statement()["assumed_public"][-1].startswith("classes: 2 of them")
