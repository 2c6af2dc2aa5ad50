"""Laws of the bit sources: fresh after fork, keyed without state, refused when the seed is no seed."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from dpdescent.errors import InvalidParameter
from dpdescent.noise import Randomness, SeededBits, SystemBits, discrete_gaussian


def philox(seed: int) -> SeededBits:
    return SeededBits(np.random.SeedSequence(seed))


def test_seeded_words_are_raw_philox_words() -> None:
    expected = np.random.Philox(np.random.SeedSequence(0)).random_raw(7)
    source = philox(0)
    assert np.array_equal(np.concatenate([source.words(3), source.words(4)]), expected)
    assert source.words(0).size == 0


@pytest.mark.parametrize("bits", [1, 7, 64, 65, 192, 203])
def test_seeded_integer_reads_whole_words_and_drops_low_bits(bits: int) -> None:
    count = -(-bits // 64)
    words = philox(5).words(count + 1)
    joined = sum(int(word) << (64 * i) for i, word in enumerate(words[:count]))
    source = philox(5)
    assert source.integer(bits) == joined >> (64 * count - bits)
    assert source.words(1)[0] == words[count]


@pytest.mark.parametrize("source", [SystemBits(), philox(1)], ids=["system", "seeded"])
def test_integers_are_uniform_below_their_power_of_two(source: SystemBits | SeededBits) -> None:
    """Each of 2,000 3-bit integers is in range, and each value occurs: missing one has probability 1e-115."""
    seen = {source.integer(3) for _ in range(2000)}
    assert seen == set(range(8))
    assert source.integer(0) == 0


def test_system_words_differ_between_calls() -> None:
    """Two blocks of 256 bits coincide with probability 2**-256."""
    source = SystemBits()
    assert source.words(4).dtype == np.uint64
    assert not np.array_equal(source.words(4), source.words(4))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_draws_other_noise() -> None:
    source = Randomness().stream("gradient", 0)
    discrete_gaussian(source, 2**40, 8)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, discrete_gaussian(source, 2**40, 8).tobytes())
        os._exit(0)
    mine = discrete_gaussian(source, 2**40, 8)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), np.int64)
    os.waitpid(child, 0)
    assert theirs.size == 8
    assert not np.any(mine == theirs)


def test_unpickled_system_source_draws_other_noise() -> None:
    source = SystemBits()
    copy = pickle.loads(pickle.dumps(source))
    assert not np.array_equal(source.words(4), copy.words(4))


def test_seeded_streams_do_not_depend_on_order() -> None:
    randomness = Randomness(7)
    keys = [("gradient", 0), ("gradient", 1), ("selection", 0)]
    forward = {key: randomness.stream(*key).words(5) for key in keys}
    backward = {key: Randomness(7).stream(*key).words(5) for key in reversed(keys)}
    for key in keys:
        assert np.array_equal(forward[key], backward[key])


def test_seeded_streams_differ_by_seed_mechanism_and_release() -> None:
    keys = [(s, m, r) for s in (0, 1, 2**32, 2**127) for m in ("gradient", "loss") for r in (0, 1, 2**32)]
    blocks = {Randomness(s).stream(m, r).words(4).tobytes() for s, m, r in keys}
    assert len(blocks) == len(keys)


def test_seeded_stream_is_the_same_in_every_process() -> None:
    assert Randomness(0).stream("gradient", 0).words(2).tolist() == [
        12622533473510117565,
        8704998555373033946,
    ]


def test_description_names_the_source() -> None:
    assert Randomness().description == "operating system generator"
    assert Randomness(3).description == "seeded (not for release)"
    assert isinstance(Randomness().stream("gradient", 0), SystemBits)


def test_numpy_integers_are_seeds() -> None:
    assert Randomness(np.int64(5)) == Randomness(5)
    assert type(Randomness(np.uint8(5)).seed) is int


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, np.bool_(True), float("nan"), 2**128, [1]])
def test_other_seeds_are_refused_with_a_remedy(seed: object) -> None:
    with pytest.raises(InvalidParameter, match="pass a non-negative int"):
        Randomness(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [("", 0), (3, 0), ("gradient", -1), ("gradient", 0.0), ("gradient", None)])
@pytest.mark.parametrize("randomness", [Randomness(), Randomness(0)])
def test_bad_stream_keys_are_refused(randomness: Randomness, key: tuple[object, object]) -> None:
    with pytest.raises(InvalidParameter):
        randomness.stream(*key)  # type: ignore[arg-type]
