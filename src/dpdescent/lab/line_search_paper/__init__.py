"""Chen & Lee (2020), DP-BLSGD: the figures and the table of the paper as data."""

from __future__ import annotations

from ..claims import duel, fewer_passes, helps, level, preferred, small_hurts, standing
from ..fold_fits import Task
from ..method_looks import paper_differences
from ..paper_figures import (
    COUNTED,
    HINGE,
    INTERCEPT,
    LADDER,
    MODES,
    NO_US,
    STAND_IN,
    DataTable,
    Figure,
    Parameter,
    Published,
    Scale,
    four_tasks,
)
from ..verdicts import PASSES, Claim
from .network_runs import Network, NetworkFigure

_SEARCH_PAPER = "Chen & Lee (2020), arXiv:2008.07978"
_SEARCH = tuple(f"{name}{kind}" for kind in ("", "-paper") for name in ("blsgd", "blgd", "blsgd-ac"))
_SEARCHED = (
    "The paper leaves max_it, the first step and the random start open; they are 20, 1, and a deviation of 0.1. With "
    "a first step of 2 or more DP-BLGD (paper) collapses at a large epsilon (docs/line-search.md)."
)
_PENALTY = "The L2 penalty is 0.001/2 times the squared norm of the weights, intercept included."
_SGD = (
    "DP-SGD (paper) has the q = 0.1 and the C_grad = 3 that this paper states for methods that perturb gradients, "
    "and 1,000 steps. DP-AGD (paper) has the C_obj = 3 of its own paper; section 5.4 can be read to give it 1, with "
    "which it stops at the majority class of Adult at epsilon 0.8 and 1.6 (accuracy 0.765 in place of 0.850)."
)


_SEARCH_CLAIMS = (
    Claim(
        "DP-BLSGD, DP-BLSGD-AC and DP-BLGD outperform the other methods in most cases.",
        standing(ours=_SEARCH, ahead=True),
    ),
    Claim(
        "They outperform DP-AGD; DP-BLGD differs from it in little but the search, so the search is what helps.",
        duel(("blgd-paper", "agd-paper"), ("blsgd-paper", "agd-paper"), ("blgd", "agd"), ("blsgd", "agd")),
    ),
    Claim(
        "They outperform OutPert-RSGD on three of four data sets, all but BANK.",
        duel(("blsgd-paper", "outpert-rsgd-paper"), ("blsgd", "outpert-rsgd"), excepted=("bank",)),
    ),
    Claim(
        "On BANK OutPert-RSGD outperforms them.",
        duel(("outpert-rsgd-paper", "blsgd-paper"), ("outpert-rsgd", "blsgd"), only="bank"),
    ),
    Claim(
        "ObjPert and DP-SGD do poorly at a small epsilon.",
        duel(
            ("blsgd-paper", "objpert-paper"),
            ("blsgd-paper", "sgd-paper"),
            ("blsgd", "objpert"),
            ("blsgd", "sgd"),
            epsilon=0.05,
        ),
    ),
    Claim(
        "Adapting the clip norms (DP-BLSGD-AC) gains a little on some data sets.",
        duel(("blsgd-ac-paper", "blsgd-paper"), ("blsgd-ac", "blsgd"), somewhere=True),
    ),
)
_RIVALS = ("agd-paper", "sgd-paper", "outpert-rsgd-paper", "outpert-gd-paper", "objpert-paper", "privgene-paper")
_SEARCH_METHODS = (*_SEARCH, *_RIVALS, "majority", "nonprivate", "agd", "sgd", "objpert", "outpert-rsgd")

_IMAGE_CNN = (((6,), (16,)), (256, 128))
_COLOUR_CNN = (((32, 64), (128, 128), (256, 256)), (4096, 1024, 512))

