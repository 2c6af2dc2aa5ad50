"""Lee & Kifer (2018), DP-AGD: the figures and tables of the paper as data.

A run of noisy gradient descent, watched from outside: true gradients beside the noisy ones, and its page.

The watching is not private: true norms and objectives are unpaid. It is for public data only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..arrays import Floats
from ..curator import ArraySource, Curator, LatticeNoise
from ..datasets import Dataset
from ..errors import InvalidParameter
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..noise import Randomness
from ..problems import L2, LinearProblem, Logistic
from ..queries import Gradient
from ..statement import guarantee
from .claims import ends_cost, gap_to_nonprivate, leads_above, least_epsilon, level, standing, steadiness, worse
from .drawing import Line, Panel, draw
from .fold_fits import Task, load_task
from .method_looks import Look, paper_differences
from .paper_figures import (
    COUNTED,
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
    four_tasks,
)
from .report_page import Finding, Matrix, Picture, Report, write_report
from .study import versions, versions_setting
from .verdicts import WRONG, AtLeast, Checked, Claim, Margin, cells_of, every, told


@dataclass(frozen=True)
class Trace:
    """What is run for a table of a single descent."""

    name: str
    title: str
    caption: str
    claim: str
    dataset: str = "adult"
    noise_norm: float = 0.50119  # root of the mean squared norm of the noise on a gradient
    clip_gradient: float = 3.0
    #: Iterations, and step sizes tried at each, spread evenly up to ``max_step``.
    steps: int = 10
    candidates: int = 20
    max_step: float = 2.0
    seeds: int = 5  # descents, each with noise of its own


_PRINTED_END = 0.052  # the norm of the true gradient after ten steps, in the one descent of the paper


@dataclass(frozen=True)
class Moment:
    """One line of the table."""

    iteration: int
    gradient_norm: float
    noisy_norm: float
    noise_norm: float
    objective: float
    spent_epsilon: float


def follow(trace: Trace, data: Dataset, *, delta: float = 1e-8, seed: int = 0) -> list[Moment]:
    """Run the descent on public data and return what a table of it shows.

    **Privacy** The noisy gradients come from a curator that charges a ledger, whose epsilon is reported; the true
    norms, objectives and step sizes are not private.
    """
    if len(data.classes) != 2:
        raise InvalidParameter(f"{trace.name} needs a data set of two classes, and {data.name!r} has another number")
    grid = FeatureGrid(1.0, data.X.shape[1] + 1)
    rows = grid.place(np.column_stack([data.X, np.ones(len(data.y))]))
    labels = np.where(data.y == data.classes[1], 1.0, -1.0)
    ledger = Ledger(1.0, delta, currency="zcdp", relation="zero-out")
    curator = Curator(
        ArraySource(rows, labels, grid),
        LinearProblem(Logistic(), grid, L2(0.0), True),
        ledger,
        len(labels),
        noise=LatticeNoise(Randomness(seed)),
    )
    deviation = trace.noise_norm / math.sqrt(grid.dimension)
    amount = curator.amount_of_noise(deviation * len(labels) / trace.clip_gradient)
    weights, moments = np.zeros(grid.dimension), []
    for iteration in range(trace.steps + 1):
        noisy = curator.answer(Gradient(weights, trace.clip_gradient, curator.gaussian(amount)))
        moments.append(
            Moment(
                iteration,
                float(np.linalg.norm(_gradient(rows, labels, weights))),
                float(np.linalg.norm(noisy)),
                curator.deviation(trace.clip_gradient, amount) * math.sqrt(grid.dimension),
                _objective(rows, labels, weights),
                ledger.spent_epsilon(),
            )
        )
        points = [weights - step * noisy for step in np.linspace(0, trace.max_step, trace.candidates)]
        weights = min(points, key=lambda point: _objective(rows, labels, point))
    return moments


def _objective(rows: Floats, labels: Floats, weights: Floats) -> float:
    return float(np.logaddexp(0, -labels * (rows @ weights)).mean())


def _gradient(rows: Floats, labels: Floats, weights: Floats) -> Floats:
    slopes = -labels / (1 + np.exp(labels * (rows @ weights)))
    return np.asarray(rows.T @ slopes / len(labels))


def write_trace(
    trace: Trace, datasets: tuple[str, ...], stem: Path, page: Path, json_file: Path | None, command: str
) -> tuple[tuple[Path, Path], Report]:
    """Run the descents and write picture, page and rows; return the pictures and the report."""
    name = datasets[0] if datasets else trace.dataset
    data = load_task(Task(name), download=True)
    runs = [follow(trace, data, seed=seed) for seed in range(trace.seeds)]
    moments, last = runs[0], runs[0][-1]
    pictures = _draw(moments, stem, command)
    report = Report(
        trace.title,
        trace.caption,
        f"{trace.seeds} descents." + (f" Run on {name} instead of the paper's data." if datasets else ""),
        (Picture(pictures[1], "norms of the true and the noisy gradient, and the objective, at each iteration"),),
        (_finding(trace, name, runs),),
        (_moments_table(moments),),
        (
            (
                "noisy gradients",
                f"All {len(moments)} of them together are "
                f"{guarantee(f'{last.spent_epsilon:.3g}', 1e-8, 'zero-out')}. Randomness: seeded (not for release).",
            ),
            ("true norms, objectives, step sizes", "Not private: they are shown here because the data are public."),
        ),
        (
            ("data", f"{name}, {len(data.y):,} rows, {data.X.shape[1]} columns and a constant one"),
            ("noise", f"root mean squared norm {trace.noise_norm:g}"),
            ("gradients clipped to", f"{trace.clip_gradient:g}"),
            ("step sizes", f"the best of {trace.candidates} even ones up to {trace.max_step:g}"),
            ("seeds", f"0 to {trace.seeds - 1}; picture and table show that of 0"),
            versions_setting(),
        ),
        cells=cells_of(
            (vars(moment) for run in runs for moment in run),
            ("iteration",),
            ("gradient_norm", "noisy_norm", "noise_norm", "objective"),
        ),
        command=command,
    )
    content = {"figure": trace.name, "dataset": name, "versions": versions(), "rows": [asdict(m) for m in moments]}
    write_report(report, page, json_file, content)
    return pictures, report


def _finding(trace: Trace, name: str, runs: list[list[Moment]]) -> Finding:
    moments = runs[0]
    first, last = moments[0], moments[-1]
    falls = sum(after.objective < before.objective for before, after in pairwise(moments))
    lengths = [run[-1].gradient_norm for run in runs]
    text = (
        f"the true gradient ends at a norm of {min(lengths):.3f} to {max(lengths):.3f}, the paper's at "
        f"{_PRINTED_END:g}; on {name}, in the first of {trace.seeds} descents, the norm of the true gradient goes "
        f"from {first.gradient_norm:.3f} to {last.gradient_norm:.3f}, that of the noisy one from "
        f"{first.noisy_norm:.3f} to {last.noisy_norm:.3f} (noise: {last.noise_norm:.3f}); the objective falls in "
        f"{falls} of {trace.steps} steps, from {first.objective:.3f} to {last.objective:.3f}"
    )
    return Finding(trace.claim, told(_descends(runs), text))


def _descends(runs: list[list[Moment]]) -> AtLeast:
    """Return the claim: the printed gradient at the end, noisy ones as long as the noise, a lower objective.

    What the paper prints is one descent with the spread of ours, so that it may differ from our mean by both.
    """
    ends = [(run[0], run[-1]) for run in runs]
    lengths = [last.gradient_norm for _, last in ends]
    spread = Margin.of(lengths)
    alone = replace(spread, mean=spread.mean - _PRINTED_END, error=spread.error * math.sqrt(len(runs) + 1), values={})
    return every(
        [
            Checked(abs(alone.mean) <= alone.reach(WRONG / 2)),
            Margin.of([first.gradient_norm / 2 - last.gradient_norm for first, last in ends]),
            Margin.of([last.noisy_norm - last.noise_norm / 2 for _, last in ends]),
            Margin.of([2 * last.noise_norm - last.noisy_norm for _, last in ends]),
            Margin.of([first.objective - last.objective for first, last in ends]),
        ]
    )


def _moments_table(moments: list[Moment]) -> Matrix:
    return Matrix(
        "A run of noisy gradient descent",
        (
            "iteration",
            "norm of the gradient",
            "norm of the noisy gradient",
            "expected norm of the noise",
            "objective",
        ),
        tuple(
            (
                str(moment.iteration),
                *(
                    f"{value:.5f}"
                    for value in (moment.gradient_norm, moment.noisy_norm, moment.noise_norm, moment.objective)
                ),
            )
            for moment in moments
        ),
    )


def _draw(moments: Sequence[Moment], stem: Path, command: str) -> tuple[Path, Path]:
    """Draw the norms of a descent's gradients beside its objective."""
    x = tuple(float(moment.iteration) for moment in moments)
    still = (0.0,) * len(x)

    def line(look: Look, field: str) -> Line:
        return Line(look, x, tuple(getattr(moment, field) for moment in moments), still)

    norms = (
        line(Look("noisy gradient", "#D55E00", "s"), "noisy_norm"),
        line(Look("true gradient", "#0072B2", "o"), "gradient_norm"),
        line(Look("noise", "#4A4F57", "", flat=True), "noise_norm"),
    )
    objective = (line(Look("objective", "#0072B2", "o"), "objective"),)
    return draw(
        (
            Panel("Norms of the gradients", "iteration", "norm", x, False, norms),
            Panel("Objective", "iteration", "mean loss", x, False, objective),
        ),
        stem,
        command=command,
    )


