"""Import features of other software: one array per clip into a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ctsan.errors import StoreError, VideoError
from ctsan.io.arrays import read_array
from ctsan.io.reading import DamagedFileError
from ctsan.video.backbones.preprocessing import max_pool
from ctsan.video.extraction import Outcome, Report, Source, fill_store
from ctsan.video.frames import MAX_FRAMES, subsample
from ctsan.video.store import Maps, Recipe, StoredFeatures


def arrays_of(clip_ids: Sequence[str], folder: Path) -> list[Source]:
    """The array file of every clip: the clip's id with its suffix replaced by `.npy`, or `.npy` appended.

    Raises:
        StoreError: there is no such folder, or it has no array of any clip.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder}: there is no such folder. Give the one that holds the .npy files.")
    existing = {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")}

    def array_name(clip_id: str) -> str:
        clip_id = clip_id.lstrip("/")  # an absolute path is repeated below the folder
        appended = f"{clip_id}.npy"
        # A suffix begins with a letter: the ids of LSMDC end in a time, "….09.675".
        return appended if appended in existing else re.sub(r"(\.[A-Za-z]\w*)?$", ".npy", clip_id, count=1)

    names = [array_name(clip_id) for clip_id in clip_ids]
    if names and existing.isdisjoint(names):
        files = "1 .npy file" if len(existing) == 1 else f"{len(existing) or 'no'} .npy files"
        existing_files = ", such as ".join([files, *(f"'{name}'" for name in sorted(existing)[:1])])
        raise StoreError(
            f"{folder}: no array is named like a clip: expected {folder / names[0]} for clip "
            f"'{clip_ids[0]}', found {existing_files}. Save one array per clip under the "
            "clip's name, in the same subfolders, with '.npy' instead of its suffix or after it."
        )
    return [(clip_id, folder / name) for clip_id, name in zip(clip_ids, names, strict=True)]


def import_features(
    arrays: Sequence[Source],
    folder: Path,
    *,
    name: str,
    pool: bool = False,
    workers: int | None = None,
    on_clip: Callable[[Outcome], object] | None = None,
) -> Report:
    """Store per-clip `.npy` arrays, (frames, channels) or (frames, h, w, channels).

    The first readable array sets grid and channels; the others must have the same. More frames than
    `MAX_FRAMES` are subsampled evenly.

    Args:
        name: the name of the backbone in the store.
        pool: max-pool 2x2 cells, as ctsan does with its own backbones.

    Raises:
        StoreError: no array can be read, or the folder has features of another recipe.
    """
    maps = _first_readable(arrays, pool)
    recipe = Recipe(
        backbone=name,
        grid=(maps.shape[1], maps.shape[2]),
        channels=maps.shape[3],
        mirrored=False,
        details={
            "imported": True,
            "pooling": "2x2 max, odd row kept" if pool else "none",
            "max_frames": MAX_FRAMES,
        },
    )

    def features_of(path: Path) -> StoredFeatures:
        maps = _read_array(path, pool)
        expected = (*recipe.grid, recipe.channels)
        if maps.shape[1:] != expected:
            raise VideoError(
                path,
                f"its maps are {_by(maps.shape[1:])}, those of the other clips {_by(expected)}",
                "Export all clips from one network.",
            )
        return StoredFeatures(maps=maps, times=None)

    return fill_store(arrays, folder, recipe, features_of, workers=workers, on_clip=on_clip)


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in shape)


def _first_readable(arrays: Sequence[Source], pool: bool) -> Maps:
    reported: VideoError | None = None
    for _, path in arrays:
        try:
            return _read_array(path, pool)
        except VideoError as error:
            if reported is None or not reported.path.exists():  # prefer the error of a file that exists
                reported = error
    raise StoreError(f"None of the {len(arrays):,} arrays can be read. The first: {reported}")


def _read_array(path: Path, pool: bool) -> Maps:
    """Maps (N, h, w, C) of an array file; an array without a grid gets one of 1x1.

    Raises:
        VideoError: it cannot be used.
    """
    if not os.path.lexists(path):
        raise VideoError(path, "there is no such array", "Export the clip's features under this name.")
    try:
        array = read_array(path)
    except DamagedFileError as error:
        raise VideoError(path, str(error), "Save one array of numbers per clip with numpy.save.") from error
    if array.ndim not in (2, 4) or 0 in array.shape or array.dtype.kind != "f":
        raise VideoError(
            path,
            f"an array of shape {_by(array.shape)} and type {array.dtype}",
            "Save floating-point numbers as (frames, channels) or (frames, h, w, channels).",
        )
    if array.ndim == 2:
        array = array[:, None, None, :]
    array = array[subsample(len(array), MAX_FRAMES)]
    if pool:
        array = max_pool(np.asarray(array), 2)
    with np.errstate(over="ignore"):
        maps = np.ascontiguousarray(array, dtype=np.float16)
    if not np.isfinite(maps).all():
        raise VideoError(
            path, "contains NaN, or numbers beyond half precision (65,504)", "Export the features again."
        )
    return maps
