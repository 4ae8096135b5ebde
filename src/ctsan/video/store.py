"""The feature store: one safetensors file per clip, and an index of the clips.

    FOLDER/manifest.json                 how the maps were made
    FOLDER/index.sqlite                  readable and unreadable clips, see clip_index.py
    FOLDER/clips/3f/3fa4….safetensors    maps (N, h, w, C) float16, times (N,), optionally mirrored maps

A clip's file contains digests of its source and recipe and a checksum of its arrays, and is written
atomically. So a folder is consistent at every moment, and a run that was killed continues from the existing
files. Files of older versions have no checksum, and are read without this check.

Format version 1 has every clip in the manifest instead. It can be read, and extraction converts it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ctsan.errors import StoreError
from ctsan.io.arrays import check_finite, open_tensors
from ctsan.io.atomic import make_folder, replacing, write_json
from ctsan.io.reading import DamagedFileError, read_json_object, reason_of
from ctsan.io.sqlite import clamped
from ctsan.video.clip_index import INDEX_FILE, MANIFEST_FILE, ClipIndex, ClipRecord, write_index

FORMAT = "ctsan-features"
VERSION = 2
_MAX_MANIFEST_BYTES = 128 << 20  # one of version 1 lists every clip
_MAX_SIZE = 2**20  # of a grid or of channels
_CHECKSUM = "crc32"  # in a clip's header: of the bytes of all its arrays, in the order of their names

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
        """Read the features of a clip.

        Raises:
            StoreError: the clip is not in the folder, or its file is damaged.
        """
        if clip_id not in self.manifest.clips:
            reason = self.manifest.unreadable.get(clip_id, "it was not in the corpus when they were made")
            raise StoreError(f"{self.folder}: no features of clip '{clip_id}': {reason}")
        return read_clip(self.folder, clip_id, self.manifest.recipe)


# Device, inode and time of the files whose checksum this process has found right. A training reads every file
# once an epoch.
_checked: set[tuple[int, int, int]] = set()


def read_clip(folder: Path, clip_id: str, recipe: Recipe) -> StoredFeatures:
    """The features of one clip. The checksum of a file is checked once a process.

    Raises:
        StoreError: its file is missing or damaged, or has maps of another recipe.
    """
    path = clip_file(folder, clip_id)
    try:
        version = _file_version(path)
        with open_tensors(path) as file:
            arrays = _arrays(file)
            if version not in _checked:
                _check_checksum(arrays, _header(file))
        features = StoredFeatures(arrays["maps"], arrays.get("times"), arrays.get("mirrored"))
        _check_features(features, recipe)
        _checked.add(version)
        return features
    except DamagedFileError as error:
        raise StoreError(
            f"{path}: the features of clip '{clip_id}' are missing or damaged ({error}). "
            "Delete the file and run 'ctsan features' again."
        ) from error


def _file_version(path: Path) -> tuple[int, int, int]:
    """What changes when a file is replaced or written.

    Raises:
        DamagedFileError: the file is missing.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise DamagedFileError(reason_of(error)) from error
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _arrays(file: Any) -> dict[str, NDArray[Any]]:
    """The arrays of an open file: the maps, and the others if there are any."""
    names = {"maps", *({"times", "mirrored"} & set(file.keys()))}
    return {name: file.get_tensor(name) for name in sorted(names)}


def _header(file: Any) -> dict[str, Any]:
    """The header of an open file; empty if it has none, or a damaged one."""
    try:
        header = json.loads((file.metadata() or {}).get(FORMAT, "{}"))
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _check_checksum(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, object]) -> None:
    """Check the bytes of arrays.

    Raises:
        DamagedFileError: they are not those that were written.
    """
    if _CHECKSUM in header and header[_CHECKSUM] != _checksum(arrays):
        raise DamagedFileError("its numbers are not those that were written: the checksum differs")


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> int:
    """The CRC-32 of the bytes of all arrays, in the order of their names."""
    checksum = 0
    for name in sorted(arrays):
        checksum = zlib.crc32(np.ascontiguousarray(arrays[name]).data, checksum)
    return checksum


