"""Recurrent layers by their gates, and how many rows and which way are chosen."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from dpdescent.torch.gradient_choice import choose_gradients  # noqa: E402
from dpdescent.torch.layers import Formed, Positions, _is_formed, _summed_positions, held_numbers  # noqa: E402
from dpdescent.torch.row_gradients import Batch, LoopedGradients, MappedGradients, RecordedGradients  # noqa: E402

cross_entropy = nn.CrossEntropyLoss(reduction="none")
INPUTS = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
ROWS = Batch((INPUTS,), torch.tensor([0, 1, 1, 0, 1, 0]))


class Sequences(nn.Module):
    """Scores from all outputs of a recurrent layer and from its last state."""

    def __init__(self, kind, given=False, **settings):
        super().__init__()
        torch.manual_seed(0)
        self.inner = kind(3, 4, **settings)
        self.head = nn.Linear(8 if self.inner.bidirectional else 4, 2)
        self.first, self.given = nn.Linear(3, 4), given

    def forward(self, values):
        sequence = values if self.inner.batch_first else values.transpose(0, 1)
        start = self.first(values[:, 0])[None] if self.given else None
        if self.given and isinstance(self.inner, nn.LSTM):
            start = (start, start)
        outputs, state = self.inner(sequence, start)
        last = state[0] + state[1] if isinstance(state, tuple) else state
        outputs = outputs if self.inner.batch_first else outputs.transpose(0, 1)
        return self.head(outputs.mean(1)) + last.sum((0, 2))[:, None]


def require_like_loops(way, module, rows=ROWS):
    found, single = way.of(rows), LoopedGradients(module, cross_entropy).of(rows)
    weights = torch.linspace(0.5, 1.0, len(rows), dtype=torch.float64)
    torch.testing.assert_close(found.losses, single.losses)
    torch.testing.assert_close(found.norms(), single.norms(), rtol=1e-5, atol=1e-6)
    for one, other in zip(found.weighted_sum(weights), single.weighted_sum(weights), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "settings",
    [
        {"batch_first": True},
        {},
        {"num_layers": 2, "bidirectional": True},
        {"bias": False, "batch_first": True},
        {"batch_first": True, "given": True},
    ],
    ids=["rows first", "rows second", "deep in both directions", "no shift", "a first state"],
)
def test_gates_give_the_gradients_of_one_row_at_a_time(kind, settings):
    module = Sequences(kind, **settings)
    for way in (RecordedGradients(module, cross_entropy), MappedGradients(module, cross_entropy)):
        require_like_loops(way, module)
    assert "forward" not in vars(module.inner)


def test_a_plain_recurrent_layer_with_rectified_states_is_written_out():
    module = Sequences(nn.RNN, nonlinearity="relu", batch_first=True)
    require_like_loops(RecordedGradients(module, cross_entropy), module)


def test_dropout_between_recurrent_layers_is_drawn_in_training_alone():
    module = Sequences(nn.LSTM, num_layers=2, dropout=0.5, batch_first=True)
    way = RecordedGradients(module, cross_entropy)
    assert not torch.equal(way.of(ROWS).losses, way.of(ROWS).losses)
    module.eval()
    assert torch.equal(way.of(ROWS).losses, way.of(ROWS).losses)


def test_frozen_recurrent_layers_and_projections_are_left_to_torch():
    projected = RecordedGradients(Sequences(lambda *sizes: nn.LSTM(*sizes, proj_size=2, batch_first=True)), None)
    assert not projected.has_rules()
    frozen = Sequences(nn.GRU, batch_first=True)
    frozen.inner.requires_grad_(False)
    require_like_loops(RecordedGradients(frozen, cross_entropy), frozen)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks_take_the_quickest_way(kind):
    module = Sequences(kind, batch_first=True)
    way = choose_gradients(module, cross_entropy, ROWS[:3], most_rows=12)
    assert isinstance(way, RecordedGradients)
    assert way.rows_at_once == 12


# Work -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "features", "inputs", "positions", "formed"),
    [
        (1, 64, 64, 32, True),  # attention of short sequences
        (1, 1000, 64, 32, True),  # scores of words
        (1, 30_000, 768, 128, False),  # too large to be held
        (1, 768, 768, 16, False),
        (1, 16, 27, 1024, True),  # an image: smaller than a Gram matrix
        (1, 512, 512, 2, False),
    ],
)
def test_gradients_are_formed_where_that_takes_less_work(groups, features, inputs, positions, formed):
    assert _is_formed(groups, features, inputs, positions) is formed


def test_both_ways_of_several_positions_agree():
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(7, 1, size, 16, generator=generator) for size in (12, 20))
    weights = torch.rand(7, dtype=torch.float64, generator=generator)
    grams = Positions(left, right, (12, 20))
    formed = _summed_positions(left, right, (12, 20))
    assert isinstance(formed, Formed)
    torch.testing.assert_close(grams.squared_norms(), formed.squared_norms(), rtol=1e-4, atol=0)
    torch.testing.assert_close(grams.weighted_sum(weights), formed.weighted_sum(weights), rtol=1e-5, atol=1e-5)


def test_formed_gradients_are_summed_with_rows_of_any_size():
    rows = torch.randn(250, 9, generator=torch.Generator().manual_seed(0))
    rows[3], rows[4], rows[5] = 2.0**100, torch.nan, 2.0**-100
    weights = torch.ones(250, dtype=torch.float64)
    weights[3], weights[4], weights[5] = 2.0**-100, 0.0, 1.0
    found = Formed(rows).weighted_sum(weights)
    rows[4] = 0
    torch.testing.assert_close(found, weights @ rows.double(), rtol=1e-5, atol=1e-4)
    scalar = Formed(torch.tensor([1.0, 2.0, 3.0]))
    assert scalar.squared_norms().tolist() == [1, 4, 9]
    assert float(scalar.weighted_sum(torch.ones(3, dtype=torch.float64))) == 6


def test_what_a_row_holds_grows_with_its_gradient_or_its_gram_matrices():
    entered, returned = torch.zeros(2, 32, 64), torch.zeros(2, 32, 1000)
    numbers, positions = held_numbers(nn.Linear(64, 1000), entered, returned)
    assert positions == 32
    assert numbers == 32 * 64 + 2 * 32 * 1000 + 64 * 1000
    entered, returned = torch.zeros(2, 16, 768), torch.zeros(2, 16, 768)
    numbers, positions = held_numbers(nn.Linear(768, 768), entered, returned)
    assert positions == 16
    assert numbers < 768 * 768
