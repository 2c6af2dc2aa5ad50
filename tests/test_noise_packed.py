"""Many draws at once: packed proposals take the decisions of exact arithmetic."""

import numpy as np
import pytest

from dpdescent.noise import SeededBits, discrete_gaussian, exp_neg, packed
from dpdescent.noise import lattice as lattice_module

WIDTHS = [1, 3, 2**20, 3 * 2**20 + 1, packed.LARGEST_WIDTH]


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


def word_of(prefix, digits, minus, offset):
    return (prefix << 48) | (digits << 33) | (minus << 32) | offset


def test_many_draws_take_a_word_each_and_few_draws_three():
    many, few, wide = Counted(), Counted(), Counted()
    discrete_gaussian(many, 2**28, packed.MANY)
    discrete_gaussian(few, 2**28, packed.MANY - 1)
    discrete_gaussian(wide, 32 * packed.LARGEST_WIDTH, packed.MANY)
    assert 1.02 < many.read / packed.MANY < 1.12
    assert few.read / packed.MANY > 3
    assert wide.read / packed.MANY > 3


def test_sixteen_bits_choose_a_cell_only_where_no_boundary_is_inside():
    cumulative = lattice_module.gaussian_table().cumulative
    first = packed._first_digits()
    decided = np.flatnonzero(first >= 0)
    for prefix in decided.tolist():
        cell = int(first[prefix])
        assert (prefix + 1) << 240 <= cumulative[cell]
        assert cell == 0 or cumulative[cell - 1] <= prefix << 240
    assert 60 < 2**16 - decided.size < 200


@pytest.mark.parametrize(("word", "end"), [(0, 0), (2**64 - 1, 1)])
def test_a_cell_in_doubt_is_settled_by_further_bits(word, end):
    cumulative = lattice_module.gaussian_table().cumulative
    doubtful = np.flatnonzero(packed._first_digits() < 0)
    cells = packed._cells(Fixed(word), doubtful.astype(np.uint64) << np.uint64(48))
    for prefix, cell in zip(doubtful.tolist(), cells.tolist(), strict=True):
        uniform = ((prefix + end) << 240) - end
        assert uniform < cumulative[cell]
        assert cell == 0 or cumulative[cell - 1] <= uniform


@pytest.mark.parametrize("width", WIDTHS)
def test_acceptance_is_that_of_exact_arithmetic(width):
    # A third of the coins is chosen right at its probability, where 15 bits never decide.
    generator = np.random.default_rng(0)
    scale, family, count = 16 * width, lattice_module.GaussianCells(), 600
    cells = generator.integers(0, 80, count).astype(np.int16)
    offsets = generator.integers(0, width, count).astype(np.uint32)
    exact = [
        exp_neg(*family.exact_exponent(cell, offset, scale))
        for cell, offset in zip(cells.tolist(), offsets.tolist(), strict=True)
    ]
    digits = generator.integers(0, 2**15, count)
    digits[::3] = [min(each >> 241, 2**15 - 1) for each in exact[::3]]
    words = np.array([word_of(0, int(each), 0, 0) for each in digits], np.uint64)
    for word, end in ((0, 0), (2**64 - 1, 1)):
        bits = Fixed(word)
        accepted = packed._accepted(bits, words, cells, offsets, scale)
        assert bits.read >= count // 3
        for each, threshold, found in zip(digits.tolist(), exact, accepted.tolist(), strict=True):
            uniform = ((each + end) << 241) - end
            if abs(uniform - threshold) > 4:  # exp_neg is off by two units, of 2^-256
                assert found == (uniform < threshold)


@pytest.mark.parametrize("width", WIDTHS)
def test_offsets_that_would_make_small_ones_more_likely_are_dropped(width, monkeypatch):
    fair = 2**32 // width * width
    given = [word_of(7, 0, 0, offset) for offset in (fair - 1, min(fair, 2**32 - 1), 5 % width)]
    bits = Fixed()
    monkeypatch.setattr(bits, "words", lambda count: np.array(given[:count], np.uint64))
    cell = int(packed._first_digits()[7])
    expected = [
        cell * width + width - 1,
        *([] if fair < 2**32 else [cell * width + width - 1]),
        cell * width + 5 % width,
    ]
    assert packed._block(bits, 16 * width, 3).tolist() == expected


def test_zero_counts_once_and_signs_are_bits(monkeypatch):
    given = [word_of(0, 0, minus, offset) for offset in (0, 9) for minus in (0, 1)]
    bits = Fixed()
    monkeypatch.setattr(bits, "words", lambda count: np.array(given[:count], np.uint64))
    assert packed._block(bits, 16 * 2**20, 4).tolist() == [0, 9, -9]
