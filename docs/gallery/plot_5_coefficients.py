"""
Signal or noise? Coefficients with their uncertainty
====================================================

`coef_noise_` says how far the noise of privacy moves each coefficient, as one standard deviation. It follows from
released quantities, so looking at it costs nothing. The larger epsilon is, the more coefficients are clearly not 0.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpdescent import DPLogisticRegression, load_dataset

data = load_dataset("synthetic")

# %%
# The levels of a category add up to 1, and only their differences can be learnt. So one level of each is left out,
# and the coefficients of the others are differences from it.

reference = {f"{column.name}={column.levels[0]}" for column in data.schema.categorical}
kept = [position for position, name in enumerate(data.feature_names) if name not in reference]
X, binary = data.X[:, kept], np.asarray(data.binary_features)[kept]
public = {"bounds": (0, 1), "classes": data.classes, "binary_features": binary}
models = {epsilon: DPLogisticRegression(epsilon, 1e-6, **public).fit(X, data.y) for epsilon in (0.2, 2.0)}
order = np.argsort(models[2.0].coef_[0])
names = np.array(data.feature_names)[kept][order]

figure, panels = plt.subplots(1, 2, figsize=(10, 6), sharey=True, sharex=True, layout="constrained")
for axes, (epsilon, model) in zip(panels, models.items(), strict=True):
    weights, noise = model.coef_[0][order], 2 * model.coef_noise_[0][order]
    clear = np.abs(weights) > noise
    axes.axvline(0, color="0.7", lw=1)
    axes.hlines(names, weights - noise, weights + noise, color=np.where(clear, "tab:blue", "0.7"), lw=2)
    axes.scatter(weights, names, c=np.where(clear, "tab:blue", "0.6"), zorder=3)
    axes.set(title=f"epsilon {epsilon:g}: {clear.sum()} of {clear.size} beyond two deviations", xlabel="coefficient")
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
