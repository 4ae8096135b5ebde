"""What is in the cache folder, how large it is, and how it is cleared."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ctsan.errors import UsageError, did_you_mean
from ctsan.io.atomic import storage_errors
from ctsan.io.paths import CACHE_TAG, cache_folder

# The subfolders of the cache. Nothing else in it is counted or deleted.
KINDS = {
    "onnx": "networks prepared for ONNX Runtime; made again in seconds",
    "features": "feature maps of corpora; made again by decoding every clip",
    "words": "vocabularies, concept candidates and word vectors of corpora",
    "backbones": "where networks of your own were last; after that, --weights names them once",
}


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file or folder in one of the subfolders of the cache."""

    kind: str  # one of `KINDS`
    path: Path
    bytes: int
    files: int


def cache_entries(kinds: Collection[str] = ()) -> list[CacheEntry]:
    """What is in the cache, the largest of each kind first.

    Args:
        kinds: of `KINDS`; empty: all.

    Raises:
        UsageError: there is no such kind.
    """
    entries = []
    for kind in _checked(kinds):
        folder = cache_folder() / kind
        found = [CacheEntry(kind, path, *_size(path)) for path in _children(folder)]
        entries += sorted(found, key=lambda entry: (-entry.bytes, entry.path))
    return entries


def clear_cache(kinds: Collection[str] = ()) -> list[CacheEntry]:
    """Delete what is in the cache, and return what that was.

    Args:
        kinds: as of `cache_entries`.

    Raises:
        UsageError: there is no such kind, or the folder was not made by ctsan.
        StorageError: something cannot be deleted.
    """
    entries = cache_entries(kinds)
    folder = cache_folder()
    if entries and not (folder / CACHE_TAG).is_file():
        raise UsageError(
            f"{folder}: other files were in this folder before ctsan, so nothing in it is deleted. Delete "
            f"what is not needed yourself: {', '.join(sorted({entry.kind for entry in entries}))}."
        )
    for entry in entries:
        with storage_errors(entry.path):
            if entry.path.is_dir() and not entry.path.is_symlink():
                shutil.rmtree(entry.path)
            else:
                entry.path.unlink(missing_ok=True)
    return entries


def _checked(kinds: Collection[str]) -> list[str]:
    for kind in kinds:
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS)
            raise UsageError(f"The cache has no part '{kind}'. {hint}There are: {', '.join(KINDS)}.")
    return [kind for kind in KINDS if not kinds or kind in kinds]


def _children(folder: Path) -> list[Path]:
    try:
        return [] if folder.is_symlink() else sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(path: Path) -> tuple[int, int]:
    """Bytes and number of the files at a path; links are not followed."""
    sizes = [_bytes(file) for file in _files(path)]
    return sum(sizes), len(sizes)


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


def _bytes(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:  # deleted meanwhile
        return 0
