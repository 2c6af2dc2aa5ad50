"""
What bounds cost, and what measuring them costs
===============================================

Bounds must be public. Narrow ones clip cells, and very wide ones lose the column in noise that is made for cells
which do not exist. A small part of the budget tightens bounds that are too wide, or measures unknown ones.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpdescent import DPLinearRegression

generator = np.random.default_rng(0)
salary = generator.lognormal(10.5, 0.5, 10_000)
rent = 300 + 0.012 * salary + generator.normal(0, 60, 10_000)

widths = np.array([3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7])


def quality(bounds: object, tighten: bool | None = None) -> float:
    """Return the mean share of the variance that is explained, over four fits."""
    fits = [
        DPLinearRegression(0.3, 1e-6, bounds=bounds, tighten=tighten, target_bounds=(0, 3000)).fit(
            salary[:, None], rent
        )
        for _ in range(4)
    ]
    return float(np.mean([fit.score(salary[:, None], rent) for fit in fits]))


given = [quality((0, width), tighten=False) for width in widths]
tightened = [quality((0, width), tighten=True) for width in widths]
measured = quality(None)

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(widths, given, "o-", color="tab:blue", lw=2, label="bounds=(0, b), tighten=False")
axes.plot(widths, tightened, "s-", color="tab:green", lw=2, label="bounds=(0, b), tighten=True")
axes.axhline(measured, color="tab:orange", lw=2, label="bounds=None, measured privately")
axes.axvline(salary.max(), color="0.7", ls="--", lw=1)
axes.text(salary.max(), 0.5, "largest salary", color="0.35", rotation=90, ha="right", va="center")
axes.set_xscale("log")
axes.set(xlabel="upper bound b of the salary", ylabel="R² of the rent", title="Private regression, epsilon 0.3")
axes.set_ylim(0, 1.05)
axes.legend(frameon=False, loc="lower center")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