def _check_features(features: StoredFeatures, recipe: Recipe) -> None:
    """Check what models rely on.

    Raises:
        DamagedFileError: types or shapes differ from those of the recipe, or values are not finite.
    """
    shape = (len(features.maps), *recipe.grid, recipe.channels) if features.maps.ndim == 4 else ()
    for maps in (features.maps, features.mirrored):
        if maps is not None:
            if maps.dtype not in (np.float16, np.float32) or maps.shape != shape or 0 in shape:
                raise DamagedFileError(
                    f"its maps have the type {maps.dtype} and the shape {maps.shape}, not those of the folder"
                )
            check_finite(maps)
    if recipe.mirrored and features.mirrored is None:
        raise DamagedFileError("it has no maps of mirrored frames")
    if features.times is not None:
        if features.times.dtype != np.float64 or features.times.shape != shape[:1]:
            raise DamagedFileError("it has another number of times than of frames")
        check_finite(features.times)


def write_clip(folder: Path, clip_id: str, features: StoredFeatures, *, recipe: str, source: str) -> None:
    tensors: dict[str, NDArray[Any]] = {"maps": features.maps}
    if features.times is not None:
        tensors["times"] = features.times
    if features.mirrored is not None:
        tensors["mirrored"] = features.mirrored
    # A single metadata entry, because safetensors writes several in random order.
    header = {"clip": clip_id, "recipe": recipe, "source": source, _CHECKSUM: _checksum(tensors)}
    with replacing(clip_file(folder, clip_id)) as temporary:
        temporary.write_bytes(save(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))


def read_header(folder: Path, clip_id: str) -> ClipHeader | None:
    """The header of a clip's file; None if the file is missing or damaged. All of the file is read."""
    try:
        with open_tensors(clip_file(folder, clip_id)) as file:
            arrays, header = _arrays(file), _header(file)
            _check_checksum(arrays, header)
            return ClipHeader(
                recipe=str(header["recipe"]), source=str(header["source"]), frames=len(arrays["maps"])
            )
    except DamagedFileError:
        return None


def clip_file(folder: Path, clip_id: str) -> Path:
    """The file of a clip, named by a digest because an id may be any string, with slashes or very long."""
    name = hashlib.sha256(clip_id.encode(errors="surrogatepass")).hexdigest()[:32]
    return folder / "clips" / name[:2] / f"{name}.safetensors"


def write_manifest(folder: Path, manifest: Manifest) -> ClipIndex:
    """Write a new index, then the manifest; until the manifest is replaced, the old one is valid."""
    make_folder(folder)
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
    if not os.path.lexists(path):
        return None
    try:
        value = read_json_object(path, max_bytes=_MAX_MANIFEST_BYTES)
        if value.get("format") != FORMAT:
            raise DamagedFileError("it is of another format")
        version = value.get("version")
        if not isinstance(version, int):
            raise DamagedFileError("it has no version")
        if version in (1, VERSION):
            recipe = parse_recipe(value.get("recipe"))
        if version == 1:
            clips, unreadable = _version_1_clips(value)
            return Manifest(recipe, clips, unreadable)
    except DamagedFileError as error:
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


def parse_recipe(value: object) -> Recipe:
    """A recipe from JSON.

    Raises:
        DamagedFileError: it is incomplete, or a value is of another type or impossible.
    """
    match value:
        case {
            "backbone": str(backbone),
            "grid": [int(height), int(width)],
            "channels": int(channels),
            "mirrored": bool(mirrored),
            "details": dict(details),
            **others,
        } if not others and all(0 < size <= _MAX_SIZE for size in (height, width, channels)):
            return Recipe(backbone, (height, width), channels, mirrored, details)
    raise DamagedFileError("its recipe is incomplete, or a value in it is impossible")


def _version_1_clips(value: Mapping[str, object]) -> tuple[dict[str, ClipRecord], dict[str, str]]:
    """The clips of a manifest of format version 1, and the errors of unreadable ones.

    Raises:
        DamagedFileError: they are missing, or of other types.
    """
    listed, unreadable = value.get("clips"), value.get("unreadable")
    if not isinstance(listed, dict) or not isinstance(unreadable, dict):
        raise DamagedFileError("its list of clips is missing")
    clips: dict[str, ClipRecord] = {}
    for clip_id, record in listed.items():
        match record:
            case {"frames": int(frames), "size": int(size), "mtime_ns": int(mtime_ns)}:
                clips[clip_id] = ClipRecord(clamped(frames), clamped(size), clamped(mtime_ns))
            case _:
                raise DamagedFileError(f"the entry of clip '{clip_id}' is incomplete")
    if not all(isinstance(reason, str) for reason in unreadable.values()):
        raise DamagedFileError("its list of unreadable clips has entries that are no text")
    return clips, unreadable
