"""The tables of second-order descents: data, losses, tolerances."""

from __future__ import annotations

from ...problems import L2, Logistic, NonConvex, Sigmoid
from .stationary_runs import StationaryTable

__all__ = ["STATIONARY_TABLES"]

_PAPER = "the tables of `Differentially private optimization for smooth non-convex ERM' (2022)"
_RELATION = "Neighbours are those of zero-out."
_DETAILS = (
    "The paper's neighbours differ in one row that is changed; here a row is taken out (zero-out), which moves a sum "
    "half as far or nearly so, and the same epsilon buys less noise.",
    "Columns are scaled by public bounds; numbers are then at most 1 and one of a group of indicators is 1, which "
    "bounds the length of a row, and all constants follow from that. The paper states neither delta nor its "
    "constants.",
    "With so few rows most runs are promised nothing, as in the paper.",
)
_ROWS = {
    "covertype": "All 495,141 rows of its first two classes, as in the paper.",
    "ijcnn1": "The 49,990 rows of the training file; the paper prints 4999.",
}
# Of runs that take minutes: tolerances that most methods reach in 200 steps, and that not every start satisfies.
_QUICK = {"covertype": 0.06, "ijcnn1": 0.13, "covertype-sigmoid": 0.02, "ijcnn1-sigmoid": 0.06}
_TIGHTER = (("loose", 0.04), ("tight", 0.02))

STATIONARY_TABLES = tuple(
    StationaryTable(
        name=f"002/{dataset}{mark}",
        title=f"Second-order points on {shown}: {what}",
        caption=f"{what[:1].upper()}{what[1:]}, after {_PAPER}. {_ROWS[dataset]} {_RELATION}",
        details=_DETAILS,
        dataset=dataset,
        row_bound=row_bound,
        loss=loss,
        penalty=penalty,
        tolerances=(("loose", 0.06), ("tight", 0.03)) if (dataset, mark) == ("covertype", "") else _TIGHTER,
        training=dataset == "ijcnn1",
        quick_seeds=5 if dataset == "ijcnn1" else 2,
        quick_tolerances=(("quick", _QUICK[f"{dataset}{mark}"]),),
    )
    for mark, what, loss, penalty in (
        ("", "the logistic loss with a non-convex penalty", Logistic(), NonConvex(1e-3)),
        ("-sigmoid", "the sigmoid loss with an L2 penalty", Sigmoid(), L2(1e-3)),
    )
    # Ten numbers and two groups of indicators; twelve numbers and one group.
    for dataset, shown, row_bound in (("covertype", "Covertype", 12**0.5), ("ijcnn1", "IJCNN1", 13**0.5))
)
