"""Public features of images."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from dpdescent.errors import InvalidParameter
from dpdescent.features import ImageEnergies


def test_each_row_is_transformed_by_itself() -> None:
    images = np.random.default_rng(0).random((600, 14, 14))
    energies = ImageEnergies(cells=4)
    together = energies.fit_transform(images)
    assert together.shape == (600, 16 * (3 * 8 + 1))
    assert together.min() >= 0
    assert together.max() <= 1
    one = energies.transform(images[517:518])
    np.testing.assert_allclose(one[0], together[517], atol=2e-6)
    np.testing.assert_allclose(energies.fit_transform(images.reshape(600, -1)), together)
    changed = images.copy()
    changed[3] = 0.0
    np.testing.assert_array_equal(np.delete(energies.transform(changed), 3, 0), np.delete(together, 3, 0))


def test_an_edge_has_the_energy_of_its_orientation() -> None:
    """Brightness that grows to the right points to the right, at angle 0; downwards at a quarter of a turn."""
    ramp = np.tile(np.arange(12.0), (12, 1))
    energies = ImageEnergies(cells=2, orientations=8, scales=(1.0,))
    for image, orientation in ((ramp, 0), (ramp.T, 2), (-ramp + 12, 4), (-ramp.T + 12, 6)):
        found = energies.fit_transform(image[None])[0, 4:].reshape(8, 4)
        assert (found.sum(axis=1) > 1e-6).nonzero()[0].tolist() == [orientation]


def test_a_scaled_image_has_the_same_features() -> None:
    images = np.random.default_rng(1).random((5, 16, 16))
    energies = ImageEnergies()
    np.testing.assert_allclose(energies.fit_transform(255 * images), energies.fit_transform(images), atol=1e-5)


def test_channels_and_shapes() -> None:
    images = np.random.default_rng(2).random((3, 8 * 10 * 3))
    found = ImageEnergies((8, 10, 3), cells=2, scales=(1.0,)).fit_transform(images)
    assert found.shape == (3, 4 * (8 * 3 + 3))
    assert ImageEnergies(cells=2).fit_transform(np.zeros((0, 16))).shape[0] == 0
    assert np.isfinite(ImageEnergies(cells=2).fit_transform(np.zeros((2, 16)))).all()
    assert clone(ImageEnergies(cells=3)).cells == 3


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 15)),
        ({"shape": (4, 5)}, (2, 16)),
        ({"cells": 9}, (2, 16)),
        ({"scales": ()}, (2, 64)),
        ({"scales": (0.0,)}, (2, 64)),
        ({"orientations": 0}, (2, 64)),
    ],
)
def test_what_is_no_image_is_refused(options: dict[str, object], shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter):
        ImageEnergies(**options).fit(np.zeros(shape))


def test_colours_are_described_by_what_they_differ_in():
    grey = np.repeat(np.random.default_rng(3).random((2, 8, 8, 1)), 3, axis=3)
    settings = {"cells": 2, "scales": (1.0,)}
    found = ImageEnergies(**settings).fit_transform(grey).reshape(2, -1)
    energies = found[:, 12:].reshape(2, 8, 3, 4)  # orientations, channels, cells
    assert energies[:, :, 0].max() > 0.1
    assert energies[:, :, 1:].max() < 1e-3  # a grey image has no edges between colours
    red = np.zeros((1, 8, 8, 3))
    red[..., :4, 0] = 1.0
    edges = ImageEnergies(**settings).fit_transform(red)[0, 12:].reshape(8, 3, 4)
    assert (edges.max(axis=(0, 2)) > 0.1).all()
    whole = np.rint(grey * 255)
    np.testing.assert_allclose(
        ImageEnergies(**settings).fit_transform(whole.astype(np.uint8)),
        ImageEnergies(**settings).fit_transform(whole / 255),
        atol=1e-3,  # roots of rounding errors
    )