SEARCH_FIGURES: tuple[DataTable | Figure | NetworkFigure, ...] = (
    DataTable(
        "003/table1",
        "Table 1 of Chen & Lee (2020): data sets",
        f"What the paper prints of its data sets, beside what is here. {COUNTED} Images are counted with their "
        "published test parts, and the paper's baseline of about 0.1 for ten classes is left out.",
        (
            Published("Adult", "adult", 48_842, 124, 0.761),
            Published("Bank", "bank", 45_211, 33, 0.883),
            Published("IPUMS-BR", "ipums-br", 38_000, 53, 0.507),
            Published("IPUMS-US", "acs-income", 40_000, 58, 0.513, NO_US),
            Published("MNIST", "mnist", 70_000, 28 * 28),
            Published("FMNIST", "fashion-mnist", 70_000, 28 * 28),
            Published("Cifar-10", "cifar10", 60_000, 3 * 32 * 32, None, "An offline copy may hold a part of them."),
        ),
    ),
    Figure(
        name="003/figure1",
        title="Figure 1 of Chen & Lee (2020): the parameters of DP-BLSGD",
        caption=(
            f"DP-BLSGD with the settings of {_SEARCH_PAPER}, logistic regression on Adult; one setting is varied "
            "at a time."
        ),
        details=(_SEARCHED, _PENALTY, *paper_differences(["blsgd-paper"])),
        tasks=(Task("adult"),),
        methods=("blsgd-paper",),
        delta=1e-8,
        quick=Scale((0.05, 0.2), 1, 1),
        full=Scale((0.05, 0.2), 10, 5),
        folds=10,
        alpha=0.001,
        parameters=(
            Parameter("decrease", "alpha", (0.1, 0.3, 0.5, 0.7, 0.9)),
            Parameter("backtrack", "beta", (0.2, 0.4, 0.6, 0.8, 0.9)),
            Parameter("noise", "noise of the search", ("laplace", "gaussian")),
            Parameter("sampling_rate", "q", (0.02, 0.05, 0.1, 0.3), ("search_rate",)),
            Parameter("allocation", "budgets after a failed search", ("no", "must", "adaptive")),
            Parameter("clip_decay", "zeta", (0.0, 0.05, 0.1, 0.2)),
        ),
        claims=(
            Claim("(a) alpha matters little at epsilon 0.2; at 0.05 the best is 0.5.", preferred("decrease", 0.5)),
            Claim("(b) beta matters little at epsilon 0.2; at 0.05 the best is 0.8.", preferred("backtrack", 0.8)),
            Claim(
                "(c) Laplace noise in the search is slightly better than Gaussian.",
                preferred("noise", "laplace", ahead=True),
            ),
            Claim(
                "(d) q matters little at epsilon 0.2, but must not be too small at 0.05.",
                small_hurts("sampling_rate"),
            ),
            Claim(
                "(e) Asking the angle which budget to raise (adaptive) is better than raising none or always that of "
                "the gradient.",
                preferred("allocation", "adaptive", ahead=True),
            ),
            Claim("(f) Shrinking clip norms help at epsilon 0.05 and not at 0.2.", helps("clip_decay", 0, below=0.1)),
        ),
    ),
    Figure(
        name="003/figure2",
        title="Figure 2 of Chen & Lee (2020): evaluations of gradients and losses by sampling ratio",
        caption=(
            f"DP-BLSGD with the settings of {_SEARCH_PAPER}, logistic regression on Adult at epsilon 0.4. "
            "Evaluations are counted per row of the training part."
        ),
        details=(
            "A search counts with all of its 20 steps and the point it starts from, because they are evaluated "
            "together; the paper stops at the step that is chosen.",
            _SEARCHED,
            _PENALTY,
            *paper_differences(["blsgd-paper"]),
        ),
        tasks=(Task("adult"),),
        methods=("blsgd-paper",),
        delta=1e-8,
        quick=Scale((0.4,), 2, 1),
        full=Scale((0.4,), 10, 5),
        folds=10,
        alpha=0.001,
        parameters=(Parameter("sampling_rate", "sampling ratio q", (0.05, 0.1, 0.2, 0.5, 1.0), ("search_rate",)),),
        measures=PASSES,
        claims=(
            Claim(
                "Sub-sampling greatly reduces the evaluations of gradients and losses.",
                fewer_passes("sampling_rate", 0.1),
            ),
            Claim("Accuracy is much the same on batches and on all rows.", level("sampling_rate")),
        ),
    ),
    *(
        Figure(
            name=f"003/figure{number}",
            title=f"Figure {number} of Chen & Lee (2020): private {model} with line search",
            caption=f"Accuracy and {objective} against epsilon, after {_SEARCH_PAPER}. {MODES}",
            details=(
                *hinge,
                _SEARCHED,
                STAND_IN,
                _PENALTY,
                _SGD,
                INTERCEPT,
                *paper_differences(("blsgd-paper", *_RIVALS)),
            ),
            options={"sgd-paper": {"sampling_rate": 0.1, "clip_gradient": 3.0, "steps": 1000}},
            tasks=four_tasks(loss),
            methods=_SEARCH_METHODS,
            delta=1e-8,
            quick=Scale((0.05, 0.2, 1.6), 1, 1),
            full=Scale(LADDER, 10, 5),
            folds=10,
            alpha=0.001,
            claims=_SEARCH_CLAIMS,
        )
        for number, model, loss, objective, hinge in (
            (3, "logistic regression", "logistic", "objective", ()),
            (4, "linear support vector machine", "svm", "mean hinge loss", (HINGE,)),
        )
    ),
    NetworkFigure(
        name="003/figure5",
        title="Figure 5 of Chen & Lee (2020): private training of networks",
        caption=(
            "Accuracy, objective, epsilon and step size against iterations, after section 5.7 of Chen & Lee (2020), "
            "arXiv:2008.07978: pixels from -1 to 1, batches of a two-hundredth of the rows, gradients and losses "
            "clipped to 3, a tenth of each step's budget for the search."
        ),
        details=(
            "DP-BLSGD (paper) searches among 20 steps from a first one of 1, both of which the paper leaves open, "
            "with alpha = 0.001, beta = 0.8 and Gaussian noise, on a batch of its own; where no step is accepted it "
            "takes 0.8 times the shortest.",
            "The paper does not state its budgets; here every run as a whole has the same epsilon and delta, charged "
            "by the distribution of its privacy loss. It penalises weights by 0.001/2 times their squared norm, and "
            "there is no penalty here. Kernels, which it leaves open, are 5 wide, and 3 wide on colour images.",
            "Our DP-BLSGD differs: beta = 0.6, Laplace noise, steps bounded by the length of the initial parameters, "
            "and a mean over the last quarter. The offline copy of CIFAR-10 has 20,000 of its 60,000 images, "
            "and its network 73 million parameters, a step of which takes seconds.",
        ),
        networks=(
            Network("MNIST, MLP", "mnist", "mlp", (1000,)),
            Network("Fashion-MNIST, MLP", "fashion-mnist", "mlp", (256, 256)),
            Network("MNIST, CNN", "mnist", "cnn", _IMAGE_CNN[1], _IMAGE_CNN[0]),
            Network("Fashion-MNIST, CNN", "fashion-mnist", "cnn", _IMAGE_CNN[1], _IMAGE_CNN[0]),
            Network("CIFAR-10, CNN", "cifar10", "cnn", _COLOUR_CNN[1], _COLOUR_CNN[0], learning_rate=0.1),
        ),
        quick_networks=3,
        quick_steps=100,
    ),
)
