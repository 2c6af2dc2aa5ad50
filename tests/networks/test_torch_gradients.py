"""Lengths and weighted sums of rows' gradients are those of one row at a time, for all layers and uses of them."""

import math
from math import prod

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import (  # noqa: E402
    given,
    settings,
    strategies as st,
)
from torch import nn  # noqa: E402

from dpdescent.torch import layers  # noqa: E402
from dpdescent.torch.gradient_choice import choose_gradients  # noqa: E402
from dpdescent.torch.layers import RULES, Formed, Looked, Outer, Positions  # noqa: E402
from dpdescent.torch.row_gradients import Batch, LoopedGradients, MappedGradients, RecordedGradients  # noqa: E402
from dpdescent.torch.training_plan import ROUNDING  # noqa: E402

ROWS = 4
FEW = settings(max_examples=12, deadline=None, derandomize=True)


def squares(outputs, targets):
    return (outputs.flatten(1) - targets[:, None]).square().sum(1) / 2


def batch_of(inputs, seed=0):
    return Batch((inputs,), torch.randn(inputs.shape[0], generator=torch.Generator().manual_seed(seed)))


def assert_same_gradients(found, single, weights, relative=1e-5):
    torch.testing.assert_close(found.losses, single.losses, rtol=relative, atol=0)
    torch.testing.assert_close(found.norms(), single.norms(), rtol=relative, atol=0)
    sums = zip(found.weighted_sum(weights), single.weighted_sum(weights), strict=True)
    for one, other in sums:
        assert one.shape == other.shape
        assert float((one - other).norm()) <= relative * float(other.norm())


def check(module, inputs, expected=RecordedGradients):
    """Compare a way with plain backward passes, in double precision where only the formula can differ."""
    module, batch = module.double(), batch_of(inputs)
    batch = Batch(tuple(x.double() if x.is_floating_point() else x for x in batch.inputs), batch.targets.double())
    way = expected(module, squares)
    weights = torch.linspace(0.25, 2.0, ROWS, dtype=torch.float64)
    assert_same_gradients(way.of(batch), LoopedGradients(module, squares).of(batch), weights)
    assert type(choose_gradients(module, squares, batch)) is expected


@FEW
@given(
    middle=st.lists(st.integers(1, 4), max_size=2),
    features=st.integers(1, 6),
    outputs=st.integers(1, 5),
    bias=st.booleans(),
)
def test_linear_layers_on_rows_and_on_sequences(middle, features, outputs, bias):
    torch.manual_seed(0)
    check(nn.Linear(features, outputs, bias=bias), torch.randn(ROWS, *middle, features))


@FEW
@given(st.data())
def test_convolutions_of_any_stride_padding_dilation_and_group(data):
    torch.manual_seed(0)
    spatial = data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 2]))
    kernel, stride, dilation, padding = (
        tuple(data.draw(st.integers(low, high)) for _ in range(spatial))
        for low, high in ((1, 3), (1, 2), (1, 2), (0, 2))
    )
    size = tuple(data.draw(st.integers(5, 7)) for _ in range(spatial))
    mode = data.draw(st.sampled_from(["zeros", "reflect", "circular", "replicate"]))
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[spatial - 1](
        2 * groups, 3 * groups, kernel, stride, padding, dilation, groups, data.draw(st.booleans()), mode
    )
    check(layer, torch.randn(ROWS, 2 * groups, *size))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_convolutions_with_named_padding(padding):
    check(nn.Conv2d(2, 3, (2, 3), padding=padding, dilation=2), torch.randn(ROWS, 2, 6, 7))


@pytest.mark.parametrize(("channels", "size", "kind"), [(1, 12, Formed), (64, 3, Positions)])
def test_the_smaller_of_gram_matrices_and_gradients_is_formed(channels, size, kind):
    layer = nn.Conv2d(channels, 4, 2)
    inputs = torch.randn(ROWS, channels, size, size)
    parts = dict(RULES[nn.Conv2d](layer, inputs, torch.randn_like(layer(inputs))))
    assert type(parts[layer.weight]) is kind
    check(layer, inputs)


