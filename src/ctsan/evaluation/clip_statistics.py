"""A metric as numbers that are added over clips, so that it can be had of any clips in no time.

Accuracy is right answers over questions, BLEU is made of counts of n-grams, a mean is a sum over a number:
once every clip's numbers are known, the metric of a thousand resamplings is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The numbers of each clip, and what a metric makes of their sums."""

    rows: Numbers  # (clips, S)
    of_sums: Callable[[Numbers], Numbers]  # (..., S) -> (...)

    @property
    def value(self) -> float:
        """The metric of all clips."""
        return float(self.of_sums(self.rows.sum(axis=0)))


def ratio(parts: ArrayLike, wholes: ArrayLike) -> Tally:
    """One sum over another: right answers over questions. Without any it is 0.

    Args:
        parts, wholes: (clips,).
    """
    return Tally(np.stack([_numbers(parts), _numbers(wholes)], axis=1), _ratio)


def mean(values: ArrayLike) -> Tally:
    """The mean of one value a clip, (clips,)."""
    numbers = _numbers(values)
    return ratio(numbers, np.ones_like(numbers))


def mean_of(tallies: Sequence[Tally]) -> Tally:
    """The mean of a metric over several systems on the same clips, such as one trained with several seeds."""
    ends = np.cumsum([tally.rows.shape[1] for tally in tallies])[:-1]

    def of_sums(sums: Numbers) -> Numbers:
        parts = zip(tallies, np.split(sums, ends, axis=-1), strict=True)
        means: Numbers = np.mean([tally.of_sums(own) for tally, own in parts], axis=0)
        return means

    return Tally(np.concatenate([tally.rows for tally in tallies], axis=1), of_sums)


def _numbers(values: ArrayLike) -> Numbers:
    return np.asarray(values, dtype=np.float64)


def _ratio(sums: Numbers) -> Numbers:
    ratios: Numbers = sums[..., 0] / np.where(sums[..., 1] == 0, 1, sums[..., 1])
    return ratios
