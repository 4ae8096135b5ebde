"""A trace's attention as colour over the clip's own pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # it brings PyTorch with it
    from ctsan.inference.predictor import Tracing


Pixels = NDArray[np.uint8]  # (height, width, 3), RGB
Colour = tuple[int, int, int]

FULL = 4.0  # times the weight of a cell in even attention: what is shown as full colour

_TINT = 0.5  # how much of the colour there is where it is full
_FADED = 0.7  # how grey a picture is where nobody looks


def attention_at(tracing: Tracing, trace: int, time: float) -> NDArray[np.float32]:
    """Where a trace looks at a moment of the clip, (h, w): straight from one sampled frame to the next."""
    after = int(np.searchsorted(tracing.times, time))
    before = min(max(after - 1, 0), len(tracing.times) - 1)
    after = min(after, len(tracing.times) - 1)
    weights: NDArray[np.float32] = tracing.attention[:, trace]  # (N, h, w)
    start, end = tracing.times[before], tracing.times[after]
    share = (time - start) / (end - start) if end > start else 0.0  # at or beyond an end
    between: NDArray[np.float32] = weights[before] + np.float32(share) * (weights[after] - weights[before])
    return between


class HeatMap:
    """Attention on a grid to levels for every pixel of a picture, by bicubic interpolation."""

    def __init__(self, tracing: Tracing, *, width: int, height: int) -> None:
        self._down = bicubic(tracing.rows, height)  # (height, h)
        self._across = bicubic(tracing.columns, width)  # (width, w)

    def __call__(self, attention: NDArray[np.float32]) -> NDArray[np.float32]:
        """(h, w) to (height, width), from 0 to 1."""
        levels = (attention * attention.size / FULL).clip(0, 1)
        spread: NDArray[np.float32] = (self._down @ levels @ self._across.T).clip(0, 1)
        return spread


def bicubic(borders: NDArray[np.float64], size: int) -> NDArray[np.float32]:
    """(size, cells): how much each cell counts for each of so many pixels along one side of a picture.

    Cells need not be equally wide: pixels are placed among them by their borders, and Catmull and Rom's cubic
    goes through the middle of each cell. Beyond the outer cells' middles their values go on.
    """
    cells = len(borders) - 1
    place = np.interp((np.arange(size) + 0.5) / size, borders, np.arange(cells + 1)) - 0.5
    left = np.floor(place).astype(int)
    weights = np.zeros((size, cells), dtype=np.float32)
    for neighbour in range(-1, 3):
        distance = np.abs(place - left - neighbour)
        near = 1.5 * distance**3 - 2.5 * distance**2 + 1
        far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
        cubic = np.where(distance < 1, near, far)
        np.add.at(weights, (np.arange(size), (left + neighbour).clip(0, cells - 1)), cubic)
    return weights


def overlay(picture: Pixels, levels: NDArray[np.float32], colour: Colour) -> Pixels:
    """Tinted where a trace looks, nearly grey where it does not; all of it can still be made out."""
    pixels = picture.astype(np.float32)
    grey = pixels @ np.array((0.299, 0.587, 0.114), dtype=np.float32)
    faded = pixels + _FADED * (grey[..., None] - pixels)
    tinted = pixels + _TINT * (np.array(colour, dtype=np.float32) - pixels)
    mixed: Pixels = (faded + levels[..., None] * (tinted - faded) + 0.5).astype(np.uint8)
    return mixed
