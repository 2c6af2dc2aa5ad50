"""
What epsilon means to an attacker
=================================

Somebody sees the model and knows every row but Ann's. How well can a test tell whether her row was in the table? Each
line shows the best test that the guarantee leaves possible: the closer to the diagonal, the closer to guessing.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from dpdescent.accounting import epsilon_to_gdp

false_alarms = np.linspace(1e-6, 1 - 1e-6, 400)
figure, axes = plt.subplots(figsize=(5.2, 5), layout="constrained")
axes.plot([0, 1], [0, 1], color="0.6", ls="--", lw=1)
axes.text(0.62, 0.56, "guessing", color="0.35", rotation=45, rotation_mode="anchor")
for epsilon, colour in zip((0.1, 1, 3, 8), plt.cm.viridis(np.linspace(0.1, 0.85, 4)), strict=True):
    mu = epsilon_to_gdp(epsilon, 1e-6)
    axes.plot(false_alarms, norm.cdf(mu + norm.ppf(false_alarms)), color=colour, lw=2, label=f"epsilon {epsilon:g}")
axes.set(
    xlabel="false alarms", ylabel="how often Ann's row is recognised", title="The best possible test, delta = 1e-6"
)
axes.set_aspect("equal")
axes.legend(frameon=False, loc="lower right")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
