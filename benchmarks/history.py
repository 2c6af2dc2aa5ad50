"""How fast the library was at each version: ratios of the quick benchmarks, kept in one file that a page draws.

``python benchmarks/history.py run`` runs every benchmark that prints lines ``ratio_NAME: NUMBER``, appends what it
prints to benchmarks/history.jsonl with date, version, commit and machine, and writes docs/speed.md with its picture.
``page`` only writes the page. A ratio compares with a plain computation in the same process, so that those of two
machines can stand side by side; run it on an idle machine all the same.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dpdescent

HERE = Path(__file__).parent
KEPT, PAGE, PICTURE = (HERE / "history.jsonl", HERE.parent / "docs" / "speed.md", HERE.parent / "docs" / "speed.png")

#: What each ratio compares, by its name.
RATIOS = {
    "accounting": "accounting of 500 answers over 50 milliseconds, and of a threshold search over 20",
    "agd": "an iteration of `agd` over `X.T @ (X @ w)`",
    "auto": "a fit of `auto` over logistic regression of scikit-learn without privacy",
    "exact_gradient": "an exact clipped gradient over a plain one in floating point",
    "ledger": "a charge to a file over one sync of its disk, and a fit with a file over one without",
    "line_search": "the exact sums of an iteration with a line search over `X.T @ (X @ w)`",
    "noise": "exact noise over that of numpy",
    "outpert": "`outpert` over L-BFGS to the same tolerance",
    "search": "a private search of 20 steps over `X.T @ (X @ w)` of its batch, without and with gathering the batch",
    "second_order": "a gradient and a Hessian with noise over plain ones",
}
INTRODUCTION = """# How fast is it, and has it become slower?

Ratios of the time that the library takes to that of a computation without privacy in the same process; what the
latter is, the list below says. Smaller is faster. `make bench` measures them, appends them to
`benchmarks/history.jsonl` and writes this page.

![Ratios of all benchmarks](speed.png)

"""


def measure(script: str) -> dict[str, float]:
    """Return the ratios that a benchmark prints."""
    printed = subprocess.run(
        [sys.executable, str(HERE / f"{script}.py")], check=True, capture_output=True, text=True, cwd=HERE.parent
    ).stdout
    found = {name: float(number) for name, number in re.findall(r"^ratio_([\w.]+): ([\d.]+)$", printed, re.MULTILINE)}
    if not found:
        raise SystemExit(f"benchmarks/{script}.py prints no line of the form ratio_NAME: NUMBER")
    return {f"{script}: {name}": number for name, number in found.items()}


def run(scripts: list[str]) -> None:
    """Measure, and append one line."""
    ratios: dict[str, float] = {}
    for script in scripts:
        print(script, flush=True)
        ratios |= measure(script)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False
    ).stdout.strip()
    record = {
        "date": datetime.date.today().isoformat(),
        "version": dpdescent.__version__,
        "commit": commit,
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}",
        "ratios": ratios,
    }
    with KEPT.open("a") as lines:
        lines.write(json.dumps(record) + "\n")


def kept() -> list[dict[str, Any]]:
    """Return all that was measured, oldest first."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def page_of(records: list[dict[str, Any]]) -> str:
    """Return the page: the last measurement of every ratio beside the first and the least one."""
    last = records[-1]
    lines = [
        f"Last measured on {last['date']}, version {last['version']} ({last['commit']}), {last['machine']}; "
        f"number of measurements: {len(records)}.",
        "",
        "| benchmark | ratio | first | least | last |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, number in last["ratios"].items():
        script, _, ratio = name.partition(": ")
        values = [each["ratios"][name] for each in records if name in each["ratios"]]
        lines.append(f"| `{script}` | {ratio} | {values[0]:.3g} | {min(values):.3g} | {number:.3g} |")
    lines += ["", "What they compare:", "", *(f"- `{script}`: {said}." for script, said in RATIOS.items())]
    return INTRODUCTION + "\n".join(lines) + "\n"


def draw(records: list[dict[str, Any]]) -> None:
    """Draw one line per ratio over the measurements, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(records[-1]["ratios"])
    figure, axes = pyplot.subplots(figsize=(8, 0.32 * len(names) + 1), layout="constrained")
    for place, name in enumerate(names):
        values = [each["ratios"][name] for each in records if name in each["ratios"]]
        axes.plot(values, [place] * len(values), "o", color="#9aa5b1", markersize=4)
        axes.plot(values[-1], place, "o", color="#1f5fa8", markersize=7)
    axes.axvline(1, color="#444444", linewidth=1)
    axes.set(xscale="log", xlabel="ratio to the plain computation (blue: last measurement)", ylim=(len(names), -1))
    axes.set_yticks(range(len(names)), names, fontsize=8)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("run", "page"))
    parser.add_argument("scripts", nargs="*", help="benchmarks to run; all by default")
    arguments = parser.parse_args()
    if arguments.action == "run":
        run(arguments.scripts or list(RATIOS))
    records = kept()
    if not records:
        raise SystemExit("nothing was measured yet: python benchmarks/history.py run")
    PAGE.write_text(page_of(records))
    draw(records)
    print(f"measurements kept: {len(records)}; page written to {PAGE}")


if __name__ == "__main__":
    main()
