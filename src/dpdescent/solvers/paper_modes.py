"""The papers, and what ``paper=True`` stands for: by method, the settings that one states, and where we differ.

A paper mode runs what a paper describes or compares with. Three things stay as they are everywhere: a privacy claim
that does not hold is replaced by one that does, every answer is charged before rows are read, and sums are divided by
public numbers. What a paper leaves open is listed apart, with the value that is taken instead: that of the authors'
published code where there is one, and otherwise a rule of ours. An intercept is penalised like every other weight.

The docstrings of this package cite the papers of `PAPERS` by author and year.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Citations by author and year.
PAPERS = {
    "Abadi et al. 2016": ("Abadi, M. et al. (2016). Deep learning with differential privacy. CCS. arXiv:1607.00133."),
    "Bassily et al. 2014": (
        "Bassily, R., Smith, A. & Thakurta, A. (2014). Private empirical risk minimization: efficient algorithms and "
        "tight error bounds. FOCS. arXiv:1405.7085."
    ),
    "Chaudhuri et al. 2011": (
        "Chaudhuri, K., Monteleoni, C. & Sarwate, A. (2011). Differentially private empirical risk minimization. "
        "JMLR 12. arXiv:0912.0071."
    ),
    "Chen & Lee 2020": (
        "Chen, C. & Lee, J. (2020). Stochastic adaptive line search for differentially private optimization. "
        "arXiv:2008.07978."
    ),
    "Chen et al. 2019": (
        "Chen, C., Lee, J. & Kifer, D. (2019). Renyi differentially private ERM for smooth objectives. AISTATS."
    ),
    "Gao & Wright 2023": (
        "Gao, C. & Wright, S. J. (2023). Differentially private optimization for smooth nonconvex ERM. "
        "arXiv:2302.04972."
    ),
    "Iyengar et al. 2019": (
        "Iyengar, R. et al. (2019). Towards practical differentially private convex optimization. IEEE S&P."
    ),
    "Kairouz et al. 2021": (
        "Kairouz, P. et al. (2021). Practical and private (deep) learning without sampling or shuffling. ICML. "
        "arXiv:2103.00039."
    ),
    "Kifer et al. 2012": (
        "Kifer, D., Smith, A. & Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional "
        "regression. COLT."
    ),
    "Kingma & Ba 2015": (
        "Kingma, D. P. & Ba, J. (2015). Adam: a method for stochastic optimization. ICLR. arXiv:1412.6980."
    ),
    "Lee & Kifer 2018": (
        "Lee, J. & Kifer, D. (2018). Concentrated differentially private gradient descent with adaptive "
        "per-iteration privacy budget. KDD. arXiv:1808.09501."
    ),
    "Liu & Nocedal 1989": (
        "Liu, D. C. & Nocedal, J. (1989). On the limited memory BFGS method for large scale optimization. "
        "Mathematical Programming 45."
    ),
    "Lowy & Razaviyayn 2021": (
        "Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with "
        "improved population loss bounds, runtimes and applications to private adversarial training. "
        "arXiv:2102.04704."
    ),
    "Wang & Xu 2021": (
        "Wang, D. & Xu, J. (2021). Escaping saddle points of empirical risk privately and scalably via DP-trust "
        "region method. ECML PKDD."
    ),
    "Wang et al. 2017": (
        "Wang, D., Ye, M. & Xu, J. (2017). Differentially private empirical risk minimization revisited: faster and "
        "more general. NeurIPS. arXiv:1802.05251."
    ),
    "Wang et al. 2019": (
        "Wang, D., Chen, C. & Xu, J. (2019). Differentially private empirical risk minimization with non-convex loss "
        "functions. ICML."
    ),
    "Wu et al. 2017": (
        "Wu, X. et al. (2017). Bolt-on differential privacy for scalable stochastic gradient descent-based "
        "analytics. SIGMOD. arXiv:1606.04722."
    ),
    "Zhang et al. 2013": (
        "Zhang, J., Xiao, X., Yang, Y., Zhang, Z. & Winslett, M. (2013). PrivGene: differentially private model "
        "fitting using genetic algorithms. SIGMOD."
    ),
    "Zhang et al. 2017": (
        "Zhang, J., Zheng, K., Mou, W. & Wang, L. (2017). Efficient private ERM for smooth objectives. IJCAI. "
        "arXiv:1703.09947."
    ),
}


@dataclass(frozen=True)
class PaperMode:
    """The settings of a method in a paper.

    Parameters
    ----------
    paper : str
        A key of `PAPERS`.
    stated, open : mapping
        Settings with the values that the paper states, and those it leaves open with the values taken for them.
    rules : mapping
        Settings that follow from public numbers of a run, in words.
    differences : tuple of str
        One sentence for every deliberate difference from the paper.
    """

    paper: str
    stated: Mapping[str, Any] = field(default_factory=dict)
    open: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    differences: tuple[str, ...] = ()

    @property
    def values(self) -> Mapping[str, Any]:
        """All settings that have a value."""
        return {**self.stated, **self.open}


_AGD, _OUTPERT, _POINTS, _SEARCH = (
    "Lee & Kifer 2018",
    "Lowy & Razaviyayn 2021",
    "Gao & Wright 2023",
    "Chen & Lee 2020",
)

_UNIT_ROWS = (
    "Rows longer than 1 are scaled to length 1. With an intercept that is every row, since its constant column alone "
    "has length 1."
)
_SEARCH_ACCOUNTING = (
    "A step has to lower the mean loss of a batch by its demand, alpha eta |g|^2; the paper subtracts that demand "
    "from a sum of losses, beside a mean gradient, where it would be next to nothing.",
    "An answer is charged the paper's price or its true one, whichever is more, because the paper's is not sound in "
    "general: at one Renyi order, fixed before the run, and with a batch of its own for every search.",
    "Sums are divided by the public expected size of a batch and not by its actual size, which is private.",
    "The budget of a search grows until its noise is 2^-8 of what a row can change, beyond which no search fails for "
    "it; the paper's grows without end.",
)
_SEARCHED = PaperMode(
    _SEARCH,
    stated={
        "sampling_rate": 0.1,
        "search_rate": 0.1,
        "iterations": 50.0,
        "clip_gradient": 3.0,
        "clip_loss": 1.0,
        "clip": "losses",
        "decrease": 0.5,
        "backtrack": 0.8,
        "window": 10,
        "stretch": 1.2,
        "allocation": "adaptive",
        "growth": 0.3,
        "angle_high": 1.1,
        "angle_low": 0.5,
        "angle_memory": 0.8,
        "clip_decay": 0.0,
        "memory": 0.0,
        "noise": "laplace",
        "price": "paper",
    },
    open={"max_steps": 20, "first_step": 1.0, "start_scale": 0.1},
    differences=_SEARCH_ACCOUNTING,
)


def _searched(**stated: Any) -> PaperMode:
    return PaperMode(_SEARCH, {**_SEARCHED.stated, **stated}, _SEARCHED.open, differences=_SEARCHED.differences)


_POINT_DIFFERENCES = (
    "The objective at the start is known at zero without a charge; elsewhere it is measured with noise of both signs "
    "and a public slack, because the absolute value of the noise, which the paper adds, is not private.",
    "Noise on gradients and Hessians has the paper's size where all rows are read, and its true price is charged; "
    "that of a Hessian is isotropic, so its entries off the diagonal have half the variance of the paper's.",
    "The whole budget is reported, and every check of a gradient and a Hessian is charged, the last one included.",
    "Constants that the paper does not state are those of `dpdescent.solvers.stationary`, and the start, which it "
    "leaves open, is zero; the figures draw it from the seed.",
)


def _second_order(*more: str, **stated: Any) -> PaperMode:
    tolerances = {"gradient_tolerance": 0.06, "curvature_tolerance": 0.245, "noise": "paper"}
    unstated = {"loss_share": 0.01} | ({"sampling_rate": 0.1} if more[-2:] == _BATCHES else {})
    return PaperMode(_POINTS, {**tolerances, **stated}, unstated, differences=(*_POINT_DIFFERENCES, *more))


_BATCHES = (
    "Every row joins a batch by itself, where the paper draws a fixed number of rows, and noise on batches is the "
    "least that the budget pays for.",
    "Gradient and Hessian come from batches of their own, each amplified by itself; one batch for both has to be "
    "amplified as one mechanism, which `same_batch` does.",
)
_MARGINS = (
    "A search scales its noise with the length of each step, and has the least noise that a quarter of the budget "
    "pays for, where the paper's is that of its longest step with lambda = sigma_g.",
)
_PHASES = (
    "The first phase has sqrt(T) steps, since the paper says only that they are fewer than T; the second begins "
    "where the first ended, as in the paper, or at the start if that is lower.",
)

#: The paper mode of every method that one of the four papers describes or compares with.
PAPER_MODES = {
    "2opt": _second_order(*_PHASES, optimistic_share=0.75),
    "2opt-b": _second_order(*_PHASES, *_BATCHES, optimistic_share=0.75),
    "2opt-ls": _second_order(*_PHASES, *_MARGINS, optimistic_share=0.75, search=True),
    "adam": PaperMode(
        _SEARCH,
        stated={"sampling_rate": 1 / 200, "clip_gradient": 3.0, "beta1": 0.9, "beta2": 0.999},
        open={"step_size": 0.001, "steps": 1000},
        differences=("The paper compares with DP-Adam on networks only.",),
    ),
    "agd": PaperMode(
        _AGD,
        stated={
            "splits": 60.0,
            "clip_gradient": 3.0,
            "clip_loss": 3.0,
            "candidates": 20,
            "max_step": 2.0,
            "window": 10,
            "stretch": 0.1,
            "selection": "exponential",
            "currency": "zcdp",
            "conversion": "paper",
            "memory": 0.0,
        },
        open={"growth": 0.1, "first_gradient": "pure"},
        differences=(
            "The start, which the paper leaves open, is zero.",
            "An answer that the budget cannot pay for is not computed; the paper computes it and then discards it, "
            "which is safe only for who sees nothing but the last weights.",
            "The first budget of a gradient is that of pure DP, rho = epsilon^2/(8 splits^2), as for a selection; "
            "the authors' code takes it from the Gaussian mechanism, equation (3), which makes it 37 times smaller "
            "at delta = 1e-8 and is `first_gradient` 'gaussian' here.",
            "Gradients are averaged as they were measured and normalised afterwards; the paper's line 7 normalises "
            "the first of them before.",
            "The noise of a selection is exponential, which section 3 of the paper calls better; its Algorithm 1 "
            "prints Laplace noise, which is `selection` 'laplace' here.",
            "Under replace-one the noise of a selection is twice as large, because the paper's holds for added or "
            "removed rows only.",
        ),
    ),
    "blgd": _searched(sampling_rate=1.0, search_rate=1.0, allocation="accumulate"),
    "blsgd": _SEARCHED,
    "blsgd-ac": _searched(clip_decay=0.05),
    "dp-gd": _second_order("The checks for a second-order point are those of `opt`."),
    "dp-tr": _second_order("The checks for a second-order point are those of `opt`, as in the paper."),
    "expmech": PaperMode(
        _OUTPERT,
        stated={"localise": True},
        rules={
            "row_bound": "the longest row that the bounds allow",
            "strong_convexity": "a twenty-fifth of the smoothness",
        },
        differences=(
            "Points are drawn exactly, by rejection, and not by a Markov chain.",
            "The small ball is the one that the noise of its centre leaves with a probability of 1e-9; the paper's "
            "has a radius in proportion to log(epsilon^2 mu R/(d L)), and is cut to B(0, R).",
            "The exponent has the range of what a row can change: the paper's 4 L R where a row is replaced, and at "
            "most half of it where it is left out.",
        ),
    ),
    "majority": PaperMode(_AGD, differences=("The labels are counted with noise.",)),
    "nonprivate": PaperMode(_AGD),
    "objpert": PaperMode(
        _AGD,
        stated={"row_bound": 1.0},
        rules={"strong_convexity": "the least one that half of epsilon pays for, about 2 s/epsilon"},
        differences=(
            _UNIT_ROWS,
            "The minimiser is certified and released with a little noise more, since no solver is exact.",
        ),
    ),
    "opt": _second_order(),
    "opt-b": _second_order(*_BATCHES),
    "opt-ls": _second_order(*_MARGINS, search=True),
    "outpert": PaperMode(
        _OUTPERT,
        stated={"sigma": "paper"},
        open={"radius": 1.0},
        rules={
            "row_bound": "the longest row that the bounds allow",
            "strong_convexity": "the regularisation that the paper prescribes on the ball",
        },
        differences=(
            "The minimiser is certified, because a solver that is accurate only on average does not suffice.",
            "The exponent of Algorithm 6 has a factor 2 too much; the noise is that of equation (5).",
            "The sensitivity leaves the public regulariser out, which the paper's bound includes, and under zero-out "
            "it is half of that under replace-one, which is the paper's relation.",
            "Where delta is 0 every weight has Laplace noise of its own, since norm-Laplace noise, which is the "
            "paper's and that of `pure` here, needs a delta of 1e-27.",
        ),
    ),
    "outpert-gd": PaperMode(
        _AGD,
        open={"steps": 50, "step_size": 1.0, "row_bound": 1.0},
        differences=(
            "The paper tunes T and the step size on each data set without privacy and states neither; the values "
            "here are those of the authors' code.",
            "The authors' code assumes gradients of length 1. " + _UNIT_ROWS,
            "The noise is the exact one for the sensitivity; the classical one is not private above epsilon = 1.",
        ),
    ),
    "outpert-rsgd": PaperMode(
        _SEARCH,
        open={"row_bound": 1.0, "passes": 10},
        rules={"batch_rows": "as by default"},
        differences=(_UNIT_ROWS, "The bound for convex objectives is used for every penalty."),
    ),
    "privgene": PaperMode(
        _AGD,
        open={"currency": "zcdp", "mutation": 4.0, "shrink": 0.95},
        rules={"generations": "n epsilon/800, at least 1"},
        differences=(
            "T = c n epsilon has the c = 1/800 of the authors' code, the paper states none.",
            "Batches, which the paper draws on KDD Cup 1999, are set by `batch_rate`; they claim no amplification.",
            "Generations are crossings and mutations as in Zhang et al. (2013); the authors' code tries one "
            "coordinate at a time.",
        ),
    ),
    "sgd": PaperMode(
        _AGD,
        open={"clip_gradient": 4.0, "step_size": 0.05, "noise_multiplier": 4.0, "momentum": 0.0},
        rules={"sampling_rate": "1/sqrt(n)", "steps": "those that the moments accountant pays for"},
        differences=(
            "Clip norm, step size and noise are those of the authors' code. T follows from the moments accountant "
            "with moments up to 32, which pays for no step below epsilon = log(1/delta)/32.",
            "What is charged is the true cost, in one Renyi order that is fixed before the run.",
            "Chen & Lee (2020) take `sampling_rate` 0.1 and `clip_gradient` 3, which their figures here pass.",
        ),
    ),
    "sgd-adv": PaperMode(
        _AGD,
        open={"clip_gradient": 3.0, "step_size": 0.1},
        rules={"sampling_rate": "1/sqrt(n)", "steps": "n epsilon/500, at least 1"},
        differences=(
            "Clip norm, step size and T are those of the authors' code.",
            "Amplification and composition are the statements behind the paper's constants, which hold for every "
            "epsilon.",
        ),
    ),
}
