"""Private training of networks: accuracy on images, and what a private step takes more than a plain one.

Run: ``python benchmarks/networks.py [--json FILE] [--accuracy] [--seeds N] [--rivals] [--opacus PYTHON]``, and
``--accuracy --network cnn --datasets mnist --epsilons 3 --epochs 20`` for a part of the trainings, or ``--features``
for the linear ``auto`` on public image features (`dpdescent.features.ImageEnergies`) instead of networks, or
``--bands`` for the noise of partial sums of 300 gradients with several bands beside independent noise.

Speed is processor time of one thread, for the nine networks of ``network_cases.py`` or some of them (``--cases``): a
step that measures and clips every row's gradient over a plain backward pass (``mlp_over_plain``) and over a step by
`torch.func` (``gpt_over_mapped``), and exact noise over the gradient it goes to (``noise_over_gradient``). With the
Python of an environment that has Opacus and what dpdescent needs, all this is timed there, with the ghost clipping
and the hooks of Opacus where they work, each in turn in one process. The ratios of our steps to the faster of them
are given (``gpt_over_opacus``), and of the peak memory of a step, above that of the process, to that of ghost
clipping, or of hooks where there is none (``gpt_memory_over_opacus``).

Accuracy is that of networks with 256 and 256 hidden units on Fashion-MNIST and with 1,000 on MNIST, or of the same
CNN on both, after 3 epochs with batches of 600 at delta = 1e-5. Rivals are DP-SGD and DP-Adam over a grid of learning
rates; their best is chosen on test data, which nobody could do. ``auto`` was chosen on Fashion-MNIST; MNIST is a
transfer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

NAMES = ("mlp", "cnn256", "cnn1024", "table", "resnet", "lstm", "gru", "gpt", "bert")  # of network_cases.py
EPSILONS = (1.0, 3.0, 8.0)
BANDS = (4, 16, 50)
DELTA = 1e-5
WIDTHS = {"fashion-mnist": (256, 256), "mnist": (1000,)}
RIVALS = {"sgd": (0.2, 0.7, 2.0), "adam": (1e-3, 3e-3)}
RIVALS_CLIP = 3.0  # that of Chen & Lee (2020)


def least_processor_times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the least processor time of each function, taken in turn, in seconds."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - start)
    return best


def own_steps(name: str) -> dict[str, Callable[[], object]]:
    """Return a plain backward pass of a network, and the sum of its rows' clipped gradients."""
    import torch

    from dpdescent.torch.gradient_choice import choose_gradients, rows_at_once
    from dpdescent.torch.row_gradients import Batch, MappedGradients, ModuleGradients
    from dpdescent.torch.training_plan import Clipping
    from network_cases import CASES

    case = CASES[name]
    torch.manual_seed(0)
    module, loss = case.make(), case.loss
    inputs, targets = case.rows()
    batch = Batch(inputs, targets)
    way, clipping = choose_gradients(module, loss, batch[:3], case.size, (case.size,)), Clipping(None)

    def plain() -> None:
        module.zero_grad()
        loss(module(*inputs), targets).mean().backward()

    def clipped(way: ModuleGradients) -> None:
        total = None
        for first in range(0, len(batch), way.rows_at_once):
            found = way.of(batch[first : first + way.rows_at_once])
            part = found.weighted_sum(clipping.weights(found.norms()))
            total = part if total is None else [one + other for one, other in zip(total, part, strict=True)]

    steps = {"plain": plain, "private": partial(clipped, way)}
    if name != "mlp":  # whose gradients, formed for every row, are gigabytes
        mapped = MappedGradients(module, loss)
        mapped.rows_at_once = rows_at_once(sum(each.numel() for each in mapped.parameters.values()))
        steps["mapped"] = partial(clipped, mapped)
    return steps


def measure_speed(cases: list[str], repeats: int, opacus: str | None) -> dict[str, float]:
    import numpy as np

    from dpdescent.noise import SystemBits, discrete_gaussian
    from network_cases import CASES

    report: dict[str, float] = {}
    for name in cases:
        times = in_process(opacus or sys.executable, "--time", name, "--repeats", str(repeats)) or {}
        report |= {f"{name}_{key}_seconds": value for key, value in times.items()}
        rivals = {"opacus": min((times[key] for key in ("ghost", "hooks") if key in times), default=None)}
        for key, value in ({key: times.get(key) for key in ("plain", "mapped")} | rivals).items():
            if value is not None:
                report[f"{name}_over_{key}"] = times["private"] / value
    if "mlp" not in cases:
        return report
    parameters = sum(each.numel() for each in CASES["mlp"].make().parameters())
    bits = SystemBits()
    # The lattice of a training has between 2^21 and 2^22 units in a deviation of the noise.
    exact = least_processor_times({"noise": lambda: discrete_gaussian(bits, 2**22, parameters)}, repeats)["noise"]
    report |= {"noise_parameters": parameters, "noise_seconds": exact}
    report["noise_over_gradient"] = exact / report["mlp_private_seconds"]
    generator = np.random.default_rng()
    report["float_noise_seconds"] = least_processor_times(
        {"noise": lambda: generator.standard_normal(parameters)}, repeats
    )["noise"]
    return report


