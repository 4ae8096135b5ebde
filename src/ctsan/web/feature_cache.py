"""Feature maps and encodings of clips that workers have read, so that the predictor needs no files."""

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
from ctsan.video.given_frames import ClipInput, clip_name


@dataclass(slots=True, eq=False)
class _CachedClip:
    """Feature maps of a clip, and results that further requests reuse."""

    times: NDArray[np.float64]
    maps: Mapping[str, ClipMaps]
    encodings: dict[int, ClipEncoding] = field(default_factory=dict)  # by id(run)
    description: Description | None = None


class FeatureCache(ClipFeaturizer):
    """A featurizer that serves cached feature maps. The "path" of a clip is its id."""

    def __init__(self, weights: Path | None) -> None:
        super().__init__(weights)
        self._clips: dict[str, _CachedClip] = {}

    def add(self, clip: str, maps: Mapping[str, ClipMaps], times: NDArray[np.float64]) -> None:
        """Args:
        maps: by `network_key`.
        """
        self._clips[clip] = _CachedClip(times, maps)

    def remove(self, clip: str) -> None:
        self._clips.pop(clip, None)

    def get(self, clip: Path) -> _CachedClip:
        """Raises:
        VideoError: the clip has been removed.
        """
        cached = self._clips.get(str(clip))
        if cached is None:
            raise VideoError(clip, "the clip was forgotten meanwhile", "Upload it again.")
        return cached

    def featurize_all(
        self, clips: Iterable[ClipInput], runs: Sequence[TrainedRun]
    ) -> Iterator[ClipFeatures | VideoError]:
        for clip in clips:
            try:
                cached = self.get(Path(clip_name(clip)))
            except VideoError as error:
                yield error
            else:
                yield features_for(clip_name(clip), cached.times, cached.maps, runs)

    def encode(self, features: Sequence[ClipFeatures], runs: Sequence[TrainedRun]) -> list[ClipEncoding]:
        if len(features) == 1 and (cached := self._clips.get(features[0].clip)):
            hits = [cached.encodings.get(id(run)) for run in runs]
            if None not in hits:
                return [encoding for encoding in hits if encoding is not None]
        encodings = super().encode(features, runs)
        for row, clip_features in enumerate(features):
            if cached := self._clips.get(clip_features.clip):  # it may have been removed meanwhile
                for run, maps, encoding in zip(runs, clip_features.maps, encodings, strict=True):
                    cached.encodings[id(run)] = _select_clip(encoding, row, len(maps))
        return encodings

    def encode_missing(self, clips: Iterable[Path], runs: Sequence[TrainedRun]) -> None:
        """Encode in one batch per run the clips whose encodings are not cached."""
        for run in runs:
            missing = [
                features
                for features in self.featurize_all(dict.fromkeys(clips), [run])
                if isinstance(features, ClipFeatures)
                and id(run) not in self.get(Path(features.clip)).encodings
            ]
            if missing:
                self.encode(missing, [run])


class ClipPredictor(Predictor):
    """A predictor that takes the ids of cached clips as paths. All runs are loaded when it is created."""

    def __init__(self, runs: Sequence[TrainedRun], *, weights: Path | None = None) -> None:
        super().__init__(runs, weights=weights)
        self._featurizer = self.cache = FeatureCache(weights)
        for run in runs:
            self._featurizer.engine(run.recipe)  # fails at startup if the backbone is missing
            run.load()

    @property
    def tasks(self) -> list[str]:
        """The tasks that the runs can answer; an 'embed' run answers two of them."""
        tasks: tuple[str, ...] = ("describe", "fill", "choose", "rank")
        return [task for task in tasks if can_answer(self.runs, task)]

    @property
    def num_describing(self) -> int:
        """How many runs caption as an ensemble."""
        return sum(run.task == "describe" for run in self.runs)

    @property
    def can_trace(self) -> bool:
        return any(run.task == "describe" and has_traces(run) for run in self.runs)

    def describe_cached(self, clips: Sequence[Path]) -> list[Description]:
        """Describe clips, those without a cached description in one batch.

        Raises:
            VideoError: a clip has been removed.
        """
        cached = {clip: self.cache.get(clip) for clip in clips}
        missing = [clip for clip, entry in cached.items() if entry.description is None]
        for clip, description in zip(missing, self.describe_all(missing), strict=True):
            if isinstance(description, VideoError):
                raise description
            cached[clip].description = description
        return [entry.description for entry in map(cached.__getitem__, clips) if entry.description]

    def prepare(self, clips: Iterable[Path], task: str) -> None:
        """Encode clips as one batch, before requests about them are answered one by one."""
        self.cache.encode_missing(clips, answering(self.runs, task))

    def trace(
        self,
        clip: ClipInput,
        *,
        concept: str | None = None,
        beam: int | None = None,
        caption: Caption | None = None,
    ) -> Tracing:
        """Like `Predictor.trace`, with the cached caption as the default."""
        caption = caption or self.describe_cached([Path(clip_name(clip))])[0].captions[0]
        return super().trace(clip, concept=concept, beam=beam, caption=caption)


def _select_clip(encoding: ClipEncoding, row: int, num_frames: int) -> ClipEncoding:
    """One clip of a batch, without padded frames. It is a copy, so that the batch can be freed."""
    clip = encoding.of(torch.tensor([row], device=encoding.concepts.device))
    if clip.detection is None:
        return clip
    attention = clip.detection.attention[:, :num_frames].clone()
    return clip._replace(detection=clip.detection._replace(attention=attention))
