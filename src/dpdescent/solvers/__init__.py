"""Solvers: each is a function of a curator and its own settings, and reads like the pseudo-code of its paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..curator import Curator
from ..errors import InvalidParameter
from ..minimisers import robust_loss
from ..problems import Loss, Need, Penalty, require_needs
from .adam import AdamSettings, adam
from .agd import AGDSettings, agd
from .auto import AutoSettings, auto
from .blsgd import BLGDSettings, BLSGDACSettings, BLSGDSettings, blsgd
from .descriptions import DESCRIPTIONS, PAPERS, Description
from .expmech import ExpMechSettings, expmech
from .ftrl import FTRLSettings, ftrl
from .majority import MajoritySettings, majority
from .noisy_gradient import NoisyGradientSettings, noisy_gradient
from .nonprivate import NonPrivateSettings, nonprivate
from .objpert import ObjPertSettings, objpert
from .outpert import OutPertSettings, outpert
from .outpert_gd import OutPertGDSettings, outpert_gd
from .outpert_robust import RobustOutPertSettings, outpert_robust
from .outpert_rsgd import OutPertRSGDSettings, outpert_rsgd
from .paper_modes import PAPER_MODES, PaperMode
from .privgene import PrivGeneSettings, privgene
from .result import Facts, Progress, SolverResult
from .second_order import SecondOrderResult, minimum_rows, second_order
from .second_order_settings import (
    OPTBSettings,
    OPTLSSettings,
    OPTSettings,
    TwoPhaseBSettings,
    TwoPhaseLSSettings,
    TwoPhaseSettings,
)
from .settings import Payment, Settings
from .sgd import SGDSettings, sgd
from .sgd_adv import SGDAdvSettings, sgd_adv
from .svrg import SVRGSettings, svrg
from .trust_region import TrustRegionSettings, trust_region

__all__ = [
    "METHODS",
    "PAPERS",
    "PAPER_MODES",
    "AGDSettings",
    "AdamSettings",
    "AutoSettings",
    "BLGDSettings",
    "BLSGDACSettings",
    "BLSGDSettings",
    "Description",
    "ExpMechSettings",
    "FTRLSettings",
    "Facts",
    "MajoritySettings",
    "Method",
    "NoisyGradientSettings",
    "NonPrivateSettings",
    "OPTBSettings",
    "OPTLSSettings",
    "OPTSettings",
    "ObjPertSettings",
    "OutPertGDSettings",
    "OutPertRSGDSettings",
    "OutPertSettings",
    "PaperMode",
    "Payment",
    "PrivGeneSettings",
    "Progress",
    "RobustOutPertSettings",
    "SGDAdvSettings",
    "SGDSettings",
    "SVRGSettings",
    "SecondOrderResult",
    "Settings",
    "SolverResult",
    "TrustRegionSettings",
    "TwoPhaseBSettings",
    "TwoPhaseLSSettings",
    "TwoPhaseSettings",
    "adam",
    "agd",
    "auto",
    "blsgd",
    "expmech",
    "ftrl",
    "majority",
    "minimum_rows",
    "noisy_gradient",
    "nonprivate",
    "objpert",
    "outpert",
    "outpert_gd",
    "outpert_robust",
    "outpert_rsgd",
    "privgene",
    "second_order",
    "sgd",
    "sgd_adv",
    "svrg",
    "trust_region",
]


@dataclass(frozen=True)
class Method:
    """A solver and the class of its settings.

    Parameters
    ----------
    solver : callable
        Maps a curator, settings and a progress callback to a result.
    settings : type
        A concrete subclass of `Settings`; one that lacks something is found by the type checker.
    private : bool
        Whether the answer is private at all.
    robust : bool
        Whether it minimises tilted and adversarial objectives.
    general : bool
        Whether it is meant for any table and convex loss: what a comparison of all methods compares.
    passes : bool
        Whether it goes through the rows again and again for exact sums, so that it pays to store them well.
    gathers : bool
        Whether it needs all rows in one place, and not only sums over them.
    free_intercept : bool
        Whether its steps rest on an intercept that is not penalised.
    units : bool
        Whether its guarantee is proved for units of several rows (`dpdescent.curator.units`).
    needs : frozenset of Need
        What it needs from a loss.
    name : str
        Under which it is registered in `METHODS`.
    description : Description, optional
        The method in words, for lists of methods.
    """

    solver: Callable[[Curator, Any, Progress | None], SolverResult]
    settings: type[Settings]
    private: bool = True
    robust: bool = False
    general: bool = True
    passes: bool = False
    gathers: bool = False
    free_intercept: bool = False
    units: bool = True
    needs: frozenset[Need] = frozenset()
    name: str = ""
    description: Description | None = None

    @property
    def summary(self) -> str:
        """What it is, in a line."""
        return "" if self.description is None else self.description.purpose.replace("`", "")

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


_CERTIFIED = frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.CERTIFICATE})
_MINIMISER = frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.SMOOTH})
_STATIONARY = frozenset({Need.ONE_MARGIN, Need.BOUNDED_SLOPE, Need.SMOOTH, Need.SMOOTH_CURVATURE, Need.LARGEST_LOSS})


def _to_second_order(
    solve: Callable[[Curator, Any, Progress | None], SolverResult], settings: type[Settings], passes: bool = True
) -> Method:
    return Method(solve, settings, general=False, passes=passes, needs=_STATIONARY)


_REGISTERED = {
    "2opt": _to_second_order(second_order, TwoPhaseSettings),
    "2opt-b": _to_second_order(second_order, TwoPhaseBSettings),
    "2opt-ls": _to_second_order(second_order, TwoPhaseLSSettings),
    "adam": Method(adam, AdamSettings, passes=True),
    "agd": Method(agd, AGDSettings, passes=True),
    "auto": Method(auto, AutoSettings, passes=True, free_intercept=True),
    "blgd": Method(blsgd, BLGDSettings, passes=True),
    "blsgd": Method(blsgd, BLSGDSettings, passes=True),
    "blsgd-ac": Method(blsgd, BLSGDACSettings, passes=True),
    "dp-gd": _to_second_order(noisy_gradient, NoisyGradientSettings),
    "dp-tr": _to_second_order(trust_region, TrustRegionSettings, passes=False),
    "expmech": Method(expmech, ExpMechSettings, general=False, gathers=True, needs=_MINIMISER | {Need.ONE_MARGIN}),
    "ftrl": Method(ftrl, FTRLSettings, passes=True),
    "majority": Method(majority, MajoritySettings, needs=frozenset({Need.CONSTANT})),
    "nonprivate": Method(nonprivate, NonPrivateSettings, private=False),
    "objpert": Method(objpert, ObjPertSettings, gathers=True, units=False, needs=_MINIMISER | {Need.CORNERS}),
    "opt": _to_second_order(second_order, OPTSettings),
    "opt-b": _to_second_order(second_order, OPTBSettings),
    "opt-ls": _to_second_order(second_order, OPTLSSettings),
    "outpert": Method(outpert_robust, RobustOutPertSettings, robust=True, gathers=True, needs=_CERTIFIED),
    "outpert-gd": Method(outpert_gd, OutPertGDSettings, gathers=True, needs=_MINIMISER),
    "outpert-rsgd": Method(outpert_rsgd, OutPertRSGDSettings, gathers=True, units=False, needs=_MINIMISER),
    "privgene": Method(privgene, PrivGeneSettings),
    "sgd": Method(sgd, SGDSettings, passes=True),
    "sgd-adv": Method(sgd_adv, SGDAdvSettings),
    "svrg": Method(svrg, SVRGSettings, passes=True),
}

#: Every method by its name.
METHODS = {name: replace(method, name=name, description=DESCRIPTIONS[name]) for name, method in _REGISTERED.items()}