def opacus_steps(name: str) -> dict[str, Callable[[], object]]:
    """Return steps of Opacus in its modes; for the Python of an environment that has it."""
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from torch import nn

    from network_cases import CASES, make_for_opacus

    class Optimizer:
        """What the double backward pass asks of an optimiser."""

        loss_reduction = "mean"

        def zero_grad(self) -> None:
            module.zero_grad()

    case = CASES[name]
    torch.manual_seed(0)
    inputs, targets = case.rows()
    module = GradSampleModuleFastGradientClipping(
        make_for_opacus(name), batch_first=True, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
    )
    loss = DPLossFastGradientClipping(module, Optimizer(), nn.CrossEntropyLoss(reduction="mean"), "mean")
    words = targets.dim() > 1  # a loss for each word, of which ghost clipping takes the mean over a row

    def ghost() -> None:
        outputs = module(*inputs)
        if words:
            loss(outputs.flatten(0, 1), targets.flatten(), shape=targets.shape).backward()
        else:
            loss(outputs, targets).backward()
        module.zero_grad()

    hooked = GradSampleModule(make_for_opacus(name), batch_first=True, loss_reduction="mean")

    def hooks() -> None:
        case.loss(hooked(*inputs), targets).mean().backward()
        each_row = [each.grad_sample for each in hooked.parameters()]
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in each_row]).norm(dim=0)
        factors = (1.0 / (norms + 1e-6)).clamp_max(1.0)
        for parameter, each in zip(hooked.parameters(), each_row, strict=True):
            parameter.grad = torch.einsum("i,i...", factors, each)
            parameter.grad_sample = None

    # Hooks form every row's gradient: gigabytes for the MLP. Ghost clipping has no rule for recurrent layers' gates.
    modes = {"ghost": ghost} | ({} if name == "mlp" else {"hooks": hooks})
    return {mode: step for mode, step in modes.items() if _works(step)}


def _works(step: Callable[[], object]) -> bool:
    """Return whether Opacus can take a step in a mode; it refuses some modules."""
    try:
        step()
    except Exception:
        return False
    return True


