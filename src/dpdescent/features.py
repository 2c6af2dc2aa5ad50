"""Fixed features of images: what a linear model needs to beat a small private network.

*Oriented energies.* Around each point of an image the brightness changes in some direction and by some amount. An
orientation's energy is the amount that points its way, at the scale to which the image was smoothed; energies are
averaged over a coarse grid of cells, so that a small shift of the image hardly changes them, and their square roots
are scaled to a common length within each scale (Dalal & Triggs 2005; Arandjelovic & Zisserman 2012). Brightness
itself is averaged over the same cells. Of images with three channels, the brightness, red against green, and yellow
against blue are described, because red, green and blue are nearly the same picture three times (van de Sande et al.
2010).

*Scattering* convolves an image with wavelets, takes moduli, does the same with these, and averages (Bruna & Mallat
2013), as Tramer & Boneh (2021) do for private training. Its paths are strongly correlated, and steps that suit the
directions in which they all change hardly move the others. What the correlations are is measured on random images
with the spectrum of photographs, which is public and costs nothing.

**Privacy** A row is transformed by itself, and no number in a transform comes from the rows that it is given: it
costs nothing.

References
----------
Dalal, N. & Triggs, B. (2005). Histograms of oriented gradients for human detection. CVPR.
Arandjelovic, R. & Zisserman, A. (2012). Three things everyone should know to improve object retrieval. CVPR.
Bruna, J. & Mallat, S. (2013). Invariant scattering convolution networks. IEEE Transactions on Pattern Analysis and
Machine Intelligence 35.
Oyallon, E. & Mallat, S. (2015). Deep roto-translation scattering for object classification. CVPR.
Tramer, F. & Boneh, D. (2021). Differentially private learning needs better features (or much more data). ICLR.
van de Sande, K., Gevers, T. & Snoek, C. (2010). Evaluating color descriptors for object and scene recognition. IEEE
Transactions on Pattern Analysis and Machine Intelligence 32.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .errors import InvalidParameter, require_positive_integer

Singles = NDArray[np.float32]

_IMAGES_AT_ONCE, _SCATTERED_AT_ONCE = 512, 16
_RANDOM_IMAGES, _RIDGE = 400, 0.1  # from which paths are whitened, and what is added to variances of 1
_LARGEST_ENTRY = 4.0  # of a feature, in units of the root of the mean square of all


@dataclass(eq=False, repr=False)
class ImageEnergies(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Oriented energies of images, each feature in [0, 1]; fixed and public, so that ``fit`` learns nothing.

    Attributes
    ----------
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((10, 28 * 28))
    >>> ImageEnergies().fit_transform(images).shape
    (10, 1225)
    """

    #: Height, width and, if there are several, channels of an image, for rows that are flat. By default a square.
    #: Three channels are red, green and blue, between 0 and 1, or whole numbers up to 255.
    shape: tuple[int, ...] | None = None
    _: KW_ONLY
    orientations: int = 8  # directions of change, over the whole circle
    #: Standard deviations, in pixels, of the smoothing before the change is measured.
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    cells: int = 7  # cells along each side over which energies are averaged

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the number of pixels; nothing else is read."""
        self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
        self._image_shape(np.shape(X))
        return self

    def transform(self, X: Any) -> Singles:
        """Return the features of every image, a row each, from flat rows or from images."""
        check_is_fitted(self)
        images = np.asarray(X)
        height, width, channels = self._image_shape(images.shape)
        pixels = images.reshape(-1, height, width, channels)
        brightest = 255.0 if pixels.dtype.kind in "iu" else 1.0
        parts = [
            self._features(_opponents(pixels[start : start + _IMAGES_AT_ONCE].astype(np.float32), brightest))
            for start in range(0, pixels.shape[0], _IMAGES_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self._width(channels)), np.float32)

    def _width(self, channels: int) -> int:
        return self.cells**2 * (len(self.scales) * self.orientations * channels + channels)

    def _image_shape(self, given: tuple[int, ...]) -> tuple[int, int, int]:
        """Return height, width and channels, or raise `InvalidParameter`."""
        require_positive_integer("orientations", self.orientations)
        require_positive_integer("cells", self.cells)
        if not self.scales or not all(scale > 0 for scale in self.scales):
            raise InvalidParameter(f"scales must be positive numbers of pixels, got {self.scales!r}")
        height, width, channels = _shape_of(self.shape, given)
        if min(height, width) < self.cells:
            raise InvalidParameter(f"images of {height} by {width} pixels have no {self.cells} cells a side")
        return height, width, channels

    def _features(self, pixels: Singles) -> Singles:
        """Return the features of a few images of shape (n, height, width, channels)."""
        blocks = [_scaled(np.sqrt(np.maximum(self._pooled(pixels), 0)))]
        for scale in self.scales:
            smooth = ndimage.gaussian_filter(pixels, (0, scale, scale, 0), mode="nearest")
            down, across = np.gradient(smooth, axis=(1, 2))
            lengths = np.hypot(down, across)
            angles = np.arctan2(down, across) * np.float32(self.orientations / (2 * np.pi))
            energies = [
                self._pooled(lengths * _nearness(angles - k, self.orientations)) for k in range(self.orientations)
            ]
            blocks.append(_scaled(np.sqrt(np.concatenate(energies, axis=1))))
        return np.concatenate(blocks, axis=1)

    def _pooled(self, values: Singles) -> Singles:
        """Return means over the cells, shape (n, cells^2 channels): of overlapping windows with soft edges."""
        rows, columns = (_windows(size, self.cells) for size in values.shape[1:3])
        pooled: Singles = np.tensordot(np.tensordot(values, rows, (1, 1)), columns, (1, 1))
        return pooled.reshape(values.shape[0], -1)


def _shape_of(named: tuple[int, ...] | None, given: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels of the images in rows of a given shape, or raise `InvalidParameter`."""
    shape = named if named is not None else given[1:]
    if len(shape) == 1:
        side = math.isqrt(shape[0])
        shape = (side, side)
    if len(shape) not in (2, 3) or math.prod(shape) != math.prod(given[1:]):
        raise InvalidParameter(
            f"rows of shape {given[1:]} are no images of shape {shape}: pass shape=(height, width) or "
            "(height, width, channels)"
        )
    height, width, *channels = shape
    return height, width, channels[0] if channels else 1


