"""The command ``dpdescent fit``, in four steps.

1. `validate` checks what was typed: the options against each other, the schema, the places of outputs and the ledger.
2. `plan` opens the table, and adds what it decides: bounds, classes, the rows of a unit.
3. `fit` fits the estimator.
4. `save` writes the model with its statement, and `state` shows what it cost.

No row is read in the first step, and nothing is charged before the third.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidParameter, nearest
from ..long_runs import require_outputs
from .schema_command import Rest, RowsPerUnit, UnitColumn
from .terminal import (
    INTERRUPTED,
    Adjacency,
    Delta,
    Epsilon,
    JsonFile,
    Missing,
    Seed,
    TableName,
    Unknown,
    complain,
    downloading,
    literal,
    print_privacy,
    read_settings,
    say,
    write_json,
)

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..solvers import Facts
    from ..tables import ParquetTable, Schema
    from .public_knowledge import PublicKnowledge, UnknownTable

#: The estimators by the names that are typed.
CLASSIFIERS = {
    "logistic": "DPLogisticRegression",
    "svm": "DPLinearSVC",
    "additive": "DPAdditiveClassifier",
    "trees": "DPBoostedTreesClassifier",
}
REGRESSORS = {
    "regression": "DPLinearRegression",
    "huber": "DPHuberRegressor",
    "poisson": "DPPoissonRegressor",
    "additive-regression": "DPAdditiveRegressor",
    "additive-huber": "DPAdditiveHuberRegressor",
    "additive-poisson": "DPAdditivePoissonRegressor",
    "trees-regression": "DPBoostedTreesRegressor",
}
MODELS = CLASSIFIERS | REGRESSORS
#: Arguments of estimators that have options of their own, or none on purpose.
_ELSEWHERE = {
    *("epsilon", "delta", "method", "adjacency", "bounds", "binary_features", "classes", "target_bounds", "unit"),
    *("rows_per_unit", "alpha", "tilt", "adversary", "penalise_intercept", "random_state", "ledger", "progress"),
    *("inference", "solver_options", "loss", "penalty"),
}

Output = Annotated[Path, typer.Option(help="Where to write the model.")]
LabelName = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="What to predict, in a table without a schema: its columns are measured."),
]
SchemaFile = Annotated[Path | None, typer.Option(help="Public schema of the table (see `dpdescent schema`).")]
Bounds = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="Public bounds of X in an NPZ file; also [LOW,...],[HIGH,...]. Without them, or with `measure`, "
        "which is for tables too, they are measured privately.",
    ),
]
Classes = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Public classes of y in an NPZ file, or of the --label.")
]
TargetBounds = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="The same of y, the number that a regression predicts.")
]
ModelName = Annotated[
    str, typer.Option(help=f"To tell classes apart: {', '.join(CLASSIFIERS)}. For numbers: {', '.join(REGRESSORS)}.")
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        metavar="NAME=VALUE",
        help="Any other argument that the model has in Python, such as class_weight=balanced, pieces=8, "
        "tighten=false, fit_intercept=false, rows=5000, threshold=2 or trees=50; may be repeated.",
    ),
]
LossName = Annotated[
    str | None, typer.Option(help="logistic or sigmoid for --model logistic, huberised-hinge or hinge for svm.")
]
PenaltyName = Annotated[str | None, typer.Option(help="l2 or nonconvex, for --model logistic.")]
MethodName = Annotated[str, typer.Option(help="How to train; `dpdescent methods` lists all.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; may be repeated.")
]
Alpha = Annotated[float, typer.Option(help="Weight of the penalty.")]
PenaliseIntercept = Annotated[
    bool | None, typer.Option(help="Penalise the constant term too; by default in paper modes only.")
]
Tilt = Annotated[float, typer.Option(help="Weigh rows with large losses more; needs --method outpert.")]
Radius = Annotated[
    float | None,
    typer.Option(metavar="RADIUS", help="Train against moves of up to this length; needs --method outpert."),
]
NormName = Annotated[str, typer.Option(help="How moves are measured: l2 or linf.")]
Inference = Annotated[
    bool,
    typer.Option("--inference", help="Also buy what intervals of the effects need; `dpdescent explain` has them."),
]
LedgerFile = Annotated[Path | None, typer.Option(help="A ledger file that pays as well.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers read the Parquet files.")
]


def fit_command(
    data: TableName,
    output: Output,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    label: LabelName = None,
    schema: SchemaFile = None,
    bounds: Bounds = None,
    classes: Classes = None,
    rest: Rest = None,
    target_bounds: TargetBounds = None,
    missing: Missing = None,
    unknown: Unknown = None,
    model: ModelName = "logistic",
    loss: LossName = None,
    penalty: PenaltyName = None,
    method: MethodName = "auto",
    settings: Assignments = None,
    adjacency: Adjacency = "zero-out",
    unit: UnitColumn = None,
    rows_per_unit: RowsPerUnit = 1,
    alpha: Alpha = 0.0,
    penalise_intercept: PenaliseIntercept = None,
    tilt: Tilt = 0.0,
    adversary: Radius = None,
    adversary_norm: NormName = "l2",
    inference: Inference = False,
    arguments: Arguments = None,
    ledger: LedgerFile = None,
    cluster: Cluster = None,
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Train a model on a table and save it with its privacy statement."""
    from .public_knowledge import PublicKnowledge

    regression = model in REGRESSORS
    public = PublicKnowledge(data, schema, bounds, classes, target_bounds, missing, unknown, regression, label, rest)
    plain = {"method": method, "adjacency": adjacency, "alpha": alpha, "random_state": seed, "tilt": tilt}
    plain |= {"penalise_intercept": penalise_intercept, "progress": True, "inference": inference}
    request = Request(model, epsilon, delta, public, plain, output, json_file, ledger, cluster, unit, rows_per_unit)
    special = {"loss": loss, "penalty": penalty} | read_settings(arguments or [], "--argument")
    options, known = validate(request, settings or [], special, (adversary, adversary_norm))
    with _explain_interrupts() as charged:
        planned = plan(request, options, known)
        fitted = fit(planned)
        charged += planned.charged(fitted)
        save(planned, fitted)
    state(planned, fitted)


