"""What a method is, what it returns, and the registry of all methods.

A solver is registered by one decorator beside its code, which says everything there is to say about the method.
Estimators, the command line, the tables of the manual and the laws of the tests read the registry.

What the settings of every method declare: a type checker finds a method that lacks something.

The type of a setting says which values it takes: an interval, whole numbers, or a list of words. A settings class
annotates its fields with the aliases of this module, and `require_domains` checks every value against its annotation.
What relates two settings to each other stays with the class.
"""

from __future__ import annotations

import math
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..accounting import Currency
from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter, UnsupportedCost, require_finite, require_positive_integer
from ..minimisers import robust_loss
from ..problems import Loss, Need, Penalty, require_needs
from .paper_modes import PAPER_MODES, PAPERS, PaperMode
from .rules import Facts
from .sandwich_errors import Sandwich

#: Called with the share of the budget that is spent: a public number between 0 and 1.
Progress = Callable[[float], None]


def report(progress: Progress | None, share: float) -> None:
    """Say how much is spent or done, if anybody listens."""
    if progress is not None:
        progress(share)


@dataclass(frozen=True)
class SolverResult:
    """The weights that a solver returns.

    Every field is a function of released answers, so all of it may be published. ``remarks`` say what the method did
    to the rows or to the loss, for the privacy statement. ``noise_factor`` is provided by some methods. It is a
    matrix F of shape (d, m): the noise of privacy moves the weights of each output by about F times m independent
    standard normal numbers. ``column_evidence`` says of each feature by how many standard deviations of
    noise its released moments exceed those of a column that never varies. ``sandwich`` has the errors
    of sampling and privacy together, where they were bought. ``resume`` goes on where the method has stopped, with
    all that is left of the budget then, if it can.
    """

    weights: Floats
    iterations: int
    steps: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    noise_factor: Floats | None = field(default=None, kw_only=True)
    column_evidence: Floats | None = field(default=None, kw_only=True)
    sandwich: Sandwich | None = field(default=None, kw_only=True)
    resume: Callable[[], SolverResult] | None = field(default=None, kw_only=True, repr=False, compare=False)


@dataclass(frozen=True)
class Method:
    """A solver, the class of its settings, and what there is to know before one chooses it.

    Parameters
    ----------
    name : str
        Under which it is registered in `METHODS`.
    solver : callable
        Maps a curator, settings and a progress callback to a result.
    settings : type
        A concrete subclass of `Settings`; one that lacks something is found by the type checker.
    purpose : str
        What the method does and what it is for, in a line.
    passes : str
        How often a run reads the rows, in words.
    papers : tuple of str
        Keys of `PAPERS`; empty where no paper introduced the method.
    needs : frozenset of Need
        What it needs from a loss.
    private : bool
        Whether the answer is private at all.
    robust : bool
        Whether it minimises tilted and adversarial objectives.
    general : bool
        Whether it is meant for any table and convex loss: what a comparison of all methods compares.
    rereads : bool
        Whether it goes through the rows again and again for exact sums, so that it pays to store them well.
    gathers : bool
        Whether it needs all rows in one place, and not only sums over them.
    free_intercept : bool
        Whether its steps rest on an intercept that is not penalised.
    units : bool
        Whether its guarantee is proved for units of several rows (`dpdescent.curator.units`).
    """

    name: str
    solver: Callable[[Curator, Any, Progress | None], SolverResult]
    settings: type[Settings]
    purpose: str = ""
    passes: str = ""
    papers: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset()
    private: bool = True
    robust: bool = False
    general: bool = True
    rereads: bool = False
    gathers: bool = False
    free_intercept: bool = False
    units: bool = True

    @property
    def summary(self) -> str:
        """What it is, in a line."""
        return self.purpose.replace("`", "")

    def solve(self, curator: Curator, settings: Settings, progress: Progress | None = None) -> SolverResult:
        """Run the solver, after all that it needs from the problem and the ledger was found to be there.

        Raises
        ------
        UnsupportedLoss
            The loss lacks what the method needs; as for all of these, nothing is computed or charged.
        UnsupportedCost
            The ledger cannot pay for the mechanisms of the method in its currency.
        InvalidParameter
            The method leaves the tilt, the adversary, the penalty or the units of the problem out of account.
        """
        problem = curator.problem
        self.require(problem.loss, tilted=problem.tilt > 0, adversarial=problem.adversary is not None)
        self.require_penalty(problem.penalty)
        if self.private:
            settings.payment.require(self.name, curator.currency)
            self.require_units(curator.rows_per_unit)
        return self.solver(curator, settings, progress)

    def require(self, loss: Loss, *, tilted: bool = False, adversarial: bool = False) -> None:
        """Raise `UnsupportedLoss` unless the loss offers what this method needs; nothing is computed or charged."""
        require_needs(self.name, self.needs, loss)
        self.require_robust(tilted or adversarial)
        if tilted or adversarial:
            robust_loss(loss, self.name, adversarial)

    def require_robust(self, asked: bool) -> None:
        """Raise `InvalidParameter` if a tilt or an adversary is asked for that the method would leave out."""
        if asked and not self.robust:
            can = ", ".join(repr(name) for name in sorted(METHODS) if METHODS[name].robust)
            raise InvalidParameter(
                f"method {self.name!r} knows neither tilt nor adversary: choose the method {can}, or leave them out"
            )

    def require_penalty(self, penalty: Penalty) -> None:
        """Raise `InvalidParameter` unless the method can penalise what the penalty does; nothing is charged."""
        if Need.CONVEX in self.needs and not penalty.convex:
            raise InvalidParameter(
                f"method {self.name!r} needs a convex penalty, and {type(penalty).__name__} is none: use "
                "penalty='l2', or method 'opt'"
            )
        if self.free_intercept and penalty.weight and penalty.intercept:
            raise InvalidParameter(
                f"method {self.name!r} does not penalise the intercept: leave penalise_intercept out, or choose "
                "another method"
            )

    def require_units(self, rows_per_unit: int) -> None:
        """Raise `InvalidParameter` unless the method can protect units of so many rows; nothing is charged."""
        if rows_per_unit > 1 and not self.units:
            raise InvalidParameter(
                f"method {self.name!r} is proved for single rows and not for {rows_per_unit} rows of a unit: use "
                "rows_per_unit=1, or method 'auto'"
            )


