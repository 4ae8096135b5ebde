"""Decode clips and compute their feature maps; models share whatever they can."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.config import Settings
from ctsan.errors import RunError, VideoError
from ctsan.io.device import usable_cores
from ctsan.io.stopwatch import Stopwatch
from ctsan.video.backbones import Backbone, backbone_of, network_key
from ctsan.video.clip_maps import ClipMaps, needed_frames
from ctsan.video.engine import Engine, describe_engine, load_engine
from ctsan.video.frames import Frames
from ctsan.video.given_frames import ClipInput, clip_name, frames_of
from ctsan.video.shots import Shot, frames_of_shots_by_size
from ctsan.video.store import Maps, Recipe

T = TypeVar("T")

_AHEAD = 2  # clips decoded ahead of the one that the model works on


class NeedsFeatures(Protocol):
    """A trained run, or its model."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def settings(self) -> Settings: ...


class FeatureNeeds(NamedTuple):
    """What a model needs, without the model: for a process that only computes features."""

    recipe: Recipe
    settings: Settings


@dataclass(frozen=True, slots=True, eq=False)
class ClipFeatures:
    """The feature maps of a clip."""

    clip: str
    times: NDArray[np.float64]  # (N,), seconds in the source, of the sampled frames
    maps: Mapping[str, ClipMaps]  # by `network_key`
    middle: NDArray[np.uint8] | None = None  # RGB pixels (h, w, 3) of the middle frame, if asked for

    def of(self, model: NeedsFeatures) -> Maps:
        """The maps that a model was trained on, subsampled to its `max_frames`."""
        return self.maps[network_key(model.recipe)].of(model.settings.model.max_frames)

    @property
    def duration(self) -> float:
        """Estimated seconds: of N evenly sampled frames, the last is at (N - 1) / N of the clip."""
        count = len(self.times)
        return float(self.times[-1] - self.times[0]) * count / max(count - 1, 1)


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

    def featurize(self, clip: ClipInput, models: Sequence[NeedsFeatures]) -> ClipFeatures:
        """Compute the features of one clip.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the features of a model cannot be computed.
        """
        [features] = self.featurize_all([clip], models)
        if isinstance(features, VideoError):
            raise features
        return features

    def featurize_all(
        self,
        clips: Iterable[ClipInput],
        models: Sequence[NeedsFeatures],
        *,
        middle_box: tuple[int, int] | None = None,
    ) -> Iterator[ClipFeatures | VideoError]:
        """Yield the features of each clip, or its error; a background thread decodes the next clips.

        Args:
            middle_box: width and height; also keep the middle frame of each file, scaled down to fit into it.

        Raises:
            UsageError: the features of a model cannot be computed.
        """
        sizes = sorted({self.backbone(model.recipe).image_size for model in models})

        def decoded() -> Iterator[tuple[str, dict[int, Frames]] | VideoError]:
            for clip in clips:
                try:
                    yield (
                        clip_name(clip),
                        {
                            size: frames_of(
                                clip, size=size, middle_box=middle_box if size == sizes[0] else None
                            )
                            for size in sizes
                        },
                    )
                except VideoError as error:
                    yield error

        for result in self._ahead(decoded()):
            yield result if isinstance(result, VideoError) else self._featurize(*result, models)

    def featurize_shots(
        self, video: Path, models: Sequence[NeedsFeatures], *, middle_box: tuple[int, int] | None = None
    ) -> Iterator[tuple[Shot, ClipFeatures]]:
        """Yield each shot of a video with its features; memory use does not grow with the video.

        Args:
            middle_box: width and height; also keep the middle frame of each shot, scaled down to fit into it.

        Raises:
            VideoError: the video cannot be read.
            UsageError: the features of a model cannot be computed.
        """
        sizes = sorted({self.backbone(model.recipe).image_size for model in models})
        for shot, frames in self._ahead(frames_of_shots_by_size(video, sizes, middle_box=middle_box)):
            yield shot, self._featurize(str(video), frames, models)

    def backbone(self, recipe: Recipe) -> Backbone:
        """Find the backbone that computes the features of a recipe, without loading it.

        Raises:
            UsageError: the features were imported, or the network's weights are not found.
            RunError: the network gives maps of another size than the recipe says.
        """
        key = network_key(recipe)
        if key not in self._backbones:
            with self.stopwatch("load"):
                backbone = backbone_of(recipe, self._weights)
            if (backbone.grid, backbone.channels) != (recipe.grid, recipe.channels):
                given, expected = (
                    "×".join(map(str, (*maps.grid, maps.channels))) for maps in (backbone, recipe)
                )
                raise RunError(
                    f"The maps of {backbone.name} are {given}, and 'features.json' of a run says {expected}. "
                    "Put that file back from a copy, or train again."
                )
            self._backbones[key] = backbone
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

    @property
    def engines(self) -> list[str]:
        """What runs the backbones that were loaded, such as "ONNX Runtime, CPU"."""
        return list(dict.fromkeys(describe_engine(self._backbones[key]) for key in self._engines))

    def _featurize(
        self, clip: str, frames: Mapping[int, Frames], models: Sequence[NeedsFeatures]
    ) -> ClipFeatures:
        """Run each backbone once over the frames that any model uses.

        Args:
            frames: by image size.
        """
        maps = {}
        for key, (recipe, max_frames) in networks_needed(models).items():
            pixels = frames[self.backbone(recipe).image_size].pixels
            indices = needed_frames(len(pixels), max_frames)
            engine = self.engine(recipe)
            with self.stopwatch("backbone"):
                maps[key] = ClipMaps(len(pixels), indices, engine(pixels[indices]))
        first = next(iter(frames.values()))
        return ClipFeatures(clip, first.times, maps, first.middle)

    def _ahead(self, decoded: Iterator[T]) -> Iterator[T]:
        """Yield decoded items while a background thread decodes the next ones."""

        def step() -> T | None:
            with self.stopwatch("decode"):
                return next(decoded, None)

        with ThreadPoolExecutor(max_workers=1) as thread:
            steps = deque(thread.submit(step) for _ in range(_AHEAD))
            while (item := steps.popleft().result()) is not None:
                steps.append(thread.submit(step))
                yield item


class NeededNetwork(NamedTuple):
    """A backbone that some models need, with their frame limits."""

    recipe: Recipe
    max_frames: list[int]  # distinct values of `model.max_frames` of those models


def networks_needed(models: Iterable[NeedsFeatures]) -> dict[str, NeededNetwork]:
    """Group models by backbone, keyed by `network_key`."""
    needed: dict[str, NeededNetwork] = {}
    for model in models:
        limits = needed.setdefault(network_key(model.recipe), NeededNetwork(model.recipe, [])).max_frames
        if model.settings.model.max_frames not in limits:
            limits.append(model.settings.model.max_frames)
    return needed
