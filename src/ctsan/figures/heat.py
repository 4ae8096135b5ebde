"""Overlay the attention of a trace on the frames of a clip."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ctsan.inference.results import Tracing

Pixels = NDArray[np.uint8]  # (height, width, 3), RGB
Colour = tuple[int, int, int]

FULL = 4.0  # attention shown as full colour, as a multiple of uniform attention

_TINT = 0.5  # opacity of full colour
_FADED = 0.7  # desaturation of pixels without attention


def attention_at(tracing: Tracing, trace: int, time: float) -> NDArray[np.float32]:
    """Attention of a trace at a time, (h, w), linearly interpolated between the sampled frames."""
    after = int(np.searchsorted(tracing.times, time))
    before = min(max(after - 1, 0), len(tracing.times) - 1)
    after = min(after, len(tracing.times) - 1)
    weights: NDArray[np.float32] = tracing.attention[:, trace]  # (N, h, w)
    start, end = tracing.times[before], tracing.times[after]
    share = (time - start) / (end - start) if end > start else 0.0  # on a frame, or outside the clip
    between: NDArray[np.float32] = weights[before] + np.float32(share) * (weights[after] - weights[before])
    return between


class HeatMap:
    """Upsamples attention on a grid to the pixels of a picture, by bicubic interpolation."""

    def __init__(self, tracing: Tracing, *, width: int, height: int) -> None:
        self._row_weights = bicubic(tracing.rows, height)  # (height, h)
        self._column_weights = bicubic(tracing.columns, width)  # (width, w)

    def __call__(self, attention: NDArray[np.float32]) -> NDArray[np.float32]:
        """(h, w) to (height, width), from 0 to 1."""
        levels = (attention * attention.size / FULL).clip(0, 1)
        upsampled: NDArray[np.float32] = (self._row_weights @ levels @ self._column_weights.T).clip(0, 1)
        return upsampled


def bicubic(borders: NDArray[np.float64], size: int) -> NDArray[np.float32]:
    """Interpolation weights of the cells for the pixels along one side of a picture, (size, cells).

    A Catmull-Rom spline passes through the centres of the cells, which need not have equal widths. Beyond the
    outermost centres the value is constant.

    Args:
        borders: (cells + 1,), from 0 to 1.
        size: number of pixels.
    """
    cells = len(borders) - 1
    position = np.interp((np.arange(size) + 0.5) / size, borders, np.arange(cells + 1)) - 0.5  # in cells
    left = np.floor(position).astype(int)
    weights = np.zeros((size, cells), dtype=np.float32)
    for neighbour in range(-1, 3):
        distance = np.abs(position - left - neighbour)
        near = 1.5 * distance**3 - 2.5 * distance**2 + 1
        far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
        cubic = np.where(distance < 1, near, far)
        np.add.at(weights, (np.arange(size), (left + neighbour).clip(0, cells - 1)), cubic)
    return weights


def overlay(picture: Pixels, levels: NDArray[np.float32], colour: Colour) -> Pixels:
    """Tint pixels with attention, and desaturate the others; the picture stays recognizable."""
    pixels = picture.astype(np.float32)
    grey = pixels @ np.array((0.299, 0.587, 0.114), dtype=np.float32)
    faded = pixels + _FADED * (grey[..., None] - pixels)
    tinted = pixels + _TINT * (np.array(colour, dtype=np.float32) - pixels)
    mixed: Pixels = (faded + levels[..., None] * (tinted - faded) + 0.5).astype(np.uint8)
    return mixed