#: Every method by its name, in alphabetical order.
METHODS: dict[str, Method] = {}

_Solver = TypeVar("_Solver", bound=Callable[..., SolverResult])


def method(
    name: str, settings: type[Settings], *, purpose: str, passes: str, papers: tuple[str, ...] = (), **traits: Any
) -> Callable[[_Solver], _Solver]:
    """Register the solver that follows as a method; parameters and ``traits`` are the fields of `Method`.

    A solver that runs several methods, as their settings say, is decorated several times.

    Raises
    ------
    InvalidParameter
        A paper is not listed in `PAPERS`: add its citation there, by author and year.
    """
    unknown = [paper for paper in papers if paper not in PAPERS]
    if unknown:
        raise InvalidParameter(
            f"method {name!r} is from {unknown[0]!r}, which PAPERS does not list: add its citation"
        )

    def register(solver: _Solver) -> _Solver:
        METHODS[name] = Method(name, solver, settings, purpose, passes, papers, **traits)
        for each in sorted(METHODS):
            METHODS[each] = METHODS.pop(each)
        return solver

    return register


_LEAST, _LARGEST = 1e-200, 1e200  # numbers beyond them would overflow in the middle of a run, after a charge


@dataclass(frozen=True)
class Payment:
    """Which ledgers can pay for a method."""

    mechanism: str  # what the method depends on, in words
    currencies: tuple[str, ...]  # those in which its plan has a price
    #: For other currencies, a setting that helps.
    remedies: Mapping[str, str] = field(default_factory=dict)

    def require(self, method: str, currency: Currency) -> None:
        """Raise `UnsupportedCost` unless a ledger of that currency can pay for the method; nothing is charged."""
        kept = currency.name
        if kept not in self.currencies:
            can = " or ".join(repr(each) for each in self.currencies)
            remedy = f", or {self.remedies[kept]}" if kept in self.remedies else ""
            raise UnsupportedCost(
                f"method {method!r} uses {self.mechanism}, for which a ledger in the currency {kept!r} cannot pay: "
                f"open the ledger with currency {can}{remedy}"
            )


GAUSSIAN_NOISE = Payment("Gaussian noise", ("gdp", "zcdp", "rdp"))


