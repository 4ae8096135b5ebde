"""Decode clips, compute their feature maps and encode them; runs share whatever they can."""

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

_AHEAD = 2  # clips decoded ahead of the one that the model works on


@dataclass(frozen=True, slots=True, eq=False)
class ClipFeatures:
    """The feature maps of a clip: one `Maps` per run, subsampled to that run's `max_frames`."""

    clip: str
    times: NDArray[np.float64]  # (N,), seconds in the source, of the sampled frames
    maps: list[Maps]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedClip:
    """A clip's encodings, one per run."""

    times: NDArray[np.float64]  # (N,), seconds in the source, of the sampled frames
    encodings: list[ClipEncoding]  # one per run


class ClipFeaturizer:
    """Computes clip features. Loads each backbone on first use and caches it.

    Args:
        weights: file of the backbone's weights, if they are not installed with ctsan.
        threads: number of threads per network; by default one per core.
    """

    def __init__(self, weights: Path | None, *, threads: int | None = None) -> None:
        self.stopwatch = Stopwatch()
        self._weights, self._threads = weights, threads or usable_cores()
        self._backbones: dict[str, Backbone] = {}  # keyed by `network_key`, like the engines
        self._engines: dict[str, Engine] = {}

    def watch(self, clip: ClipInput, runs: Sequence[TrainedRun]) -> EncodedClip:
        """Encode one clip. It is decoded once, and each backbone runs once, however many runs share it.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the features of a run cannot be computed.
        """
        [look] = self.featurize_all([clip], runs)
        if isinstance(look, VideoError):
            raise look
        return EncodedClip(look.times, self.encode([look], runs))

    def encode(self, looks: Sequence[ClipFeatures], runs: Sequence[TrainedRun]) -> list[ClipEncoding]:
        """Encode clips with each run: one encoding per run, one row per clip."""
        with self.stopwatch("model"):
            return [run.loaded.encode([look.maps[place] for look in looks]) for place, run in enumerate(runs)]

    def featurize_all(
        self, clips: Iterable[ClipInput], runs: Sequence[TrainedRun]
    ) -> Iterator[ClipFeatures | VideoError]:
        """Yield the features of each clip, or its error; a background thread decodes the next clips.

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
        """Yield each shot of a video with its features; memory use does not grow with the video.

        Raises:
            VideoError: the video cannot be read.
            UsageError: the features of a run cannot be computed.
        """
        sizes = sorted({self.backbone(run.recipe).image_size for run in runs})
        for shot, frames in self._ahead(frames_of_shots_by_size(video, sizes)):
            yield shot, self._look(str(video), frames, runs)

    def backbone(self, recipe: Recipe) -> Backbone:
        """Find the backbone that computes the features of a recipe, without loading it.

        Raises:
            UsageError: the features were imported, or the network's weights are not found.
        """
        key = network_key(recipe)
        if key not in self._backbones:
            with self.stopwatch("load"):
                self._backbones[key] = backbone_of(recipe, self._weights)
        return self._backbones[key]

    def engine(self, recipe: Recipe) -> Engine:
        """Load the engine that runs the backbone of a recipe.

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
        """Compute the features of one clip.

        Args:
            frames: by image size.
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
        """Yield decoded items while a background thread decodes the next ones."""

        def step() -> T | None:
            with self.stopwatch("decode"):
                return next(decoded, None)

        with ThreadPoolExecutor(max_workers=1) as thread:
            steps = deque(thread.submit(step) for _ in range(_AHEAD))
            while (found := steps.popleft().result()) is not None:
                steps.append(thread.submit(step))
                yield found


class NeededNetwork(NamedTuple):
    """A backbone that some runs need, with their frame limits."""

    recipe: Recipe
    max_frames: list[int]  # distinct values of `model.max_frames` of those runs


def networks_needed(runs: Iterable[TrainedRun]) -> dict[str, NeededNetwork]:
    """Group runs by backbone, keyed by `network_key`."""
    found: dict[str, NeededNetwork] = {}
    for run in runs:
        numbers = found.setdefault(network_key(run.recipe), NeededNetwork(run.recipe, [])).max_frames
        if run.settings.model.max_frames not in numbers:
            numbers.append(run.settings.model.max_frames)
    return found


def features_for(
    clip: str, times: NDArray[np.float64], maps: Mapping[str, ClipMaps], runs: Sequence[TrainedRun]
) -> ClipFeatures:
    """Select each run's feature maps of a clip.

    Args:
        maps: keyed by `network_key`.
    """
    own = [maps[network_key(run.recipe)].of(run.settings.model.max_frames) for run in runs]
    return ClipFeatures(clip, times, own)
