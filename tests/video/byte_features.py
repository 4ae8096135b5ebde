"""Feature stores of files that are no videos: as many frames as bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ctsan.video.extraction import Report, fill_store
from ctsan.video.store import Recipe, StoredFeatures

RECIPE = Recipe("drawn", (1, 1), 8, mirrored=False, details={"made": "here"})

Clips = list[tuple[str, Path]]


def features_of(path: Path) -> StoredFeatures:
    count = len(path.read_bytes())
    return StoredFeatures(maps=np.full((count, 1, 1, 8), count, dtype=np.float16), times=np.arange(count) / 2)


def fill(clips: Clips, folder: Path) -> Report:
    return fill_store(clips, folder, RECIPE, features_of, workers=2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
