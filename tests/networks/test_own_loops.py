"""Loops of the caller: checkpoints, a noise multiplier instead of epsilon, runs without noise, callbacks."""

import math
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from dpdescent.errors import BudgetExhausted, InvalidParameter, PrivacyWarning  # noqa: E402
from dpdescent.ledger import Ledger  # noqa: E402
from dpdescent.statement.meaning import headline  # noqa: E402
from dpdescent.torch import PrivateTraining, fit, resumable_steps  # noqa: E402
from plain_networks import tried_once  # noqa: E402, F401

pytestmark = pytest.mark.usefixtures("tried_once")

INPUTS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()
cross_entropy = nn.CrossEntropyLoss(reduction="none")


def linear():
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def training_of(module, **settings):
    given = {"epsilon": 2.0, "delta": 1e-9, "steps": 6, "batch_size": 20, "random_state": 0} | settings
    return PrivateTraining(module, (INPUTS, LABELS), cross_entropy, **given)


def parts_of(module):
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    return optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 6)


def test_a_loop_that_was_stopped_goes_on_with_its_optimiser_and_scheduler_and_takes_no_step_twice(tmp_path):
    module, taken = linear(), []
    optimiser, scheduler = parts_of(module)
    for step in resumable_steps(training_of(module), tmp_path / "run.pt", optimiser, scheduler):
        if step == 3:
            break
        taken.append(step)
        training_step(optimiser, scheduler)
    left = [each.detach().clone() for each in module.parameters()]
    again = linear()
    optimiser, scheduler = parts_of(again)
    training = training_of(again)
    steps = resumable_steps(training, tmp_path / "run.pt", optimiser, scheduler)
    taken.append(next(steps))
    assert taken == [0, 1, 2, 4]  # the fourth had begun
    assert all(torch.equal(one, other) for one, other in zip(left, again.parameters(), strict=True))
    assert scheduler.last_epoch == 3
    assert optimiser.state_dict()["state"][0]["step"] == 3


def training_step(optimiser, scheduler):
    for each in optimiser.param_groups[0]["params"]:
        each.grad = torch.ones_like(each)
    optimiser.step()
    scheduler.step()


def test_a_loop_takes_no_more_steps_than_its_checkpoint_holds_as_begun(tmp_path):
    """A run that goes on would otherwise take them once more."""
    training = training_of(linear(), steps=4)
    next(resumable_steps(training, tmp_path / "run.pt"))
    training.draw()
    with pytest.raises(BudgetExhausted, match="once for each"):
        training.draw()
    assert training.drawn == torch.load(tmp_path / "run.pt", weights_only=True)["begun"] == 1


def test_a_noise_multiplier_says_what_epsilon_it_costs():
    for adjacency in ("zero-out", "replace-one"):
        training = training_of(linear(), epsilon=None, noise_multiplier=1.3, adjacency=adjacency)
        statement = training.statement()
        assert statement["noise_multiplier"] == pytest.approx(1.3, rel=2e-3)
        assert 0.1 < statement["epsilon"] < 100
        again = training_of(linear(), epsilon=statement["epsilon"], adjacency=adjacency)
        assert again.plan == training.plan


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"noise_multiplier": 1.0}, "takes the place of epsilon"),
        ({"epsilon": None}, "give epsilon"),
        ({"epsilon": None, "noise_multiplier": 1.0, "search_steps": 3}, "searches"),
        ({"epsilon": None, "noise_multiplier": 0.0}, "epsilon=inf"),
        ({"epsilon": None, "noise_multiplier": 1e-3}, "guarantees nothing"),
        ({"epsilon": math.inf, "ledger": Ledger(1.0, 1e-5)}, "leave ledger= out"),
    ],
)
def test_what_cannot_be_paid_for_is_refused(settings, remedy):
    with pytest.raises(InvalidParameter, match=remedy):
        training_of(linear(), **settings)


def test_a_run_without_noise_is_marked_wherever_it_is_told_of():
    with pytest.warns(PrivacyWarning, match="NOT PRIVATE"):
        training = training_of(linear(), epsilon=math.inf, batch_size=60, clip_norm=2.0**20)
    training.draw()
    found = training.gradient()
    module = training.module
    exact = torch.autograd.grad(cross_entropy(module(INPUTS), LABELS).mean(), list(module.parameters()))
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    statement = training.statement()
    assert statement["private"] is False
    assert statement["epsilon"] == math.inf
    assert any("NOT PRIVATE" in each for each in statement["remarks"])
    assert not training.ledger.entries
    assert "NOT PRIVATE" in headline(training.statement_of("own loop"))


@pytest.mark.parametrize("method", ["auto", "blsgd"])
def test_methods_run_without_noise(method):
    with pytest.warns(PrivacyWarning):
        result = fit(linear(), (INPUTS, LABELS), cross_entropy, epsilon=math.inf, delta=1e-9, method=method, steps=25)
    assert result.privacy_["private"] is False
    assert float((result.module(INPUTS).argmax(1) == LABELS).float().mean()) > 0.9


def test_a_private_run_is_not_marked_and_its_checkpoint_is_not_that_of_a_run_without_noise(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training = training_of(linear(), epsilon=1e4)
    steps = resumable_steps(training, tmp_path / "run.pt")
    next(steps)
    assert training.statement()["private"] is True
    with pytest.warns(PrivacyWarning):
        other = training_of(linear(), epsilon=math.inf)
    with pytest.raises(InvalidParameter, match="another private"):
        next(resumable_steps(other, tmp_path / "run.pt"))


def test_a_callback_sees_each_step_and_the_module_as_it_is():
    seen = []

    def evaluate(record, module):
        module.eval()
        seen.append((record.step, float((module(INPUTS).argmax(1) == LABELS).float().mean())))
        module.train()

    result = fit(linear(), (INPUTS, LABELS), cross_entropy, epsilon=8.0, delta=1e-9, steps=5, after_step=evaluate)
    assert [step for step, _ in seen] == [record.step for record in result.history]