@FEW
@given(positions=st.integers(1, 5), padded=st.booleans(), flat=st.booleans())
def test_embeddings_count_a_token_that_comes_twice(positions, padded, flat):
    torch.manual_seed(0)
    layer = nn.Embedding(4, 3, padding_idx=1 if padded else None)
    check(layer, torch.randint(0, 4, (ROWS,) if flat else (ROWS, positions)))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.LayerNorm(5), (5,)),
        (nn.LayerNorm((3, 5)), (2, 3, 5)),
        (nn.LayerNorm(5, bias=False), (3, 5)),
        (nn.RMSNorm(5), (3, 5)),
        (nn.GroupNorm(2, 4), (4,)),
        (nn.GroupNorm(2, 4), (4, 3, 3)),
        (nn.InstanceNorm1d(3, affine=True), (3, 6)),
        (nn.InstanceNorm2d(3, affine=True), (3, 4, 4)),
        (nn.InstanceNorm3d(3, affine=True), (3, 2, 3, 2)),
    ],
)
def test_normalising_layers(layer, shape):
    torch.manual_seed(0)
    with torch.no_grad():
        for each in layer.parameters():
            each.normal_()
    check(nn.Sequential(nn.Linear(shape[-1], shape[-1]), layer), torch.randn(ROWS, *shape))


def test_every_rule_is_tested():
    tested = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm}
    assert set(RULES) == tested | {nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d}


def convolutional_network():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.GroupNorm(3, 3),
        nn.Conv2d(3, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def test_a_network_in_single_precision_agrees_to_five_digits():
    torch.manual_seed(0)
    module, batch = convolutional_network(), batch_of(torch.randn(ROWS, 1, 8, 8))
    way = choose_gradients(module, squares, batch)
    assert type(way) is RecordedGradients
    weights = torch.rand(ROWS)
    assert_same_gradients(way.of(batch), LoopedGradients(module, squares).of(batch), weights)


def test_frozen_parameters_have_no_gradient_and_no_share_in_lengths():
    module = convolutional_network()
    module[0].requires_grad_(False)
    module[7].bias.requires_grad_(False)
    check(module, torch.randn(ROWS, 1, 8, 8))
    assert len(RecordedGradients(module, squares).parameters) == 5


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class BorrowedWeight(nn.Module):
    """Uses the weight of a layer a second time, where no call of the layer tells of it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.layer(x)) @ self.layer.weight


class BorrowedBehindZero(nn.Module):
    """Does so behind a layer that is zero at first and hides it."""

    def __init__(self):
        super().__init__()
        self.layer, self.gate = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.zeros_(self.gate.weight)

    def forward(self, x):
        return self.layer(x) + self.gate(x @ self.layer.weight)


class OwnParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.layer(x) * self.scale


class FlattenedRows(nn.Module):
    """Hands a layer more rows than there are."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x):
        return self.layer(x.reshape(-1, 2)).reshape(x.shape[0], -1)


class Mixed(nn.Module):
    """Takes the mean over the batch away, so that a row alone has another gradient."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) - self.layer(x).mean(0) / 2


class MixedIfLarge(nn.Module):
    """Divides all rows by their largest number where it is beyond a bound, without a branch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x / x.abs().max().clamp_min(1e4))


@pytest.mark.parametrize(
    "family",
    [Reused, Tied, BorrowedWeight, BorrowedBehindZero, OwnParameter, FlattenedRows, Mixed, MixedIfLarge],
)
def test_what_a_record_cannot_tell_is_left_to_single_rows(family):
    torch.manual_seed(0)
    check(family(), torch.randn(ROWS, 4), MappedGradients)


def test_modules_that_cannot_be_mapped_are_looped_over():
    class Stepwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.weight if float(x.sum()) > 0 else 2 * x * self.weight

    check(Stepwise(), torch.randn(ROWS, 4), LoopedGradients)


def test_a_branch_that_public_rows_do_not_take_keeps_a_module_from_being_recorded():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x / x.abs().max() if x.abs().max() > 1e4 else x)

    check(Scaled(), torch.randn(ROWS, 4), LoopedGradients)


def test_a_layer_called_twice_after_all_is_never_measured_too_short():
    module, batch = Reused().double(), batch_of(torch.randn(ROWS, 4).double())
    batch = Batch(batch.inputs, batch.targets.double())
    measured = RecordedGradients(module, squares).of(batch).norms()
    assert bool((measured >= LoopedGradients(module, squares).of(batch).norms() * (1 - 1e-9)).all())


def test_cancelling_positions_are_not_measured_too_short():
    # Two large positions that cancel but for a small rest: float32 products lose the rest altogether.
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(1, 1, 40, 2, generator=generator) for _ in range(2))
    left[..., 1] = -left[..., 0]
    right[..., 1] = right[..., 0] * (1 + 1e-4)
    left, right = left * 1e3, right * 1e3
    exact = float((left.double() @ right.double().transpose(2, 3)).norm())
    measured = float(Positions(left, right, (40, 40)).squared_norms().sqrt())
    assert measured >= exact
    formed = Positions(left, right, (40, 40)).weighted_sum(torch.tensor([1 / measured]))
    assert float(formed.norm()) <= 1 + 2.0**-10


