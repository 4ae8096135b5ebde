"""Does a trace look at what its concept word names? Only a corpus that knows where things are can say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]  # left, top, right, bottom, as shares of the picture
Numbers = NDArray[np.float64]


class OnRegion(NamedTuple):
    """Of one trace in one frame."""

    mass: float  # of its attention that lies on the region, if a cell's attention is spread evenly over it
    by_chance: float  # the same of a trace that looks at all cells alike
    peak: bool  # whether the middle of the cell it looks at most is on the region


def attention_on_region(
    attention: Numbers, rows: Numbers, columns: Numbers, boxes: Sequence[Box]
) -> OnRegion:
    """How much of a trace's attention (h, w) lies on boxes that do not overlap.

    Args:
        rows, columns: borders of the cells, from 0 to 1; one more of each than cells.
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
    """The share of each cell that lies between two places, along one side."""
    starts, ends = borders[:-1], borders[1:]
    inside = np.minimum(ends, high) - np.maximum(starts, low)
    shares: Numbers = np.clip(inside, 0, None) / (ends - starts)
    return shares