def _opponents(pixels: Singles, brightest: float) -> Singles:
    """Return brightness, red against green and yellow against blue of colour images, and others as they are."""
    if pixels.shape[3] != 3:
        return pixels
    red, green, blue = (pixels[..., channel] for channel in range(3))
    return np.stack(
        [(red + green + blue) / 3, (brightest + red - green) / 2, (2 * brightest + red + green - 2 * blue) / 4],
        axis=3,
    )


def _nearness(angles: Singles, turn: int) -> Singles:
    """Return 1 for angles of 0, falling to 0 at 1 on either side; a whole turn is so many."""
    apart = np.abs(angles - np.float32(turn) * np.rint(angles / np.float32(turn)))
    near: Singles = np.maximum(1 - apart, 0)
    return near


def _windows(size: int, cells: int) -> Singles:
    """Return the weights of ``size`` pixels in each cell along a side: triangles that reach to the next centres."""
    centres = (np.arange(cells) + 0.5) * size / cells
    apart = np.abs(np.arange(size) + 0.5 - centres[:, None]) * cells / size
    weights = np.maximum(1 - apart, 0)
    windows: Singles = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return windows


def _scaled(features: Singles) -> Singles:
    """Return rows of a common length, in units in which entries hardly ever exceed 1."""
    length = np.sqrt(np.mean(features**2, axis=1, keepdims=True))
    scaled: Singles = np.minimum(features / (_LARGEST_ENTRY * np.maximum(length, 1e-12)), 1).astype(np.float32)
    return scaled