@pytest.mark.parametrize(("small", "large"), [(1e-23, 1e16), (1e-38, 1e38), (1e-44, 1e30), (1e19, 1e19)])
def test_lengths_are_right_where_squares_of_float32_vanish_or_overflow(small, large):
    left, right = torch.full((2, 100), small), torch.full((2, 100), large)
    left[1] = 0
    expected = torch.outer(left[0].double(), right[0].double()).norm()
    for way in (Outer(left, right), Positions(left.reshape(2, 1, 100, 1), right.reshape(2, 1, 100, 1), (100, 100))):
        norms = way.squared_norms().sqrt()
        torch.testing.assert_close(norms[0], expected, rtol=1e-6, atol=0)
        assert norms[0] >= expected * (1 - 1e-12)
        assert norms[1] == 0


def test_numbers_of_float64_whose_squares_vanish_make_no_long_gradient_short():
    left, right = (torch.full((1, 100), each, dtype=torch.float64) for each in (1.5e-162, 1.2e153))
    positions = Positions(left.reshape(1, 1, 100, 1), right.reshape(1, 1, 100, 1), (100, 100))
    for way in (Outer(left, right), positions):
        assert not float(way.squared_norms()) < 1e-20  # it is 3e-14, or counts as infinite


def test_a_gradient_whose_positions_cancel_is_no_shorter_than_a_thousandth_of_them():
    # The lemma needs it: their products are rounded one by one, and here nothing else is left.
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(2, 3, 5, 4, generator=generator) for _ in range(2))
    left, right = torch.cat([left, -left], 3), torch.cat([right, right], 3)
    products = (left.double().norm(dim=2) * right.double().norm(dim=2)).sum(2).norm(dim=1)
    tokens = torch.tensor([[0, 1, 2, 0, 0, 1, 2, 0]] * 2)
    looked = left[:, 0].transpose(1, 2)
    for way, terms in (
        (Positions(left, right, (15, 5)), products),
        (Looked(looked, tokens, (3, 5)), looked.double().norm(dim=2).sum(1)),
    ):
        torch.testing.assert_close(way.squared_norms().sqrt(), terms * 2.0**-10, rtol=1e-3, atol=0)
        assert float(way.weighted_sum(torch.ones(2)).norm()) < 1e-9


def test_a_position_whose_squares_vanish_beside_another_is_not_measured_as_nothing():
    # The long part is at positions whose output gradients have squares of zero in float32, beside a larger one.
    left, right = torch.full((1, 1, 30, 20), 2e-23), torch.full((1, 1, 30, 20), 1e18)
    left[..., 0], right[..., 0] = 1e-17, 0
    exact = float((left.double() @ right.double().transpose(2, 3)).norm())
    way = Positions(left, right, (30, 30))
    measured = way.squared_norms().sqrt()
    assert float(measured) >= exact * (1 - 1e-9) > 1e-3
    assert float(way.weighted_sum(1 / measured).norm()) <= 1 + 1e-9


