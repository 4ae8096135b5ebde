"""Extract feature maps of clips by a backbone into a store.

Every worker thread processes whole clips: it decodes, runs the network on one core, and writes. Decoding and
inference release the GIL, so all cores are busy without queues, and memory holds one clip per core, however
many clips there are.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ctsan.errors import StoreError, VideoError
from ctsan.io.atomic import make_folder, storage_errors
from ctsan.io.device import usable_cores
from ctsan.io.reading import DamagedFileError, check_regular
from ctsan.io.sqlite import clamped
from ctsan.video.backbones import Backbone
from ctsan.video.clip_index import ClipIndex, ClipRecord
from ctsan.video.engine import Engine, load_engine
from ctsan.video.frames import MAX_FRAMES, SPACING, sample_frames
from ctsan.video.store import (
    Manifest,
    Recipe,
    StoredFeatures,
    read_header,
    read_manifest,
    write_clip,
    write_manifest,
)
from ctsan.video.video_file import check_video

# Clips per transaction of the index. Blocks are fixed ranges of the sources, so that a run that was killed
# continues with the same transactions and ends with the same bytes.
BLOCK = 1000

Source = tuple[str, Path]  # a clip's id, and the file of which to compute or read its features


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one clip."""

    clip: str
    record: ClipRecord | None = None  # None if the clip cannot be read
    kept: bool = False  # its features were in the store already
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result for all clips."""

    done: int
    kept: int
    frames: int  # of the clips in `done`
    seconds: float
    unreadable: dict[str, str]


def extract_features(
    clips: Sequence[Source],
    folder: Path,
    *,
    backbone: Backbone,
    mirrored: bool = False,
    engine: Engine | None = None,
    workers: int | None = None,
    on_clip: Callable[[Outcome], object] | None = None,
) -> Report:
    """Compute and store the maps of all clips that are new or changed.

    Args:
        mirrored: also store maps of horizontally flipped frames.
        engine: by default that of `load_engine` for the backbone.
        workers: threads; by default one per usable core.
        on_clip: called with the outcome of each clip.

    Raises:
        StoreError: the folder has features of another recipe, or cannot be written.
        StorageError: the disk is full, or the folder may not be written to.
    """
    recipe = recipe_of(backbone, mirrored=mirrored)
    run = engine or load_engine(backbone)

    def features_of(path: Path) -> StoredFeatures:
        frames = sample_frames(path, size=backbone.image_size)
        flipped = np.ascontiguousarray(frames.pixels[:, :, ::-1]) if mirrored else None
        return StoredFeatures(
            maps=run(frames.pixels),
            times=frames.times,
            mirrored=run(flipped) if flipped is not None else None,
        )

    return fill_store(clips, folder, recipe, features_of, check=check_video, workers=workers, on_clip=on_clip)


def recipe_of(backbone: Backbone, *, mirrored: bool) -> Recipe:
    return Recipe(
        backbone=backbone.name,
        grid=backbone.grid,
        channels=backbone.channels,
        mirrored=mirrored,
        details=backbone.details() | {"spacing": SPACING, "max_frames": MAX_FRAMES},
    )


def fill_store(
    sources: Sequence[Source],
    folder: Path,
    recipe: Recipe,
    features_of: Callable[[Path], StoredFeatures],
    *,
    check: Callable[[Path], object] = check_regular,
    workers: int | None = None,
    on_clip: Callable[[Outcome], object] | None = None,
) -> Report:
    """Store the features of all sources that are new or changed; see `extract_features`.

    Killed at any moment and run again, it ends with the same bytes.

    Args:
        features_of: computes or reads the features of one file; raises VideoError if it cannot.
        check: called before a file is hashed, which takes long for a large one; raises as `features_of`, or
            DamagedFileError.

    Raises:
        StoreError: the folder has features of another recipe, is in use, or cannot be written.
        StorageError: the disk is full, or the folder may not be written to.
    """
    try:
        with storage_errors(folder):
            make_folder(folder)
            with FileLock(folder / ".lock", timeout=0):
                return _fill_locked(
                    sources, folder, recipe, features_of, check, workers=workers, on_clip=on_clip
                )
    except Timeout:
        raise StoreError(
            f"{folder}: another ctsan is filling this folder. Wait for that one, or stop it."
        ) from None
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror or error}). Remove what is in the way or choose "
            "another --out, then run the same command again: what is done is kept."
        ) from error


def _fill_locked(
    sources: Sequence[Source],
    folder: Path,
    recipe: Recipe,
    features_of: Callable[[Path], StoredFeatures],
    check: Callable[[Path], object],
    *,
    workers: int | None,
    on_clip: Callable[[Outcome], object] | None,
) -> Report:
    started = time.monotonic()
    index = _index_to_fill(folder, recipe)
    digest = recipe.digest()

    def unchanged(source: Source) -> Outcome | None:
        """The outcome of a clip with the size and modification time of the index and a whole file, else None.

        All of the file is read, to check its checksum.
        """
        clip_id, path = source
        record = index.clips.get(clip_id)
        try:
            if record is None or record != _record(path, record.frames):
                return None
        except (OSError, ValueError):
            return None
        header = read_header(folder, clip_id)
        is_whole = header is not None and (header.recipe, header.frames) == (digest, record.frames)
        return Outcome(clip_id, record, kept=True) if is_whole else None

    def process(source: Source) -> Outcome:
        clip_id, path = source
        try:
            record = _record(path, 0)  # before reading, so that the next run detects a change while reading
            check(path)  # reading a pipe or a device need not end
            source_digest = _file_digest(path)
            header = read_header(folder, clip_id)
            if header and (header.recipe, header.source) == (digest, source_digest):
                return Outcome(clip_id, replace(record, frames=header.frames), kept=True)
            features = features_of(path)
        except VideoError as error:
            return Outcome(clip_id, error=str(error))
        except DamagedFileError as error:
            return Outcome(clip_id, error=f"{path}: {error}. Name a file.")
        except (OSError, ValueError):  # inaccessible; `features_of` has the better message
            return Outcome(clip_id, error=_reason(features_of, path))
        write_clip(folder, clip_id, features, recipe=digest, source=source_digest)
        return Outcome(clip_id, replace(record, frames=len(features.maps)))

    done = reused = frames = 0
    unreadable: dict[str, str] = {}
    for start in range(0, len(sources), BLOCK):
        block = sources[start : start + BLOCK]
        skipped = {source: outcome for source in block if (outcome := unchanged(source))}
        remaining = [source for source in block if source not in skipped]
        outcomes: dict[str, Outcome] = {}
        for outcome in chain(skipped.values(), _in_parallel(process, remaining, workers or usable_cores())):
            outcomes[outcome.clip] = outcome
            if on_clip:
                on_clip(outcome)
        in_order = [outcomes[clip] for clip, _ in remaining]
        records = {outcome.clip: outcome.record for outcome in in_order if outcome.record}
        errors = {outcome.clip: outcome.error for outcome in in_order if outcome.error}
        index.update(records, errors)
        new_records = [outcome.record for outcome in in_order if outcome.record and not outcome.kept]
        done += len(new_records)
        reused += len(skipped) + len(records) - len(new_records)
        frames += sum(record.frames for record in new_records)
        unreadable |= errors
    return Report(done, reused, frames, time.monotonic() - started, unreadable)


def _index_to_fill(folder: Path, recipe: Recipe) -> ClipIndex:
    """The index of a folder, created if there is none; format version 1 is converted."""
    manifest = read_manifest(folder) or Manifest(recipe, {}, {})
    if manifest.recipe.digest() != recipe.digest():
        raise StoreError(
            f"{folder}: contains {manifest.recipe.backbone} features made in another way "
            f"({_difference(manifest.recipe, recipe)}). Give another --out, or delete the folder."
        )
    return manifest.index or write_manifest(folder, manifest)


def _in_parallel(
    process: Callable[[Source], Outcome], sources: Sequence[Source], workers: int
) -> Iterator[Outcome]:
    """Outcomes in the order of completion; at most two sources per worker are pending at a time."""
    pool = ThreadPoolExecutor(workers)
    pending: set[Future[Outcome]] = set()
    try:
        for source in sources:
            pending.add(pool.submit(process, source))
            if len(pending) >= 2 * workers:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        yield from (future.result() for future in wait(pending).done)
    finally:
        pool.shutdown(cancel_futures=True)


def _record(path: Path, frames: int) -> ClipRecord:
    status = path.stat()
    return ClipRecord(frames, status.st_size, clamped(status.st_mtime_ns))


def _reason(features_of: Callable[[Path], StoredFeatures], path: Path) -> str:
    """Why a source cannot be read, by the error of `features_of`."""
    try:
        features_of(path)
    except VideoError as error:
        return str(error)
    except (OSError, ValueError) as error:
        return f"{path}: it cannot be read ({error}). Check that it exists, and its permissions."
    return f"{path}: it could not be read. Run the command again."


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _difference(existing: Recipe, requested: Recipe) -> str:
    if existing.mirrored != requested.mirrored:
        return "with mirrored frames" if existing.mirrored else "without mirrored frames"
    if existing.backbone != requested.backbone:
        return f"{requested.backbone} is requested"
    if (existing.grid, existing.channels) != (requested.grid, requested.channels):
        return f"maps of {existing.grid[0]}×{existing.grid[1]}×{existing.channels}"
    names = sorted(set(existing.details) | set(requested.details))
    return "other " + ", ".join(n for n in names if existing.details.get(n) != requested.details.get(n))
