"""What private line search costs: the numbers of docs/line-search.md.

Run: ``python benchmarks/line_search_privacy.py [--json FILE]``; about ten seconds of one processor.

1. Exact Renyi divergence of a Gaussian search, against alpha rho, which Theorem 3 of Chen & Lee (2020) claims.
2. Cost of one Laplace search by the recursion, as a share of equation (4) there and of the pure-DP conversion.
3. Updates that the paper's budgets pay for, by its accounting and by others.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from dpdescent.accounting import RDP, AboveThreshold, Gaussian, PoissonSampled, PureDP, best_order
from dpdescent.accounting.sampling import poisson_rdp

DELTA, RATE, MAX_STEPS = 1e-8, 0.1, 20
ORDERS = range(2, 501)  # those of the paper
MORE_ORDERS = [*range(2, 200), *np.geomspace(200, 40_000, 80).astype(int).tolist()]


def gaussian_search(queries: np.ndarray, threshold: float, query: float) -> np.ndarray:
    """Return the log probabilities of stopping at each query, and of not stopping, by the trapezoidal rule."""
    z = np.linspace(-12 * threshold, 12 * threshold, 1001)
    log_weight = -((z / threshold) ** 2) / 2 - math.log(threshold * math.sqrt(2 * math.pi)) + math.log(z[1] - z[0])
    below, laws = np.zeros_like(z), []
    for q in queries:
        x = (z - q) / query
        laws.append(logsumexp(log_weight + below + log_ndtr(-x)))
        below = below + log_ndtr(x)
    return np.array([*laws, logsumexp(log_weight + below)])


def counterexample(queries: int, level: float, rho: float = 0.01) -> dict[str, float]:
    """Return D_2 of alternating neighbours: every other query one higher, the rest one lower."""
    threshold, query = math.sqrt(1.5 / rho), math.sqrt(3 / rho)
    here = np.full(queries, -level * query)
    there = here + np.where(np.arange(queries) % 2 == 0, 1.0, -1.0)
    p, q = gaussian_search(here, threshold, query), gaussian_search(there, threshold, query)
    return {
        "queries": queries,
        "claimed": 2 * rho,
        "exact": float(logsumexp(2 * p - q)),
        "recursion": AboveThreshold(queries, query, threshold, "gaussian").rdp(2),
    }


def equation_4(order: float, epsilon: float) -> float:
    """Return Theorem 2 of the paper for a search of ``epsilon``: the divergences of both noises, added up."""

    def laplace(shift: float) -> float:
        first = math.log(order / (2 * order - 1)) + (order - 1) * shift
        return float(np.logaddexp(first, math.log((order - 1) / (2 * order - 1)) - order * shift))

    return 2 * laplace(epsilon / 2) / (order - 1)


def one_search(epsilon: float, order: float) -> dict[str, float]:
    ours = AboveThreshold(MAX_STEPS, 4 / epsilon, 2 / epsilon).rdp(order)
    claimed, converted = equation_4(order, epsilon), PureDP(epsilon).rdp(order)
    return {
        "epsilon": epsilon,
        "order": order,
        "recursion": ours,
        "equation_4": claimed,
        "pure": converted,
        "saving": converted / ours,
    }


def amplified(order: int, curve: Callable[[int], float]) -> float:
    """Return Lemma 4 of the paper, the amplification of any mechanism (Zhu & Wang 2019), with its factor 3."""
    j = np.arange(2, order + 1, dtype=float)
    binomials = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    terms = binomials + j * math.log(RATE) + (order - j) * math.log1p(-RATE)
    terms += (j - 1) * np.array([curve(int(k)) for k in j]) + np.where(j > 2, math.log(3), 0.0)
    first = (order - 1) * math.log1p(-RATE) + math.log(order * RATE - RATE + 1)
    return float(np.logaddexp(first, logsumexp(terms))) / (order - 1)


def updates(epsilon: float) -> dict[str, int]:
    """Return how many pairs of a gradient and a search the paper's budgets pay for, if no search fails."""
    each = epsilon / 100
    gradient, search = Gaussian(1 / each), AboveThreshold(MAX_STEPS, 4 / each, 2 / each)
    measured, searched = cache(gradient.rdp), cache(partial(equation_4, epsilon=each))
    together = cache(lambda order: gradient.rdp(order) + PureDP(each).rdp(order))

    def most(price: Callable[[int], float], orders: Iterable[int]) -> int:
        """Return the best count over the orders, by the conversion of Mironov (2017) that the paper uses."""
        budgets = {order: epsilon - math.log(1 / DELTA) / (order - 1) for order in orders}
        return math.floor(max(budget / price(order) for order, budget in budgets.items() if budget > 0))

    order = round(best_order(epsilon, DELTA))
    budget, paid = RDP(order).budget(epsilon, DELTA), [PoissonSampled(RATE, (part,)) for part in (gradient, search)]
    return {
        "paper, orders to 500": most(lambda a: amplified(a, measured) + amplified(a, searched), ORDERS),
        "paper, any order": most(lambda a: amplified(a, measured) + amplified(a, searched), MORE_ORDERS),
        "no sub-sampling": most(lambda a: measured(a) + searched(a), MORE_ORDERS),
        "one batch": most(lambda a: poisson_rdp(RATE, a, together), MORE_ORDERS),
        "here": math.floor(budget / sum(cost.rdp(order) for cost in paid)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()

    exact = [counterexample(queries, level) for queries, level in ((60, 1.5), (1000, 2.5), (3000, 2.75))]
    print("1. Gaussian search, rho = 0.01, order 2\n  queries   claimed     exact    recursion")
    for row in exact:
        print(f"  {row['queries']:7d}   {row['claimed']:.5f}   {row['exact']:.5f}   {row['recursion']:.5f}")

    searches = [one_search(epsilon, order) for epsilon in (0.01, 0.05, 0.1, 0.5, 1.0, 4.0) for order in (2, 8, 32)]
    print(f"\n2. one Laplace search of {MAX_STEPS} steps")
    print("  epsilon  order   recursion  equation (4)     pure DP  saving")
    for row in searches:
        print(
            f"  {row['epsilon']:7g}  {row['order']:5d}  {row['recursion']:10.3e}  {row['equation_4']:12.3e}  "
            f"{row['pure']:10.3e}  {row['saving']:6.2f}"
        )

    counts = {epsilon: updates(epsilon) for epsilon in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)}
    print("\n3. updates\n  epsilon" + "".join(f"{name:>22s}" for name in counts[0.05]))
    for epsilon, row in counts.items():
        print(f"  {epsilon:7g}" + "".join(f"{count:22,d}" for count in row.values()))

    if options.json:
        report = {"counterexample": exact, "searches": searches, "updates": counts}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"ratio_search: {searches[0]['recursion'] / searches[0]['pure']:.3f}")


if __name__ == "__main__":
    main()
