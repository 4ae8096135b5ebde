"""The example clips of a checkout, to try the page without a library. An installed package has none."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ctsan.errors import VideoError
from ctsan.search.search import Hit
from ctsan.video.frames import probe
from ctsan.video.suffixes import CLIP_SUFFIXES

FOLDER = Path(__file__).parents[3] / "examples" / "clips"
_PREFIX = "example-"


class Examples:
    """The clips, by id. The ids are fixed when the server starts."""

    def __init__(self) -> None:
        files = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else []
        self._files = {
            f"{_PREFIX}{file.stem}": file for file in files if file.suffix.lower() in CLIP_SUFFIXES
        }

    @cached_property
    def hits(self) -> dict[str, Hit]:
        """Each clip as one moment, by id; clips that cannot be read are left out."""
        hits = {}
        for name, file in self._files.items():
            try:
                hits[name] = Hit(file, 0.0, probe(file).duration, score=0.0, concepts=(), matched=())
            except VideoError:
                continue
        return hits

    def __contains__(self, hit_id: str) -> bool:
        return hit_id in self._files