@dataclass(eq=False, repr=False)
class ImageScattering(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Wavelet scattering of images to the second order; fixed and public, so that ``fit`` learns nothing.

    An image is averaged over cells of 2^scales pixels; so are the moduli of its convolutions with wavelets of every
    scale and orientation, and the moduli of convolutions of these with all wavelets of larger scales (Bruna & Mallat
    2013; Oyallon & Mallat 2015). Each of these paths has one number for each cell and channel.

    Attributes
    ----------
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((10, 32 * 32 * 3))
    >>> ImageScattering((32, 32, 3)).fit_transform(images).shape
    (10, 243, 8, 8)
    """

    #: As in `ImageEnergies`.
    shape: tuple[int, ...] | None = None
    _: KW_ONLY
    scales: int = 2  # wavelets have the scales 1, 2, ..., 2^(scales - 1) pixels
    orientations: int = 8  # of wavelets, over half of the circle
    #: Combine paths so that they are nearly uncorrelated, with variance 1, over random images with the spectrum of
    #: photographs, which are drawn with a fixed seed; then divide each row by the root of its mean square.
    whitened: bool = False
    #: Add the features of the mirror image: a linear model of both together needs half of the cells, which are kept.
    folded: bool = False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the number of pixels; nothing else is read."""
        self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
        self._form(np.shape(X))
        return self

    def transform(self, X: Any) -> Singles:
        """Return an array of shape (rows, channels times paths, cells down, cells across), or half of these."""
        check_is_fitted(self)
        images = np.asarray(X)
        height, width, channels = self._form(images.shape)
        brightest = np.float32(255 if images.dtype.kind in "iu" else 1)
        pixels = np.moveaxis(images.reshape(-1, height, width, channels), 3, 1)
        cascade = _Cascade(height, width, self.scales, self.orientations)
        centres, whitener = cascade.whitening(height, width) if self.whitened else (None, None)
        cell, across = 2**self.scales, width // 2**self.scales
        paths = len(cascade.mirrored)
        kept = across // 2 if self.folded else across
        found = np.empty((len(pixels), channels * paths, height // cell, kept), np.float32)
        for start in range(0, len(pixels), _SCATTERED_AT_ONCE):
            some = pixels[start : start + _SCATTERED_AT_ONCE].astype(np.float32) / brightest
            parts = cascade.scattered(some.reshape(-1, height, width))
            if whitener is not None and centres is not None:
                parts = (whitener @ (parts - centres).reshape(*parts.shape[:2], -1)).reshape(parts.shape)
            if self.folded:
                parts = (parts + parts[:, cascade.mirrored, :, ::-1])[..., :kept] / np.float32(math.sqrt(2))
            rows = parts.reshape(len(some), *found.shape[1:])
            if self.whitened:
                rows = rows / np.sqrt(np.mean(rows**2, axis=(1, 2, 3), keepdims=True) + 1e-12)
            found[start : start + len(some)] = rows
        return found

    def _form(self, given: tuple[int, ...]) -> tuple[int, int, int]:
        """Return height, width and channels, or raise `InvalidParameter`."""
        require_positive_integer("orientations", self.orientations)
        cell = 2 ** require_positive_integer("scales", self.scales)
        height, width, channels = _shape_of(self.shape, given)
        if height % cell or width % (2 * cell if self.folded else cell) or min(height, width) <= cell:
            raise InvalidParameter(
                f"images of {height} by {width} pixels cannot be cut into cells of {cell} a side"
                + (", of which half are mirror images" if self.folded else "")
            )
        return height, width, channels


def _random_images(height: int, width: int) -> Singles:
    """Return the same 400 images at every call: smooth random fields of various contrasts.

    Amplitudes fall with the frequency to the power 1.5, a little faster than in large photographs. That and the
    contrasts were chosen by the second moments of 600 images of CIFAR-10.
    """
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(_RANDOM_IMAGES, 2 * height, 2 * width))
    frequencies = np.hypot(np.fft.fftfreq(2 * height)[:, None], np.fft.fftfreq(2 * width))
    frequencies[0, 0] = np.inf
    fields = fft.ifft2(fft.fft2(noise) / frequencies**1.5).real[:, :height, :width]  # a part: no image is periodic
    contrasts = 0.24 * np.exp(generator.normal(scale=0.5, size=(_RANDOM_IMAGES, 1, 1)))
    images: Singles = np.clip(0.5 + contrasts * fields / fields.std(), 0, 1).astype(np.float32)
    return images


class _Cascade:
    """Wavelets for images of one shape, which are mirrored at their edges by the side of a cell."""

    def __init__(self, height: int, width: int, scales: int, orientations: int) -> None:
        self.scales, self.margin = scales, 2**scales
        sides = height + 2 * self.margin, width + 2 * self.margin
        turns = np.arange(orientations) * np.pi / orientations
        opposite = -np.arange(orientations) % orientations
        both = (opposite[:, None] * orientations + opposite).ravel()
        blocks = [opposite] * scales + [both] * (scales * (scales - 1) // 2)
        starts = np.cumsum([1, *map(len, blocks)])
        #: Which path of the mirror image each path is.
        self.mirrored = np.concatenate([[0], *(at + block for at, block in zip(starts, blocks, strict=False))])
        self._wavelets = [
            np.stack([_wavelet(sides, 2**scale, turn, 4 / orientations) for turn in turns]) for scale in range(scales)
        ]
        self._windows = [[self._window(side, 2**scale) for side in sides] for scale in range(scales)]

    def _window(self, side: int, spacing: int) -> Singles:
        """Return the weights of every ``spacing``-th pixel in the mean around each cell, Gaussian."""
        cell = self.margin
        centres = cell + np.arange(side // cell - 2) * cell + (cell - 1) / 2
        weights = np.exp(-0.5 * ((centres[:, None] - np.arange(0, side, spacing)) / (0.4 * cell)) ** 2)
        window: Singles = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        return window

    def scattered(self, images: Singles) -> Singles:
        """Return all paths of a few images, shape (n, paths, cells down, cells across)."""
        margins = (self.margin, self.margin)
        mirrored = np.pad(images, ((0, 0), margins, margins), mode="reflect")
        first, second = [self._means(mirrored[:, None], 0)], []
        spectrum = fft.fft2(mirrored)[:, None]
        for scale in range(self.scales):
            moduli = self._moduli(spectrum, 0, scale)
            first.append(self._means(moduli, scale))
            inner: NDArray[np.complex64] = fft.fft2(moduli)
            second += [
                self._means(self._moduli(inner[:, k, None], scale, larger), larger)
                for larger in range(scale + 1, self.scales)
                for k in range(inner.shape[1])
            ]
        paths: Singles = np.concatenate([*first, *second], axis=1)
        return paths

    def whitening(self, height: int, width: int) -> tuple[Singles, Singles]:
        """Return the means of paths over random images, and what makes them nearly uncorrelated there."""
        drawn = np.moveaxis(self.scattered(_random_images(height, width)).astype(float), 1, 0)
        flat = drawn.reshape(len(drawn), -1)
        centres, spreads = flat.mean(axis=1), flat.std(axis=1)
        values, vectors = np.linalg.eigh(np.corrcoef(flat))
        whitener = vectors / np.sqrt(values + _RIDGE) @ vectors.T / spreads
        return centres[:, None, None].astype(np.float32), whitener.astype(np.float32)

    def _means(self, moduli: Singles, scale: int) -> Singles:
        down, across = self._windows[scale]
        return np.asarray(down @ moduli @ across.T, np.float32)

    def _moduli(self, spectrum: NDArray[np.complex64], known: int, scale: int) -> Singles:
        """Return moduli at every 2^scale-th pixel, from the spectrum of what is known at every 2^known-th."""
        wavelets = _folded(self._wavelets[scale], 2**known) * 4**known
        values: NDArray[np.complex64] = fft.ifft2(_folded(spectrum * wavelets, 2 ** (scale - known)))
        return np.abs(values)


def _folded(spectra: NDArray[Any], factor: int) -> NDArray[Any]:
    """Return the spectra of every ``factor``-th pixel: sums over frequencies that look alike on these."""
    *others, rows, columns = spectra.shape
    parts = spectra.reshape(*others, factor, rows // factor, factor, columns // factor)
    means: NDArray[Any] = parts.sum(axis=(-4, -2)) / np.float32(factor**2)
    return means


def _wavelet(sides: tuple[int, int], scale: int, turn: float, slant: float) -> Singles:
    """Return the spectrum of a Morlet wavelet: a wave under a Gaussian, less what makes its mean zero."""
    wave, around = np.zeros(sides, complex), np.zeros(sides)
    for tile in product((-2, -1, 0, 1, 2), repeat=2):  # it is periodic, as the images are
        down, across = (np.arange(side) + k * side for side, k in zip(sides, tile, strict=True))
        along = np.cos(turn) * across + np.sin(turn) * down[:, None]
        beside = np.cos(turn) * down[:, None] - np.sin(turn) * across
        bell = np.exp(-(along**2 + (slant * beside) ** 2) / (2 * (0.8 * scale) ** 2))
        around += bell
        wave += bell * np.exp(0.75j * np.pi / scale * along)
    wave -= around * (wave.sum() / around.sum())
    spectrum: Singles = fft.fft2(wave * slant / (2 * np.pi * (0.8 * scale) ** 2)).real.astype(np.float32)
    return spectrum