@pytest.mark.parametrize(("small", "large"), [(1e-23, 1e16), (1e-38, 1e38), (1e-44, 1e30), (1e38, 1e-44)])
def test_clipped_products_neither_vanish_nor_overflow_in_float32(small, large):
    left, right = torch.full((2, 100), small), torch.full((2, 100), large)
    right[1] = 0
    way = Outer(left, right)
    weights = torch.tensor([1 / float(way.squared_norms()[0].sqrt()), 1.0], dtype=torch.float64)
    found = way.weighted_sum(weights)
    torch.testing.assert_close(found, torch.full((100, 100), 0.01, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_a_row_of_weight_zero_adds_nothing_whatever_it_holds(bad):
    sides = torch.rand(3, 1, 4, 5), torch.rand(3, 1, 6, 5)
    tokens = torch.tensor([[0, 1, 2, 0, 1]] * 3)
    for make in (
        lambda left, right: Outer(left[:, 0, :, 0], right[:, 0, :, 0]),
        lambda left, right: Positions(left, right, (4, 6)),
        lambda left, _: Formed(left[:, 0]),
        lambda left, _: Looked(left[:, 0].transpose(1, 2), tokens, (3, 4)),
    ):
        spoiled = [each.clone() for each in sides]
        for each in spoiled:
            each[1] = bad
        weights = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
        torch.testing.assert_close(make(*spoiled).weighted_sum(weights), make(*sides).weighted_sum(weights))


def test_outer_products_are_summed_in_float32_by_groups_and_moved_by_no_more_than_the_lemma_says():
    # Rows that are alike and round the same way; without groups of 100 these sums would be off by 20 times as much.
    rows, largest = 4096, 0.0
    for value in (1 / 3, 0.7, 0.99999):
        left, right = torch.full((rows, 1), value), torch.ones(rows, 1)
        way = Outer(left, right)
        weights = torch.ones(rows, dtype=torch.float64)
        without = weights.clone()
        without[7] = 0.0
        moved = float(way.weighted_sum(weights) - way.weighted_sum(without))
        exact = float(left[0])
        assert abs(moved - exact) <= 2.0**-9 * exact
        largest = max(largest, abs(moved - exact))
    assert largest > 0  # it is float32


def test_the_constants_of_the_lemma_add_up_to_what_the_sensitivity_covers():
    def off(terms, unit):
        return terms * unit / (1 - terms * unit)

    group, groups, single, double = layers._GROUP, layers._GROUPS, 2.0**-24, 2.0**-53
    positions, cancelled = layers.MOST_POSITIONS, math.sqrt(layers._CANCELLATION)
    parts = [
        2 * off(group, single) * group,  # the group of the row that differs
        2 * (groups - 1) * single * groups * group,  # the additions of groups
        2 * off(positions, double) * layers.MOST_ROWS / cancelled,  # what is summed in float64
        2.0**-20,  # what is left: the rounding of the row itself, and of few additions in float64
    ]
    assert 0.8 * ROUNDING < sum(parts) <= ROUNDING
    # A norm from Gram matrices of 2^13 positions is off by less than is added to it.
    assert off(2**26 + 2**13, double) < layers._CANCELLATION / 4


@pytest.mark.parametrize(
    ("ones", "places"), [(64, slice(64, 100)), (512, slice(512, 600)), (2048, slice(2100, 4096, 100))]
)
def test_a_row_moves_sums_in_float32_by_its_length_where_it_takes_them_to_the_next_power_of_two(ones, places):
    # Beside a power of two, steps of float32 double. The small rows are rounded to one step on either side of it, so
    # they count twice as much beside the row that is removed. If all groups were added in float32, the last of these
    # sums would move by 1.25 times what the lemma allows.
    rows = torch.zeros(4096)
    rows[:ones], rows[places] = 1.0, 1.2 * ones * 2.0**-24
    way = Outer(rows[:, None].expand(-1, 16) / 4, torch.full((4096, 16), 0.25))
    weights = torch.ones(4096, dtype=torch.float64)
    whole = way.weighted_sum(weights)
    weights[7] = 0.0
    moved = float((whole - way.weighted_sum(weights)).norm())
    assert whole.dtype is torch.float64
    assert abs(moved - 1) <= ROUNDING


@pytest.mark.parametrize("value", [0.55, 0.6])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_too_long_for_float32_does_not_change_how_others_are_summed(value, side):
    # Rows that are alike and rounded the same way: together, 4,096 of them are off by twice what the lemma allows.
    left, right = torch.full((4096, 16), value / 4), torch.full((4096, 16), 0.25)
    clip = Outer(left, right).squared_norms()[0].sqrt()
    long = left.clone(), right.clone()
    long[side == "right"][7] = 2.0**70
    way, other = Outer(left, right), Outer(*long)
    weights = torch.ones(4096, dtype=torch.float64)
    weights[7] = 0.0
    moved = other.weighted_sum(clip / other.squared_norms().sqrt()) - way.weighted_sum(weights)
    assert float(moved.norm() / clip) == pytest.approx(1.0, abs=2.0**-20)


def test_products_that_may_be_shorter_than_float32_are_summed_in_float64():
    left, right = torch.rand(500, 3), torch.rand(500, 4)
    weights = torch.rand(500, dtype=torch.float64)
    exact = (left.double() * weights[:, None]).T @ right.double()
    assert float((Outer(left, right).weighted_sum(weights) - exact).abs().max()) > 1e-9
    torch.set_float32_matmul_precision("medium")
    try:
        found = Outer(left, right).weighted_sum(weights)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(Outer(left, right).weighted_sum(weights), exact, rtol=1e-12, atol=0)
    with pytest.MonkeyPatch.context() as patch:

        def refuses():
            raise RuntimeError("set for one backend alone")

        patch.setattr(torch, "get_float32_matmul_precision", refuses)
        torch.testing.assert_close(Outer(left, right).weighted_sum(weights), exact, rtol=1e-12, atol=0)


def test_no_more_rows_and_positions_are_summed_at_once_than_the_lemma_allows():
    for module, shape in (
        (nn.Linear(3, 2), (3,)),
        (nn.Sequential(nn.Conv1d(1, 1, 1), nn.Flatten(), nn.Linear(300, 1)), (1, 300)),
        (nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.Linear(200, 1)), (100, 2)),
    ):
        probe = Batch((torch.randn(3, *shape),), torch.zeros(3))
        rows = choose_gradients(module, squares, probe).rows_at_once
        positions = max(prod(shape[:-1]), shape[-1] if len(shape) == 2 and shape[0] == 1 else 1)
        assert 1 <= rows <= 2**12
        assert rows * positions <= 2**17


@pytest.mark.parametrize("kind", ["outer", "positions", "formed", "looked"])
def test_a_row_moves_a_long_sum_by_its_own_length_and_no_more(kind):
    # In float32 a sum of 2^18 ones has steps of 2^-5, and which way it is rounded changes with every row.
    rows = 2**18 if kind in ("outer", "formed") else 2**16
    generator = torch.Generator().manual_seed(0)
    left = torch.rand(rows, 1, generator=generator) * 0.01 + 0.99

    def total(kept):
        part = left[kept]
        weights = 1 / part[:, 0].double()
        ones = torch.ones_like(part)
        way = {
            "outer": lambda: Outer(part, ones),
            "positions": lambda: Positions(part[:, None, :, None], ones[:, None, :, None], (1, 1)),
            "formed": lambda: Formed(part),
            "looked": lambda: Looked(part[:, :, None], torch.zeros(len(part), 1, dtype=torch.long), (1, 1)),
        }[kind]()
        return float(way.weighted_sum(weights).sum())

    everyone = torch.ones(rows, dtype=torch.bool)
    for row in (0, 7, rows // 2):
        others = everyone.clone()
        others[row] = False
        assert abs(total(everyone) - total(others) - 1) < 2.0**-20


def test_dropout_does_not_keep_a_module_from_being_recorded():
    module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    assert type(choose_gradients(module, squares, batch_of(torch.randn(ROWS, 4)))) is RecordedGradients
    assert module[1].training
    assert module.training


def test_the_rows_at_once_are_a_rule_of_shapes():
    module = convolutional_network()
    small = choose_gradients(module, squares, batch_of(torch.randn(3, 1, 8, 8)))
    again = choose_gradients(module, squares, batch_of(torch.randn(3, 1, 8, 8), seed=1))
    assert small.rows_at_once == again.rows_at_once > 1


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 1)

    def forward(self, values):
        return self.outer(self.inner(values)[0][:, -1])


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), nn.Linear(8, 1)

    def forward(self, values):
        return self.outer(self.inner(values).mean(1))


