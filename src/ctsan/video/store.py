"""The feature store: one memory-mapped safetensors file per clip, and an index of the clips.

    FOLDER/manifest.json                 how the maps were made
    FOLDER/index.sqlite                  readable and unreadable clips, see clip_index.py
    FOLDER/clips/3f/3fa4….safetensors    maps (N, h, w, C) float16, times (N,), optionally mirrored maps

A clip's file contains digests of its source and recipe, and is written atomically. So a folder is consistent
at every moment, and a run that was killed continues from the existing files.

Format version 1 has every clip in the manifest instead. It can be read, and extraction converts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ctsan.errors import StoreError
from ctsan.io.atomic import replacing, write_json
from ctsan.video.clip_index import INDEX_FILE, MANIFEST_FILE, ClipIndex, ClipRecord, write_index

FORMAT = "ctsan-features"
VERSION = 2

Maps = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How maps were made. All maps of a folder have the same recipe."""

    backbone: str
    grid: tuple[int, int]
    channels: int
    mirrored: bool
    details: Mapping[str, object]  # weights, preprocessing, sampling

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredFeatures:
    """One clip's maps, and the timestamps of its frames if they are known."""

    maps: Maps  # (N, h, w, C)
    times: NDArray[np.float64] | None  # (N,)
    mirrored: Maps | None = None  # maps of the horizontally flipped frames


@dataclass(frozen=True, slots=True)
class ClipHeader:
    """The header of a clip's file."""

    recipe: str  # digest of the recipe
    source: str  # digest of the clip, or of the imported array
    frames: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The recipe of a folder, its clips, and the errors of unreadable ones."""

    recipe: Recipe
    clips: Mapping[str, ClipRecord]
    unreadable: Mapping[str, str]
    index: ClipIndex | None = None  # the index behind the two mappings; None in format version 1


class FeatureStore:
    """Random access to the maps of a folder: `store[clip_id]`."""

    def __init__(self, folder: Path) -> None:
        manifest = read_manifest(folder)
        if manifest is None:
            raise StoreError(
                f"{folder}: no features here. Make them with 'ctsan features CORPUS --out {folder}'."
            )
        self.folder = folder
        self.manifest = manifest

    @property
    def grid(self) -> tuple[int, int]:
        return self.manifest.recipe.grid

    @property
    def channels(self) -> int:
        return self.manifest.recipe.channels

    def __contains__(self, clip_id: object) -> bool:
        return clip_id in self.manifest.clips

    def __iter__(self) -> Iterator[str]:
        return iter(self.manifest.clips)

    def __len__(self) -> int:
        return len(self.manifest.clips)

    def __getitem__(self, clip_id: str) -> StoredFeatures:
        """Raises:
        StoreError: the clip is not in the folder, or its file is damaged.
        """
        if clip_id not in self.manifest.clips:
            reason = self.manifest.unreadable.get(clip_id, "it was not in the corpus when they were made")
            raise StoreError(f"{self.folder}: no features of clip '{clip_id}': {reason}")
        return read_clip(self.folder, clip_id)


def read_clip(folder: Path, clip_id: str) -> StoredFeatures:
    path = clip_file(folder, clip_id)
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            return StoredFeatures(
                maps=file.get_tensor("maps"),
                times=file.get_tensor("times") if "times" in names else None,
                mirrored=file.get_tensor("mirrored") if "mirrored" in names else None,
            )
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"{path}: the features of clip '{clip_id}' are missing or damaged ({error}). "
            "Delete the file and run 'ctsan features' again."
        ) from error


def write_clip(folder: Path, clip_id: str, features: StoredFeatures, *, recipe: str, source: str) -> None:
    tensors: dict[str, NDArray[np.generic]] = {"maps": features.maps}
    if features.times is not None:
        tensors["times"] = features.times
    if features.mirrored is not None:
        tensors["mirrored"] = features.mirrored
    # A single metadata entry, because safetensors writes several in random order.
    header = {"clip": clip_id, "recipe": recipe, "source": source}
    with replacing(clip_file(folder, clip_id)) as temporary:
        temporary.write_bytes(save(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))


def read_header(folder: Path, clip_id: str) -> ClipHeader | None:
    """The header of a clip's file; None if the file is missing or damaged."""
    try:
        with safe_open(clip_file(folder, clip_id), framework="numpy") as file:
            header = json.loads((file.metadata() or {})[FORMAT])
            frames = file.get_slice("maps").get_shape()[0]
        return ClipHeader(recipe=header["recipe"], source=header["source"], frames=frames)
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def clip_file(folder: Path, clip_id: str) -> Path:
    """The file of a clip, named by a digest because an id may be any string, with slashes or very long."""
    name = hashlib.sha256(clip_id.encode(errors="surrogatepass")).hexdigest()[:32]
    return folder / "clips" / name[:2] / f"{name}.safetensors"


def write_manifest(folder: Path, manifest: Manifest) -> ClipIndex:
    """Write a new index, then the manifest; until the manifest is replaced, the old one is valid."""
    folder.mkdir(parents=True, exist_ok=True)
    index = write_index(folder, manifest.clips, manifest.unreadable)
    write_json(
        folder / MANIFEST_FILE, {"format": FORMAT, "version": VERSION, "recipe": asdict(manifest.recipe)}
    )
    return index


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if there is none.

    Raises:
        StoreError: the manifest or its index is damaged, or of another format or version.
    """
    path = folder / MANIFEST_FILE
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise ValueError("another format")
        version = int(value["version"])
        if version in (1, VERSION):
            height, width = value["recipe"]["grid"]
            recipe = Recipe(**{**value["recipe"], "grid": (int(height), int(width))})
        if version == 1:
            clips = {clip_id: ClipRecord(**record) for clip_id, record in value["clips"].items()}
            return Manifest(recipe, clips, value["unreadable"])
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path}: not a manifest of features ({error}). Delete it and run 'ctsan features' again: it "
            "reuses the maps that are in the folder."
        ) from error
    if version != VERSION:
        raise StoreError(
            f"{path}: features of format version {version}, this ctsan reads 1 to {VERSION}. "
            "Use the ctsan that made them, or another --out."
        )
    index = ClipIndex(folder / INDEX_FILE)
    return Manifest(recipe, index.clips, index.unreadable, index)
