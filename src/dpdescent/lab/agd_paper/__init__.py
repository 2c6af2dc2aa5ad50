"""Lee & Kifer (2018), DP-AGD: the figures and tables of the paper as data."""

from __future__ import annotations

from ..claims import ends_cost, gap_to_nonprivate, leads_above, level, standing, steadiness
from ..fold_fits import Task
from ..method_looks import paper_differences
from ..paper_figures import (
    COUNTED,
    FOUR,
    HINGE,
    INTERCEPT,
    LADDER,
    MODES,
    NO_US,
    STAND_IN,
    DataTable,
    Figure,
    Parameter,
    Published,
    Scale,
)
from ..verdicts import Claim
from .noisy_descent import Trace

__all__ = ["AGD_FIGURES"]

_RIVALS = ("sgd-paper", "sgd-adv-paper", "objpert-paper", "privgene-paper")
_METHODS = ("agd-paper", *_RIVALS, "outpert-gd-paper", "majority", "nonprivate", "auto", "agd", "sgd", "objpert")
_LARGE = ("agd-paper", *_RIVALS, "majority", "nonprivate", "agd", "sgd", "objpert")
_DIFFERENCES = (INTERCEPT, *paper_differences(_METHODS))
_PAPER = "Lee & Kifer (2018), arXiv:1808.09501"
_KINK = (
    "On the hinge DP-AGD (paper) may stop after a few steps where there is little noise: at a kink even the true "
    "subgradient need not be a direction of descent for the shortest step of the paper's even grid. Zero is then "
    "chosen, and the same subgradient is measured again until the budget is gone, because the grid shrinks after ten "
    "chosen steps only."
)
_OPEN = "The paper tunes its L2 penalty without privacy and does not state it; here there is none."

_KDD = "The 10 percent file stands in for the whole one; its categories have all levels of the whole file."
_LOGARITHMS = (
    "In KDD Cup 1999, durations, byte counts and event counts x are coded as log(1 + x) by public maxima here; the "
    "paper does not state its coding."
)

