"""Confidence intervals: paired bootstrap over clips and over seeds, and Student's t over seeds.

A bootstrap resamples the clips with replacement many times and takes the spread of the metric. Two systems
are measured on the same resamples, because a clip that is hard for one is usually hard for the other. Where
systems are trained with several seeds, each resample draws seeds too: retraining may change a metric more
than other clips do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ctsan.evaluation.clip_statistics import ClipStatistic, Numbers, mean_of
from ctsan.io.extras import extra

Verdict = Literal["larger", "smaller", "within noise"]

_RESAMPLES = 2000
_RESAMPLES_PER_BATCH = 250
_SEED = 0
_LEVEL = 0.95


class Interval(NamedTuple):
    low: float
    high: float


class Comparison(NamedTuple):
    """The comparison of one system with another."""

    difference: float
    interval: Interval
    verdict: Verdict  # "within noise" if the interval of the difference contains 0


class OverSeeds(NamedTuple):
    mean: float
    half_width: float | None  # None for a single seed


def interval(statistic: ClipStatistic) -> Interval:
    """The 95% confidence interval of a metric over the choice of clips."""
    return _percentiles(np.concatenate([statistic.of_sums(sums) for sums in _resampled_sums(statistic.rows)]))


def compare(ours: ClipStatistic, theirs: ClipStatistic) -> Comparison:
    """Whether our metric differs from theirs by more than the choice of clips explains.

    Args:
        ours, theirs: statistics of the same clips in the same order.

    Raises:
        ValueError: the numbers of clips differ.
    """
    return compare_over_seeds([ours], [theirs])


def compare_over_seeds(ours: Sequence[ClipStatistic], theirs: Sequence[ClipStatistic]) -> Comparison:
    """Whether our mean over seeds differs from theirs by more than the choice of clips and seeds explains.

    Every resample draws clips and seeds. If both systems have the same number of seeds, the same seeds are
    drawn for both (paired); otherwise each system's seeds are drawn independently.

    Args:
        ours, theirs: one statistic per seed, all of the same clips in the same order.

    Raises:
        ValueError: the numbers of clips differ.
    """
    counts = sorted({len(statistic.rows) for statistic in (*ours, *theirs)})
    if len(counts) > 1:
        raise ValueError(
            f"{' and '.join(map(str, counts))} clips cannot be paired. Measure all systems on the same clips."
        )
    rng = np.random.default_rng(_SEED + 1)  # separate, so that the number of seeds does not change the clips
    both = [*ours, *theirs]
    ends = np.cumsum([statistic.rows.shape[1] for statistic in both])[:-1]
    differences = []
    for sums in _resampled_sums(np.concatenate([statistic.rows for statistic in both], axis=1)):
        parts = zip(both, np.split(sums, ends, axis=1), strict=True)
        values = np.stack(
            [statistic.of_sums(seed_sums) for statistic, seed_sums in parts], axis=1
        )  # (draws, seeds of both)
        our_weights = _seed_weights(rng, len(ours))  # (draws, seeds)
        their_weights = our_weights if len(ours) == len(theirs) else _seed_weights(rng, len(theirs))
        weighted = values * np.concatenate([our_weights, -their_weights], axis=1)
        differences.append(weighted.sum(axis=1))
    low, high = _percentiles(np.concatenate(differences))
    verdict: Verdict = "larger" if low > 0 else "smaller" if high < 0 else "within noise"
    return Comparison(mean_of(ours).value - mean_of(theirs).value, Interval(low, high), verdict)


def over_seeds(values: Sequence[float]) -> OverSeeds:
    """The mean over seeds and the half-width of its 95% confidence interval (Student's t)."""
    with extra("train", "Student's t"):
        from scipy.special import stdtrit

    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return OverSeeds(mean, None)
    quantile = float(stdtrit(count - 1, (1 + _LEVEL) / 2))
    return OverSeeds(mean, quantile * float(np.std(values, ddof=1)) / count**0.5)


def _resampled_sums(rows: Numbers) -> Iterator[Numbers]:
    """Batches (draws, S) of sums of rows over resampled clips; draws depend only on the number of clips."""
    num_clips = len(rows)
    rng = np.random.default_rng(_SEED)
    for _ in range(0, _RESAMPLES, _RESAMPLES_PER_BATCH):
        times_drawn = rng.multinomial(num_clips, np.full(num_clips, 1 / num_clips), size=_RESAMPLES_PER_BATCH)
        yield times_drawn.astype(np.float64) @ rows


def _seed_weights(rng: np.random.Generator, num_seeds: int) -> Numbers:
    """The weight of each seed in each draw, (draws, seeds); every row sums to 1."""
    draws = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=_RESAMPLES_PER_BATCH)
    weights: Numbers = draws / num_seeds
    return weights


def _percentiles(values: Numbers) -> Interval:
    low, high = np.quantile(values, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(low), float(high))
