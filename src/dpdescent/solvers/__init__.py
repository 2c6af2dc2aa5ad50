"""Solvers: each is a function of a curator and its own settings, and reads like the pseudo-code of its paper.

A solver registers itself (`method`), so that a file in this package is all that a new one takes. The docstrings cite
papers by author and year, as `PAPERS` lists them.
"""

from importlib import import_module
from pkgutil import iter_modules

from .agd import AGDSettings, agd
from .auto import AutoSettings, auto
from .backtracking import batch_rates
from .baselines import (
    MajoritySettings,
    NonPrivateSettings,
    OutPertGDSettings,
    OutPertRSGDSettings,
    PrivGeneSettings,
    majority,
    nonprivate,
    outpert_gd,
    outpert_rsgd,
    privgene,
)
from .blsgd import BLGDSettings, BLSGDACSettings, BLSGDSettings, blsgd
from .descent_baselines import FTRLSettings, SGDAdvSettings, SVRGSettings, ftrl, sgd_adv, svrg
from .expmech import ExpMechSettings, expmech
from .inferring import inferring_method
from .method import METHODS, Method, Payment, Progress, Settings, SolverResult, method
from .objective_perturbation import ObjPertSettings, objpert
from .output_noise import price_of_privacy, regularisation
from .output_perturbation import OutPertSettings, outpert
from .paper_modes import PAPER_MODES, PAPERS, PaperMode
from .rules import Facts
from .sandwich_errors import Sandwich
from .second_order import SecondOrderResult, minimum_rows, second_order
from .second_order_rivals import NoisyGradientSettings, TrustRegionSettings, noisy_gradient, trust_region
from .second_order_settings import (
    OPTBSettings,
    OPTLSSettings,
    OPTSettings,
    TwoPhaseBSettings,
    TwoPhaseLSSettings,
    TwoPhaseSettings,
)
from .sgd import AdamSettings, SGDSettings, adam, sgd

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
    "SGDAdvSettings",
    "SGDSettings",
    "SVRGSettings",
    "Sandwich",
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
    "batch_rates",
    "blsgd",
    "expmech",
    "ftrl",
    "inferring_method",
    "majority",
    "method",
    "minimum_rows",
    "noisy_gradient",
    "nonprivate",
    "objpert",
    "outpert",
    "outpert_gd",
    "outpert_rsgd",
    "price_of_privacy",
    "privgene",
    "regularisation",
    "second_order",
    "sgd",
    "sgd_adv",
    "svrg",
    "trust_region",
]

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")  # methods of files that are not named above
