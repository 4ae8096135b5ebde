"""Clips as runs see them: decoded, turned into feature maps and encoded, each as seldom as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import VideoError
from ctsan.io.device import usable_cores
from ctsan.io.stopwatch import Stopwatch
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.runs.trained_run import TrainedRun
from ctsan.video.backbones import Backbone, backbone_of, network_key
from ctsan.video.clip_maps import ClipMaps, needed_frames
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import Frames
from ctsan.video.given_frames import ClipInput, clip_name, frames_of
from ctsan.video.shots import Shot, frames_of_shots_by_size
from ctsan.video.store import Maps, Recipe

T = TypeVar("T")

_AHEAD = 2  # clips that are decoded while the model is still at those before


@dataclass(frozen=True, slots=True, eq=False)
class ClipFeatures:
    """The feature maps of a clip, for each run those of the frames that it takes in."""

    clip: str
    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that were taken
    maps: list[Maps]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedClip:
    """What runs make of a clip."""

    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that were taken
    encodings: list[ClipEncoding]  # one for each run


class ClipFeaturizer:
    """Loads the networks that make features when they are first needed, and keeps them.

    Args:
        weights: the backbone's file where it is not installed with ctsan.
        threads: that a network may use; by default one for each core.
    """

    def __init__(self, weights: Path | None, *, threads: int | None = None) -> None:
        self.stopwatch = Stopwatch()
        self._weights, self._threads = weights, threads or usable_cores()
        self._backbones: dict[str, Backbone] = {}  # by `network_key`, as are the engines
        self._engines: dict[str, Engine] = {}

    def watch(self, clip: ClipInput, runs: Sequence[TrainedRun]) -> EncodedClip:
        """Decode a clip once, and compute its maps once for all runs with the same backbone.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the features of a run cannot be computed.
        """
        [look] = self.featurize_all([clip], runs)
        if isinstance(look, VideoError):
            raise look
        return EncodedClip(look.times, self.encode([look], runs))

    def encode(self, looks: Sequence[ClipFeatures], runs: Sequence[TrainedRun]) -> list[ClipEncoding]:
        """What each run makes of clips, a row a clip."""
        with self.stopwatch("model"):
            return [run.loaded.encode([look.maps[place] for look in looks]) for place, run in enumerate(runs)]

    def featurize_all(
        self, clips: Iterable[ClipInput], runs: Sequence[TrainedRun]
    ) -> Iterator[ClipFeatures | VideoError]:
        """The maps of one clip after the other; the next ones are decoded meanwhile.

        Raises:
            UsageError: the features of a run cannot be computed.
        """
        sizes = sorted({self.backbone(run.recipe).image_size for run in runs})

        def decoded() -> Iterator[tuple[str, dict[int, Frames]] | VideoError]:
            for clip in clips:
                try:
                    yield clip_name(clip), {size: frames_of(clip, size=size) for size in sizes}
                except VideoError as error:
                    yield error

        for found in self._ahead(decoded()):
            yield found if isinstance(found, VideoError) else self._look(found[0], found[1], runs)

    def featurize_shots(self, video: Path, runs: Sequence[TrainedRun]) -> Iterator[tuple[Shot, ClipFeatures]]:
        """The maps of one shot of a video after the other, of which little is held at a time.

        Raises:
            VideoError: the video cannot be read.
            UsageError: the features of a run cannot be computed.
        """
        sizes = sorted({self.backbone(run.recipe).image_size for run in runs})
        for shot, frames in self._ahead(frames_of_shots_by_size(video, sizes)):
            yield shot, self._look(str(video), frames, runs)

    def backbone(self, recipe: Recipe) -> Backbone:
        """The network that makes features as a run was trained on; it is not loaded.

        Raises:
            UsageError: the features were imported, or the network's weights are not found.
        """
        key = network_key(recipe)
        if key not in self._backbones:
            with self.stopwatch("load"):
                self._backbones[key] = backbone_of(recipe, self._weights)
        return self._backbones[key]

    def engine(self, recipe: Recipe) -> Engine:
        """What runs that network.

        Raises:
            UsageError: see `backbone`.
        """
        key = network_key(recipe)
        if key not in self._engines:
            backbone = self.backbone(recipe)
            with self.stopwatch("load"):
                self._engines[key] = load_engine(backbone, threads=self._threads)
        return self._engines[key]

    def _look(self, clip: str, frames: Mapping[int, Frames], runs: Sequence[TrainedRun]) -> ClipFeatures:
        """Args:
        frames: by their size.
        """
        maps = {}
        for key, (recipe, max_frames) in networks_needed(runs).items():
            pixels = frames[self.backbone(recipe).image_size].pixels
            places = needed_frames(len(pixels), max_frames)
            engine = self.engine(recipe)
            with self.stopwatch("backbone"):
                maps[key] = ClipMaps(len(pixels), places, engine(pixels[places]))
        return features_for(clip, next(iter(frames.values())).times, maps, runs)

    def _ahead(self, decoded: Iterator[T]) -> Iterator[T]:
        """What is decoded, with the next ones being decoded in a thread."""

        def step() -> T | None:
            with self.stopwatch("decode"):
                return next(decoded, None)

        with ThreadPoolExecutor(max_workers=1) as thread:
            steps = deque(thread.submit(step) for _ in range(_AHEAD))
            while (found := steps.popleft().result()) is not None:
                steps.append(thread.submit(step))
                yield found


class NeededNetwork(NamedTuple):
    """A network whose maps runs need."""

    recipe: Recipe
    max_frames: list[int]  # of a clip that runs take in, each number once


def networks_needed(runs: Iterable[TrainedRun]) -> dict[str, NeededNetwork]:
    """The networks of runs by their keys."""
    found: dict[str, NeededNetwork] = {}
    for run in runs:
        numbers = found.setdefault(network_key(run.recipe), NeededNetwork(run.recipe, [])).max_frames
        if run.settings.model.max_frames not in numbers:
            numbers.append(run.settings.model.max_frames)
    return found


def features_for(
    clip: str, times: NDArray[np.float64], maps: Mapping[str, ClipMaps], runs: Sequence[TrainedRun]
) -> ClipFeatures:
    """A clip for each run, from the maps by the key of their network."""
    own = [maps[network_key(run.recipe)].of(run.settings.model.max_frames) for run in runs]
    return ClipFeatures(clip, times, own)
