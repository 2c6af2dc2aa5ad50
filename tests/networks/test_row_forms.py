"""Rows as tuples and dictionaries, several targets, losses of the module, padding, loaders and views."""

from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from dpdescent.errors import InvalidParameter  # noqa: E402
from dpdescent.torch import PaddedRows, PrivateTraining  # noqa: E402
from dpdescent.torch.row_gradients import LoopedGradients  # noqa: E402

N = 40
cross_entropy = nn.CrossEntropyLoss(reduction="none")
INPUTS = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


def training_of(module, data, loss, **settings):
    given = {"epsilon": 2.0, "delta": 1e-9, "steps": 4, "batch_size": N, "random_state": 0} | settings
    return PrivateTraining(module, data, loss, **given)


def sums_of(training):
    """Return the clipped sum over all rows, without noise, and the same by one row at a time."""
    ways = (training._gradients, LoopedGradients(training._gradients.module, training._gradients.loss))
    batch = training._rows.batch(np.arange(training._rows.count))
    for way in ways:
        found = way.of(batch)
        weights = training.plan.clipping.weights(found.norms())
        if batch.absent is not None:
            weights = weights.where(~batch.absent, 0.0)
        yield torch.cat([each.reshape(-1) for each in found.weighted_sum(weights)])


def require_same(one, *others):
    for other in others:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class Named(nn.Module):
    """Takes its inputs by names, and returns an object with scores and, given labels, a loss."""

    @dataclass
    class Output:
        logits: torch.Tensor
        loss: torch.Tensor | None = None

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def forward(self, values, mask=None, labels=None):
        logits = self.layer(values if mask is None else values * mask)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return self.Output(logits, loss)


class DictRows(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, row):
        return {"values": INPUTS[row], "mask": torch.ones(3), "labels": LABELS[row]}


def plain_sum():
    module = Named().layer
    return next(sums_of(training_of(module, (INPUTS, LABELS), cross_entropy)))


def by_logits(outputs, labels):
    return cross_entropy(outputs.logits, labels)


def test_dictionaries_reach_the_module_by_name_and_the_loss_by_their_target():
    columns = {"values": INPUTS, "mask": torch.ones(N, 3), "labels": LABELS}
    wanted = plain_sum()
    for data in (DictRows(), columns):
        require_same(wanted, *sums_of(training_of(Named(), data, by_logits)))
    renamed = {"values": INPUTS, "right": LABELS}
    require_same(wanted, *sums_of(training_of(Named(), renamed, by_logits, targets="right")))


def test_a_module_may_compute_the_loss_itself():
    training = training_of(Named(), DictRows(), None)
    assert not training._gradients.together
    require_same(plain_sum(), *sums_of(training))


def test_a_module_without_a_loss_is_refused():
    class Scores(nn.Linear):
        def forward(self, values, labels):
            return super().forward(values)

    with pytest.raises(InvalidParameter, match="pass a loss"):
        training_of(Scores(3, 2), (INPUTS, LABELS), None)


@pytest.mark.parametrize("named", [False, True])
def test_a_row_may_have_several_targets(named):
    values = INPUTS.sum(1)

    class Rows(Dataset):
        def __len__(self):
            return N

        def __getitem__(self, row):
            if named:
                return INPUTS[row], {"kind": LABELS[row], "value": values[row]}
            return INPUTS[row], (LABELS[row], values[row])

    def loss(outputs, targets):
        kind, value = (targets["kind"], targets["value"]) if named else targets
        return cross_entropy(outputs[:, :2], kind) + (outputs[:, 2] - value).square()

    def joined(outputs, targets):
        return cross_entropy(outputs[:, :2], targets[:, 0].long()) + (outputs[:, 2] - targets[:, 1]).square()

    def module():
        torch.manual_seed(1)
        return nn.Linear(3, 3)

    single = training_of(module(), (INPUTS, torch.stack([LABELS.float(), values], 1)), joined)
    several = training_of(module(), Rows(), loss)
    assert several._gradients.together
    require_same(next(sums_of(single)), *sums_of(several))


def test_rows_of_other_parts_than_the_first_are_absent():
    class Rows(DictRows):
        def __getitem__(self, row):
            found = super().__getitem__(row)
            if row == 3:
                del found["mask"]
            if row == 4:
                found["more"] = torch.zeros(1)
            return found

    batch = training_of(Named(), Rows(), by_logits)._rows.batch(np.arange(N))
    assert torch.nonzero(batch.absent)[:, 0].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("data", "settings", "remedy"),
    [
        ({"values": INPUTS, "right": LABELS}, {}, "pass targets="),
        ({"labels": LABELS}, {}, "pass targets="),
        ((INPUTS, LABELS), {"targets": "right"}, "leave it out"),
        ((INPUTS, LABELS), {"views": 0}, "views"),
    ],
)
def test_rows_without_a_target_are_refused(data, settings, remedy):
    with pytest.raises(InvalidParameter, match=remedy):
        training_of(Named(), data, by_logits, **settings)


