"""Modules that mix rows are refused, or trained so that no row moves a sum by more than its declared sensitivity."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from dpdescent.errors import DPDescentError  # noqa: E402
from dpdescent.torch.gradients import RecordedGradients  # noqa: E402
from row_mixers import MIXERS, SEPARATE, replay  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
RECORDED = RecordedGradients.__name__


def replayed(animal, seed, steps):
    try:
        return replay(animal, seed, steps)
    except DPDescentError:
        return None


@pytest.mark.parametrize("animal", MIXERS, ids=str)
def test_a_mixer_of_rows_is_refused_or_moves_sums_by_no_more_than_declared(animal):
    found = replayed(animal, 0, 2)
    assert found is None or (found.way != RECORDED and found.largest <= 1)


@pytest.mark.slow
@pytest.mark.parametrize("animal", MIXERS, ids=str)
def test_a_mixer_of_rows_is_refused_or_moves_sums_by_no_more_than_declared_over_20_seeds(animal):
    for seed in range(20):
        found = replayed(animal, seed, 6)
        assert found is None or (found.way != RECORDED and found.largest <= 1), seed


@pytest.mark.parametrize("animal", SEPARATE, ids=str)
def test_a_module_that_keeps_rows_apart_takes_the_quickest_way(animal):
    found = replay(animal, 0, 2)
    assert found.way == animal.way
    assert found.largest <= 1
