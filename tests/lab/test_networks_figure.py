"""The figure of networks: every method is followed, a stopped run goes on, and the page says what was found."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the figure trains networks with torch, which is not installed")

import torch

from dpdescent.datasets import Dataset
from dpdescent.errors import InvalidParameter
from dpdescent.lab.line_search_paper import network_runs
from dpdescent.lab.line_search_paper.network_runs import Course, Network, NetworkFigure, NetworkRuns, measure_networks
from dpdescent.lab.reproduction import figure_named, reproduce
from dpdescent.long_runs import Journal
from dpdescent.torch import module_fit, step_rules

SMALL = NetworkFigure(
    name="003/figure5",
    title="A small figure",
    caption="Synthetic rows.",
    details=("Details.",),
    networks=(Network("synthetic, MLP", "synthetic", "mlp", (8,)),),
    quick_networks=1,
    batch_share=0.05,
    quick_steps=6,
    moments=3,
)


def test_a_figure_is_run_drawn_and_told(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    written = reproduce(SMALL, tmp_path, json_file=tmp_path / "out.json", listener=lambda *at: seen.append(at))
    assert all(path.stat().st_size > 10_000 for path in written.pictures)
    page = written.page.read_text()
    assert "DP-BLSGD reaches a high accuracy" in page
    assert "not private" in page
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["blsgd-paper", "sgd", "adam", "nonprivate", "blsgd", "auto"]
    for row in rows:
        assert row["steps"] == [2, 4, 6]
        assert all(0 <= each <= 1 for each in row["accuracy"])
        assert row["epsilon"] == sorted(row["epsilon"])
        if row["method"] != "nonprivate":
            assert SMALL.epsilon * 0.99 < row["epsilon"][-1] <= SMALL.epsilon
    assert seen[-1] == (18, 18)
    assert seen == sorted(seen)
    assert [path.suffix for path in tmp_path.glob("*.journal")] == []


def test_images_have_their_colours_apart_and_pixels_from_minus_one_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files list the colours of a pixel together, row by row; convolutions take one plane for each colour."""
    planes = np.random.default_rng(0).random((5, 3, 4, 4))
    table = Dataset(
        "images",
        planes.transpose(0, 2, 3, 1).reshape(5, -1),
        np.arange(5) % 2,
        tuple(map(str, range(48))),
        None,
        (0, 1),
        "",
    )
    monkeypatch.setattr(network_runs, "load_task", lambda *_, **__: table)
    images = network_runs._Images("images")
    seen = np.concatenate([images.train[0].numpy(), images.test[0].numpy()])
    order = [1, 2, 3, 4, 0]  # the first of every five is for testing
    np.testing.assert_allclose(seen, 2 * planes[order] - 1, atol=1e-6)
    assert images.shape == (3, 4, 4)


def test_what_a_journal_holds_is_not_trained_again(tmp_path: Path) -> None:
    runs = NetworkRuns(replace(SMALL, methods=("sgd",)), full=False)
    kept = Course("synthetic, MLP", "sgd", [6], [0.5], [0.7], [3.0], [0.2], 1.0)
    with Journal(tmp_path / "page.html", runs.fingerprint, Course) as journal:
        journal.add(json.dumps(["synthetic, MLP", "sgd"]), kept)
        assert measure_networks(runs, journal) == [kept]


@pytest.mark.slow
def test_repetitions_are_trained_with_seeds_of_their_own_and_pooled(tmp_path: Path) -> None:
    few = replace(SMALL, methods=("blsgd-paper", "sgd"), full_steps=8, delta=1e-6)
    written = reproduce(few, tmp_path, full=True, repetitions=2, steps=6)
    assert "6 of the paper's 8 steps, 2 of the paper's 5 repetitions" in written.report.extent
    ends = [cell for cell in written.report.cells if cell["step"] == 6]
    assert [cell["method"] for cell in ends] == ["blsgd-paper", "sgd"]
    for cell in ends:
        assert cell["objective"][2] == len(set(cell["objective"][3])) == 2
    assert {finding.verdict for finding in written.findings} <= {"Agrees", "Differs", "Within noise"}


def test_the_paper_mode_has_the_settings_of_the_paper() -> None:
    figure = figure_named("003/figure5")
    assert isinstance(figure, NetworkFigure)
    assert (figure.delta, figure.batch_share, figure.clip_norm, figure.seeds) == (1e-8, 1 / 200, 3.0, 5)
    assert {network.learning_rate for network in figure.networks[:4]} == {0.2}
    assert figure.networks[4].learning_rate == 0.1
    assert figure.methods[:4] == ("blsgd-paper", "sgd", "adam", "nonprivate")
    shown = (step_rules._DECREASE, step_rules._PAPER_BACKTRACK, step_rules._PAPER_WINDOW, step_rules._PAPER_STRETCH)
    assert shown == (0.001, 0.8, 10, 1.2)
    assert module_fit._SEARCHES["blsgd-paper"] == (20, "gaussian")


@pytest.mark.parametrize(("found", "taken"), [(None, 0.8**20), (0, 1.0), (19, 0.8**19)])
def test_a_search_that_fails_takes_a_step_shorter_than_all_that_it_tried(found: int | None, taken: float) -> None:
    weights, tried = torch.ones(2), []

    def first_step(_: list[Any], sizes: list[float], demands: list[float]) -> int | None:
        tried.append((len(sizes), sizes[-1], demands[0]))
        return found

    search = step_rules.PaperLineSearch(SimpleNamespace(parameters=[weights], first_step=first_step))  # type: ignore[arg-type]
    assert search._move(0, [torch.tensor([3.0, 4.0])]) == pytest.approx(taken)
    assert tried == [(20, pytest.approx(0.8**19), pytest.approx(0.001 * 25))]
    assert weights.tolist() == pytest.approx([1 - 3 * taken, 1 - 4 * taken])


def test_convolutions_need_images() -> None:
    runs = NetworkRuns(figure_named("003/figure5"), full=False, datasets=("synthetic",))  # type: ignore[arg-type]
    assert [network.shape for network in runs.networks] == ["cnn", "mlp"]
    only = replace(runs.figure, networks=runs.figure.networks[2:3], methods=("nonprivate",))
    with pytest.raises(InvalidParameter, match="needs images"):
        measure_networks(NetworkRuns(only, full=False, datasets=("synthetic",)))


def test_the_networks_are_those_of_the_paper() -> None:
    figure = figure_named("003/figure5")
    assert isinstance(figure, NetworkFigure)
    shapes = {"mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
    found = {
        network.title: [
            getattr(layer, "out_channels", getattr(layer, "out_features", None))
            for layer in network.build(shapes[network.dataset], 10)
            if hasattr(layer, "weight")
        ]
        for network in figure.networks
    }
    assert found == {
        "MNIST, MLP": [1000, 10],
        "Fashion-MNIST, MLP": [256, 256, 10],
        "MNIST, CNN": [6, 16, 256, 128, 10],
        "Fashion-MNIST, CNN": [6, 16, 256, 128, 10],
        "CIFAR-10, CNN": [32, 64, 128, 128, 256, 256, 4096, 1024, 512, 10],
    }


def test_a_run_may_have_some_of_the_data_sets_of_the_paper() -> None:
    figure = figure_named("003/figure5")
    assert isinstance(figure, NetworkFigure)
    runs = NetworkRuns(figure, full=True, datasets=("mnist", "fashion-mnist"))
    assert (runs.networks, runs.stand_in) == (figure.networks[:4], "")
    assert NetworkRuns(figure, full=True, datasets=("mnist", "synthetic")).stand_in == "mnist"
