"""Public features of images."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from sklearn.base import clone

from dpdescent.errors import InvalidParameter
from dpdescent.features import ImageEnergies, ImageScattering


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


def brute_force_scattering(image: np.ndarray, scales: int, orientations: int) -> np.ndarray:
    """Every path at every cell by sums over pixels, with wavelets from their formula; all at full resolution."""
    cell = 2**scales
    mirrored = np.pad(image, cell, mode="reflect")
    height, width = mirrored.shape
    down, across = np.mgrid[:height, :width]
    places = [(down + a * height, across + b * width) for a in range(-3, 4) for b in range(-3, 4)]

    def wavelet(scale: int, k: int) -> np.ndarray:
        turn, width_of_bell = np.pi * k / orientations, 0.8 * 2**scale
        bell, wave = np.zeros(mirrored.shape), np.zeros(mirrored.shape, complex)
        for rows, columns in places:
            along = np.cos(turn) * columns + np.sin(turn) * rows
            beside = np.cos(turn) * rows - np.sin(turn) * columns
            one = np.exp(-(along**2 + (4 / orientations * beside) ** 2) / (2 * width_of_bell**2))
            bell += one
            wave += one * np.exp(0.75j * np.pi / 2**scale * along)
        wave -= bell * (wave.sum() / bell.sum())
        return wave * (4 / orientations) / (2 * np.pi * width_of_bell**2)

    def modulus(values: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        found = np.zeros(values.shape, complex)
        for a in range(height):
            for b in range(width):
                found += kernel[a, b] * np.roll(values, (a, b), (0, 1))
        return np.abs(found)

    def means(values: np.ndarray, spacing: int) -> np.ndarray:
        found = np.empty((image.shape[0] // cell, image.shape[1] // cell))
        for a, b in np.ndindex(found.shape):
            middle = [cell + place * cell + (cell - 1) / 2 for place in (a, b)]
            squares = (down - middle[0]) ** 2 + (across - middle[1]) ** 2
            weights = np.exp(-squares / (2 * (0.4 * cell) ** 2)) * (down % spacing == 0) * (across % spacing == 0)
            found[a, b] = (weights * values).sum() / weights.sum()
        return found

    first, second = [means(mirrored, 1)], []
    for scale in range(scales):
        for k in range(orientations):
            one = modulus(mirrored, wavelet(scale, k))
            first.append(means(one, 2**scale))
            second += [
                means(modulus(one, wavelet(larger, other)), 2**larger)
                for larger in range(scale + 1, scales)
                for other in range(orientations)
            ]
    return np.stack([*first, *second])


@pytest.mark.parametrize(("shape", "scales", "orientations"), [((6, 4), 1, 3), ((8, 12), 2, 4)])
def test_scattering_is_what_its_formula_says(shape: tuple[int, int], scales: int, orientations: int) -> None:
    images = np.random.default_rng(4).random((3, *shape, 2)).astype(np.float32)
    found = ImageScattering(scales=scales, orientations=orientations).fit_transform(images)
    cell, paths = 2**scales, 1 + orientations * scales + orientations**2 * (scales - 1)
    assert found.shape == (3, 2 * paths, shape[0] // cell, shape[1] // cell)
    for row, channel in ((0, 0), (2, 1)):
        expected = brute_force_scattering(images[row, :, :, channel], scales, orientations)
        np.testing.assert_allclose(found[row].reshape(2, paths, *expected.shape[1:])[channel], expected, atol=2e-6)


def test_scattering_over_three_scales_computes_on_fewer_pixels_what_it_would_on_all() -> None:
    """Moduli at every other pixel hold nearly all that is in them: larger wavelets find the same."""
    smooth = ndimage.gaussian_filter(np.random.default_rng(5).random((16, 16)), 1.0, mode="wrap")
    found = ImageScattering(scales=3, orientations=2).fit_transform(smooth[None])[0]
    expected = brute_force_scattering(smooth, 3, 2)
    assert found.shape == (19, 2, 2)
    order = [*range(7), 7, 8, 11, 12, 9, 10, 13, 14, *range(15, 19)]  # by scale, then by orientation
    np.testing.assert_allclose(found, expected[order], rtol=0.05, atol=1e-3)


def test_scattering_transforms_each_row_by_itself() -> None:
    images = np.random.default_rng(6).integers(0, 256, (40, 8 * 8 * 3), dtype=np.uint8)
    scattering = ImageScattering((8, 8, 3))
    together = scattering.fit_transform(images)
    for first in (1, 5, 29, 39):  # to the last bit: what a removed row leaves behind must not move other rows
        np.testing.assert_array_equal(scattering.transform(images[first:]), together[first:])
    np.testing.assert_allclose(scattering.transform(images / 255.0), together, atol=1e-6)
    changed = images.copy()
    changed[3] = 0
    np.testing.assert_array_equal(np.delete(scattering.transform(changed), 3, 0), np.delete(together, 3, 0))
    assert scattering.transform(images[:0]).shape == (0, 243, 2, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"scales": 0},
        {"orientations": 0},
        {"shape": (9, 9)},
        {"scales": 3},
        {"scales": 2, "shape": (8, 4, 2), "folded": True},
    ],
)
def test_images_that_cannot_be_scattered_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        ImageScattering(**options).fit(np.zeros((2, 64)))


def test_folded_features_are_those_of_an_image_and_its_mirror_image_together() -> None:
    images = np.random.default_rng(7).random((2, 16, 16, 3))
    plain = ImageScattering()
    both = (plain.fit_transform(images) + plain.fit_transform(images[:, :, ::-1]))[..., :2] / np.sqrt(2)
    found = ImageScattering(folded=True).fit_transform(images)
    assert found.shape == (2, 243, 4, 2)
    # Moduli at every other pixel are not quite those at the pixels between.
    np.testing.assert_allclose(found, both, rtol=0.1, atol=2e-3)
    grey = [0, 81, 162]
    np.testing.assert_allclose(found[:, grey], both[:, grey], rtol=1e-5)


def test_whitened_features_are_nearly_uncorrelated_over_smooth_images() -> None:
    """On other images of the same law; each row then has mean square 1."""
    generator = np.random.default_rng(8)
    frequencies = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.fftfreq(32))
    frequencies[0, 0] = np.inf
    smooth = np.fft.ifft2(np.fft.fft2(generator.normal(size=(300, 32, 32))) / frequencies**1.5).real[:, :16, :16]
    contrasts = 0.24 * np.exp(generator.normal(scale=0.5, size=(300, 1, 1)))
    images = np.clip(0.5 + contrasts * smooth / smooth.std(), 0, 1)
    whitened = ImageScattering(whitened=True)
    found = whitened.fit_transform(images)
    assert found.shape == (300, 81, 4, 4)
    np.testing.assert_allclose((found**2).mean((1, 2, 3)), 1, atol=1e-5)
    np.testing.assert_array_equal(whitened.transform(images[7:8])[0], found[7])

    def largest_share(features: np.ndarray) -> float:
        """Of one direction in the second moment of paths; their means are a direction, too."""
        flat = np.moveaxis(features, 1, 0).reshape(81, -1).astype(float)
        values = np.linalg.eigvalsh(flat @ flat.T)
        return float(values[-1] / values.sum())

    plain = ImageScattering().fit_transform(images)
    assert largest_share(found) < 0.06
    assert largest_share((plain - plain.mean((0, 2, 3), keepdims=True)) / plain.std((0, 2, 3), keepdims=True)) > 0.3
