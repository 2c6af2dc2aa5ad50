"""
Methods side by side
====================

The same rows, the same budget, five methods with their default settings. The lines are means over three fits. The
command `dpdescent compare` makes such comparisons with cross-validation, tables and pages.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from dpdescent import DPLogisticRegression, load_dataset

data = load_dataset("synthetic")
X_train, X_test, y_train, y_test = train_test_split(data.X, data.y, train_size=4000, random_state=0)
public = {"bounds": data.bounds, "classes": data.classes, "binary_features": data.binary_features}
epsilons = [0.1, 0.3, 1.0, 3.0]


def area(method: str, epsilon: float) -> float:
    """Return the mean area under the curve of three fits."""
    fits = [DPLogisticRegression(epsilon, 1e-6, method=method, **public).fit(X_train, y_train) for _ in range(3)]
    return float(np.mean([roc_auc_score(y_test, fit.decision_function(X_test)) for fit in fits]))


figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for method, marker in zip(("auto", "agd", "sgd", "outpert", "objpert"), "osv^D", strict=True):
    axes.plot(epsilons, [area(method, epsilon) for epsilon in epsilons], marker=marker, lw=2, label=method)
axes.set_xscale("log")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.minorticks_off()
axes.set(xlabel="epsilon (delta = 1e-6)", ylabel="test AUC", title="Private logistic regression, 4,000 rows")
axes.legend(frameon=False, title="method")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