AGD_FIGURES: tuple[Trace | Figure | DataTable, ...] = (
    Trace(
        name="000/table1",
        title="Table 1 of Lee & Kifer (2018): a gradient far below its noise is still a direction of descent",
        caption=(
            f"A run of noisy gradient descent, logistic regression on Adult, after {_PAPER}. The noise has the size "
            "the paper reports. The paper does not state its step sizes; here each step is the best of twenty even "
            "ones up to 2, looked up without privacy, since the table shows unpaid quantities anyway."
        ),
        claim=(
            "The norm of the true gradient falls by an order of magnitude within ten steps (0.726 to 0.052) while "
            "that of the noisy gradient stays at the size of the noise (about 0.5); the objective falls all the "
            "same, from 0.693 to 0.375."
        ),
    ),
    Figure(
        name="000/figure1",
        title="Figure 1 of Lee & Kifer (2018): the parameters of DP-AGD",
        caption=(
            f"DP-AGD with the settings of {_PAPER}, logistic regression on Adult; one setting is varied at a time."
        ),
        details=(
            "gamma, which is stated nowhere, is 0.1 here where it is not varied, as in the authors' code.",
            _OPEN,
            *paper_differences(["agd-paper"]),
        ),
        tasks=(Task("adult"),),
        methods=("agd-paper",),
        delta=1e-8,
        quick=Scale((0.1, 0.8), 2, 1),
        full=Scale((0.1, 0.2, 0.4, 0.8), 5, 20),
        parameters=(
            Parameter("splits", "splits", (10, 30, 60, 120, 240)),
            Parameter("growth", "gamma", (0.1, 0.2, 0.3, 0.4, 0.5)),
            Parameter("clip_gradient", "C_grad", (1, 2, 4, 8, 16)),
            Parameter("clip_loss", "C_obj", (1, 2, 4, 8, 16)),
        ),
        claims=(
            Claim("(a) The number of splits matters little at a large epsilon.", level("splits", above=0.7)),
            Claim(
                "(a) At epsilon 0.1 very small and very large numbers of splits hurt.", ends_cost("splits", at=0.1)
            ),
            Claim("(b) Above 0.2 gamma hardly matters.", level("growth", low=0.3)),
            Claim("(c) Gradients clipped far too hard or hardly at all cost accuracy.", ends_cost("clip_gradient")),
            Claim("(d) Losses clipped far too hard or hardly at all cost accuracy.", ends_cost("clip_loss")),
            Claim("(d) Between 2 and 8 the clip of losses hardly matters.", level("clip_loss", low=2, high=8)),
        ),
    ),
    Figure(
        name="000/figure2",
        title="Figure 2 of Lee & Kifer (2018): private logistic regression",
        caption=f"Accuracy and objective against epsilon, after {_PAPER}. {MODES}",
        details=(STAND_IN, _OPEN, *_DIFFERENCES),
        tasks=tuple(Task(name) for name in FOUR),
        methods=_METHODS,
        delta=1e-8,
        quick=Scale((0.05, 0.2, 1.6), 2, 1),
        full=Scale(LADDER, 5, 20),
        claims=(
            Claim("DP-AGD beats the other private methods or is level with them over the whole range.", standing()),
            Claim(
                "At epsilon 0.05 DP-AGD is ahead of all others on every data set but BANK.",
                standing(epsilon=0.05, ahead=True, excepted=("bank",)),
            ),
            Claim("SGD with the moments accountant is the best above epsilon 0.8.", leads_above("sgd-paper", 0.8)),
            Claim(
                "The final objective is close to the best that can be had over a wide range of epsilon.",
                gap_to_nonprivate(),
            ),
        ),
    ),
    Figure(
        name="000/figure3",
        title="Figure 3 of Lee & Kifer (2018): private linear support vector machine",
        caption=f"Accuracy and mean hinge loss against epsilon, after {_PAPER}. {MODES}",
        details=(HINGE, STAND_IN, _KINK, _OPEN, *_DIFFERENCES),
        tasks=tuple(Task(name, "svm") for name in FOUR),
        methods=_METHODS,
        delta=1e-8,
        quick=Scale((0.1, 0.4, 1.6), 2, 1),
        full=Scale(LADDER, 5, 20),
        claims=(
            Claim("DP-AGD is competitive over a wide range of epsilon.", standing(share="most")),
            Claim(
                "On BANK its accuracy may fall as epsilon grows (0.4 is worse than 0.1), while its objective falls "
                "steadily.",
                steadiness("bank", 0.1, 0.4),
            ),
        ),
    ),
    Figure(
        name="000/figure4",
        title="Figure 4 of Lee & Kifer (2018): KDD Cup 1999 in batches",
        caption=(
            f"Logistic regression and linear SVM on KDD Cup 1999, after {_PAPER}: batches of 40,000 rows for "
            f"DP-AGD and for PrivGene (paper), output perturbation left out as in the paper. {MODES}"
        ),
        details=(
            "The 10 percent file (494,021 rows) stands in for the whole one (4,898,431). The label is denial of "
            "service or not. Durations, byte counts and event counts x are coded as log(1 + x); the paper does not "
            "state its coding. Batches are drawn afresh for each answer and claim no amplification.",
            HINGE,
            _OPEN,
            *_DIFFERENCES,
        ),
        tasks=(Task("kddcup99-dos"), Task("kddcup99-dos", "svm")),
        methods=_LARGE,
        delta=1e-12,
        quick=Scale((0.05, 0.2, 1.6), 2, 1, rows=60_000),
        full=Scale(LADDER, 5, 20),
        batch_size=40_000,
        claims=(
            Claim(
                "On this data set too DP-AGD is ahead of the others or level with them over a wide range.",
                standing(share="most"),
            ),
        ),
    ),
    DataTable(
        "000/table2",
        "Table 2 of Lee & Kifer (2018): data sets",
        f"What the paper prints of its data sets, beside what is here. {COUNTED} {_LOGARITHMS}",
        (
            Published("Adult", "adult", 48_842, 124),
            Published("BANK", "bank", 45_211, 33),
            Published("IPUMS-US", "acs-income", 40_000, 58, None, NO_US),
            Published("IPUMS-BR", "ipums-br", 38_000, 53),
            Published("KDDCup99", "kddcup99-dos", 4_898_431, 120, None, _KDD),
        ),
    ),
)