def peak_memory(step: Callable[[], object]) -> float:
    """Return by how many megabytes some steps raise the peak of this process, on Linux."""

    def status(field: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    step()  # what the first step alone allocates is not counted
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    start = status("VmRSS")
    for _ in range(4):
        step()
    return status("VmHWM") - start


def in_process(python: str, *words: str) -> Any:
    """Return what this script prints last as JSON, run by a Python in a process of its own."""
    # With this setting freed arrays go back to the system, so that a peak is that of the arrays in use.
    given = os.environ | ({"MALLOC_MMAP_THRESHOLD_": "65536"} if words[0].startswith("--peak") else {})
    source = str(Path(__file__).resolve().parents[1] / "src")
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    command = [python, "-W", "ignore", __file__, *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    if found.returncode:
        print(f"{' '.join(words)} failed: {found.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(found.stdout.splitlines()[-1])


def measure_memory(cases: list[str], opacus: str) -> dict[str, float]:
    """Return the peak memory of a step, of Opacus and the ratio; on Linux."""
    report = {}
    for name in cases:
        peaks = [in_process(sys.executable, "--peak", name), in_process(opacus, "--peak-opacus", name)]
        if None not in peaks:
            report |= {f"{name}_memory": peaks[0], f"{name}_opacus_memory": peaks[1]}
            report[f"{name}_memory_over_opacus"] = peaks[0] / peaks[1]
    return report


def images(name: str) -> dict[str, Any]:
    """Return the published parts of a data set as tensors, pixels in [0, 1]."""
    import numpy as np
    import torch

    from dpdescent import load_dataset

    data = load_dataset(name, dtype=np.float32)
    return {
        f"{part}_{kind}": torch.from_numpy(values[data.split == part])
        for part in ("train", "test")
        for kind, values in (("inputs", data.X), ("targets", data.y))
    }


def measure_accuracy(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    methods: list[tuple[str, dict[str, float]]] = [("auto", {})]
    if options.rivals:
        methods += [("blsgd", {})]
        for name, rates in RIVALS.items():
            methods += [(name, {"learning_rate": rate, "clip_norm": RIVALS_CLIP}) for rate in rates]
    for name in options.datasets:
        data = images(name)
        for epsilon in options.epsilons:
            for method, tuned in methods:
                for seed in range(options.seeds):
                    row = train(name, data, epsilon, method, tuned, seed, options)
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    return rows


def train(
    name: str,
    data: dict[str, Any],
    epsilon: float,
    method: str,
    tuned: dict[str, float],
    seed: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    import torch
    from torch import nn

    from dpdescent.torch import fit
    from network_cases import convolutional, perceptron

    torch.manual_seed(seed)
    mlp = options.network == "mlp"
    module = perceptron(784, *WIDTHS[name]) if mlp else nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *convolutional())
    start = time.process_time()
    result = fit(
        module,
        (data["train_inputs"], data["train_targets"]),
        nn.CrossEntropyLoss(reduction="none"),
        epsilon=epsilon,
        delta=DELTA,
        method=method,
        epochs=options.epochs,
        random_state=seed,
        noise="float",
        **tuned,
    )
    seconds = time.process_time() - start
    with torch.no_grad():
        right = (module(data["test_inputs"]).argmax(1) == data["test_targets"]).float().mean()
    return {
        "dataset": name,
        "network": options.network,
        "epochs": options.epochs,
        "method": method,
        "learning_rate": tuned.get("learning_rate"),
        "epsilon": epsilon,
        "delta": DELTA,
        "seed": seed,
        "accuracy": round(100 * float(right), 2),
        "noise_multiplier": result.privacy_["noise_multiplier"],
        "spent_epsilon": result.privacy_["spent_epsilon"],
        "seconds": round(seconds, 1),
    }


def noise_of_bands() -> dict[str, float]:
    """Return the noise of partial sums of gradients with several bands, relative to independent noise."""
    from dpdescent.torch.training_plan import Clipping, Plan, plan_training

    def plan(epsilon: float, bands: int) -> Plan:
        public = {"rows": 60_000, "delta": DELTA, "steps": 300, "epochs": None, "batch_size": 600}
        searches = {"search_steps": 0, "search_noise": "laplace", "adjacency": "zero-out", "account": None}
        return plan_training(
            **public, **searches, epsilon=epsilon, clipping=Clipping(1.0), parameters=1000, bands=bands
        )

    def noise(found: Plan) -> float:
        return found.noise_multiplier * found.sensitivity.under(found.relation) * found.bands.spread(found.steps)

    report = {}
    for epsilon in EPSILONS:
        alone = plan(epsilon, 1)
        report[f"multiplier_at_{epsilon:g}"] = alone.noise_multiplier
        for bands in BANDS:
            report[f"{bands}_bands_at_{epsilon:g}"] = noise(plan(epsilon, bands)) / noise(alone)
    return report


def measure_features(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train the linear ``auto`` on public features of images."""
    import numpy as np

    from dpdescent import DPLogisticRegression, load_dataset
    from dpdescent.features import ImageEnergies

    rows = []
    for name in options.datasets:
        data = load_dataset(name, dtype=np.float32)
        energies = ImageEnergies((32, 32, 3)) if name == "cifar10" else ImageEnergies()
        features = energies.fit_transform(data.X)
        train, test = data.split == "train", data.split == "test"
        for epsilon in options.epsilons:
            for seed in range(options.seeds):
                start = time.process_time()
                model = DPLogisticRegression(
                    epsilon, DELTA, classes=data.classes, bounds=(0.0, 1.0), random_state=seed
                )
                model.fit(features[train], data.y[train])
                rows.append(
                    {
                        "dataset": name,
                        "network": "linear on ImageEnergies",
                        "rows": int(train.sum()),
                        "features": features.shape[1],
                        "epsilon": epsilon,
                        "seed": seed,
                        "accuracy": round(100 * model.score(features[test], data.y[test]), 2),
                        "seconds": round(time.process_time() - start, 1),
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--accuracy", action="store_true", help="train the networks as well, which takes minutes")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each training")
    parser.add_argument("--rivals", action="store_true", help="train DP-SGD, DP-Adam and DP-BLSGD as well")
    parser.add_argument("--network", choices=("mlp", "cnn"), default="mlp", help="which network is trained")
    parser.add_argument("--datasets", nargs="+", default=list(WIDTHS), help="on what; cifar10 with --features only")
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--features", action="store_true", help="only train the linear auto on image features")
    parser.add_argument("--bands", action="store_true", help="only compare correlated noise with independent noise")
    parser.add_argument("--repeats", type=int, default=15, help="steps of which the quickest counts")
    parser.add_argument("--opacus", metavar="PYTHON", help="the Python of an environment that has Opacus")
    for own in ("--time", "--peak", "--peak-opacus"):
        parser.add_argument(own, choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--cases", nargs="+", choices=NAMES, default=list(NAMES), help="whose speed is measured")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed: nothing to measure")
        return
    torch.set_num_threads(1)
    if options.time:
        steps = own_steps(options.time)
        if importlib.util.find_spec("opacus") is not None:
            steps |= opacus_steps(options.time)
        print(json.dumps(least_processor_times(steps, options.repeats)))
        return
    if options.peak or options.peak_opacus:
        step = (
            own_steps(options.peak)["private"]
            if options.peak
            else next(iter(opacus_steps(options.peak_opacus).values()))
        )
        print(json.dumps(peak_memory(step)))
        return
    if options.features:
        found = {"features": measure_features(options)}
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
        return
    if options.bands:
        for name, value in noise_of_bands().items():
            print(f"{name:26s} {value:12.4f}")
        return
    report: dict[str, Any] = measure_speed(options.cases, options.repeats, options.opacus)
    if options.opacus and Path("/proc/self/clear_refs").exists():
        report |= measure_memory(options.cases, options.opacus)
    for name, value in report.items():
        print(f"{name:26s} {value:12.4f}")
    if options.accuracy:
        report["accuracy"] = measure_accuracy(options)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
