"""The command ``dpdescent demo``: private models, what they cost, and how accuracy grows with epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display import occasional
from ..errors import DatasetNotAvailable, InvalidParameter, require_open_unit, require_positive
from ..long_runs import require_writable
from .terminal import Delta, Epsilon, JsonFile, Seed, downloading, say, screen, write_json

if TYPE_CHECKING:
    from ..datasets import Dataset

LADDER = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
BLUE, GREY, DARK = "#1f5fa8", "#8a8f98", "#22262b"


def demo_command(
    epsilon: Epsilon = 0.4,
    delta: Delta = 1e-6,
    dataset: Annotated[str | None, typer.Option(help="A data set; Adult if it is there, else synthetic.")] = None,
    picture: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("out/demo.png"),
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Train a private model on public data, and show what it cost."""
    require_positive("epsilon", epsilon)
    require_open_unit("delta", delta)
    for path in (picture, json_file):
        if path is not None:
            require_writable(path)
    if picture.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidParameter(f"--picture must end in .png, .svg or .pdf, got {str(picture)!r}")
    data = _demo_data(dataset)
    if len(data.classes) != 2:
        raise InvalidParameter(f"the demonstration shows two classes, and {data.name!r} has {len(data.classes)}")
    write_json(json_file, run_demo(data, epsilon, delta, seed, picture))


def _demo_data(name: str | None) -> Dataset:
    from ..datasets import load_dataset

    if name is not None:
        with downloading() as progress:
            return load_dataset(name, progress=progress)
    try:
        return load_dataset("adult", download=False)
    except DatasetNotAvailable:
        return load_dataset("synthetic")


def run_demo(data: Dataset, epsilon: float, delta: float, seed: int | None, picture: Path) -> dict[str, Any]:
    """Train, print and draw; return the numbers as plain data."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    split = train_test_split(data.X, data.y, test_size=0.2, random_state=0)
    X_train, X_test, y_train, y_test = split
    plain = LogisticRegression(C=np.inf, max_iter=500).fit(X_train, y_train).score(X_test, y_test)
    majority = float(max(np.mean(y_test == label) for label in data.classes))
    say(f"{data.name}: {X_train.shape[0]:,} rows to train on, {X_train.shape[1]} columns", style="bold")
    models = _fit_ladder(data, X_train, y_train, sorted({*LADDER, epsilon}), delta, seed)
    accuracy = {value: float(model.score(X_test, y_test)) for value, model in models.items()}
    privacy = models[epsilon].privacy_
    _show_accuracy(accuracy, epsilon, plain, majority)
    _show_cost(privacy, epsilon)
    if _draw(picture, data.name, accuracy, plain, majority, privacy):
        say(f"picture: {picture}")
    else:
        say("no picture: pip install 'dpdescent[plots]' to draw one")
    return {
        "dataset": data.name,
        "epsilon": epsilon,
        "delta": delta,
        "accuracy": {f"{value:g}": score for value, score in accuracy.items()},
        "nonprivate": float(plain),
        "majority": majority,
        "privacy": privacy,
    }


def _fit_ladder(
    data: Dataset, X: Any, y: Any, ladder: list[float], delta: float, seed: int | None
) -> dict[float, Any]:
    """Return a model for each epsilon."""
    from ..estimators import DPLogisticRegression

    models, speak = {}, occasional()
    for place, value in enumerate(ladder):
        speak(f"training: {place} of {len(ladder)} models are done")
        model = DPLogisticRegression(
            value,
            delta,
            bounds=data.bounds,
            binary_features=data.binary_features,
            classes=data.classes,
            random_state=seed,
        )
        models[value] = model.fit(X, y)
    return models


def _show_accuracy(accuracy: dict[float, float], epsilon: float, plain: float, majority: float) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", title_justify="left")
    table.add_column("epsilon", justify="right")
    table.add_column("test accuracy", justify="right")
    for value, score in accuracy.items():
        style = "bold" if value == epsilon else ""
        table.add_row(f"{value:g}", f"{score:.4f}", style=style)
    table.add_row("no privacy", f"{plain:.4f}", style="dim")
    table.add_row("majority class", f"{majority:.4f}", style="dim")
    screen().print(table)


def _show_cost(privacy: dict[str, Any], epsilon: float) -> None:
    from ..statement import headline

    say("")
    say(f"The model at epsilon {epsilon:g} is {headline(privacy)}")
    say(f"It spent {privacy['spent'] / privacy['budget']:.1%} of its budget:")
    for label, share in privacy["spent_on"].items():
        say(f"  {share:6.1%}  {label}")
    touches = ", ".join(f"{count} x {kind}" for kind, count in privacy["mechanisms"].items())
    say(f"The data was touched {sum(privacy['mechanisms'].values())} times: {touches}.")


def _draw(
    path: Path, name: str, accuracy: dict[float, float], plain: float, majority: float, privacy: dict[str, Any]
) -> bool:
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from ..statement import headline

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2), layout="constrained")
    _draw_accuracy(left, name, accuracy, plain, majority, privacy["delta"])
    _draw_shares(right, privacy)
    figure.suptitle(f"At epsilon {privacy['epsilon']:g}: {headline(privacy)}", fontsize=10, color=GREY)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def _draw_accuracy(
    axes: Any, name: str, accuracy: dict[float, float], plain: float, majority: float, delta: float
) -> None:
    values = list(accuracy)
    axes.plot(values, list(accuracy.values()), "o-", color=BLUE, lw=2, ms=6)
    for height, text in ((plain, "no privacy"), (majority, "majority class")):
        axes.axhline(height, color=GREY, lw=1, ls="--")
        axes.annotate(
            text,
            (0, height),
            xycoords=("axes fraction", "data"),
            xytext=(4, 4),
            ha="left",
            textcoords="offset points",
            color=GREY,
            fontsize=9,
        )
    axes.annotate(
        "auto",
        (values[-1], accuracy[values[-1]]),
        xytext=(-4, -16),
        ha="right",
        textcoords="offset points",
        color=BLUE,
        fontsize=10,
        weight="bold",
    )
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlabel("epsilon")
    axes.set_ylabel("test accuracy")
    axes.set_title(f"Private logistic regression on {name}, delta = {delta:g}", loc="left", fontsize=11, color=DARK)


def _draw_shares(axes: Any, privacy: dict[str, Any]) -> None:
    labels = list(privacy["spent_on"])
    shares = [100 * privacy["spent_on"][label] for label in labels]
    axes.barh(labels, shares, color=BLUE, height=0.5)
    for label, share in zip(labels, shares, strict=True):
        axes.annotate(f"{share:.1f}%", (share, label), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, max(shares) * 1.2)
    axes.invert_yaxis()
    axes.set_xlabel("share of the budget (%)")
    axes.set_title(f"Where epsilon = {privacy['epsilon']:g} went", loc="left", fontsize=11, color=DARK)
