"""Noise on the integers, drawn exactly.

Data are summed exactly on a lattice, so the noise lives there too: an integer whose law is the one that the theorem
assumes. Every sampler reads random bits and compares a uniform real, digit by digit as far as needed, with a
threshold known to 256 bits; floating point only settles the comparisons that are not close. Nothing is cached, and no
loop grows with the noise.

- `Randomness`, `SystemBits`, `SeededBits`: where bits come from.
- `discrete_gaussian`, `discrete_laplace`: independent coordinates; `lattice_scale` and `laplace_scale` turn
  a real scale into one they can draw.
- `select`: the exponential mechanism.
- `accept`: events of probability exp(-x).
- `norm_laplace`: a vector with density close to ``exp(-||z||_2 / b)``.

A draw is within `SAMPLER_ERROR` of its law in total variation. N draws add (1 + e^epsilon) N times that to the delta
of a run: next to nothing, because `dpdescent.accounting.smallest_delta` bounds the delta that can be promised from
below. A delta of zero is that of the laws and leaves this term out. Draws are bounded, by 20 scales for Gaussian and
189 for Laplace noise, so that neighbours may have no output in common where epsilon is several hundred: such an
epsilon asks for little noise and guarantees nothing.

What is outside the guarantee: caches, the conversion of results to floating point, and the time of the slow
path of a decision (probability below ``2**-41`` for a coordinate).
"""

from __future__ import annotations

from .bits import Bits as Bits, Randomness as Randomness, SeededBits as SeededBits, SystemBits as SystemBits
from .exponential import MAXIMUM_SCORES as MAXIMUM_SCORES, accept as accept, exp_neg as exp_neg, select as select
from .ladder import (
    MINIMUM_NORM_LAPLACE_SCALE as MINIMUM_NORM_LAPLACE_SCALE,
    NORM_LAPLACE_DELTA as NORM_LAPLACE_DELTA,
    NORM_LAPLACE_SLACK as NORM_LAPLACE_SLACK,
    Ladder as Ladder,
    ladder as ladder,
    norm_laplace as norm_laplace,
)
from .lattice import (
    FARTHEST_DRAW as FARTHEST_DRAW,
    MAXIMUM_SCALE as MAXIMUM_SCALE,
    SAMPLER_ERROR as SAMPLER_ERROR,
    discrete_gaussian as discrete_gaussian,
    discrete_laplace as discrete_laplace,
    laplace_scale as laplace_scale,
    lattice_scale as lattice_scale,
)
