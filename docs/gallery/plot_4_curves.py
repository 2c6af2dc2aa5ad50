"""
A private model that can be read
================================

`DPAdditiveClassifier` learns a curve for every number and a weight for every level. The bands show how far the noise
of privacy may have moved each of them (two standard deviations), so that you see which bends are real.
"""

import matplotlib.pyplot as plt

from dpdescent import DPAdditiveClassifier, load_dataset

data = load_dataset("synthetic", n=60_000)
encoded = data.schema.encoder().set_output(transform="pandas").fit_transform(data.table)

# %%
# The encoder maps all columns to [0, 1]. Numbers in their own units, with their public bounds, are easier to read.

bounds = dict.fromkeys(encoded, (0, 1)) | {each.name: (each.low, each.high) for each in data.schema.numeric}
numbers = [each.name for each in data.schema.numeric]
encoded[numbers] = data.table[numbers].astype(float)
low, high = zip(*bounds.values(), strict=True)

model = DPAdditiveClassifier(
    2.0, 1e-6, bounds=(low, high), classes=data.classes, binary_features=data.binary_features
)
model.fit(encoded, data.y)

# %%
# `terms_` holds the curves as plain arrays, the most important one first. `model.plot_terms()` draws all of them, and
# `model.terms_html("terms.html")` writes a page.

curves = [term for term in model.terms_ if term.kind == "curve"]
figure, panels = plt.subplots(1, len(curves), figsize=(11, 3.2), sharey=True, layout="constrained")
for axes, term in zip(panels, curves, strict=True):
    axes.fill_between(
        term.grid, term.effect - 2 * term.noise, term.effect + 2 * term.noise, color="tab:blue", alpha=0.2, lw=0
    )
    axes.plot(term.grid, term.effect, color="tab:blue", lw=2)
    axes.axhline(0, color="0.7", lw=1)
    axes.set(title=term.column)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("effect on the log-odds")
plt.show()
