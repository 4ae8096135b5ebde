"""Metrics as functions of sums of per-clip statistics, so that any resample of clips is cheap to measure.

Accuracy is correct answers over questions, BLEU is a function of n-gram counts, a mean is a sum over a count:
from the statistics of every clip, a thousand resamples take one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ClipStatistic:
    """The statistics of each clip, and the metric as a function of their sums."""

    rows: Numbers  # (clips, S)
    of_sums: Callable[[Numbers], Numbers]  # (..., S) -> (...)

    @property
    def value(self) -> float:
        """The metric over all clips."""
        return float(self.of_sums(self.rows.sum(axis=0)))


def ratio(parts: ArrayLike, wholes: ArrayLike) -> ClipStatistic:
    """The sum of `parts` over the sum of `wholes`, such as correct answers over questions; 0 if that is 0.

    Args:
        parts, wholes: (clips,).
    """
    return ClipStatistic(np.stack([_numbers(parts), _numbers(wholes)], axis=1), _ratio)


def mean(values: ArrayLike) -> ClipStatistic:
    """The mean of one value per clip, (clips,)."""
    numbers = _numbers(values)
    return ratio(numbers, np.ones_like(numbers))


def mean_of(statistics: Sequence[ClipStatistic]) -> ClipStatistic:
    """The mean of a metric over systems on the same clips, such as one system trained with several seeds."""
    ends = np.cumsum([statistic.rows.shape[1] for statistic in statistics])[:-1]

    def of_sums(sums: Numbers) -> Numbers:
        parts = zip(statistics, np.split(sums, ends, axis=-1), strict=True)
        means: Numbers = np.mean([statistic.of_sums(part) for statistic, part in parts], axis=0)
        return means

    return ClipStatistic(np.concatenate([statistic.rows for statistic in statistics], axis=1), of_sums)


def _numbers(values: ArrayLike) -> Numbers:
    return np.asarray(values, dtype=np.float64)


def _ratio(sums: Numbers) -> Numbers:
    ratios: Numbers = sums[..., 0] / np.where(sums[..., 1] == 0, 1, sums[..., 1])
    return ratios
