"""The figures of the papers as data: what is run, what is varied, and what the paper says of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidParameter
from ..problems import L2, Logistic, NonConvex, Sigmoid
from .cells import Curve, Task
from .claims import Claim, gap_to_nonprivate, leads_above, spread, standing, steadiness
from .methods import known_variants, look_of, nearest, variant
from .stationary import StationaryTable
from .study import Study
from .trace import Trace

__all__ = ["FIGURES", "Figure", "Parameter", "Scale", "figure_named"]


@dataclass(frozen=True)
class Scale:
    """How much of a figure is run."""

    epsilons: tuple[float, ...]
    folds_used: int
    seeds: int
    rows: int | None = None


@dataclass(frozen=True)
class Parameter:
    """A setting that a figure varies: its name in ``solver_options``, its name on the axis, and its values."""

    setting: str
    shown: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Parameters
    ----------
    name, title, caption : str
    tasks : tuple of Task
    methods : tuple of str
        What the paper compares; those that are not registered are named on the page.
    delta : float
    quick, full : Scale
        Minutes on two processors, or the repetitions of the paper.
    claims : tuple of Claim
    parameters : tuple of Parameter
        If there are any, each is varied by itself for every method.
    batch_size, batched : int, tuple of str
        Expected size of the batches, and the methods that draw such.
    """

    name: str
    title: str
    caption: str
    tasks: tuple[Task, ...]
    methods: tuple[str, ...]
    delta: float
    quick: Scale
    full: Scale
    claims: tuple[Claim, ...]
    parameters: tuple[Parameter, ...] = ()
    batch_size: int | None = None
    batched: tuple[str, ...] = ("agd", "agd-paper")

    @property
    def missing(self) -> tuple[str, ...]:
        """The methods that are not registered."""
        known = known_variants()
        return tuple(look_of(name).name for name in self.methods if name not in known)

    def study(self, scale: Scale, datasets: tuple[str, ...] = ()) -> Study:
        """Return what is to be measured; ``datasets`` stand in for those of the paper."""
        losses = dict.fromkeys(task.loss for task in self.tasks)
        tasks = tuple(Task(name, loss) for name in datasets for loss in losses) or self.tasks
        known = known_variants()
        curves = [
            Curve(
                name,
                variant(name).method,
                dict(variant(name).options),
                self.batch_size if name in self.batched else None,
                private=variant(name).private,
            )
            for name in self.methods
            if name in known
        ]
        if self.parameters:
            curves = [
                Curve(curve.name, curve.method, curve.options, curve.batch_size, parameter.setting, value)
                for curve in curves
                for parameter in self.parameters
                for value in parameter.values
            ]
        return Study(
            tuple(Task(task.dataset, task.loss, scale.rows) for task in tasks),
            tuple(curves),
            scale.epsilons,
            self.delta,
            folds=5,
            seeds=scale.seeds,
            folds_used=scale.folds_used,
        )


_LADDER = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_RIVALS = ("sgd", "sgd-adv", "objpert", "outpert-gd", "outpert-rsgd", "privgene", "majority", "nonprivate")
_PAPER = "Lee & Kifer (2018), arXiv:1808.09501"
_STAND_IN = (
    "IPUMS-US is not to be had, so acs-income (American Community Survey, NIST excerpts) stands in for it: other "
    "years, areas, columns and label."
)
_FOUR = ("adult", "bank", "acs-income", "ipums-br")
_SGD = (
    "DP-SGD follows its default rule, all rows at each step under exact Gaussian accounting, where the paper draws "
    "batches of sqrt(n) rows under the moments accountant."
)
_OPEN = "The paper tunes its L2 penalty without privacy and does not state it; here there is none."