_RIVALS = ("sgd-paper", "sgd-adv-paper", "objpert-paper", "privgene-paper")
_METHODS = (
    "agd-paper",
    "agd-gaussian-paper",
    *_RIVALS,
    "outpert-gd-paper",
    "majority",
    "nonprivate",
    "auto",
    "agd",
    "sgd",
    "objpert",
)
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
            Claim("(b) A gamma of 0.1 or 0.2 is slightly worse.", worse("growth", 0.2)),
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
        tasks=four_tasks(),
        methods=_METHODS,
        delta=1e-8,
        quick=Scale((0.05, 0.2, 1.0), 2, 1),  # at 1.6 the steps of SGD alone take a minute for each fit
        full=Scale(LADDER, 5, 20),
        claims=(
            Claim(
                "DP-AGD beats the other private methods or is level with them over the whole range.",
                standing(throughout=True),
            ),
            Claim(
                "At epsilon 0.05 DP-AGD is ahead of all others on every data set but BANK.",
                standing(epsilon=0.05, ahead=True, excepted=("bank",)),
            ),
            Claim("SGD with the moments accountant is the best above epsilon 0.8.", leads_above("sgd-paper", 0.8)),
            Claim(
                "One step of SGD with the moments accountant costs epsilon 0.5756 at delta = 1e-8.",
                least_epsilon(1e-8, 0.5756),
            ),
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
        tasks=four_tasks("svm"),
        methods=_METHODS,
        delta=1e-8,
        quick=Scale((0.1, 0.4, 0.8), 2, 1),
        full=Scale(LADDER, 5, 20),
        claims=(
            Claim("DP-AGD is competitive over a wide range of epsilon.", standing()),
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
        quick=Scale((0.05, 0.2, 0.8), 2, 1, rows=60_000),
        full=Scale(LADDER, 5, 20),
        batch_size=40_000,
        claims=(
            Claim(
                "On this data set too DP-AGD is ahead of the others or level with them over a wide range.",
                standing(),
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
