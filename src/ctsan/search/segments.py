"""Cut new clips into shots, decode them and compute their feature maps: the costly part of indexing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ctsan.errors import VideoError
from ctsan.inference.featurizer import ClipFeatures, ClipFeaturizer
from ctsan.runs.trained_run import TrainedRun
from ctsan.video.shots import MAX_SECONDS, Shot


@dataclass(frozen=True, slots=True)
class NewClip:
    path: Path
    seconds: float  # 0 if the file cannot be read

    @property
    def is_long(self) -> bool:
        return self.seconds > MAX_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One shot of a clip with its features, or, as the last segment of a clip, the error that ended it."""

    path: Path
    result: tuple[Shot, ClipFeatures] | str


Segmenter = Callable[[Sequence[NewClip]], Iterator[Segment]]  # keeps the order; at least one segment a clip


def segment_clips(
    clips: Sequence[NewClip], runs: Sequence[TrainedRun], featurizer: ClipFeaturizer
) -> Iterator[Segment]:
    """All shots of long clips; a short clip is one shot. An unreadable clip yields an error segment.

    Raises:
        UsageError: the features of a run cannot be computed.
    """
    for is_long, group in groupby(clips, key=lambda clip: clip.is_long):
        segment = _segment_long if is_long else _segment_short
        yield from segment(list(group), runs, featurizer)


def _segment_short(
    clips: Sequence[NewClip], runs: Sequence[TrainedRun], featurizer: ClipFeaturizer
) -> Iterator[Segment]:
    results = featurizer.featurize_all((clip.path for clip in clips), runs)
    for clip, features in zip(clips, results, strict=True):
        if isinstance(features, VideoError):
            yield Segment(clip.path, str(features))
        else:
            seconds = max(clip.seconds, float(features.times[-1] - features.times[0]))
            yield Segment(clip.path, (Shot(0.0, seconds), features))


def _segment_long(
    clips: Sequence[NewClip], runs: Sequence[TrainedRun], featurizer: ClipFeaturizer
) -> Iterator[Segment]:
    for clip in clips:
        try:
            for shot_features in featurizer.featurize_shots(clip.path, runs):
                yield Segment(clip.path, shot_features)
        except VideoError as error:
            yield Segment(clip.path, str(error))