@pytest.mark.parametrize(
    ("make", "shape", "way"),
    [
        (lambda: nn.Sequential(nn.Linear(50, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 1)), (50,), "recorded"),
        (
            lambda: nn.Sequential(
                nn.Conv2d(2, 8, 3, 2, 1), nn.GroupNorm(4, 8), nn.ReLU(), nn.Flatten(), nn.Linear(200, 1)
            ),
            (2, 10, 10),
            "recorded",
        ),
        (lambda: nn.Sequential(nn.Linear(50, 33), nn.Dropout(0.4), nn.Linear(33, 1)), (50,), "mapped"),
        (Recurrent, (4, 6), "mapped"),
        (Attending, (4, 8), "mapped"),
    ],
)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("rows", [2, 17, 130])
def test_no_row_changes_a_bit_of_what_belongs_to_another(make, shape, way, rows):
    torch.manual_seed(rows)
    module, inputs = make(), torch.randn(rows, *shape)
    kind = RecordedGradients if way == "recorded" else MappedGradients
    changed = rows // 2
    others = torch.arange(rows) != changed
    found = []
    for value in (None, 0.0, 1e30, 1e-42, math.nan, math.inf):
        held = inputs.clone()
        if value is not None:
            held[changed] = value
        torch.manual_seed(0)
        rows_found = kind(module, squares).of(Batch((held,), torch.linspace(-1, 1, rows)))
        weights = torch.zeros(rows, dtype=torch.float64)
        weights[others] = 1.0
        found.append((rows_found.losses[others], rows_found.norms()[others], rows_found.weighted_sum(weights)))
    for losses, norms, sums in found[1:]:
        assert torch.equal(losses, found[0][0])
        assert torch.equal(norms, found[0][1])
        assert all(torch.equal(one, other) for one, other in zip(sums, found[0][2], strict=True))