_ALL = (
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
            f"DP-AGD with the settings of {_PAPER}, logistic regression on Adult; one setting is varied at a time. "
            "Only splits 60, C_grad 3 and C_obj 3 are stated there; gamma is 0.1 here where it is not varied. "
            f"{_OPEN}"
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
            Claim(
                "(a) The number of splits matters little at a large epsilon; at 0.1 very small and very large "
                "numbers hurt.",
                spread("splits"),
            ),
            Claim(
                "(b) Above 0.2 gamma hardly matters; at 0.1 and 0.2 it matters a little.", spread("growth", low=0.3)
            ),
            Claim(
                "(c) Gradients clipped far too hard or hardly at all cost accuracy.",
                spread("clip_gradient", low=2, high=8),
            ),
            Claim(
                "(d) Losses clipped too hard or too little cost accuracy; between 2 and 8 it hardly matters.",
                spread("clip_loss", low=2, high=8),
            ),
        ),
    ),
    Figure(
        name="000/figure2",
        title="Figure 2 of Lee & Kifer (2018): private logistic regression",
        caption=f"Accuracy and objective against epsilon, after {_PAPER}. {_STAND_IN} {_SGD} {_OPEN}",
        tasks=tuple(Task(name) for name in _FOUR),
        methods=("auto", "agd", "agd-paper", *_RIVALS),
        delta=1e-8,
        quick=Scale((0.05, 0.2, 1.6), 2, 1),
        full=Scale(_LADDER, 5, 20),
        claims=(
            Claim("DP-AGD beats the other private methods or is level with them over the whole range.", standing()),
            Claim(
                "At epsilon 0.05 DP-AGD is ahead of all others on every data set but BANK.", standing(epsilon=0.05)
            ),
            Claim("SGD with the moments accountant is the best above epsilon 0.8.", leads_above("sgd", 0.8)),
            Claim(
                "The final objective is close to the best that can be had over a wide range of epsilon.",
                gap_to_nonprivate(),
            ),
        ),
    ),
    Figure(
        name="000/figure3",
        title="Figure 3 of Lee & Kifer (2018): private linear support vector machine",
        caption=(
            f"Accuracy and mean hinge loss against epsilon, after {_PAPER}. The models minimise a huberised hinge, "
            f"which is smooth. {_STAND_IN} {_SGD} {_OPEN}"
        ),
        tasks=tuple(Task(name, "svm") for name in _FOUR),
        methods=("auto", "agd", "agd-paper", *_RIVALS),
        delta=1e-8,
        quick=Scale((0.1, 0.4, 1.6), 2, 1),
        full=Scale(_LADDER, 5, 20),
        claims=(
            Claim("DP-AGD is competitive over a wide range of epsilon.", standing()),
            Claim(
                "On BANK its accuracy may fall as epsilon grows (0.4 is worse than 0.1), while its objective falls "
                "steadily.",
                steadiness("bank"),
            ),
        ),
    ),
    Figure(
        name="000/figure4",
        title="Figure 4 of Lee & Kifer (2018): KDD Cup 1999 in batches",
        caption=(
            f"Logistic regression and linear SVM on KDD Cup 1999, after {_PAPER}: batches of 40,000 rows for "
            "DP-AGD (PrivGene, batched in the paper, uses all rows here), delta 1e-12, output perturbation left out "
            "as in the paper. The 10 percent file (494,021 "
            "rows) stands in for the whole one (4,898,431), and the label is attack or normal, where the paper asks "
            "for denial of service. Batches are drawn afresh for each answer and claim no amplification. "
            f"{_SGD} {_OPEN}"
        ),
        tasks=(Task("kddcup99"), Task("kddcup99", "svm")),
        methods=("agd", "agd-paper", "sgd", "sgd-adv", "objpert", "privgene", "majority", "nonprivate"),
        delta=1e-12,
        quick=Scale((0.05, 0.2, 1.6), 2, 1, rows=60_000),
        full=Scale(_LADDER, 5, 20),
        batch_size=40_000,
        claims=(
            Claim(
                "On this data set too DP-AGD is ahead of the others or level with them over a wide range.", standing()
            ),
        ),
    ),
)

_SECOND = "the tables of `Differentially private optimization for smooth non-convex ERM' (2022)"
_CONSTANTS = (
    "Columns are scaled by public bounds; numbers are then at most 1 and one of a group of indicators is 1, which "
    "bounds the length of a row, and all constants follow from that. The paper states neither delta nor its "
    "constants. With so few rows most runs are promised nothing, as in the paper."
)
_TIGHTER = (("loose", 0.04), ("tight", 0.02))

_TABLES = tuple(
    StationaryTable(
        name=f"002/{dataset}{mark}",
        title=f"Second-order points on {shown}: {what}",
        caption=f"{what[:1].upper()}{what[1:]}, after {_SECOND}. {_CONSTANTS}",
        dataset=dataset,
        row_bound=row_bound,
        loss=loss,
        penalty=penalty,
        tolerances=(("loose", 0.06), ("tight", 0.03)) if (dataset, mark) == ("covertype", "") else _TIGHTER,
    )
    for mark, what, loss, penalty in (
        ("", "the logistic loss with a non-convex penalty", Logistic(), NonConvex(1e-3)),
        ("-sigmoid", "the sigmoid loss with an L2 penalty", Sigmoid(), L2(1e-3)),
    )
    # Ten numbers and two groups of indicators; twelve numbers and one group.
    for dataset, shown, row_bound in (("covertype", "Covertype", 12**0.5), ("ijcnn1", "IJCNN1", 13**0.5))
)

_EVERY: tuple[Figure | Trace | StationaryTable, ...] = (*_ALL, *_TABLES)
FIGURES = {figure.name: figure for figure in _EVERY}


def figure_named(name: str) -> Figure | Trace | StationaryTable:
    """Return the figure of that name."""
    if name not in FIGURES:
        raise InvalidParameter(f"there is no figure {name!r}{nearest(name, FIGURES)}")
    return FIGURES[name]
