"""How far a figure may be trusted: paired bootstrap over clips and over seeds, and Student's t over seeds.

A bootstrap draws as many clips as there are, some twice and some not at all, again and again, and looks how
the metric varies. Two systems are measured on the same draws, for what is hard in a clip is hard for both.
Where systems are trained with several seeds, each draw draws seeds too: another training may differ more than
other clips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ctsan.evaluation.clip_statistics import ClipStatistic, Numbers, mean_of

Verdict = Literal["larger", "smaller", "within noise"]

_RESAMPLES = 2000
_AT_ONCE = 250
_SEED = 0
_LEVEL = 0.95


class Interval(NamedTuple):
    low: float
    high: float


class Comparison(NamedTuple):
    """Of one system with another."""

    difference: float
    interval: Interval
    verdict: Verdict  # within noise: the interval of the difference holds 0


class OverSeeds(NamedTuple):
    mean: float
    half_width: float | None  # one seed tells nothing of others


def interval(statistic: ClipStatistic) -> Interval:
    """Where a metric of other clips of the same kind would lie, 19 times in 20."""
    return _percentiles(np.concatenate([statistic.of_sums(sums) for sums in _resampled(statistic.rows)]))


def compare(ours: ClipStatistic, theirs: ClipStatistic) -> Comparison:
    """Whether a metric of ours is larger than theirs by more than the choice of clips explains.

    Args:
        ours, theirs: on the same clips in the same order.

    Raises:
        ValueError: they are not on as many clips.
    """
    return compare_over_seeds([ours], [theirs])


def compare_over_seeds(ours: Sequence[ClipStatistic], theirs: Sequence[ClipStatistic]) -> Comparison:
    """Whether the mean over seeds is larger than theirs by more than the choice of clips and seeds explains.

    Every draw draws clips, and seeds as well. Two systems with as many seeds have the same seeds drawn, in
    pairs; with different numbers of seeds each has its own.

    Args:
        ours, theirs: one a seed; all on the same clips in the same order.

    Raises:
        ValueError: they are not on as many clips.
    """
    counts = sorted({len(statistic.rows) for statistic in (*ours, *theirs)})
    if len(counts) > 1:
        raise ValueError(f"{' and '.join(map(str, counts))} clips cannot be paired: measure all on the same.")
    random = np.random.default_rng(_SEED + 1)  # clips are drawn alike, whatever the number of seeds
    both = [*ours, *theirs]
    ends = np.cumsum([statistic.rows.shape[1] for statistic in both])[:-1]
    found = []
    for sums in _resampled(np.concatenate([statistic.rows for statistic in both], axis=1)):
        parts = zip(both, np.split(sums, ends, axis=1), strict=True)
        values = np.stack(
            [statistic.of_sums(own) for statistic, own in parts], axis=1
        )  # (draws, seeds of both)
        mine = _seed_weights(random, len(ours))  # (draws, seeds)
        other = mine if len(ours) == len(theirs) else _seed_weights(random, len(theirs))
        weighted = values * np.concatenate([mine, -other], axis=1)
        found.append(weighted.sum(axis=1))
    low, high = _percentiles(np.concatenate(found))
    verdict: Verdict = "larger" if low > 0 else "smaller" if high < 0 else "within noise"
    return Comparison(mean_of(ours).value - mean_of(theirs).value, Interval(low, high), verdict)


def over_seeds(values: Sequence[float]) -> OverSeeds:
    """The mean over seeds, and half the width of the interval in which it lies 19 times in 20."""
    from scipy.special import stdtrit

    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return OverSeeds(mean, None)
    quantile = float(stdtrit(count - 1, (1 + _LEVEL) / 2))
    return OverSeeds(mean, quantile * float(np.std(values, ddof=1)) / count**0.5)


def _resampled(rows: Numbers) -> Iterator[Numbers]:
    """Sums of rows over drawn clips, (draws, S); the same for as many clips, whatever the rows."""
    clips = len(rows)
    random = np.random.default_rng(_SEED)
    for _ in range(0, _RESAMPLES, _AT_ONCE):
        times_drawn = random.multinomial(clips, np.full(clips, 1 / clips), size=_AT_ONCE)
        yield times_drawn.astype(np.float64) @ rows


def _seed_weights(random: np.random.Generator, seeds: int) -> Numbers:
    """How much each seed counts in each draw, (draws, seeds): they add up to 1."""
    return random.multinomial(seeds, np.full(seeds, 1 / seeds), size=_AT_ONCE) / seeds


def _percentiles(values: Numbers) -> Interval:
    low, high = np.quantile(values, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(low), float(high))