def test_text_in_rows_is_refused_without_showing_it():
    rows = [{"text": "a secret", "labels": 0}]

    class Texts(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, row):
            return rows[row]

    with pytest.raises(InvalidParameter, match="numbers alone") as caught:
        training_of(Named(), Texts(), by_logits, batch_size=1)
    assert "secret" not in str(caught.value)


# Padding and loaders --------------------------------------------------------------------------------------------


def test_sequences_are_padded_or_cut_to_a_public_length():
    rows = [([1, 2, 3, 4], 1), ([5], 0)]
    padded = PaddedRows(rows, 3, (9, 0))
    assert [each.tolist() for each in padded[0]] == [[1, 2, 3], 1]
    assert [each.tolist() for each in padded[1]] == [[5, 9, 9], 0]
    deep = PaddedRows([(torch.ones(1, 2), torch.ones(4))], 2)[0]
    assert [each.tolist() for each in deep] == [[[1, 1], [0, 0]], [1, 1]]


def collate(rows):
    return {
        "values": torch.stack([each["values"] for each in rows]),
        "labels": torch.stack([each["labels"] for each in rows]),
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_lends_its_rows_its_collate_function_its_workers_and_its_batch_size(workers):
    loader = DataLoader(DictRows(), batch_size=8, collate_fn=collate, num_workers=workers, shuffle=True)
    training = training_of(Named(), loader, by_logits, batch_size=None)
    assert training.plan.sampling.size == 8
    require_same(plain_sum(), *sums_of(training))


class Spoiled(DictRows):
    def __getitem__(self, row):
        if row == 7:
            raise OSError("cannot be read")
        return super().__getitem__(row)


def test_a_row_that_a_worker_cannot_read_is_absent():
    rows = training_of(Named(), DataLoader(Spoiled(), num_workers=1), by_logits, batch_size=8)._rows
    for _ in range(2):
        assert torch.nonzero(rows.batch(np.arange(5, 12)).absent)[:, 0].tolist() == [2]


# Views ----------------------------------------------------------------------------------------------------------


class Shifted(Dataset):
    """Rows that are another one each time they are read."""

    def __init__(self):
        self.read = 0

    def __len__(self):
        return N

    def __getitem__(self, row):
        self.read += 1
        return INPUTS[row] + self.read, LABELS[row]


def test_views_are_averaged_before_the_clip():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    data = Shifted()
    training = training_of(module, data, cross_entropy, views=3)
    data.read = 0
    batch = training._rows.batch(np.arange(2))
    assert batch.inputs[0].shape == (2, 3, 3)
    seen = batch.inputs[0] - INPUTS[:2, None]
    assert seen[:, :, 0].round().tolist() == [[1, 2, 3], [4, 5, 6]]
    norms = training._gradients.of(batch).norms()
    for row in range(2):
        losses = cross_entropy(module(batch.inputs[0][row]), LABELS[row].expand(3))
        gradient = torch.autograd.grad(losses.mean(), list(module.parameters()))
        assert float(norms[row]) == pytest.approx(float(torch.cat([g.reshape(-1) for g in gradient]).norm()), 1e-5)


def test_views_of_arrays_come_from_random_layers_and_the_trained_module_sees_one():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    training = training_of(module, (INPUTS, LABELS), cross_entropy, views=4)
    training.draw()
    assert all(bool(torch.isfinite(each).all()) for each in training.gradient())
    assert module(INPUTS).shape == (N, 2)
    assert [str(each) for each in training.statement()["assumed_public"]]


def test_views_cost_nothing():
    once, often = (training_of(Named().layer, (INPUTS, LABELS), cross_entropy, views=k) for k in (1, 8))
    assert once.plan == often.plan


@pytest.mark.parametrize("named", [False, True])
def test_a_list_of_rows_is_a_data_set_of_them_and_a_list_of_arrays_one_of_columns(named):
    pairs = list(zip(INPUTS, LABELS, strict=True))
    rows = [{"values": values, "labels": label} for values, label in pairs] if named else pairs
    listed, columns = Named(), nn.Linear(3, 2)
    columns.load_state_dict(listed.layer.state_dict())
    if named:
        training = training_of(listed, rows, lambda outputs, labels: cross_entropy(outputs.logits, labels))
    else:
        training = training_of(listed.layer, rows, cross_entropy)
    expected, _ = sums_of(training_of(columns, [INPUTS, LABELS], cross_entropy))
    require_same(expected, *sums_of(training))


class Views(nn.Module):
    """Returns four views of each row in training."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, values):
        return self.layer(values.repeat_interleave(4, 0) if self.training else values)


def test_a_module_that_returns_several_views_of_a_row_is_told_of_views():
    with pytest.raises(InvalidParameter, match=r"12 outputs for 3 rows.* views=4, or let the loss return the mean"):
        training_of(Views(), (INPUTS, LABELS), cross_entropy)

    def mean_over_views(outputs, labels):
        return cross_entropy(outputs, labels.repeat_interleave(4)).reshape(-1, 4).mean(1)

    require_same(*sums_of(training_of(Views(), (INPUTS, LABELS), mean_over_views)))
