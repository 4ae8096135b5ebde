"""Fill a library: list videos and pictures, encode the new ones, and drop those that are gone."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ctsan.errors import Problem, UsageError, VideoError
from ctsan.inference.encoded_clip import EncodedClip
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.inference.loaded_model import LoadedModel
from ctsan.search.encodings import concept_words, shot_arrays, shot_captions, vector_dim
from ctsan.search.library_format import FileRecord, ShotArrays, ShotDetails
from ctsan.search.listing import (
    Listing,
    find_gone,
    find_missing,
    find_unmounted,
    list_clips,
    mount_points,
    never_indexed,
    skipped_line,
)
from ctsan.search.models import load_search_models, run_fingerprints, stored_folders
from ctsan.search.opening import LibraryAddress, has_library, open_for_writing, open_library
from ctsan.search.segments import NewClip, Segment, Segmenter, reader_version, segment_clips
from ctsan.search.store import LibraryWriting
from ctsan.video.frames import probe
from ctsan.video.shots import Shot
from ctsan.video.video_file import check_video

T = TypeVar("T")

_FILE_BATCH = 32  # files hashed before the first of them is decoded
_RAY_FILE_BATCH = 1024  # enough to keep a whole cluster busy
_LARGE = 1 << 30  # bytes of a file that must open as a video before it is hashed, which takes seconds
_SHOT_BATCH = 16  # shots of a long video encoded together


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one file."""

    file: Path
    shots: int = 0
    is_known: bool = False  # unchanged, renamed or a copy: nothing was decoded
    is_completed: bool = False  # it was searchable, and its captions and thumbnails are new
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    files: int  # searchable
    shots: int
    new: int  # files decoded in this call
    known: int  # of the searchable files in the given folders, those that were not decoded
    dropped: int
    seconds: float
    errors: dict[Path, str]
    completed: int = 0  # of the new: searchable before, without captions and thumbnails
    incomplete: int = 0  # files that still lack them, because they are in other folders or cannot be read
    skipped: dict[str, int] = field(
        default_factory=dict
    )  # files that are no clips, by suffix; see `list_clips`


