"""Modules that mix rows are refused, or trained so that no row moves a sum by more than its declared sensitivity."""

import random
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from dpdescent.audit import rows_separate  # noqa: E402
from dpdescent.errors import DPDescentError, InvalidParameter, RowDependence  # noqa: E402
from dpdescent.torch import gradient_choice  # noqa: E402
from dpdescent.torch.row_gradients import RecordedGradients  # noqa: E402
from row_mixers import (  # noqa: E402
    CLASSES,
    FEATURES,
    MIXERS,
    SEPARATE,
    Animal,
    Between,
    replay,
    table_of,
    training_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
RECORDED = RecordedGradients.__name__
#: What is replayed each time; of the others it is checked each time that their rows do not pass side by side.
REPLAYED = {
    "mean in training with dropout",
    "less the mean from 8 rows on",
    "blended by chance in training",
    "mix style",
    "third row before added",
    "softmax over the batch",
    "mean behind a gate of zero",
    "experts with room for some",
    "padding by the longest row",
    "moving mean in a tensor",
    "batch norm as a function with statistics",
    "loss balanced by the batch",
    "counts drawn in training",
    "scales drawn in training",
}


def replayed(animal, seed, steps):
    try:
        return replay(animal, seed, steps)
    except DPDescentError:
        return None


@pytest.mark.parametrize("animal", MIXERS, ids=str)
def test_a_mixer_of_rows_is_refused_or_moves_sums_by_no_more_than_declared(animal):
    found = replayed(animal, 0, 2 if animal.name in REPLAYED else 0)
    assert found is None or (found.way != RECORDED and found.largest <= 1)


@pytest.mark.slow
@pytest.mark.parametrize("animal", MIXERS, ids=str)
def test_a_mixer_of_rows_is_refused_or_moves_sums_by_no_more_than_declared_over_20_seeds(animal):
    for seed in range(20):
        found = replayed(animal, seed, 2)
        assert found is None or (found.way != RECORDED and found.largest <= 1), seed


@pytest.mark.parametrize("used", [False, True])
def test_a_module_that_writes_rows_into_a_frozen_parameter_is_refused(used):
    class Noting(torch.nn.Linear):
        def __init__(self):
            super().__init__(FEATURES, CLASSES)
            self.mean = torch.nn.Parameter(torch.zeros(FEATURES), requires_grad=False)

        def forward(self, values):
            self.mean.data.mul_(0.9).add_(0.1 * values.detach().mean(0))
            return super().forward(values - self.mean if used else values)

    animal = Animal("noting", Noting)
    with pytest.raises(RowDependence, match="keep nothing"):
        training_of(animal, table_of(animal, 0))


def test_state_outside_of_a_module_that_comes_up_in_a_later_pass_is_named():
    seen = {"passes": 0, "mean": torch.zeros(FEATURES)}

    def late(values, _):
        kept = seen["mean"] * (seen["passes"] > 10**6)
        seen["passes"] += 1
        seen["mean"] = 0.9 * seen["mean"] + 0.1 * values.detach().mean(0)
        return values - kept

    animal = Animal("late", lambda: Between(late))
    with pytest.raises(RowDependence, match="keep nothing"):
        training_of(animal, table_of(animal, 0))


def test_rows_in_parts_of_their_own_draw_random_numbers_of_their_own(monkeypatch):
    monkeypatch.setattr(gradient_choice, "rows_at_once", lambda _: 1)
    (animal,) = (each for each in MIXERS if each.name == "scales drawn in training")
    assert replay(animal, 0, 2).largest <= 1


SCHEDULE = {"mixed": False}


def mixed_when_told(values, _):
    return values - values.mean(0) if SCHEDULE["mixed"] else values


class Weighed(torch.nn.Module):
    """A loss that weighs rows by the batch from the day on that its caller chooses."""

    def __init__(self):
        super().__init__()
        self.balanced = False

    def forward(self, outputs, targets):
        losses = torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
        return losses / targets.float().mean().clamp_min(0.01) if self.balanced else losses


@pytest.mark.parametrize("in_loss", [False, True])
def test_rows_are_tried_again_once_the_caller_has_changed_what_a_module_or_a_loss_does(in_loss, monkeypatch):
    monkeypatch.setitem(SCHEDULE, "mixed", False)
    loss = Weighed()
    animal = Animal("told", lambda: Between(lambda h, _: h) if in_loss else Between(mixed_when_told), loss)
    training = training_of(animal, table_of(animal, 0))
    training.draw()
    assert type(training._gradients).__name__ == RECORDED
    loss.balanced, SCHEDULE["mixed"] = in_loss, not in_loss
    training.draw()
    assert type(training._gradients).__name__ != RECORDED
    assert "MappedGradients" in str(training.statement()["remarks"])


def test_a_module_without_shapes_is_named():
    animal = Animal("lazy", lambda: torch.nn.LazyLinear(CLASSES))
    with pytest.raises(InvalidParameter, match="no shape yet"):
        training_of(animal, table_of(animal, 0))


@pytest.mark.parametrize("animal", SEPARATE, ids=str)
def test_a_module_that_keeps_rows_apart_takes_the_quickest_way(animal):
    found = replay(animal, 0, 1)
    assert found.way == animal.way
    assert found.largest <= 1


def maybe_slow(animal):
    quick = REPLAYED | {"dropout", "convolutions with group norm", "attention within a row", "LSTM"}
    return animal if animal.name in quick else pytest.param(animal, marks=pytest.mark.slow)


def separation_of(animal):
    torch.manual_seed(0)
    random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rows_separate(animal.make(), table_of(animal, 0), animal.loss, most_rows=animal.rows)


@pytest.mark.parametrize("animal", [maybe_slow(animal) for animal in MIXERS], ids=str)
def test_the_audit_of_rows_tells_mixers(animal):
    if animal.name == "batch norm as a function":
        with pytest.raises(InvalidParameter, match="a single row cannot"):
            separation_of(animal)
        return
    found = separation_of(animal)
    assert bool(found) == animal.apart
    assert ("refused" in str(found)) == (found.trained is None)


@pytest.mark.parametrize("animal", [maybe_slow(animal) for animal in SEPARATE], ids=str)
def test_the_audit_of_rows_passes_modules_that_keep_them_apart(animal):
    found = separation_of(animal)
    assert found, str(found)
    assert found.trained is not None


def test_the_audit_of_rows_leaves_the_module_and_the_generators_as_they_were():
    animal = SEPARATE[1]
    module = animal.make()
    before, state = [each.clone() for each in module.state_dict().values()], torch.get_rng_state()
    rows_separate(module, table_of(animal, 0), animal.loss)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(before, module.state_dict().values(), strict=True))
    assert module.training


def test_a_loss_may_count_its_calls_and_gets_its_own_variables_back():
    calls, heat = [0], {"now": 4.0}

    def cooling(outputs, targets, log=calls):
        log[0] += 1
        heat["now"] *= 0.999
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    kept = cooling.__defaults__, [cell.cell_contents for cell in cooling.__closure__]
    animal = Animal("cooling", lambda: Between(lambda h, _: h), cooling)
    training_of(animal, table_of(animal, 0))
    assert cooling.__defaults__[0] is calls is kept[0][0]
    assert all(cell.cell_contents is each for cell, each in zip(cooling.__closure__, kept[1], strict=True))
