"""Solvers: each is a function of a curator and its own settings, and reads like the pseudo-code of its paper.

A solver registers itself (`method`), so that a file in this package is all that a new one takes. The docstrings cite
papers by author and year, as `PAPERS` lists them.
"""

from importlib import import_module
from pkgutil import iter_modules

from .agd import AGDSettings as AGDSettings, agd as agd
from .auto import AutoSettings as AutoSettings, auto as auto
from .backtracking import batch_rates as batch_rates
from .baselines import (
    MajoritySettings as MajoritySettings,
    NonPrivateSettings as NonPrivateSettings,
    OutPertGDSettings as OutPertGDSettings,
    OutPertRSGDSettings as OutPertRSGDSettings,
    PrivGeneSettings as PrivGeneSettings,
    majority as majority,
    nonprivate as nonprivate,
    outpert_gd as outpert_gd,
    outpert_rsgd as outpert_rsgd,
    privgene as privgene,
)
from .blsgd import (
    BLGDSettings as BLGDSettings,
    BLSGDACSettings as BLSGDACSettings,
    BLSGDSettings as BLSGDSettings,
    blsgd as blsgd,
)
from .descent_baselines import (
    FTRLSettings as FTRLSettings,
    SGDAdvSettings as SGDAdvSettings,
    SVRGSettings as SVRGSettings,
    ftrl as ftrl,
    sgd_adv as sgd_adv,
    svrg as svrg,
)
from .expmech import ExpMechSettings as ExpMechSettings, expmech as expmech
from .inferring import inferring_method as inferring_method
from .method import (
    METHODS as METHODS,
    Method as Method,
    Payment as Payment,
    Progress as Progress,
    Settings as Settings,
    SolverResult as SolverResult,
    method as method,
)
from .objective_perturbation import ObjPertSettings as ObjPertSettings, objpert as objpert
from .output_noise import price_of_privacy as price_of_privacy, regularisation as regularisation
from .output_perturbation import OutPertSettings as OutPertSettings, outpert as outpert
from .paper_modes import PAPER_MODES as PAPER_MODES, PAPERS as PAPERS, PaperMode as PaperMode
from .rules import Facts as Facts
from .sandwich_errors import Sandwich as Sandwich
from .second_order import (
    SecondOrderResult as SecondOrderResult,
    minimum_rows as minimum_rows,
    second_order as second_order,
)
from .second_order_rivals import (
    NoisyGradientSettings as NoisyGradientSettings,
    TrustRegionSettings as TrustRegionSettings,
    noisy_gradient as noisy_gradient,
    trust_region as trust_region,
)
from .second_order_settings import (
    OPTBSettings as OPTBSettings,
    OPTLSSettings as OPTLSSettings,
    OPTSettings as OPTSettings,
    TwoPhaseBSettings as TwoPhaseBSettings,
    TwoPhaseLSSettings as TwoPhaseLSSettings,
    TwoPhaseSettings as TwoPhaseSettings,
)
from .sgd import AdamSettings as AdamSettings, SGDSettings as SGDSettings, adam as adam, sgd as sgd

for _room in iter_modules(__path__):
    if not _room.name.startswith("leaf_"):  # trees, which are no method
        import_module(f"{__name__}.{_room.name}")  # methods of files that are not named above
