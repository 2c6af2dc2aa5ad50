"""A figure of a paper as data: what is run, what is varied, and what the paper says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .claims import Claim
from .fold_fits import Curve, Task
from .method_looks import known_variants, look_of, variant
from .row_groups import Measure
from .study import Study

__all__ = ["FOUR", "HINGE", "INTERCEPT", "LADDER", "MODES", "STAND_IN", "Figure", "Parameter", "Scale"]

# What several figures share: budgets, data sets, and where the data and a rival differ from the papers'.
LADDER = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
FOUR = ("adult", "bank", "acs-income", "ipums-br")
STAND_IN = (
    "IPUMS-US is not to be had, so acs-income (American Community Survey, NIST excerpts) stands in for it: other "
    "years, areas, columns and label."
)
MODES = "Curves marked (paper) have the settings of the paper; the others are our versions."
INTERCEPT = (
    "`dpdescent methods NAME --paper` prints the settings of a paper mode. An intercept is penalised in paper modes "
    "only, and no objective shown counts that penalty. Where they differ from the papers on purpose:"
)
HINGE = "Curves marked (paper) minimise the hinge where the method can; all others minimise a huberised one."


@dataclass(frozen=True)
class Scale:
    """How much of a figure is run."""

    epsilons: tuple[float, ...]
    folds_used: int
    seeds: int
    rows: int | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further options, by method
    remark: str = ""


@dataclass(frozen=True)
class Parameter:
    """A setting that a figure varies: its name in ``solver_options``, its name on the axis, and its values.

    The settings in ``also`` take the same value.
    """

    setting: str
    shown: str
    values: tuple[float | str, ...]
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Parameters
    ----------
    name, title, caption : str
    details : tuple of str
        What differs from the paper.
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
    options : mapping
        Settings of this figure, by method, beside those of its paper mode.
    folds, alpha : int, float
        Parts of the cross-validation, and weight of the L2 penalty.
    measures : tuple of Measure
        What is shown beside accuracy and objective.
    """

    name: str
    title: str
    caption: str
    details: tuple[str, ...]
    tasks: tuple[Task, ...]
    methods: tuple[str, ...]
    delta: float
    quick: Scale
    full: Scale
    claims: tuple[Claim, ...]
    parameters: tuple[Parameter, ...] = ()
    batch_size: int | None = None
    batched: tuple[str, ...] = ("agd", "agd-paper", "privgene-paper")
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folds: int = 5
    alpha: float = 0.0
    measures: tuple[Measure, ...] = ()

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
                {**variant(name).options, **self.options.get(name, {}), **scale.options.get(name, {})},
                self.batch_size if name in self.batched else None,
                private=variant(name).private,
            )
            for name in self.methods
            if name in known
        ]
        if self.parameters:
            curves = [
                Curve(
                    curve.name,
                    curve.method,
                    {**curve.options, **dict.fromkeys(parameter.also, value)},
                    curve.batch_size,
                    parameter.setting,
                    value,
                )
                for curve in curves
                for parameter in self.parameters
                for value in parameter.values
            ]
        return Study(
            tuple(Task(task.dataset, task.loss, scale.rows) for task in tasks),
            tuple(curves),
            scale.epsilons,
            self.delta,
            folds=self.folds,
            seeds=scale.seeds,
            folds_used=scale.folds_used,
            alpha=self.alpha,
        )