@dataclass(frozen=True)
class Request:
    """What was typed, as far as it needs no checks of its own."""

    model: str  # one of `MODELS`
    epsilon: float
    delta: float
    public: PublicKnowledge  # the table, and what is known about it
    options: dict[str, Any]  # parameters of the estimator
    #: Where model and result are written.
    output: Path
    json_file: Path | None
    ledger: Path | None  # that pays as well
    cluster: str | None
    unit: str | None
    rows_per_unit: int

    @property
    def private(self) -> bool:
        """Whether the method guarantees anything."""
        from ..estimators.arguments import known_method

        return known_method(self.options["method"]).private

    def estimator(self, options: dict[str, Any]) -> Any:
        """Return the estimator with these parameters."""
        from .. import estimators

        return getattr(estimators, MODELS[self.model])(self.epsilon, self.delta, **options)


def validate(
    request: Request, settings: list[str], special: dict[str, Any], adversary: tuple[float | None, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of the estimator and what is known about the table, or raise what is wrong.

    All that can fail is tried before a row is read, and long before anything is charged.

    ``settings`` of the method are given as NAME=VALUE; ``special`` are parameters that only some estimators have,
    None where nothing was typed; ``adversary`` says how far one may move a row, if there is one, and in which norm.
    """
    from ..ledger import Ledger
    from ..problems import Adversary

    if request.model not in MODELS:
        raise InvalidParameter(
            f"unknown model {request.model!r}{nearest(request.model, MODELS)}: choose one of {', '.join(MODELS)}"
        )
    _ = request.private  # a method that is not known is refused
    options = request.options | {"solver_options": read_settings(settings)}
    for name, chosen in special.items():
        if chosen is not None:
            options[name] = _special(request, name, chosen)
    if adversary[0] is not None:
        options["adversary"] = Adversary(*adversary)  # type: ignore[arg-type]
    known = request.public.options()
    if "label" in known:
        options |= {"unit": request.unit, "rows_per_unit": request.rows_per_unit}
    elif request.unit is not None or request.rows_per_unit != 1:
        known["schema"] = _with_unit(known, request.unit, request.rows_per_unit)
    require_outputs([request.output, request.json_file], [request.public.data, request.public.schema, request.ledger])
    if request.ledger is not None:
        options["ledger"] = Ledger.open(request.ledger, model=request.output)
    request.estimator(options).require_settings()
    return options, known


def _special(request: Request, name: str, value: Any) -> Any:
    """Return the value of a parameter that only some estimators have, or raise if this one has not."""
    known = list(request.estimator({}).get_params())
    if name in ("loss", "penalty"):
        if name not in known:
            raise InvalidParameter(
                f"--{name} is not for --model {request.model}: leave it out, or choose --model logistic"
            )
        return value
    if name in _ELSEWHERE:
        raise InvalidParameter(f"--argument {name}: say it by the option for it, which `dpdescent fit --help` lists")
    if name not in known:
        free = sorted(set(known) - _ELSEWHERE)
        raise InvalidParameter(
            f"--model {request.model} has no argument {name!r}{nearest(name, free)}: it takes {', '.join(free)}"
        )
    return (
        {literal(key): each for key, each in value.items()}
        if name == "class_weight" and isinstance(value, dict)
        else value
    )


@dataclass(frozen=True)
class Plan:
    """What is about to be fitted, before anything is charged."""

    request: Request
    options: dict[str, Any]  # all parameters of the estimator
    declared: Schema | None  # what the caller said about the table
    table: Dataset | ParquetTable | UnknownTable
    warned: list[str]  # what was said about the guarantee before it is paid for

    def charged(self, fitted: Any) -> list[str]:
        """Return how much of its budget a fit has charged, in words."""
        from ..estimators.payment import share_charged

        return [share_charged(fitted.privacy_["spent"], fitted.privacy_["budget"])] if self.request.private else []


def plan(request: Request, options: dict[str, Any], known: dict[str, Any]) -> Plan:
    """Open the table, and return what will be fitted to it. Nothing is charged."""
    from .public_knowledge import open_table, read_unknown

    if "label" in known:
        if request.cluster is not None:
            raise InvalidParameter("--cluster is for Parquet files with a schema: leave it out")
        unknown = read_unknown(request.public.data, known, request.model in REGRESSORS, request.unit is None)
        classes = {} if request.model in REGRESSORS else {"classes": known["classes"]}
        return Plan(request, options | classes, None, unknown, _warn(request, unknown) if request.private else [])
    with downloading() as progress:
        table = open_table(request.public.data, known, request.cluster, progress)
    options = options | {"bounds": table.bounds, "binary_features": table.binary_features}
    if request.model in REGRESSORS:
        options["target_bounds"] = request.public.target(table)
    elif not table.classes:
        raise InvalidParameter(f"the data set {request.public.data!r} has no classes: choose --model regression")
    elif request.model == "svm" and len(table.classes) > 2:
        raise InvalidParameter(
            f"--model svm tells two classes apart, and there are {len(table.classes)}: choose --model logistic"
        )
    else:
        options["classes"] = table.classes
        if table.schema is not None and table.schema.measured is not None:
            options.setdefault("tighten", False)  # bounds that were bought are not bought again
    warned = _warn(request, table) if request.private else []
    if table.schema is not None and table.schema.unit is not None:
        options["rows_per_unit"] = table.schema.unit.rows
    return Plan(request, options, known.get("schema"), table, warned)


def fit(planned: Plan) -> Any:
    """Return the fitted estimator. Its statement says what came from the schema."""
    from ..estimators.arguments import of_schema
    from .public_knowledge import UnknownTable

    table, request = planned.table, planned.request
    trees = request.model in ("trees", "trees-regression")  # names tell which columns are levels of one
    told = request.options["inference"] or "knots" in planned.options or trees
    named = told and not isinstance(table, UnknownTable)
    rows = _named(table) if named else table.X
    fitted = request.estimator(planned.options).fit(rows, table.y, unit=table.unit)
    if planned.declared is not None:
        assumed = fitted.privacy_["assumed_public"]
        fitted.privacy_["assumed_public"] = of_schema(assumed, planned.declared, request.unit)
        fitted.privacy_["remarks"] += planned.declared.remarks()
    return fitted


def _named(table: Any) -> Any:
    """Return rows in memory with the names of their columns, which tell levels of one column; others as they are."""
    import numpy as np
    import pandas as pd
    from scipy import sparse

    rows: Any = table.X
    rows = rows.toarray() if sparse.issparse(rows) else rows
    return pd.DataFrame(rows, columns=list(table.feature_names)) if isinstance(rows, np.ndarray) else rows


def save(planned: Plan, fitted: Any) -> None:
    """Write the model with its statement."""
    from ..estimators.saved_models import SavedModel
    from .public_knowledge import UnknownTable

    table, request = planned.table, planned.request
    if isinstance(table, UnknownTable):
        names, schema = [str(name) for name in fitted.feature_names_in_], fitted.schema_
        if table.rest is not None:
            schema = replace(schema, label=replace(schema.label, rest=table.rest))
        SavedModel.from_estimator(fitted, names, schema, None).save(request.output)
        return
    names, column_bounds = list(table.feature_names), request.public.column_bounds(table)
    SavedModel.from_estimator(fitted, names, table.schema, column_bounds).save(request.output)


def state(planned: Plan, fitted: Any) -> None:
    """Show what the model cost, and where it is; what was said before the fit is not said again."""
    request, privacy = planned.request, fitted.privacy_
    print_privacy(privacy | {"remarks": [each for each in privacy["remarks"] if each not in planned.warned]})
    say(f"model written to {request.output}")
    write_json(request.json_file, {"model": str(request.output), "privacy": privacy})


def _with_unit(known: dict[str, Any], unit: str | None, rows: int) -> Schema:
    """Return the schema of a table with the unit of the command line in it."""
    from ..tables import Unit

    if "schema" not in known or unit is None:
        raise InvalidParameter("--unit COLUMN names a column of a table, which has a --schema: give all that belong")
    declared: Schema = known["schema"]
    return replace(declared, unit=Unit(unit, rows))


def _warn(request: Request, table: Dataset | ParquetTable | UnknownTable) -> list[str]:
    """Warn of a guarantee that is weak or leaves nothing to learn, before it is paid for; return what was said."""
    from ..estimators.arguments import advice

    found = advice(_facts(request, table))
    for text in found:
        complain("GuaranteeWarning", text, colour="yellow")
    return found


def _facts(request: Request, table: Dataset | ParquetTable | UnknownTable) -> Facts:
    """Return what is public before the fit: the number of rows, or that of units times the rows of each, at most."""
    from ..solvers import Facts

    guarantee = request.epsilon, request.delta, request.options["adjacency"]
    if table.unit is None or table.schema is None or table.schema.unit is None:
        return Facts(*guarantee, table.X.shape[0], 1)
    kept = table.schema.unit.rows
    return Facts(*guarantee, kept * int(table.unit.nunique()), 1, kept)


@contextmanager
def _explain_interrupts() -> Iterator[list[str]]:
    """Turn an interrupt into one line that says what was charged, and the exit code 130.

    A fit that is interrupted carries a note of what it had charged; what a finished one charged goes into the list.
    """
    charged: list[str] = []
    try:
        yield charged
    except KeyboardInterrupt as interrupt:
        notes = [*getattr(interrupt, "__notes__", []), *charged, "nothing was charged"]
        complain("interrupted", f"no model was written; {notes[0]}")
        raise typer.Exit(INTERRUPTED) from None
