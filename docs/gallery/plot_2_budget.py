"""
Where the budget goes
=====================

The privacy statement of a model says how much of its budget each kind of private query has cost. Here are three
methods on the same rows with the same epsilon.
"""

import matplotlib.pyplot as plt

from dpdescent import DPLogisticRegression, load_dataset

data = load_dataset("synthetic")
public = {"bounds": data.bounds, "classes": data.classes, "binary_features": data.binary_features}
methods = ["auto", "agd", "blsgd"]
statements = {
    method: DPLogisticRegression(1.0, 1e-6, method=method, **public).fit(data.X, data.y).privacy_
    for method in methods
}

# %%
# `asked` counts the queries of each kind, and `spent_on` has their shares of the budget.

figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
for axes, (method, statement) in zip(panels, statements.items(), strict=True):
    shares = statement["spent_on"]
    names = [f"{name} ({statement['asked'].get(name, 1)})" for name in shares]
    bars = axes.barh(names, [100 * share for share in shares.values()], color="tab:blue", height=0.6)
    axes.bar_label(bars, fmt="%.0f%%", padding=3)
    axes.invert_yaxis()
    axes.set(title=f'method="{method}"', xlim=(0, 115), xlabel="share of the budget (%)")
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
