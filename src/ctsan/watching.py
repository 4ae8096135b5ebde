"""Clips as runs see them: decoded, turned into feature maps and encoded, each as seldom as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.trained_run import TrainedRun
from ctsan.video.backbone import Backbone, find_backbone
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import Frames, sample_frames
from ctsan.video.store import Maps, Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What runs make of a clip."""

    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that were taken
    encodings: list[ClipEncoding]  # one for each run


class Watcher:
    """Loads the networks that make features when they are first needed, and keeps them.

    Args:
        weights: the backbone's file where it is not installed with ctsan.
    """

    def __init__(self, weights: Path | None) -> None:
        self._weights = weights
        self._engines: dict[str, tuple[Backbone, Engine]] = {}  # by the name of the backbone

    def watch(self, clip: Path, runs: Sequence[TrainedRun]) -> Sight:
        """Decode a clip once, and compute its maps once for all runs with the same backbone.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the features of a run cannot be computed.
        """
        frames: dict[int, Frames] = {}  # by size
        maps: dict[str, Maps] = {}
        encodings = []
        for run in runs:
            backbone, engine = self.engine(run.recipe)
            if backbone.image_size not in frames:
                frames[backbone.image_size] = sample_frames(clip, size=backbone.image_size)
            if backbone.name not in maps:
                maps[backbone.name] = engine(frames[backbone.image_size].pixels)
            encodings.append(run.member.encode([maps[backbone.name]]))
        return Sight(next(iter(frames.values())).times, encodings)

    def engine(self, recipe: Recipe) -> tuple[Backbone, Engine]:
        """The network that makes features as a run was trained on."""
        if recipe.details.get("imported"):
            raise UsageError(
                f"The model was trained on imported features ({recipe.backbone}), which ctsan cannot "
                "compute. Train one on features of its own to ask about video files."
            )
        found = self._engines.get(recipe.backbone)
        backbone = found[0] if found else find_backbone(recipe.backbone, self._weights)
        if backbone.digest != recipe.details["weights"]:
            raise UsageError(
                f"{backbone.weights}: not the weights that the model's features were made with. Give the "
                "same file."
            )
        if found is None:
            found = self._engines[recipe.backbone] = backbone, load_engine(backbone)
        return found
