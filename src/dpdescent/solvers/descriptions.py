"""What every method is for, how often it reads the rows and where it comes from, in a line each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DESCRIPTIONS", "PAPERS", "Description"]


@dataclass(frozen=True)
class Description:
    """A method in words, for lists of methods.

    Parameters
    ----------
    purpose : str
        What the method does and what it is for.
    passes : str
        How often a run reads the rows.
    papers : tuple of str
        Keys of `PAPERS`; empty where no paper introduced the method.
    """

    purpose: str
    passes: str
    papers: tuple[str, ...] = ()


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

_TO_THE_END = "as many as the minimiser needs, then one release"
_TO_A_POINT = "one for each gradient, Hessian or search; the theorem fixes the number of steps"

#: The methods of this package by name.
DESCRIPTIONS = {
    "2opt": Description(
        "`opt` after a short, optimistic first phase: second-order points sooner",
        _TO_A_POINT,
        ("Gao & Wright 2023",),
    ),
    "2opt-b": Description(
        "`2opt` on random batches: second-order points of large tables",
        "one batch for each gradient or Hessian; the theorem fixes the number of steps",
        ("Gao & Wright 2023",),
    ),
    "2opt-ls": Description(
        "`2opt` with a private line search: second-order points in few steps",
        _TO_A_POINT,
        ("Gao & Wright 2023",),
    ),
    "adam": Description(
        "DP-Adam, with rules in place of a learning rate: a baseline",
        "50 to 500, one for each step",
        ("Abadi et al. 2016", "Kingma & Ba 2015"),
    ),
    "agd": Description(
        "DP-AGD, noisy gradients with a private choice of every step size: adaptive, for any loss",
        "two for each of about 10 to 500 steps",
        ("Lee & Kifer 2018",),
    ),
    "auto": Description(
        "the default, descent in privately whitened coordinates: nothing to tune, any table",
        "4 for the coordinates and 20 to 300 for the steps",
    ),
    "blgd": Description(
        "DP-BLGD, `blsgd` on all rows: adaptive, for smaller tables",
        "two for each of about 10 to 150 steps",
        ("Chen & Lee 2020",),
    ),
    "blsgd": Description(
        "DP-BLSGD, noisy gradients with a private backtracking line search: adaptive step sizes",
        "a batch and a search for each of about 10 to 150 steps",
        ("Chen & Lee 2020",),
    ),
    "blsgd-ac": Description(
        "DP-BLSGD-AC, `blsgd` with clip norms that shrink: adaptive clipping",
        "a batch and a search for each of about 10 to 150 steps",
        ("Chen & Lee 2020",),
    ),
    "dp-gd": Description(
        "noisy gradient steps and a private choice among the iterates: a baseline for `opt`",
        _TO_A_POINT,
        ("Wang et al. 2019",),
    ),
    "dp-tr": Description(
        "trust regions with noisy gradients and Hessians: a baseline for `opt`",
        "one for each step, gradient and Hessian together",
        ("Wang & Xu 2021",),
    ),
    "expmech": Description(
        "the exponential mechanism over models, sampled exactly: pure privacy for a few columns",
        "thousands to millions of candidate models; refused where more would be needed",
        ("Bassily et al. 2014", "Lowy & Razaviyayn 2021"),
    ),
    "ftrl": Description(
        "DP-FTRL, totals of gradients with the noise of a binary tree: one pass, without random batches; a baseline",
        "one, in 31 to 1,023 parts",
        ("Kairouz et al. 2021",),
    ),
    "majority": Description(
        "class frequencies or the mean, without features: what every model must beat",
        "one",
    ),
    "nonprivate": Description(
        "the minimiser itself by L-BFGS, NOT PRIVATE: the ceiling of every comparison",
        "as many as L-BFGS needs",
        ("Liu & Nocedal 1989",),
    ),
    "objpert": Description(
        "objective perturbation, the minimiser with a random linear term: one release, pure with `pure=True`",
        _TO_THE_END,
        ("Chaudhuri et al. 2011", "Kifer et al. 2012", "Iyengar et al. 2019"),
    ),
    "opt": Description(
        "descent to a second-order point of a smooth loss, convex or not, with a theorem",
        _TO_A_POINT,
        ("Gao & Wright 2023",),
    ),
    "opt-b": Description(
        "`opt` on random batches: large tables",
        "one batch for each gradient or Hessian; the theorem fixes the number of steps",
        ("Gao & Wright 2023",),
    ),
    "opt-ls": Description(
        "`opt` with a private line search: longer steps",
        _TO_A_POINT,
        ("Gao & Wright 2023",),
    ),
    "outpert": Description(
        "output perturbation, a certified minimiser plus noise; also tilted and adversarial; pure with delta = 0",
        _TO_THE_END,
        ("Lowy & Razaviyayn 2021",),
    ),
    "outpert-gd": Description(
        "exact gradient descent and noise at the end: a baseline",
        "up to 1,000, then one release",
        ("Zhang et al. 2017",),
    ),
    "outpert-rsgd": Description(
        "permuted SGD with averaging and noise at the end: a baseline",
        "ten, then one release",
        ("Wu et al. 2017", "Chen et al. 2019"),
    ),
    "privgene": Description(
        "a genetic algorithm with private selection: a baseline without gradients",
        "10 to 60, each with the losses of 100 candidates",
        ("Zhang et al. 2013",),
    ),
    "sgd": Description(
        "DP-SGD, with rules in place of a learning rate: a baseline",
        "50 to 500, one for each step",
        ("Abadi et al. 2016",),
    ),
    "sgd-adv": Description(
        "noisy SGD under advanced composition: what better accounting has gained since 2014",
        "about 10, in batches of sqrt(n) rows",
        ("Bassily et al. 2014",),
    ),
    "svrg": Description(
        "noisy SVRG, batches that measure how the gradient has changed since a snapshot: a baseline",
        "about 15, five of them over all rows and the rest in batches of sqrt(n) rows",
        ("Wang et al. 2017",),
    ),
}
