"""Tables 1 to 6 of Lowy & Razaviyayn (2021) as data: classes of functions, bounds, and who claims them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .risk_problems import CONVEX, SMOOTH_CONVEX, SMOOTH_STRONG, STRONG
from .theorems import Constants, exponential_bound, lower_bound, prescription

Bound = Callable[[Constants], float]

#: In place of a registered method: `dpdescent.curator.phased_minimiser`, and `dpdescent.curator.drawn_minimiser`.
PHASED, DRAWN = "phased", "drawn"


@dataclass(frozen=True)
class RiskRow:
    """A row of a table."""

    kind: str  # the class of functions
    reference: str  # who states the bound
    #: The bound and the running time as printed, x being the price of privacy of the page's caption.
    formula: str
    runtime: str
    bound: Bound  # the value of the bound; one of a rival is up to its constant and logarithms
    #: The registered method that is measured, `PHASED` or `DRAWN`; empty if there is none.
    method: str = ""
    minimiser: str = ""  # for output perturbation, the method that is tried first
    #: Measured once for its running time, because single rows are visited one after another.
    timed_only: bool = False
    #: Repetitions of a quick and of a full run, at most, where a run takes seconds.
    most_seeds: tuple[int, int] = (1000, 1000)
    middle_only: bool = False  # whether a quick run has the middle values of n, d and epsilon only
    tilted: bool = False  # the tilted loss
    remark: str = ""  # why nothing is measured, or what differs

    @property
    def ours(self) -> bool:
        """Whether the row is one of the paper's own."""
        return self.method == "outpert"

    @property
    def measured_on(self) -> str:
        """The class of the problem that it is measured on."""
        return SMOOTH_STRONG if self.method == "expmech" else self.kind

    @property
    def name(self) -> str:
        """What a line of a picture is called."""
        return f"{self.reference} ({self.minimiser})" if self.timed_only else self.reference


@dataclass(frozen=True)
class RiskTable:
    """A table of bounds."""

    name: str
    title: str
    mean: bool  # whether the functions are means over rows
    population: bool  # whether the bounds are about the population
    delta: float  # 0, or that of Gaussian noise
    rows: tuple[RiskRow, ...]
    #: Three values each of n, d and epsilon; one is varied while the others have their middle value.
    sizes: tuple[int, int, int] = (1000, 4000, 16000)
    dimensions: tuple[int, int, int] = (2, 4, 8)
    epsilons: tuple[float, float, float] = (0.25, 1.0, 4.0)
    #: Those of functions that are no means, whose bounds say nothing unless epsilon is many times d.
    general_dimensions: tuple[int, int, int] = (1, 2, 4)
    general_epsilons: tuple[float, float, float] = (64.0, 512.0, 4096.0)
    #: Repetitions.
    quick_seeds: int = 12
    full_seeds: int = 200


def _prescribed(constants: Constants) -> float:
    return prescription(constants).bound


def _prescribed_population(constants: Constants) -> float:
    return prescription(constants, population=True).bound


def _lower_population(constants: Constants) -> float:
    return lower_bound(constants, population=True)


def _scale(constants: Constants) -> float:
    return constants.lipschitz**2 / constants.strong_convexity


def _condition(constants: Constants) -> float:
    return constants.smoothness / constants.strong_convexity


def _near_optimal(constants: Constants) -> float:
    """L^2/mu x^2: noisy SGD, noisy SVRG and objective perturbation."""
    return _scale(constants) * constants.price**2


def _near_optimal_population(constants: Constants) -> float:
    return _near_optimal(constants) + _scale(constants) / constants.sample


def _linear_population(constants: Constants) -> float:
    return _scale(constants) * (constants.price + 1 / constants.sample)


def _kifer(constants: Constants) -> float:
    reach = constants.smoothness * constants.radius**2
    return _near_optimal(constants) + reach / (constants.epsilon * constants.sample)


def _zhang(constants: Constants) -> float:
    return _condition(constants) * _near_optimal(constants)


def _zhang_population(constants: Constants) -> float:
    return _zhang(constants) + _scale(constants) / constants.sample


def _zhang_convex(constants: Constants) -> float:
    unit = math.cbrt(constants.smoothness * constants.lipschitz**2 * constants.radius**4)
    return float(unit * constants.price ** (2 / 3))


def _linear(constants: Constants) -> float:
    return constants.trivial * constants.price


def _chaudhuri_population(constants: Constants) -> float:
    x, n = constants.price, constants.sample
    return constants.trivial * (1 / math.sqrt(n) + x) + constants.smoothness * constants.radius**2 * x


def _bassily_population(constants: Constants) -> float:
    return constants.trivial**2 * (math.sqrt(constants.price) + 1 / math.sqrt(constants.sample))


