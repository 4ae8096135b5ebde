"""Clips that a worker has read, so that a predictor answers about them without touching a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import VideoError
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.predictor import Predictor
from ctsan.trained_run import TrainedRun
from ctsan.video.store import Maps
from ctsan.watching import Look, Watcher


class SeenClips(Watcher):
    """Gives out the maps of clips as workers made them. The "path" of a clip is its id here.

    What a run makes of a clip is kept with it: most clips are asked about more than once.
    """

    def __init__(self, weights: Path | None) -> None:
        super().__init__(weights)
        self._maps: dict[str, tuple[NDArray[np.float64], Mapping[str, Maps]]] = {}
        self._encodings: dict[str, dict[int, ClipEncoding]] = {}  # by clip, then by the run's identity

    def add(self, clip: str, maps: Mapping[str, Maps], times: NDArray[np.float64]) -> None:
        """Args:
        maps: by the name of the backbone.
        """
        self._maps[clip] = times, maps

    def forget(self, clip: str) -> None:
        self._maps.pop(clip, None)
        self._encodings.pop(clip, None)

    def look_at_all(self, clips: Iterable[Path], runs: Sequence[TrainedRun]) -> Iterator[Look | VideoError]:
        for clip in clips:
            if str(clip) not in self._maps:
                yield VideoError(clip, "the clip was forgotten meanwhile", "Upload it again.")
                continue
            times, maps = self._maps[str(clip)]
            yield Look(str(clip), times, [maps[run.recipe.backbone] for run in runs])

    def encode(self, looks: Sequence[Look], runs: Sequence[TrainedRun]) -> list[ClipEncoding]:
        if len(looks) > 1:
            return super().encode(looks, runs)
        known = self._encodings.setdefault(looks[0].clip, {})
        missing = [(place, run) for place, run in enumerate(runs) if id(run) not in known]
        for place, run in missing:
            [look] = looks
            own = Look(look.clip, look.times, [look.maps[place]])
            [known[id(run)]] = super().encode([own], [run])
        return [known[id(run)] for run in runs]


class ClipPredictor(Predictor):
    """A predictor that is asked about read clips by their ids. All runs are loaded at once, for good."""

    def __init__(self, runs: Sequence[TrainedRun], *, weights: Path | None = None) -> None:
        super().__init__(runs, weights=weights)
        self._watcher = self.clips = SeenClips(weights)
        for run in runs:
            self._watcher.engine(run.recipe)  # now, not with the first question: is its network there?
            run.load()

    @property
    def backbones(self) -> list[str]:
        """The names of the networks whose maps the runs need."""
        return list(dict.fromkeys(run.recipe.backbone for run in self.runs))

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))
