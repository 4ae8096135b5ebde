"""Clips that a worker has read, so that a predictor answers about them without touching a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ctsan.errors import VideoError
from ctsan.inference.featurizer import ClipFeatures, ClipFeaturizer, features_for
from ctsan.inference.predictor import Predictor
from ctsan.inference.results import Caption, Description, Tracing
from ctsan.inference.trace import has_traces
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.runs.trained_run import TrainedRun, answering, can_answer
from ctsan.video.clip_maps import ClipMaps


@dataclass(slots=True, eq=False)
class _Seen:
    """A clip, and what runs made of it: most clips are asked about more than once."""

    times: NDArray[np.float64]
    maps: Mapping[str, ClipMaps]
    encodings: dict[int, ClipEncoding] = field(default_factory=dict)  # by the run's identity
    description: Description | None = None


class SeenClips(ClipFeaturizer):
    """Gives out the maps of clips as workers made them. The "path" of a clip is its id here."""

    def __init__(self, weights: Path | None) -> None:
        super().__init__(weights)
        self._clips: dict[str, _Seen] = {}

    def add(self, clip: str, maps: Mapping[str, ClipMaps], times: NDArray[np.float64]) -> None:
        """Args:
        maps: by the key of their network.
        """
        self._clips[clip] = _Seen(times, maps)

    def forget(self, clip: str) -> None:
        self._clips.pop(clip, None)

    def find(self, clip: Path) -> _Seen:
        """Raises: VideoError: it was forgotten."""
        found = self._clips.get(str(clip))
        if found is None:
            raise VideoError(clip, "the clip was forgotten meanwhile", "Upload it again.")
        return found

    def featurize_all(
        self, clips: Iterable[Path], runs: Sequence[TrainedRun]
    ) -> Iterator[ClipFeatures | VideoError]:
        for clip in clips:
            try:
                seen = self.find(clip)
            except VideoError as error:
                yield error
            else:
                yield features_for(str(clip), seen.times, seen.maps, runs)

    def encode(self, looks: Sequence[ClipFeatures], runs: Sequence[TrainedRun]) -> list[ClipEncoding]:
        if len(looks) == 1 and (seen := self._clips.get(looks[0].clip)):
            known = [seen.encodings.get(id(run)) for run in runs]
            if None not in known:
                return [each for each in known if each is not None]
        encodings = super().encode(looks, runs)
        for row, look in enumerate(looks):
            if seen := self._clips.get(look.clip):  # it may have been forgotten meanwhile
                for run, maps, encoding in zip(runs, look.maps, encodings, strict=True):
                    seen.encodings[id(run)] = _of_one(encoding, row, len(maps))
        return encodings

    def encode_new(self, clips: Iterable[Path], runs: Sequence[TrainedRun]) -> None:
        """Have what runs make of clips ready, made together for those of which it is not yet known."""
        for run in runs:
            new = [
                look
                for look in self.featurize_all(dict.fromkeys(clips), [run])
                if isinstance(look, ClipFeatures) and id(run) not in self.find(Path(look.clip)).encodings
            ]
            if new:
                self.encode(new, [run])


class ClipPredictor(Predictor):
    """A predictor that is asked about read clips by their ids. All runs are loaded at once, for good."""

    def __init__(self, runs: Sequence[TrainedRun], *, weights: Path | None = None) -> None:
        super().__init__(runs, weights=weights)
        self._featurizer = self.clips = SeenClips(weights)
        for run in runs:
            self._featurizer.engine(run.recipe)  # now, not with the first question: is its network there?
            run.load()

    @property
    def tasks(self) -> list[str]:
        """What people can ask: joint embeddings answer two of them."""
        asked: tuple[str, ...] = ("describe", "fill", "choose", "rank")
        return [task for task in asked if can_answer(self.runs, task)]

    @property
    def num_describing(self) -> int:
        """How many runs say a sentence together."""
        return sum(run.task == "describe" for run in self.runs)

    @property
    def can_trace(self) -> bool:
        return any(run.task == "describe" and has_traces(run) for run in self.runs)

    def described(self, clips: Sequence[Path]) -> list[Description]:
        """What is said of clips: together of those that nobody asked about yet, and it is kept.

        Raises:
            VideoError: one was forgotten meanwhile.
        """
        seen = {clip: self.clips.find(clip) for clip in clips}
        new = [clip for clip, each in seen.items() if each.description is None]
        for clip, found in zip(new, self.describe_all(new), strict=True):
            if isinstance(found, VideoError):
                raise found
            seen[clip].description = found
        return [each.description for each in map(seen.__getitem__, clips) if each.description]

    def prepare(self, clips: Iterable[Path], task: str) -> None:
        """Encode clips together, for questions about them that are then answered one by one."""
        self.clips.encode_new(clips, answering(self.runs, task))

    def trace(
        self,
        clip: Path | str,
        *,
        concept: str | None = None,
        beam: int | None = None,
        caption: Caption | None = None,
    ) -> Tracing:
        """As of any predictor; the best sentence has been said already."""
        caption = caption or self.described([Path(clip)])[0].captions[0]
        return super().trace(clip, concept=concept, beam=beam, caption=caption)


def _of_one(encoding: ClipEncoding, row: int, frames: int) -> ClipEncoding:
    """What was made of one clip of several, without the frames that only longer ones have.

    A copy, so that the others can be forgotten.
    """
    own = encoding.of(torch.tensor([row], device=encoding.concepts.device))
    if own.detection is None:
        return own
    attention = own.detection.attention[:, :frames].clone()
    return own._replace(detection=own.detection._replace(attention=attention))