_SAMPLER = "measured on the smooth problem, which the exact sampler needs"
_ON_A_GRID = "drawn from 65,536 points of a box at most, and again around the point that was drawn, two to five times"
_RULE = "steps follow the default rule of the method, which is made for the scores of classes"
_UNKNOWN = "no sampler is known for general functions"
_SQUARED = "printed with C, proved with C²"
_CHAUDHURI, _ZHANG, _BASSILY = "Chaudhuri et al. 2011", "Zhang et al. 2017", "Bassily et al. 2014"
_ACCELERATED = "Õ(d (n + √(nκ)))"
_ROOTS = "Õ(nd + n^⅚ d^⅔ ε^⅓ (βR/L)^⅓)"


def _sampled(formula: str, runtime: str, bound: Bound) -> RiskRow:
    """Return the row of the exponential mechanism after localization."""
    return RiskRow(
        STRONG, _BASSILY, formula, runtime, bound, "expmech", most_seeds=(3, 20), middle_only=True, remark=_SAMPLER
    )


def _drawn(formula: str, bound: Bound) -> RiskRow:
    """Return the row of the exponential mechanism where the loss has a kink."""
    return RiskRow(CONVEX, _BASSILY, formula, "Õ(R²d⁶n³ max(d, εnR))", bound, DRAWN, remark=_ON_A_GRID)


def _noisy_descent(formula: str, runtime: str, bound: Bound) -> RiskRow:
    """Return the row of noisy SGD, whose steps are many."""
    return RiskRow(SMOOTH_STRONG, _BASSILY, formula, runtime, bound, "sgd-adv", most_seeds=(3, 50), remark=_RULE)


def _ours(kind: str, reference: str, formula: str, runtime: str, population: bool) -> tuple[RiskRow, ...]:
    """Return a row of the paper's own: measured with the default minimiser, and timed with the paper's."""
    bound = _prescribed_population if population else _prescribed
    slow = "katyusha" if kind in (SMOOTH_STRONG, SMOOTH_CONVEX) else "sgd"
    return (
        RiskRow(kind, reference, formula, runtime, bound, "outpert", "lbfgs"),
        RiskRow(kind, reference, formula, runtime, bound, "outpert", slow, timed_only=True),
    )


def _lower(kind: str, population: bool = False) -> RiskRow:
    strong = kind in (STRONG, SMOOTH_STRONG)
    formula = "Ω(L R min(1, x²))" if strong else "Ω(L R min(1, x))"
    if population:
        formula += " + L²/(μn)" if strong else " + L R/√n"
    bound = _lower_population if population else lower_bound
    return RiskRow(kind, "lower bound", formula, "", bound)


def _general(pure: bool) -> tuple[RiskRow, ...]:
    def row(kind: str, reference: str, formula: str, runtime: str, tilted: bool = False, remark: str = "") -> RiskRow:
        minimiser = "agd" if kind in (SMOOTH_STRONG, SMOOTH_CONVEX) else "subgradient"
        return RiskRow(
            kind, reference, formula, runtime, _prescribed, "outpert", minimiser, tilted=tilted, remark=remark
        )

    smooth, tilted = "13.5", "O(nd max(n²/C, 1/x)/C)"
    if pure:
        smooth, tilted = "26", "O(n²d max(d/ε, n/C)/C)"
    exponential = (
        RiskRow(STRONG, "Proposition G.2", "Õ(L²x²/μ)", "not given", exponential_bound, remark=_UNKNOWN),
        RiskRow(CONVEX, "Theorem G.1", "O(L R x)", "not given", exponential_bound, remark=_UNKNOWN),
    )
    return (
        *(exponential[:1] if pure else ()),
        row(STRONG, "Corollary 3.1", f"{9 if pure else 6} L²x/μ", "O(nε)" if pure else "Õ(n√(εd))"),
        row(SMOOTH_STRONG, "Corollary 3.3", f"{smooth} κL²x²/μ", "Õ(nd√κ)"),
        *(exponential[1:] if pure else ()),
        row(CONVEX, "Corollary 3.5", f"{49 if pure else 25} L R √x", "O(nε²/d)" if pure else "O(nε)"),
        row(SMOOTH_CONVEX, "Corollary 3.7", f"{65 if pure else 127} (βL²R⁴x²)^⅓", "Õ(nd (βR/(Lx))^⅓)"),
        row(STRONG, "Theorem 5.1", "9 L²Cx/μ", tilted, tilted=True),
        row(SMOOTH_STRONG, "Theorem 5.2", f"{smooth} κ_τ L²C²x²/μ", "Õ(nd√κ_τ)", tilted=True, remark=_SQUARED),
    )