class _FileIdentity(NamedTuple):
    """Differs after a file was written or replaced."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> _FileIdentity:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class _HashedFile:
    record: FileRecord
    identity: _FileIdentity
    digest: str
    clip: NewClip | None  # None if the content is in the library, or earlier in the same batch

    def has_changed(self) -> bool:
        """Whether the file is another than the one that was hashed, or out of reach."""
        try:
            return _FileIdentity.of(self.record.path.stat()) != self.identity
        except OSError:
            return True


def index_folders(
    folders: Sequence[Path],
    library: LibraryAddress,
    *,
    models: Sequence[Path],
    weights: Path | None = None,
    ray: str | None = None,
    drop_unmounted: bool = False,
    on_start: Callable[[int], object] | None = None,
    on_file: Callable[[Outcome], object] | None = None,
) -> Report:
    """Update a library with the contents of the given folders; files of other folders stay.

    If the process is stopped, the same call continues from there and ends with the same store. Files whose
    numbers in the library are damaged are encoded again, wherever they are.

    Args:
        library: its folder, or where it is in PostgreSQL: see `library_address`.
        models: 'embed' runs, and optionally runs with a concept detector. Empty: those of the library.
        weights: the backbone's weights, if they are not installed with ctsan.
        ray: address of the Ray cluster that decodes and computes features, see `ray_backend`; None computes
            in this process.
        drop_unmounted: also drop files of disks that are not mounted now.
        on_start: called with the number of files.
        on_file: called after each file.

    Raises:
        UsageError: there is no 'embed' run, there is nothing to index, or Ray cannot be used.
        StoreError: the library cannot be used.
        StorageError: the disk is full. The same call continues.
    """
    started = time.monotonic()
    loaded = load_search_models(models or _stored_runs(library))
    listing = list_clips(folders)
    if not listing.clips and not has_library(library):  # do not create an empty library
        raise _nothing_to_index(folders, listing, [*listing.problems, *never_indexed(listing, ())])
    runs, words = run_fingerprints(loaded), concept_words(loaded)
    with open_for_writing(library, runs=runs, words=words, dim=vector_dim(loaded)) as store:
        indexed = store.files()
        unmounted = [] if drop_unmounted else find_unmounted(store.mounts())
        problems = [*listing.problems, *never_indexed(listing, indexed)]
        gone = find_gone(indexed, listing, unmounted, problems)
        lost = set(store.lost_files()).difference(listing.clips, gone)
        gone += find_missing(lost, unmounted)
        files = sorted({*listing.clips, *lost}.difference(gone))
        if not files and not gone:
            raise _nothing_to_index(folders, listing, problems)
        if on_start:
            on_start(len(files))
        reader = reader_version()
        for path in (*store.unread_files(reader), *store.incomplete_files()):
            del indexed[path]
        outcomes = []
        with _open_indexer(store, loaded, weights, ray) as indexer:
            for outcome in indexer.index(files, indexed):
                outcomes.append(outcome)
                if on_file:
                    on_file(outcome)
        store.add_mounts(mount_points(listing.clips))
        gone += find_missing(set(store.copies()).difference(files, gone), unmounted)
        store.drop(gone)
        store.optimise()
        unreadable = store.errors()
        errors = dict(unreadable)
        errors |= {outcome.file: outcome.error for outcome in outcomes if outcome.error}
        errors |= {problem.file: str(problem) for problem in problems}
        return Report(
            files=len(store.files()) - len(unreadable),
            shots=store.num_shots(),
            new=sum(not outcome.is_known and outcome.error is None for outcome in outcomes),
            known=sum(outcome.is_known and outcome.file not in unreadable for outcome in outcomes),
            dropped=len(gone),
            seconds=time.monotonic() - started,
            errors=errors,
            completed=sum(outcome.is_completed for outcome in outcomes),
            incomplete=len(store.incomplete_files()),
            skipped=dict(listing.skipped),
        )


@contextmanager
def _open_indexer(
    store: LibraryWriting, models: Sequence[LoadedModel], weights: Path | None, ray: str | None
) -> Iterator[_Indexer]:
    featurizer = ClipFeaturizer(weights)
    for model in models:
        featurizer.backbone(model.recipe)  # raises before any work if the weights are missing
    if ray is None:
        segment = partial(segment_clips, models=models, featurizer=featurizer)
        yield _Indexer(store, models, segment, file_batch=_FILE_BATCH)
        return
    from ctsan.search.ray_backend import ray_segmenter

    with ray_segmenter(ray, models, weights) as segment_on_ray:
        yield _Indexer(store, models, segment_on_ray, file_batch=_RAY_FILE_BATCH)


class _Indexer:
    """Hashes, encodes and stores files in order, with one commit per file.

    Args:
        file_batch: number of files hashed before the first of them is decoded.
    """

    def __init__(
        self,
        store: LibraryWriting,
        models: Sequence[LoadedModel],
        segment: Segmenter,
        *,
        file_batch: int,
    ) -> None:
        self.store, self.models = store, models
        self.segment, self.file_batch = segment, file_batch
        self.words, self.reader = store.words, reader_version()

    def index(self, files: Sequence[Path], indexed: dict[Path, FileRecord]) -> Iterator[Outcome]:
        """Index files in order.

        Args:
            indexed: records of files that need not be looked at again if they are unchanged.
        """
        for batch in _batches(files, self.file_batch):
            again: list[Path] = []
            yield from self._index_batch(batch, indexed, again)
            for path in again:
                changed: list[Path] = []
                yield from self._index_batch([path], indexed, changed)
                yield from (Outcome(path, error=_keeps_changing(path)) for path in changed)

    def _index_batch(
        self, files: Sequence[Path], indexed: dict[Path, FileRecord], again: list[Path]
    ) -> Iterator[Outcome]:
        """Index a batch of files.

        Args:
            again: gets the files that changed meanwhile, and copies of files that were out of reach.
        """
        batch_digests: set[str] = set()
        entries = [self._hash(path, indexed.get(path), batch_digests) for path in files]
        new_clips = [entry.clip for entry in entries if isinstance(entry, _HashedFile) and entry.clip]
        by_clip = groupby(self.segment(new_clips), key=lambda segment: segment.path)
        for entry in entries:
            if isinstance(entry, Outcome):
                yield entry
                continue
            outcome: Outcome | None = None
            if entry.clip is not None:
                path, segments = next(by_clip)
                assert path == entry.clip.path  # segmenters keep the order
                outcome = self._store_segments(entry, segments)
            elif self.store.has_content(entry.digest, self.reader) and self.store.link(
                entry.record, entry.digest
            ):
                outcome = Outcome(entry.record.path, is_known=True)
            if outcome is None:
                again.append(entry.record.path)
            else:
                yield outcome

    def _hash(
        self, path: Path, previous: FileRecord | None, batch_digests: set[str]
    ) -> _HashedFile | Outcome:
        """Compare size and mtime; hash the file if they differ, and add the digest to `batch_digests`.

        The error of a large file that does not open is not stored, because its content has no digest.
        """
        try:
            status = path.stat()  # before hashing, so that a later write is detected next time
            record = FileRecord.of(path, status)
            if record == previous:
                return Outcome(path, is_known=True)
            if status.st_size > _LARGE:
                check_video(path)
            digest = _digest(path)
        except VideoError as error:
            return Outcome(path, error=str(error))
        except (OSError, ValueError) as error:
            return Outcome(path, error=_cannot_read(path, error))
        is_known = digest in batch_digests or self.store.has_content(digest, self.reader)
        batch_digests.add(digest)
        clip = None if is_known else NewClip(path, _duration(path))
        return _HashedFile(record, _FileIdentity.of(status), digest, clip)

    def _store_segments(self, file: _HashedFile, segments: Iterator[Segment]) -> Outcome | None:
        """Encode and store a file; None if it is another by now than the one that was hashed."""
        shots: list[Shot] = []
        arrays: list[ShotArrays] = []
        details: list[ShotDetails] = []
        for batch in _batches(segments, _SHOT_BATCH):
            clips = []
            for segment in batch:
                if isinstance(segment.result, str):
                    return self._store_error(file, segment.result, segment.is_unavailable)
                shots.append(segment.result[0])
                clips.append(EncodedClip(segment.result[1]))
            arrays.append(shot_arrays(self.models, clips, self.words))
            captions = shot_captions(self.models, clips)
            thumbnails = [segment.thumbnail for segment in batch]
            details += map(ShotDetails, captions, thumbnails)
        if file.has_changed():
            return None
        is_completed = self.store.has_shots(file.digest)
        self.store.add(file.record, file.digest, shots, _concatenate(arrays), details=details)
        return Outcome(file.record.path, shots=len(shots), is_completed=is_completed)

    def _store_error(self, file: _HashedFile, error: str, is_unavailable: bool) -> Outcome | None:
        """Store an error of the content: the file can be read, and is the one that was hashed."""
        path = file.record.path
        if is_unavailable:
            return Outcome(path, error=error)
        try:
            if _digest(path) != file.digest or file.has_changed():
                return None
        except (OSError, ValueError) as unavailable:
            return Outcome(path, error=_cannot_read(path, unavailable))
        # Another reader has read it: keep what it found.
        if self.store.has_shots(file.digest) and self.store.link(file.record, file.digest):
            return Outcome(path, is_known=True)
        self.store.add(file.record, file.digest, [], {}, error, self.reader)
        return Outcome(path, error=error)


def _stored_runs(library: LibraryAddress) -> list[Path]:
    with closing(open_library(library)) as store:
        return stored_folders(store.runs)


def _nothing_to_index(folders: Sequence[Path], listing: Listing, problems: Sequence[Problem]) -> UsageError:
    named = ", ".join(map(str, folders))
    default = f"No videos or pictures in {named}. Name a folder that holds some."
    lines = [*map(str, problems)] or [default]
    return UsageError("\n".join(filter(None, [*lines, skipped_line(listing.skipped)])))


def _digest(path: Path) -> str:
    """SHA-256 of a regular file. A pipe or a device, which may block, is not opened, and nothing is read of
    files without a size: those of /proc may have any content, or wait for it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a regular file.
    """
    _check_mode(path.stat())
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        status = os.fstat(stream.fileno())
        _check_mode(status)  # it may have been replaced
        if status.st_size == 0:
            return hashlib.sha256(b"").hexdigest()
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_mode(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")


def _cannot_read(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: there is no such file any more. Index its folder again when it is back."
    if isinstance(error, PermissionError):
        return f"{path}: it cannot be read ({error.strerror}). Change its permissions."
    if isinstance(error, OSError):
        return f"{path}: it cannot be read ({error.strerror or error}). Check its disk, and index again."
    return f"{path}: {error}. Leave it out."


def _keeps_changing(path: Path) -> str:
    return f"{path}: it changes while it is read. Index its folder again when it is complete."


def _duration(path: Path) -> float:
    """Seconds; 0 if the file cannot be read, which is reported when it is decoded."""
    try:
        return probe(path).duration
    except (VideoError, OSError):
        return 0.0


def _concatenate(batches: Sequence[ShotArrays]) -> ShotArrays:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
