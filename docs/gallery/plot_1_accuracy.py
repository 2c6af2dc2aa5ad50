"""
How accuracy grows with epsilon
===============================

A private logistic regression is fitted at six budgets, three times each, and compared with the model without privacy
and with the frequency of the larger class. Nothing is tuned for any of the budgets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from dpdescent import DPLogisticRegression, load_dataset

data = load_dataset("synthetic")
X_train, X_test, y_train, y_test = train_test_split(data.X, data.y, test_size=0.3, random_state=0)
public = {"bounds": data.bounds, "classes": data.classes, "binary_features": data.binary_features}

epsilons = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
scores = [
    [DPLogisticRegression(epsilon, 1e-6, **public).fit(X_train, y_train).score(X_test, y_test) for _ in range(3)]
    for epsilon in epsilons
]
plain = LogisticRegression(C=np.inf, max_iter=500).fit(X_train, y_train).score(X_test, y_test)
majority = max(np.mean(y_test), 1 - np.mean(y_test))

# %%
# The dots are single fits, which differ because their noise differs. The line connects the means.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.axhline(plain, color="0.5", ls="--", lw=1)
axes.axhline(majority, color="0.5", ls=":", lw=1)
axes.text(epsilons[0], plain, "no privacy", va="bottom", color="0.35")
axes.text(epsilons[0], majority, "larger class", va="bottom", color="0.35")
axes.plot(epsilons, np.mean(scores, axis=1), color="tab:blue", lw=2)
axes.plot(np.repeat(epsilons, 3), np.ravel(scores), "o", color="tab:blue", ms=5, alpha=0.6)
axes.set_xscale("log")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.minorticks_off()
axes.set(xlabel="epsilon (delta = 1e-6)", ylabel="test accuracy", title="Private logistic regression, 14,000 rows")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
