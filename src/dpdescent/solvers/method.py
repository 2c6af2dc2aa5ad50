"""What a method is, what it returns, and the registry of all methods.

A solver is registered by one decorator beside its code, which says everything there is to say about the method.
Estimators, the command line, the tables of the manual and the laws of the tests read the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter
from ..minimisers import robust_loss
from ..problems import Loss, Need, Penalty, require_needs
from .method_settings import Settings
from .paper_modes import PAPERS

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
    noise its released moments exceed those of a column that never varies.
    """

    weights: Floats
    iterations: int
    steps: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    noise_factor: Floats | None = field(default=None, kw_only=True)
    column_evidence: Floats | None = field(default=None, kw_only=True)


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
