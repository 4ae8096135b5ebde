"""Clips as runs see them: decoded, turned into feature maps and encoded, each as seldom as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.device import usable_cores
from ctsan.errors import UsageError, VideoError
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.stopwatch import Stopwatch
from ctsan.trained_run import TrainedRun
from ctsan.video.backbone import Backbone, find_backbone
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import Frames, sample_frames
from ctsan.video.shots import Shot, frames_of_shots
from ctsan.video.store import Maps, Recipe

T = TypeVar("T")

_AHEAD = 2  # clips that are decoded while the model is still at those before


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The feature maps of a clip, for each run those of the frames that it takes in."""

    clip: str
    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that were taken
    maps: list[Maps]


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What runs make of a clip."""

    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that were taken
    encodings: list[ClipEncoding]  # one for each run


class Watcher:
    """Loads the networks that make features when they are first needed, and keeps them.

    Args:
        weights: the backbone's file where it is not installed with ctsan.
        threads: that a network may use; by default one for each core.
    """

    def __init__(self, weights: Path | None, *, threads: int | None = None) -> None:
        self.stopwatch = Stopwatch()
        self._weights, self._threads = weights, threads or usable_cores()
        self._engines: dict[str, tuple[Backbone, Engine]] = {}  # by the name of the backbone

    def watch(self, clip: Path, runs: Sequence[TrainedRun]) -> Sight:
        """Decode a clip once, and compute its maps once for all runs with the same backbone.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the features of a run cannot be computed.
        """
        [look] = self.look_at_all([clip], runs)
        if isinstance(look, VideoError):
            raise look
        return Sight(look.times, self.encode([look], runs))

    def encode(self, looks: Sequence[Look], runs: Sequence[TrainedRun]) -> list[ClipEncoding]:
        """What each run makes of clips, a row a clip."""
        with self.stopwatch("model"):
            return [run.member.encode([look.maps[place] for look in looks]) for place, run in enumerate(runs)]

    def look_at_all(self, clips: Iterable[Path], runs: Sequence[TrainedRun]) -> Iterator[Look | VideoError]:
        """The maps of one clip after the other; the next ones are decoded meanwhile.

        Raises:
            UsageError: the features of a run cannot be computed.
        """
        sizes = sorted({self.engine(run.recipe)[0].image_size for run in runs})

        def decoded() -> Iterator[tuple[Path, dict[int, Frames]] | VideoError]:
            for clip in clips:
                try:
                    yield clip, {size: sample_frames(clip, size=size) for size in sizes}
                except VideoError as error:
                    yield error

        for found in self._ahead(decoded()):
            yield found if isinstance(found, VideoError) else self._look(str(found[0]), found[1], runs)

    def look_at_shots(self, video: Path, runs: Sequence[TrainedRun]) -> Iterator[tuple[Shot, Look]]:
        """The maps of one shot of a video after the other, of which little is held at a time.

        Raises:
            VideoError: the video cannot be read.
            UsageError: the features of a run cannot be computed, or runs need frames of different sizes.
        """
        size, *others = sorted({self.engine(run.recipe)[0].image_size for run in runs})
        if others:
            raise UsageError("The runs look at frames of different sizes. Name one of them for scenes.")
        for shot, frames in self._ahead(frames_of_shots(video, size=size)):
            yield shot, self._look(str(video), {size: frames}, runs)

    def engine(self, recipe: Recipe) -> tuple[Backbone, Engine]:
        """The network that makes features as a run was trained on."""
        if recipe.details.get("imported"):
            raise UsageError(
                f"The model was trained on imported features ({recipe.backbone}), which ctsan cannot "
                "compute. Train one on features of its own to ask about video files."
            )
        found = self._engines.get(recipe.backbone)
        if found is None:
            with self.stopwatch("load"):
                backbone = find_backbone(recipe.backbone, self._weights)
                _check_weights(backbone, recipe)
                found = self._engines[recipe.backbone] = (
                    backbone,
                    load_engine(backbone, threads=self._threads),
                )
        _check_weights(found[0], recipe)
        return found

    def _look(self, clip: str, frames: Mapping[int, Frames], runs: Sequence[TrainedRun]) -> Look:
        """Maps of the frames that any run takes in: a run of ten frames needs no maps of forty.

        Args:
            frames: by their size.
        """
        engines = [self.engine(run.recipe) for run in runs]
        places = [
            _thinned(len(frames[backbone.image_size].times), run.settings.model.max_frames)
            for run, (backbone, _) in zip(runs, engines, strict=True)
        ]
        maps: dict[str, dict[int, Maps]] = {}  # of frames by their places, by backbone
        for backbone, engine in engines:
            if backbone.name not in maps:
                wanted = sorted(
                    {
                        place
                        for (other, _), own in zip(engines, places, strict=True)
                        if other.name == backbone.name
                        for place in own
                    }
                )
                with self.stopwatch("backbone"):
                    found = engine(frames[backbone.image_size].pixels[wanted])
                maps[backbone.name] = dict(zip(wanted, found, strict=True))
        taken = [
            np.stack([maps[backbone.name][place] for place in own])
            for (backbone, _), own in zip(engines, places, strict=True)
        ]
        return Look(clip, next(iter(frames.values())).times, taken)

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


def _thinned(count: int, most: int) -> list[int]:
    """The places of at most so many frames, evenly over a clip, as `thin` takes them."""
    kept = min(count, most)
    return [place * count // kept for place in range(kept)]


def _check_weights(backbone: Backbone, recipe: Recipe) -> None:
    if backbone.digest != recipe.details["weights"]:
        raise UsageError(
            f"{backbone.weights}: not the weights that the model's features were made with. Give the same "
            "file."
        )
