"""How far a figure may be trusted: paired bootstrap over clips, and Student's t over seeds.

A bootstrap draws as many clips as there are, some twice and some not at all, again and again, and looks how
the metric varies. Two systems are measured on the same draws, for what is hard in a clip is hard for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ctsan.evaluation.tally import Numbers, Tally

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


def interval(tally: Tally) -> Interval:
    """Where a metric of other clips of the same kind would lie, 19 times in 20."""
    return _percentiles(np.concatenate([tally.of_sums(sums) for sums in _resampled(tally.rows)]))


def compare(ours: Tally, theirs: Tally) -> Comparison:
    """Whether a metric of ours is larger than theirs by more than the choice of clips explains.

    Args:
        ours, theirs: on the same clips in the same order.

    Raises:
        ValueError: they are not on as many clips.
    """
    if len(ours.rows) != len(theirs.rows):
        raise ValueError(
            f"{len(ours.rows)} and {len(theirs.rows)} clips cannot be paired: measure both on the same."
        )
    width = ours.rows.shape[1]
    found = np.concatenate(
        [
            ours.of_sums(sums[:, :width]) - theirs.of_sums(sums[:, width:])
            for sums in _resampled(np.concatenate([ours.rows, theirs.rows], axis=1))
        ]
    )
    low, high = _percentiles(found)
    verdict: Verdict = "larger" if low > 0 else "smaller" if high < 0 else "within noise"
    return Comparison(ours.value - theirs.value, Interval(low, high), verdict)


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


def _percentiles(values: Numbers) -> Interval:
    low, high = np.quantile(values, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(low), float(high))