@dataclass(frozen=True)
class Settings(ABC):
    """The settings of a method: a frozen dataclass whose fields have defaults for every table.

    A field's type declares its domain (`require_domains`); ``__post_init__`` of a subclass holds what
    relates settings to each other.

    Parameters
    ----------
    paper : bool
        Take what a paper states for every setting that is not given (`dpdescent.solvers.paper_modes`).
    """

    paper: bool = field(default=False, kw_only=True)

    #: What ``paper`` stands for, named in the class statement; None where none of the papers describes the method.
    paper_mode: ClassVar[PaperMode | None] = None
    #: Values of settings that neither the caller nor a paper has given.
    rest: ClassVar[Mapping[str, object]] = {}

    def __init_subclass__(cls, paper_mode: str | None = None) -> None:
        """Take the paper mode of that name, and say in the docstring where it differs from the paper."""
        super().__init_subclass__()
        if paper_mode is not None:
            cls.paper_mode = PAPER_MODES[paper_mode]
        if cls.paper_mode is not None and cls.paper_mode.differences and cls.__doc__:
            said = "\n".join(f"    - {each}" for each in cls.paper_mode.differences)
            head = f"    Notes\n    -----\n    With ``paper`` it differs from {cls.paper_mode.paper} on purpose:"
            cls.__doc__ = f"{cls.__doc__.rstrip()}\n\n{head}\n\n{said}\n    "

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, float) and math.isfinite(value) and value and not _LEAST <= abs(value) <= _LARGEST:
                raise InvalidParameter(f"{each.name} must lie between 1e-200 and 1e200 in size, got {value!r}")
        if self.paper and self.paper_mode is None:
            raise InvalidParameter("none of the papers describes this method: leave the setting paper out")
        if self.paper and self.paper_mode is not None:
            self.fill(self.paper_mode.values)
        self.fill(self.rest)
        require_domains(self)

    def fill(self, values: Mapping[str, object]) -> None:
        """Set every setting that was not given to its value in ``values``."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @abstractmethod
    def choose_currency(self, facts: Facts) -> str | Currency:
        """Return the currency in which a run is filtered, from what is public before it."""

    @property
    def batch_rate(self) -> float:
        """Share of the rows that answer a query which brings no batch of its own."""
        return 1.0

    @property
    def fixed_noise(self) -> bool:
        """Whether the noise follows from epsilon and delta alone, so that nothing may be spent before the run."""
        return False

    @property
    def payment(self) -> Payment:
        """Which ledgers can pay for a run."""
        return GAUSSIAN_NOISE


@dataclass(frozen=True)
class Within:
    """An interval of numbers; an end that is not ``closed`` is left out."""

    low: float
    high: float = float("inf")
    closed: Literal["both", "low", "high", "neither"] = "both"
    remedy: str = ""  # what to do about a value outside of it, for the message

    def require(self, name: str, value: Any) -> None:
        """Raise `InvalidParameter` unless the value lies in the interval."""
        number = require_finite(name, value)
        above = self.low <= number if self.closed in ("both", "low") else self.low < number
        below = number <= self.high if self.closed in ("both", "high") else number < self.high
        if not (above and below):
            raise InvalidParameter(f"{name} must {self}, got {value!r}{self.remedy and f': {self.remedy}'}")

    def __str__(self) -> str:
        if self.high == float("inf"):
            return f"be {'at least' if self.closed in ('both', 'low') else 'above'} {self.low:g}"
        opened = "[" if self.closed in ("both", "low") else "("
        ended = "]" if self.closed in ("both", "high") else ")"
        return f"lie in {opened}{_write(self.low)}, {_write(self.high)}{ended}"


def _write(end: float) -> str:
    """Return an end of an interval as a person would write it: large powers of two as such."""
    exponent = math.frexp(end)[1] - 1
    return f"2^{exponent}" if end == math.ldexp(1.0, exponent) and abs(exponent) > 20 else f"{end:g}"


_MODERATE = 2.0**200

#: A whole number of at least 1.
Count = Annotated[int, Within(1)]
#: A number above 0.
Positive = Annotated[float, Within(0, closed="neither")]
#: A number of a size that no later query refuses.
Moderate = Annotated[float, Within(1 / _MODERATE, _MODERATE, remedy="choose other units")]
#: Strictly between 0 and 1.
Part = Annotated[float, Within(0, 1, "neither")]
#: At least 0 and below 1.
Share = Annotated[float, Within(0, 1, "low")]
#: Above 0 and at most 1.
Fraction = Annotated[float, Within(0, 1, "high")]
#: A share of the rows that a batch can have.
Rate = Annotated[float, Within(2.0**-30, 1)]


def require_domains(settings: Any) -> None:
    """Raise `InvalidParameter` unless every field of a settings object lies in the domain that its type declares."""
    for name, domain in _domains(type(settings)).items():
        value = getattr(settings, name)
        if not (value is None and domain.optional):
            domain.require(name, value)


@dataclass(frozen=True)
class _Domain:
    words: tuple[str, ...]
    interval: Within | None
    whole: bool
    optional: bool

    def require(self, name: str, value: Any) -> None:
        if self.words and value not in self.words:
            listed = [repr(each) for each in self.words]
            raise InvalidParameter(f"{name} must be {', '.join(listed[:-1])} or {listed[-1]}, got {value!r}")
        if self.whole:
            require_positive_integer(name, value)
        if self.interval is not None:
            self.interval.require(name, value)


_KNOWN: dict[type, Mapping[str, _Domain]] = {}


def _domains(cls: type) -> Mapping[str, _Domain]:
    if cls not in _KNOWN:
        found = {name: _domain(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
        _KNOWN[cls] = {name: each for name, each in found.items() if each.words or each.interval is not None}
    return _KNOWN[cls]


def _domain(hint: Any) -> _Domain:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = type(None) in parts
    words = tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))
    marked = [get_args(part) for part in parts if get_origin(part) is Annotated]
    intervals = [mark for _, *marks in marked for mark in marks if isinstance(mark, Within)]
    return _Domain(words, intervals[0] if intervals else None, any(base is int for base, *_ in marked), optional)
