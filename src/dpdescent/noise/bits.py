"""Where random bits come from.

Every sampler of this package reads raw bits from a `Bits` object and turns them into noise by exact
decisions. Two sources exist: the operating system (`SystemBits`), for releases, and a keyed counter
generator (`SeededBits`), for tests and for research that must be repeated. `Randomness` is the value that
travels through settings: it describes the source, holds no state, and hands out one stream per release.
"""

from __future__ import annotations

import hashlib
import operator
import os
from dataclasses import dataclass
from typing import Protocol, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter

WORD = 64


class Bits(Protocol):
    """A source of independent, unbiased bits."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` independent uniform 64-bit words."""
        ...

    def integer(self, bits: int) -> int:
        """Return a uniform integer of ``bits`` bits, that is in ``[0, 2**bits)``."""
        ...


class SystemBits:
    """Bits of the operating system's cryptographic generator.

    Nothing is buffered, so a forked child, a thread or an unpickled copy cannot repeat bits that another
    holder has seen: a cached source would give parent and child the same noise, and the difference of
    their two releases would then be free of noise.

    Privacy
    -------
    Every guarantee of this package is stated for ideal bits. With this source it holds against observers
    who cannot tell the operating system's generator from ideal bits.
    """

    __slots__ = ()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` fresh words."""
        return np.frombuffer(os.urandom(8 * count), np.uint64)

    def integer(self, bits: int) -> int:
        """Return a fresh uniform integer of ``bits`` bits."""
        return int.from_bytes(os.urandom(-(-bits // 8)), "little") >> (-bits % 8)


class SeededBits:
    """Bits of numpy's Philox counter generator, read as raw words.

    Raw Philox words are the same on every machine and in every version of numpy, and every decision made
    from them is exact, so a seed gives the same lattice noise everywhere. The order of reads is part of
    that promise: samplers document how many words they take.

    ``seed_sequence`` is the key of the stream: `Randomness.stream` derives one that no other release shares.

    Privacy
    -------
    None: whoever knows or guesses the seed can subtract the noise. Not for release.
    """

    __slots__ = ("_generator",)

    def __init__(self, seed_sequence: np.random.SeedSequence) -> None:
        self._generator = np.random.Philox(seed_sequence)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next ``count`` words of the stream."""
        return np.asarray(self._generator.random_raw(count), np.uint64)

    def integer(self, bits: int) -> int:
        """Return a uniform integer of ``bits`` bits from the next ``ceil(bits / 64)`` words."""
        words = self.words(-(-bits // WORD)).astype("<u8")
        return int.from_bytes(words.tobytes(), "little") >> (-bits % WORD)


@dataclass(frozen=True)
class Randomness:
    """Where the bits of a run come from: a description without state.

    Notes
    -----
    A seeded stream is keyed by seed, mechanism name and release number, and by nothing else. Copies,
    the order of calls and the number of workers therefore cannot make two releases share their noise;
    two runs with the same seed do, which is why such runs are marked.

    Examples
    --------
    >>> from dpdescent.noise import Randomness, discrete_gaussian
    >>> randomness = Randomness(seed=0)
    >>> first, again = (discrete_gaussian(randomness.stream("gradient", 0), 1024, 3) for _ in range(2))
    >>> bool((first == again).all())
    True
    >>> randomness.description
    'seeded (not for release)'
    """

    #: None for the operating system's generator; a whole number in ``[0, 2**128)`` for streams that can be repeated,
    #: which are not for release.
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            object.__setattr__(self, "seed", _seed(self.seed))

    @property
    def description(self) -> str:
        """How a privacy statement names this source."""
        return "operating system generator" if self.seed is None else "seeded (not for release)"

    def stream(self, mechanism: str, release: int) -> Bits:
        """Return the bits that belong to one release.

        Different names of mechanisms give different streams; the caller counts how many releases a mechanism made
        before.

        Returns
        -------
        Bits
            Fresh system bits, or the seeded stream of this key from its beginning.
        """
        if not isinstance(mechanism, str) or not mechanism:
            raise InvalidParameter(f"mechanism must be a non-empty name, got {mechanism!r}")
        number = _whole("release", release, "count the releases of each mechanism from 0")
        if self.seed is None:
            return SystemBits()
        # 64 bits of a fixed hash: Python's own hash changes from process to process.
        digest = hashlib.sha256(mechanism.encode()).digest()
        name = (int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"))
        return SeededBits(np.random.SeedSequence(self.seed, spawn_key=(*name, number)))


def _whole(name: str, value: SupportsIndex, remedy: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidParameter(f"{name} must be a whole number, got {value!r}: {remedy}") from None
    if isinstance(value, bool | np.bool_) or number < 0:
        raise InvalidParameter(f"{name} must be a whole number of at least 0, got {value!r}: {remedy}")
    return number


def _seed(value: SupportsIndex) -> int:
    remedy = "pass a non-negative int to repeat a run, or None for the operating system generator"
    seed = _whole("seed", value, remedy)
    # SeedSequence pads shorter seeds to 128 bits before it appends the key, which keeps the keys apart;
    # a longer seed could run into the key of another.
    if seed >> 128:
        raise InvalidParameter(f"seed must be below 2**128, got a number of {seed.bit_length()} bits: {remedy}")
    return seed
