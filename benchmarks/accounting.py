"""Time of adaptive accounting: 500 spends on a ledger, and the bound of one AboveThreshold search.

Run: ``python benchmarks/accounting.py [--json FILE]``. Each time is the best of several runs. The ratios compare
500 zCDP spends with 50 ms, and the slower of two uncached bounds with 20 ms.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from dpdescent.accounting import AboveThreshold
from dpdescent.accounting.bellman import bellman_bound
from dpdescent.ledger import Ledger

SPENDS = 500
SPENDS_GOAL = 0.050
BOUND_GOAL = 0.020
QUERIES, ORDER = 30, 8.0
SCALES = {"laplace": (10.0, 20.0), "gaussian": (8.0, 20.0)}


def best_seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def spend_adaptively(currency: str) -> None:
    """Half Gaussian, half selection, each request a fixed share of what is left."""
    ledger = Ledger(1.0, 1e-8, currency=currency)
    for step in range(SPENDS):
        amount = ledger.remaining / 100
        cost = ledger.currency.gaussian(amount) if step % 2 == 0 else ledger.currency.selection(amount)
        ledger.spend(cost, "benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()

    seconds = {}
    for currency in ("zcdp", "gdp"):
        seconds[f"spends_{currency}"] = best_seconds(lambda c=currency: spend_adaptively(c), 5)
    for noise, (threshold, query) in SCALES.items():
        seconds[f"bellman_{noise}"] = best_seconds(
            lambda n=noise, t=threshold, q=query: bellman_bound(ORDER, QUERIES, n, t, q), 10
        )
        cost = AboveThreshold(QUERIES, query, threshold, noise)
        cost.rdp(ORDER)
        seconds[f"cached_{noise}"] = best_seconds(lambda c=cost: c.rdp(ORDER), 100)
    for name, value in seconds.items():
        print(f"{name:17s} {1e3 * value:9.4f} ms")

    ratio_spends = seconds["spends_zcdp"] / SPENDS_GOAL
    ratio_bellman = max(seconds["bellman_laplace"], seconds["bellman_gaussian"]) / BOUND_GOAL
    if options.json:
        report = {"seconds": seconds, "ratio_spends": ratio_spends, "ratio_bellman": ratio_bellman}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"ratio_spends: {ratio_spends:.2f}")
    print(f"ratio_bellman: {ratio_bellman:.2f}")


if __name__ == "__main__":
    main()
