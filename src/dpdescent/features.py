"""Oriented energies of images: what a linear model needs to beat a small private network.

Around each point of an image the brightness changes in some direction and by some amount. An orientation's energy is
the amount that points its way, at the scale to which the image was smoothed; energies are averaged over a coarse grid
of cells, so that a small shift of the image hardly changes them, and their square roots are scaled to a common length
within each scale (Dalal & Triggs 2005; Arandjelovic & Zisserman 2012). Brightness itself is averaged over the same
cells. Of images with three channels, the brightness, red against green, and yellow against blue are described,
because red, green and blue are nearly the same picture three times (van de Sande et al. 2010).

**Privacy** A row is transformed by itself, and no number in the transform comes from data: it costs nothing.

References
----------
Dalal, N. & Triggs, B. (2005). Histograms of oriented gradients for human detection. CVPR.
Arandjelovic, R. & Zisserman, A. (2012). Three things everyone should know to improve object retrieval. CVPR.
van de Sande, K., Gevers, T. & Snoek, C. (2010). Evaluating color descriptors for object and scene recognition. IEEE
Transactions on Pattern Analysis and Machine Intelligence 32.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .errors import InvalidParameter, require_positive_integer

Singles = NDArray[np.float32]

_IMAGES_AT_ONCE = 512
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
        shape = self.shape if self.shape is not None else given[1:]
        if len(shape) == 1:
            side = math.isqrt(shape[0])
            shape = (side, side)
        if len(shape) not in (2, 3) or math.prod(shape) != math.prod(given[1:]):
            raise InvalidParameter(
                f"rows of shape {given[1:]} are no images of shape {shape}: pass shape=(height, width) or "
                "(height, width, channels)"
            )
        if min(shape[:2]) < self.cells:
            raise InvalidParameter(f"images of {shape[0]} by {shape[1]} pixels have no {self.cells} cells a side")
        height, width, *channels = shape
        return height, width, channels[0] if channels else 1

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
