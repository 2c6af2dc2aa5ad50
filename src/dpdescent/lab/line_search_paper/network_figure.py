"""The figure of networks: their layers and data, and how they are trained."""

from __future__ import annotations

from .network_runs import Network, NetworkFigure

__all__ = ["NETWORK_FIGURE"]

_IMAGE_CNN = (((6,), (16,)), (256, 128))
_COLOUR_CNN = (((32, 64), (128, 128), (256, 256)), (4096, 1024, 512))

NETWORK_FIGURE = NetworkFigure(
    name="003/figure5",
    title="Figure 5 of Chen & Lee (2020): private training of networks",
    caption=(
        "Accuracy, objective, epsilon and step size against iterations, after section 5.7 of Chen & Lee (2020), "
        "arXiv:2008.07978: batches of a two-hundredth of the rows, gradients and losses clipped to 3, a tenth of "
        "each step's budget for the search."
    ),
    details=(
        "The paper does not state its budgets; here every run as a whole has the same epsilon and delta, charged by "
        "the distribution of its privacy loss.",
        "The paper penalises weights by 0.001/2 times their squared norm, and there is no penalty here. Kernels, "
        "which it leaves open, are 5 wide, and 3 wide on colour images. Steps of DP-BLSGD are bounded by the length "
        "of the initial parameters.",
    ),
    networks=(
        Network("MNIST, MLP", "mnist", "mlp", (1000,)),
        Network("Fashion-MNIST, MLP", "fashion-mnist", "mlp", (256, 256)),
        Network("MNIST, CNN", "mnist", "cnn", _IMAGE_CNN[1], _IMAGE_CNN[0]),
        Network("Fashion-MNIST, CNN", "fashion-mnist", "cnn", _IMAGE_CNN[1], _IMAGE_CNN[0]),
        Network("CIFAR-10, CNN", "cifar10", "cnn", _COLOUR_CNN[1], _COLOUR_CNN[0], learning_rate=0.1),
    ),
    quick_networks=4,
)