_POPULATION_PURE = (
    _sampled("Õ(L²/μ (x + 1/n))", "O(L²nd⁹/(με)² max(1, L/μ))", _linear_population),
    *_ours(STRONG, "Corollary 4.1", "L²/μ (9x + 5/n)", "O(nd max(n, ε/d))", True),
    _lower(STRONG, True),
    RiskRow(SMOOTH_STRONG, _CHAUDHURI, "Õ(L R (1/√n + x) + βR²x)", "not given", _chaudhuri_population, "objpert"),
    RiskRow(SMOOTH_STRONG, _ZHANG, "O(L²/μ (κx² + 1/n))", "Õ(dnκ)", _zhang_population, "outpert-gd"),
    *_ours(SMOOTH_STRONG, "Corollary 4.2", "L²/μ (26 κx² + 5/n)", _ACCELERATED, True),
    _drawn("Õ((L R)² (√x + 1/√n))", _bassily_population),
    *_ours(CONVEX, "Corollary 4.3", "32 L R (√x + 1/√n)", "O(n²d max(1, (ε/d)²))", True),
    _lower(CONVEX, True),
    *_ours(SMOOTH_CONVEX, "Corollary 4.4", "128 (βL²R⁴)^⅓ (x^⅔ + 1/√n)", _ROOTS, True),
)
_POPULATION_GAUSSIAN = (
    _noisy_descent("Õ(L²/μ (x + 1/n))", "O(n²d)", _linear_population),
    RiskRow(SMOOTH_STRONG, _ZHANG, "O(L²/μ (κx² + 1/n))", "Õ(κnd)", _zhang_population, "outpert-gd"),
    RiskRow(
        SMOOTH_STRONG, "Feldman et al. 2020", "O(L²/μ (x² + 1/n))", "Õ(nd)", _near_optimal_population, PHASED, "lbfgs"
    ),
    *_ours(SMOOTH_STRONG, "Corollary 4.2", "L²/μ (13.5 κx² + 5/n)", _ACCELERATED, True),
    _lower(SMOOTH_STRONG, True),
)
_EMPIRICAL_PURE = (
    _sampled("Õ(L²x²/μ)", "O(L²d⁹/(με)² max(1, L/μ) + max(dn², εn))", exponential_bound),
    *_ours(STRONG, "Corollary 3.2", "9 L²x/μ", "O(max(dn², εn))", False),
    _lower(STRONG),
    RiskRow(SMOOTH_STRONG, _CHAUDHURI, "Õ(L²x²/μ)", "not given", _near_optimal, "objpert"),
    RiskRow(SMOOTH_STRONG, _ZHANG, "O(κL²x²/μ)", "Õ(κnd)", _zhang, "outpert-gd"),
    *_ours(SMOOTH_STRONG, "Corollary 3.4", "26 κL²x²/μ", _ACCELERATED, False),
    _lower(SMOOTH_STRONG),
    _drawn("Õ(L R x)", exponential_bound),
    *_ours(CONVEX, "Corollary 3.6", "49 L R √x", "O(n²d max(1, (ε/d)²))", False),
    _lower(CONVEX),
    RiskRow(SMOOTH_CONVEX, _CHAUDHURI, "Õ(L R x)", "not given", _linear, "objpert"),
    RiskRow(SMOOTH_CONVEX, _ZHANG, "O((βL²R⁴x²)^⅓)", "O(n^(5/3) d^⅓ (εβR/L)^⅔)", _zhang_convex, "outpert-gd"),
    *_ours(SMOOTH_CONVEX, "Corollary 3.8", "65 (βL²R⁴x²)^⅓", _ROOTS, False),
)
_EMPIRICAL_GAUSSIAN = (
    RiskRow(SMOOTH_STRONG, "Kifer et al. 2012", "O(L²x²/μ + βR²/(εn))", "not given", _kifer, "objpert"),
    _noisy_descent("Õ(L²x²/μ)", "Õ(dn²)", _near_optimal),
    RiskRow(
        SMOOTH_STRONG,
        "Wang et al. 2017",
        "Õ(L²x²/μ)",
        "Õ(d (n + κ))",
        _near_optimal,
        "svrg",
        most_seeds=(3, 50),
        remark=_RULE,
    ),
    RiskRow(SMOOTH_STRONG, _ZHANG, "O(κL²x²/μ)", "Õ(κnd)", _zhang, "outpert-gd"),
    *_ours(SMOOTH_STRONG, "Corollary 3.4", "13.5 κL²x²/μ", _ACCELERATED, False),
    _lower(SMOOTH_STRONG),
)

_OF = "of Lowy & Razaviyayn (2021):"
_DELTA = 1e-6
RISK_TABLES = (
    RiskTable("001/table1", f"Table 1 {_OF} general losses, pure privacy", False, False, 0.0, _general(True)),
    RiskTable("001/table2", f"Table 2 {_OF} general losses, Gaussian noise", False, False, _DELTA, _general(False)),
    RiskTable("001/table3", f"Table 3 {_OF} population loss, pure privacy", True, True, 0.0, _POPULATION_PURE),
    RiskTable(
        "001/table4", f"Table 4 {_OF} population loss, Gaussian noise", True, True, _DELTA, _POPULATION_GAUSSIAN
    ),
    RiskTable("001/table5", f"Table 5 {_OF} empirical risk, pure privacy", True, False, 0.0, _EMPIRICAL_PURE),
    RiskTable(
        "001/table6", f"Table 6 {_OF} empirical risk, Gaussian noise", True, False, _DELTA, _EMPIRICAL_GAUSSIAN
    ),
)
