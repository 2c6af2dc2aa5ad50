"""Many draws at once: packed proposals take the decisions of exact arithmetic."""

import numpy as np
import pytest

from dpdescent.noise import SeededBits, discrete_gaussian, exp_neg, lattice as lattice_module, packed

WIDTHS = [1, 3, 2**18, 3 * 2**16 + 1, packed.LARGEST_WIDTH - 1, packed.LARGEST_WIDTH]


class Fixed:
    """Bits that are all zeros or all ones, counted."""

    def __init__(self, word=0):
        self.word, self.read = word, 0

    def words(self, count):
        self.read += count
        return np.full(count, self.word, np.uint64)

    def integer(self, bits):
        return 2**bits - 1 if self.word else 0


class Counted:
    """Seeded bits, counted."""

    def __init__(self):
        self.bits, self.read = SeededBits(np.random.SeedSequence(0)), 0

    def words(self, count):
        self.read += count
        return self.bits.words(count)

    def integer(self, bits):
        return self.bits.integer(bits)


def words_of(proposals):
    """The words of (prefix, coin, minus, offset), four at a time."""
    short = [(prefix << 4) | (coin >> 7) for prefix, coin, _, _ in proposals]
    long = [((coin & 127) << 25) | (minus << 24) | offset for _, coin, minus, offset in proposals]
    return np.concatenate([np.array(short, "<u2").view("<u8"), np.array(long, "<u4").view("<u8")])


def given_to(proposals, scale, monkeypatch):
    """What a block makes of given proposals."""
    bits = Fixed()
    words = words_of(proposals)
    monkeypatch.setattr(bits, "words", lambda count: words[:count])
    return packed._block(bits, scale, len(proposals)).tolist()


def test_many_draws_take_48_bits_each_and_few_draws_192():
    many, few, wide = Counted(), Counted(), Counted()
    discrete_gaussian(many, 2**22, packed.MANY)
    discrete_gaussian(few, 2**22, packed.MANY - 1)
    discrete_gaussian(wide, 32 * packed.LARGEST_WIDTH, packed.MANY)
    assert 0.77 < many.read / packed.MANY < 0.84
    assert few.read / packed.MANY > 3
    assert wide.read / packed.MANY > 3


def test_the_first_bits_choose_a_cell_only_where_no_boundary_is_inside():
    cumulative = lattice_module.gaussian_table().cumulative
    first = packed._first_digits()
    decided = np.flatnonzero(first >= 0)
    for prefix in decided.tolist():
        cell = int(first[prefix])
        assert (prefix + 1) << 244 <= cumulative[cell]
        assert cell == 0 or cumulative[cell - 1] <= prefix << 244
    assert first.size == 2**12
    assert 40 < 2**12 - decided.size < 100


@pytest.mark.parametrize(("word", "end"), [(0, 0), (2**64 - 1, 1)])
def test_a_cell_in_doubt_is_settled_by_further_bits(word, end):
    cumulative = lattice_module.gaussian_table().cumulative
    doubtful = np.flatnonzero(packed._first_digits() < 0)
    cells = packed._cells(Fixed(word), doubtful.astype(np.uint16))
    for prefix, cell in zip(doubtful.tolist(), cells.tolist(), strict=True):
        uniform = ((prefix + end) << 244) - end
        assert uniform < cumulative[cell]
        assert cell == 0 or cumulative[cell - 1] <= uniform


@pytest.mark.parametrize("width", WIDTHS)
def test_acceptance_is_that_of_exact_arithmetic(width):
    # A third of the coins is chosen right at its probability, where 11 bits never decide.
    generator = np.random.default_rng(0)
    scale, family, count = 16 * width, lattice_module.GaussianCells(), 600
    cells = generator.integers(0, 80, count).astype(np.int16)
    offsets = generator.integers(0, width, count).astype(np.uint32)
    exact = [
        exp_neg(*family.exact_exponent(cell, offset, scale))
        for cell, offset in zip(cells.tolist(), offsets.tolist(), strict=True)
    ]
    digits = generator.integers(0, 2**11, count).astype(np.uint16)
    digits[::3] = [min(each >> 245, 2**11 - 1) for each in exact[::3]]
    for word, end in ((0, 0), (2**64 - 1, 1)):
        bits = Fixed(word)
        accepted = packed._accept(bits, digits, cells, offsets, scale)
        assert bits.read >= count // 3
        for each, threshold, found in zip(digits.tolist(), exact, accepted.tolist(), strict=True):
            uniform = ((each + end) << 245) - end
            if abs(uniform - threshold) > 4:  # exp_neg is off by two units, of 2^-256
                assert found == (uniform < threshold)


@pytest.mark.parametrize("width", WIDTHS)
def test_offsets_that_would_make_small_ones_more_likely_are_dropped(width, monkeypatch):
    fair = 2**24 // width * width
    offsets = (fair - 1, min(fair, 2**24 - 1), 5 % width, 0)
    cell = int(packed._first_digits()[7])
    inside = [width - 1, *([] if fair < 2**24 else [width - 1]), 5 % width, 0]
    drawn = given_to([(7, 0, 0, offset) for offset in offsets], 16 * width, monkeypatch)
    assert drawn == [cell * width + each for each in inside]


def test_zero_counts_once_and_signs_are_bits(monkeypatch):
    proposals = [(0, 0, minus, offset) for offset in (0, 9) for minus in (0, 1)]
    assert given_to(proposals, 16 * 2**18, monkeypatch) == [0, 9, -9]


def test_every_bit_of_a_proposal_has_its_place(monkeypatch):
    # The 12, 11, 1 and 24 bits do not overlap: changing one field changes nothing that the others decide.
    seen = []

    def noted(_bits, coins, cells, offsets, _scale):
        seen.append((coins.tolist(), cells.tolist(), offsets.tolist()))
        return np.ones(coins.size, bool)

    monkeypatch.setattr(packed, "_accept", noted)
    proposals = [(7, 0, 0, 0), (7, 2**11 - 1, 0, 0), (7, 0, 0, 2**18 - 1), (2000, 0b10101010101, 1, 12345)]
    drawn = given_to(proposals, 16 * 2**18, monkeypatch)
    low, high = (int(packed._first_digits()[prefix]) for prefix in (7, 2000))
    assert seen == [([0, 2**11 - 1, 0, 0b10101010101], [low, low, low, high], [0, 0, 2**18 - 1, 12345])]
    assert drawn == [low * 2**18, low * 2**18, (low + 1) * 2**18 - 1, -(high * 2**18 + 12345)]


def test_the_farthest_draw_fits_32_bits():
    last = len(lattice_module.gaussian_table().cumulative)
    assert (last + 1) * packed.LARGEST_WIDTH < 2**31
