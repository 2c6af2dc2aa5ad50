"""How long a fit takes on a busy machine: alone, and beside busy processes, as a ratio in one run.

With b busy processes on c processors a fair share is c/(b + 1) of them, so a fit that uses one processor takes
(b + 1)/c times as long. Threads that wait for each other by spinning take far longer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from pathlib import Path

import numpy as np

from dpdescent import DPLogisticRegression, load_dataset
from dpdescent.errors import DPDescentError


def busy() -> None:
    while True:
        sum(range(10_000))


def fit_seconds(repeats: int, data: str, tighten: bool) -> float:
    """Return the median time of a fit; ``tighten`` if it also measures whether the bounds could be narrower."""
    try:
        table = load_dataset(data)
    except DPDescentError:
        print(f"{data} is not on this machine: a synthetic table takes its place")
        table = load_dataset("synthetic", n=45_000)
    found = []
    for seed in range(repeats + 1):
        public = {"bounds": table.bounds, "classes": table.classes, "tighten": tighten}
        model = DPLogisticRegression(1.0, 1e-8, random_state=seed, **public)
        start = time.perf_counter()
        model.fit(table.X, table.y)
        found.append(time.perf_counter() - start)
    return float(np.median(found[1:]))  # the first one fills caches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="adult")
    parser.add_argument("--busy", type=int, default=4, help="busy processes beside the fit")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    kinds = {"": False, "_measuring": True}
    alone = {kind: fit_seconds(arguments.repeats, arguments.data, tighten) for kind, tighten in kinds.items()}
    others = [multiprocessing.Process(target=busy, daemon=True) for _ in range(arguments.busy)]
    for other in others:
        other.start()
    time.sleep(0.5)
    beside = {kind: fit_seconds(arguments.repeats, arguments.data, tighten) for kind, tighten in kinds.items()}
    for other in others:
        other.kill()
    record = {}
    for kind in kinds:
        record |= {f"seconds_alone{kind}": alone[kind], f"seconds_beside{kind}": beside[kind]}
        record[f"ratio_load{kind}"] = beside[kind] / alone[kind]
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(f"{arguments.busy} busy processes, {multiprocessing.cpu_count()} processors, {arguments.data}")
    for name, value in record.items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    main()
