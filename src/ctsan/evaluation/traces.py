"""Whether a trace attends to the object that its concept word names; needs a corpus with object boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]  # left, top, right, bottom, relative to the frame's size
Numbers = NDArray[np.float64]


class OnRegion(NamedTuple):
    """How one trace's attention in one frame overlaps a region."""

    mass: float  # the attention on the region, if the attention of a cell is uniform over the cell
    by_chance: float  # the same for uniform attention over all cells
    peak: bool  # whether the centre of the cell with the highest attention is in the region


def attention_on_region(
    attention: Numbers, rows: Numbers, columns: Numbers, boxes: Sequence[Box]
) -> OnRegion:
    """The overlap of a trace's attention with a region of disjoint boxes.

    Args:
        attention: (h, w).
        rows, columns: the cell borders from 0 to 1, (h + 1,) and (w + 1,).
    """
    covered = sum(
        np.outer(_covered(rows, top, bottom), _covered(columns, left, right))
        for left, top, right, bottom in boxes
    )
    row, column = divmod(int(attention.argmax()), attention.shape[1])
    y, x = rows[row : row + 2].mean(), columns[column : column + 2].mean()
    peak = any(left <= x <= right and top <= y <= bottom for left, top, right, bottom in boxes)
    return OnRegion(float((attention * covered).sum()), float(np.mean(covered)), peak)


def _covered(borders: Numbers, low: float, high: float) -> Numbers:
    """The share of each cell that lies between `low` and `high`, along one axis."""
    starts, ends = borders[:-1], borders[1:]
    inside = np.minimum(ends, high) - np.maximum(starts, low)
    shares: Numbers = np.clip(inside, 0, None) / (ends - starts)
    return shares
