"""New clips: cut, decode and turn them into feature maps, the costly part of filling a library."""

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
    seconds: float  # 0 where it cannot be read

    @property
    def is_long(self) -> bool:
        return self.seconds > MAX_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A shot of a clip as runs see it; or, after the shots that could be, why it cannot be read."""

    path: Path
    found: tuple[Shot, ClipFeatures] | str


LookAt = Callable[[Sequence[NewClip]], Iterator[Part]]  # in order, at least one part of each clip


def look_at_clips(
    clips: Sequence[NewClip], runs: Sequence[TrainedRun], featurizer: ClipFeaturizer
) -> Iterator[Part]:
    """All shots of long clips, and the others as one shot each; clips that cannot be read stop nothing.

    Raises:
        UsageError: the features of a run cannot be computed.
    """
    for is_long, group in groupby(clips, key=lambda clip: clip.is_long):
        look = _look_at_long if is_long else _look_at_short
        yield from look(list(group), runs, featurizer)


def _look_at_short(
    clips: Sequence[NewClip], runs: Sequence[TrainedRun], featurizer: ClipFeaturizer
) -> Iterator[Part]:
    looks = featurizer.featurize_all((clip.path for clip in clips), runs)
    for clip, look in zip(clips, looks, strict=True):
        if isinstance(look, VideoError):
            yield Part(clip.path, str(look))
        else:
            seconds = max(clip.seconds, float(look.times[-1] - look.times[0]))
            yield Part(clip.path, (Shot(0.0, seconds), look))


def _look_at_long(
    clips: Sequence[NewClip], runs: Sequence[TrainedRun], featurizer: ClipFeaturizer
) -> Iterator[Part]:
    for clip in clips:
        try:
            for found in featurizer.featurize_shots(clip.path, runs):
                yield Part(clip.path, found)
        except VideoError as error:
            yield Part(clip.path, str(error))
