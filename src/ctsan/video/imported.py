"""Features that somebody else made: per-clip arrays into a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ctsan.errors import StoreError, VideoError
from ctsan.video.backbones.onnx_network import max_pool
from ctsan.video.extraction import Outcome, Report, Source, fill_store
from ctsan.video.frames import MAX_FRAMES
from ctsan.video.store import Maps, Recipe, StoredFeatures


def arrays_of(clip_ids: Sequence[str], folder: Path) -> list[Source]:
    """The array file of every clip: named like the clip, with its suffix replaced or followed by `.npy`.

    Raises:
        StoreError: there is no such folder, or it holds an array of none of the clips.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder}: there is no such folder. Give the one that holds the .npy files.")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")}

    def array_of(clip_id: str) -> str:
        clip_id = clip_id.lstrip("/")  # a clip given by an absolute path lies at that path below
        full = f"{clip_id}.npy"
        # A suffix begins with a letter: the ids of LSMDC end in a time, "….09.675".
        return full if full in there else re.sub(r"(\.[A-Za-z]\w*)?$", ".npy", clip_id, count=1)

    names = [array_of(clip_id) for clip_id in clip_ids]
    if names and there.isdisjoint(names):
        files = "1 .npy file" if len(there) == 1 else f"{len(there) or 'no'} .npy files"
        found = ", such as ".join([files, *(f"'{name}'" for name in sorted(there)[:1])])
        raise StoreError(
            f"{folder}: no array is named like a clip: expected {folder / names[0]} for clip "
            f"'{clip_ids[0]}', found {found}. Save one array a clip under the "
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
    """Store per-clip `.npy` arrays, (frames, channels) or (frames, h, w, channels), under a name.

    The first array that can be read sets grid and channels; others must agree. `pool` applies the 2x2
    max-pool that our own features have had; more frames than `MAX_FRAMES` are thinned evenly.

    Raises:
        StoreError: no array can be read, or the folder holds features of another recipe.
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
    first: VideoError | None = None
    for _, path in arrays:
        try:
            return _read_array(path, pool)
        except VideoError as error:
            if first is None or not first.path.exists():  # what is there tells more than what is missing
                first = error
    raise StoreError(f"None of the {len(arrays):,} arrays can be read. The first: {first}")


def _read_array(path: Path, pool: bool) -> Maps:
    """(N, h, w, C) maps of an array file; an array without a grid gets one of 1x1."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise VideoError(
            path, "there is no such array", "Export the clip's features under this name."
        ) from error
    except (ValueError, OSError, EOFError) as error:
        raise VideoError(
            path, f"not a plain .npy array ({error})", "Save it with numpy.save, as numbers."
        ) from error
    if not isinstance(array, np.ndarray):
        raise VideoError(path, "an archive of arrays, not a .npy", "Save one array a clip with numpy.save.")
    if array.ndim not in (2, 4) or 0 in array.shape or array.dtype.kind != "f":
        raise VideoError(
            path,
            f"an array of shape {_by(array.shape)} and type {array.dtype}",
            "Save floating-point numbers as (frames, channels) or (frames, h, w, channels).",
        )
    if array.ndim == 2:
        array = array[:, None, None, :]
    if len(array) > MAX_FRAMES:
        array = array[np.arange(MAX_FRAMES) * len(array) // MAX_FRAMES]
    if pool:
        array = max_pool(np.asarray(array), 2)
    with np.errstate(over="ignore"):
        maps = np.ascontiguousarray(array, dtype=np.float16)
    if not np.isfinite(maps).all():
        raise VideoError(
            path, "holds NaN, or numbers beyond half precision (65,504)", "Export the features again."
        )
    return maps
