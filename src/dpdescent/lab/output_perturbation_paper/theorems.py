r"""What the theorems of Lowy & Razaviyayn (2021) promise of output perturbation, and what they prescribe for it.

F is convex and L-Lipschitz on B(0, R), which holds a minimiser; d weights; x is the price of privacy
(`dpdescent.solvers.price_of_privacy`), and n the rows, or 1 for a function that is no mean over them.

**Exact minimisers.** The bounds of `excess_risk_bound` on E F(released) - min F are

=====================================  ==================================================  ===========================
F                                      empirical                                           population adds, replaces
=====================================  ==================================================  ===========================
mu-strongly convex                     2 L^2 x/mu (sqrt 2 for Gaussian noise)              2 L^2/(mu n); 2 L^2 x/mu
mu-strongly convex, beta-smooth        4 (beta/mu) L^2 x^2/mu, or the line above           2 L^2/(mu n)
convex                                 8.5 L R sqrt(x)                                     L R/(2 sqrt n); 127 or 19
convex, beta-smooth                    48.5 (beta L^2 R^4)^(1/3) x^(2/3), or the above     11 /sqrt n; 83 or 43
=====================================  ==================================================  ===========================

in the order of the paper: Corollaries 2.1 and 2.2 and Propositions 2.5 and 2.8 for tables 1, 2, 5 and 6, and
Propositions 4.1 to 4.4, for losses whose rows are drawn independently, for tables 3 and 4. They are about noise for
replace-one neighbours; a tolerance tau makes the noise longer by the factor 1 + 2 tau/Delta. Without strong convexity
the objective is minimised with lambda/2 |w|^2 more. Where F is not smooth the released point must be projected onto
B(0, R).

**Vacuous bounds.** Any fixed point of B(0, R) has an excess risk of at most L R, for nothing. A bound that is not
below it says nothing, and the conditions of the theorems fail about there: that is so wherever x is not well below 1.
For means over rows n epsilon must exceed d (or sqrt(d) times some 5 to 9); without the mean, epsilon itself must,
which is no privacy: bounds for general losses hold at every epsilon and say nothing at small ones.

**Minimisers that stop early** stop at an objective within alpha of its least value, after T evaluations of gradients.
Let kappa = beta/mu and :math:`u = (\beta L^2 R^4)^{1/3}`. In front of a semicolon stands the factor for pure privacy,
behind it the one for Gaussian noise.

=================================  ==========================================  ====================  ===============
F                                  alpha                                       empirical             population
=================================  ==========================================  ====================  ===============
mu-strongly convex                 L^2/(mu n) min(1/n, n x)                    (9; 6) L^2 x/mu       + 5 L^2/(mu n)
mu-strongly convex, beta-smooth    L^2/(mu n^2) min(kappa n^2 x^2, 1)          (26; 13.5) kappa      + 5 L^2/(mu n)
                                                                               L^2 x^2/mu
convex                             L R x^(3/2)/(1 + n x)^2; L R x^(3/2)        (49; 25) L R sqrt x   32 L R (sqrt x
                                                                                                     + 1/sqrt n)
convex, beta-smooth                min(L^2 R^2/(u x^(2/3) n^2), u x^(2/3))     (65; 127) u x^(2/3)   128 u (x^(2/3)
                                                                                                     + 1/sqrt n)
=================================  ==========================================  ====================  ===============

(Theorems 3.1, 3.2, 3.4 and 3.5 with Corollaries 3.1 to 3.8; Corollaries 4.1 to 4.4.) For a function that is no mean,
alpha is L^2 x/mu in the first line and L R x^(3/2) in the third. The evaluations are those of the method that the
corollary names: 2 L^2/(mu alpha) for the subgradient method, with single rows for a mean; sqrt(kappa) log(beta
R^2/alpha) for accelerated gradients; (n + sqrt(n kappa)) log(L R/alpha) single rows for Katyusha (Theorem 3.3, whose
constant is not stated and is 1 here). Without strong convexity mu is lambda, L is L + lambda R and beta is beta +
lambda. Some corollaries print T and alpha with misprints; here T follows from alpha by these rules.

**Tilted objectives** (Theorems 5.1 and 5.2). C = exp(tau (A - a)), where [a, A] holds all losses, enters where the
sensitivity does: 9 L^2 C x/mu, and for a smooth loss, with kappa = (tau L^2 + beta)/mu, (26; 13.5) kappa (L C
x)^2/mu. The paper prints C in the last bound where its proof gives C^2, because it is quadratic in the sensitivity.

**Lower bounds** (Proposition 2.7, Bassily et al. 2014) hold for the hardest table, up to a constant that is not
stated: L R min(1, y^2) with y = d/(epsilon n), or sqrt(d)/(epsilon n) for delta > 0, and L R min(1, y) without strong
convexity. For a population L^2/(mu n) or L R/sqrt(n) is lost without privacy.

**The exponential mechanism** (Theorem G.1, Proposition G.2), again up to a constant: L R x, and after localization
L^2 x^2/mu log(epsilon^2 mu R/(d L)).

References
----------
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
Bassily, R., Smith, A. & Thakurta, A. (2014). Private empirical risk minimization: efficient algorithms and tight
error bounds. FOCS. arXiv:1405.7085.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import InvalidParameter, require_nonnegative, require_positive
from ...solvers import price_of_privacy, regularisation


@dataclass(frozen=True)
class Constants:
    """What a bound depends on."""

    #: L and R: every table's objective (for a population, every row's loss) is L-Lipschitz on B(0, R).
    lipschitz: float
    radius: float
    dimension: int  # d, the number of weights
    #: The guarantee, 0 <= delta < 1/2.
    epsilon: float
    delta: float = 0.0
    rows: int | None = None  # n, for a mean over rows; None for a function that is not a mean
    #: mu (0: merely convex) and beta (infinite: not smooth).
    strong_convexity: float = 0.0
    smoothness: float = math.inf

    @property
    def price(self) -> float:
        """The price of privacy x."""
        return price_of_privacy(self.dimension, self.epsilon, self.delta, self.rows)

    @property
    def sample(self) -> int:
        """The number of rows of a mean, and 1 for another function."""
        return self.rows or 1

    @property
    def smooth(self) -> bool:
        """Whether the gradient is Lipschitz."""
        return self.smoothness < math.inf

    @property
    def trivial(self) -> float:
        """L R: the excess risk of any fixed point of the ball."""
        return self.lipschitz * self.radius

    def added(self, population: bool) -> float:
        """The lambda of a merely convex objective."""
        return regularisation(
            lipschitz=self.lipschitz,
            radius=self.radius,
            dimension=self.dimension,
            epsilon=self.epsilon,
            delta=self.delta,
            rows=self.rows,
            smoothness=self.smoothness,
            population=population,
        )


@dataclass(frozen=True)
class ExcessRiskBound:
    """A bound on the expected excess risk of output perturbation.

    Attributes
    ----------
    value : float
        The bound, which holds whether it is vacuous or not; infinite where its theorem does not apply.
    trivial : float
        L R: the excess risk of doing nothing.
    regularisation : float
        lambda, what is added to the objective as lambda/2 |w|^2; 0 where it is strongly convex itself.
    projected : bool
        Whether the bound is about the point projected onto B(0, R).
    source : str
        Where the paper states it.
    """

    value: float
    trivial: float
    regularisation: float
    projected: bool
    source: str

    @property
    def vacuous(self) -> bool:
        """Whether doing nothing has as good a bound."""
        return self.value >= self.trivial


def excess_risk_bound(
    *,
    lipschitz: float,
    radius: float,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    rows: int | None = None,
    strong_convexity: float = 0.0,
    smoothness: float = math.inf,
    population: bool = False,
) -> ExcessRiskBound:
    """Return the smallest of the bounds of Lowy & Razaviyayn (2021) on the expected excess risk that apply.

    ``population`` asks for the bound on the population risk, of a mean over independent rows; the other arguments are
    those of `Constants`.

    Examples
    --------
    >>> bound = excess_risk_bound(lipschitz=1, radius=10, dimension=20, epsilon=1, rows=100_000, strong_convexity=0.1)
    >>> bound.source, round(bound.value, 6), bound.vacuous
    ('Corollary 2.1', 0.004, False)
    """
    price_of_privacy(dimension, epsilon, delta, rows)  # which refuses what is no guarantee
    slope, reach = require_positive("lipschitz", lipschitz), require_positive("radius", radius)
    mu = require_nonnegative("strong_convexity", strong_convexity)
    if smoothness != math.inf:
        require_positive("smoothness", smoothness)
    if population and rows is None:
        raise InvalidParameter("a population bound is about a mean over rows: give rows")
    constants = Constants(slope, reach, dimension, epsilon, delta, rows, mu, smoothness)
    bounds = (_strongly_convex_bounds if mu > 0 else _convex_bounds)(constants, population)
    return min(bounds, key=lambda bound: bound.value)


def _strongly_convex_bounds(constants: Constants, population: bool) -> Iterator[ExcessRiskBound]:
    price, trivial, sample = constants.price, constants.trivial, constants.sample
    scale = constants.lipschitz**2 / constants.strong_convexity
    if population:
        kink = 2 * scale * (1 / sample + price) if price <= 1 else math.inf
        yield ExcessRiskBound(kink, trivial, 0.0, True, "Proposition 4.1")
    else:
        factor = 2.0 if constants.delta == 0 else math.sqrt(2)
        yield ExcessRiskBound(factor * scale * price, trivial, 0.0, True, "Corollary 2.1")
    if constants.smooth:
        even = 4 * constants.smoothness / constants.strong_convexity * scale * price**2
        if population:
            even = even + 2 * scale / sample if price <= 1 else math.inf
        yield ExcessRiskBound(even, trivial, 0.0, False, "Proposition 4.2" if population else "Corollary 2.2")


def _convex_bounds(constants: Constants, population: bool) -> Iterator[ExcessRiskBound]:
    price, trivial, sample = constants.price, constants.trivial, constants.sample
    pure = constants.delta == 0
    if price > 1:
        kink = math.inf
    elif population:
        kink = trivial * ((127 if pure else 19) * math.sqrt(price) + 0.5 / math.sqrt(sample))
    else:
        kink = 8.5 * trivial * math.sqrt(price)
    weight = replace(constants, smoothness=math.inf).added(population)
    yield ExcessRiskBound(kink, trivial, weight, True, "Proposition 4.3" if population else "Proposition 2.5")
    if constants.smooth:
        unit = math.cbrt(constants.smoothness * constants.lipschitz**2 * constants.radius**4)
        even = (48.5 if not population else 83 if pure else 43) * unit * price ** (2 / 3)
        even += 11 * unit / math.sqrt(sample) if population else 0.0
        if price**2 > constants.lipschitz / (constants.radius * constants.smoothness):
            even = math.inf
        name = "Proposition 4.4" if population else "Proposition 2.8"
        yield ExcessRiskBound(even, trivial, constants.added(population), False, name)


@dataclass(frozen=True)
class Prescription:
    """How a theorem runs output perturbation, and what it promises."""

    bound: float  # on the expected excess risk
    accuracy: float  # alpha
    method: str  # a minimiser by its name in `dpdescent.minimisers.METHODS`
    #: T: gradients of single rows for "sgd" and "katyusha", and of the whole objective for the others.
    evaluations: float
    regularisation: float  # lambda; 0 for a strongly convex objective
    source: str  # where the paper states it


def prescription(constants: Constants, *, population: bool = False) -> Prescription:
    """Return what the paper prescribes and promises for a class of objectives.

    Examples
    --------
    >>> known = Constants(lipschitz=1, radius=10, dimension=20, epsilon=1, rows=100_000, strong_convexity=0.1)
    >>> found = prescription(known)
    >>> found.source, found.method, round(found.bound, 6)
    ('Corollary 3.2', 'sgd', 0.018)
    """
    if population and constants.rows is None:
        raise InvalidParameter("a population bound is about a mean over rows: give rows")
    convex = constants.strong_convexity == 0
    found = (_convex if convex else _strongly_convex)(constants, population)
    evaluations = _evaluations(constants, found.accuracy, found.method, found.regularisation)
    return replace(found, evaluations=evaluations)


def tilted_prescription(constants: Constants, tilt: float, spread: float) -> Prescription:
    """Return what Theorems 5.1 and 5.2 prescribe for losses within ``spread`` = A - a of each other."""
    if constants.rows is None or constants.strong_convexity == 0:
        raise InvalidParameter("a tilted objective is about the losses of rows, and strongly convex: give both")
    x, n, factor = constants.price, constants.rows, math.exp(tilt * spread)
    scale = constants.lipschitz**2 / constants.strong_convexity
    if not constants.smooth:
        accuracy = scale * factor / n * min(factor / n, n * x)
        found = Prescription(9 * scale * factor * x, accuracy, "subgradient", 0.0, 0.0, "Theorem 5.1")
    else:
        bent = constants.smoothness + tilt * constants.lipschitz**2
        constants = replace(constants, smoothness=bent)
        condition = bent / constants.strong_convexity
        accuracy = scale / n**2 * min(condition * (n * x) ** 2, factor**2)
        share = 26 if constants.delta == 0 else 13.5
        found = Prescription(share * condition * scale * (factor * x) ** 2, accuracy, "agd", 0.0, 0.0, "Theorem 5.2")
    return replace(found, evaluations=_evaluations(constants, found.accuracy, found.method, 0.0))


def lower_bound(constants: Constants, *, population: bool = False) -> float:
    """Return what no private method can undercut on the hardest table, up to a constant that is not stated."""
    weights = constants.dimension if constants.delta == 0 else math.sqrt(constants.dimension)
    price = weights / (constants.epsilon * constants.sample)
    strong, n = constants.strong_convexity, constants.sample
    private = constants.trivial * min(1.0, price**2 if strong else price)
    if not population:
        return private
    return private + (constants.lipschitz**2 / (strong * n) if strong else constants.trivial / math.sqrt(n))


def exponential_bound(constants: Constants) -> float:
    """Return the bound on the exponential mechanism, localised where F is strongly convex, up to a constant."""
    x, mu = constants.dimension / (constants.epsilon * constants.sample), constants.strong_convexity
    if mu == 0:
        return constants.trivial * x
    reach = constants.epsilon * constants.sample
    logarithm = math.log(max(math.e, reach**2 * mu * constants.radius / (constants.dimension * constants.lipschitz)))
    return constants.lipschitz**2 / mu * x**2 * logarithm


def _strongly_convex(constants: Constants, population: bool) -> Prescription:
    x, n, mean = constants.price, constants.sample, constants.rows is not None
    scale = constants.lipschitz**2 / constants.strong_convexity
    statistical = 5 * scale / n if population else 0.0
    pure = constants.delta == 0
    if not constants.smooth:
        accuracy = scale / n * min(1 / n, n * x) if mean else scale * x
        source = "Corollary 4.1" if population else "Corollary 3.2" if mean else "Corollary 3.1"
        method, bound = "sgd" if mean else "subgradient", (9 if pure else 6) * scale * x
    else:
        condition = constants.smoothness / constants.strong_convexity
        accuracy = scale / n**2 * min(condition * (n * x) ** 2, 1)
        source = "Corollary 4.2" if population else "Corollary 3.4" if mean else "Corollary 3.3"
        method, bound = "katyusha" if mean else "agd", (26 if pure else 13.5) * condition * scale * x**2
    return Prescription(bound + statistical, accuracy, method, 0.0, 0.0, source)


def _convex(constants: Constants, population: bool) -> Prescription:
    x, n, mean, trivial = constants.price, constants.sample, constants.rows is not None, constants.trivial
    pure = constants.delta == 0
    if not constants.smooth:
        accuracy = trivial * x**1.5 / ((1 + n * x) ** 2 if mean and pure else 1)
        source = "Corollary 4.3" if population else "Corollary 3.6" if mean else "Corollary 3.5"
        method, bound = "sgd" if mean else "subgradient", (49 if pure else 25) * trivial * math.sqrt(x)
        bound = 32 * trivial * (math.sqrt(x) + 1 / math.sqrt(n)) if population else bound
    else:
        unit = math.cbrt(constants.smoothness * constants.lipschitz**2 * constants.radius**4)
        accuracy = min(trivial**2 / (unit * x ** (2 / 3) * n**2), unit * x ** (2 / 3))
        source = "Corollary 4.4" if population else "Corollary 3.8" if mean else "Corollary 3.7"
        method, bound = "katyusha" if mean else "agd", (65 if pure else 127) * unit * x ** (2 / 3)
        bound = 128 * unit * (x ** (2 / 3) + 1 / math.sqrt(n)) if population else bound
    return Prescription(bound, accuracy, method, 0.0, constants.added(population), source)


def _evaluations(constants: Constants, accuracy: float, method: str, added: float) -> float:
    """Return T for an accuracy, with lambda added to the objective."""
    mu, n = constants.strong_convexity + added, constants.sample
    slope, condition = constants.lipschitz + added * constants.radius, (constants.smoothness + added) / mu
    if method in ("subgradient", "sgd"):
        return math.ceil(2 * slope**2 / (mu * accuracy))
    if method == "agd":
        ratio = (constants.smoothness + added) * constants.radius**2 / accuracy
        return math.ceil(math.sqrt(condition) * max(1.0, math.log(ratio)))
    ratio = slope * constants.radius / accuracy
    return math.ceil((n + math.sqrt(n * condition)) * max(1.0, math.log(ratio)))
