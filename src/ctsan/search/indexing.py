"""Fill a library: list videos and pictures, encode the new ones, and drop those that are gone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from ctsan.data.corpus import CLIP_SUFFIXES
from ctsan.data.readers.files import files_below
from ctsan.errors import Problem, UsageError, VideoError
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.runs.run_folder import weights_digest
from ctsan.runs.trained_run import TrainedRun, load_runs, naming_concepts
from ctsan.search.ann_index import build_index
from ctsan.search.encodings import concept_words, shot_arrays
from ctsan.search.library import (
    FileRecord,
    Library,
    RunFingerprint,
    ShotArrays,
    is_library,
    open_for_writing,
)
from ctsan.search.segments import NewClip, Segment, Segmenter, segment_clips
from ctsan.video.frames import probe
from ctsan.video.shots import Shot

T = TypeVar("T")

_FILE_BATCH = 32  # files hashed before the first of them is decoded
_RAY_FILE_BATCH = 1024  # enough to keep a whole cluster busy
_SHOT_BATCH = 16  # shots of a long video encoded together


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one file."""

    file: Path
    shots: int = 0
    is_known: bool = False  # unchanged, renamed or a copy: nothing was decoded
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    files: int  # searchable
    shots: int
    new: int  # files decoded in this call
    known: int
    dropped: int
    seconds: float
    errors: dict[Path, str]


@dataclass(frozen=True, slots=True)
class _HashedFile:
    record: FileRecord
    digest: str
    clip: NewClip | None  # None if the content is in the library, or earlier in the same batch


def index_folders(
    folders: Sequence[Path],
    library: Path,
    *,
    models: Sequence[Path],
    weights: Path | None = None,
    ray: str | None = None,
    on_start: Callable[[int], object] | None = None,
    on_file: Callable[[Outcome], object] | None = None,
) -> Report:
    """Update a library with the contents of the given folders; files of other folders stay.

    If the process is stopped, the same call continues from there and ends with the same store.

    Args:
        models: 'embed' runs, and optionally runs with a concept detector. Empty: those of the library.
        weights: the backbone's weights, if they are not installed with ctsan.
        ray: address of the Ray cluster that decodes and computes features, see `ray_backend`; None computes
            in this process.
        on_start: called with the number of files.
        on_file: called after each file.

    Raises:
        UsageError: there is no 'embed' run, there is nothing to index, or Ray cannot be used.
        StoreError: the library cannot be used.
    """
    started = time.monotonic()
    runs = load_search_runs(models or [Path(run.folder) for run in Library(library).runs])
    problems: list[Problem] = []
    files = _clips_below(folders, problems)
    if not files and not is_library(library):  # do not create an empty library
        raise _nothing_to_index(folders, [*problems, *_missing(folders, ())])
    with open_for_writing(library, runs=run_fingerprints(runs), words=concept_words(runs)) as store:
        indexed = store.files()
        roots = [folder.resolve() for folder in folders]
        gone = [path for path in indexed if path not in files and any(map(path.is_relative_to, roots))]
        problems += _missing(folders, indexed)
        if not files and not gone:
            raise _nothing_to_index(folders, problems)
        if on_start:
            on_start(len(files))
        outcomes = []
        with _open_indexer(store, runs, weights, ray) as indexer:
            for outcome in indexer.index(files, indexed):
                outcomes.append(outcome)
                if on_file:
                    on_file(outcome)
        gone += _moved(store, set(files))
        store.drop(gone)
        store.compact()  # before building the index, which is valid for one revision only
        build_index(store)
        errors = store.errors()
        errors |= {outcome.file: outcome.error for outcome in outcomes if outcome.error}
        errors |= {problem.file: str(problem) for problem in problems}
        return Report(
            files=len(store.files()) - len(store.errors()),
            shots=len(store.rows()),
            new=sum(not outcome.is_known and outcome.error is None for outcome in outcomes),
            known=sum(outcome.is_known for outcome in outcomes),
            dropped=len(gone),
            seconds=time.monotonic() - started,
            errors=errors,
        )


@contextmanager
def _open_indexer(
    store: Library, runs: Sequence[TrainedRun], weights: Path | None, ray: str | None
) -> Iterator[_Indexer]:
    featurizer = ClipFeaturizer(weights)
    for run in runs:
        featurizer.backbone(run.recipe)  # raises before any work if the weights are missing
    if ray is None:
        segment = partial(segment_clips, runs=runs, featurizer=featurizer)
        yield _Indexer(store, runs, featurizer, segment, file_batch=_FILE_BATCH)
        return
    from ctsan.search.ray_backend import ray_segmenter

    with ray_segmenter(ray, runs, weights) as segment_on_ray:
        yield _Indexer(store, runs, featurizer, segment_on_ray, file_batch=_RAY_FILE_BATCH)


class _Indexer:
    """Hashes, encodes and stores files in order, with one commit per file.

    Args:
        file_batch: number of files hashed before the first of them is decoded.
    """

    def __init__(
        self,
        store: Library,
        runs: Sequence[TrainedRun],
        featurizer: ClipFeaturizer,
        segment: Segmenter,
        *,
        file_batch: int,
    ) -> None:
        self.store, self.runs, self.featurizer = store, runs, featurizer
        self.segment, self.file_batch = segment, file_batch
        self.words = store.words

    def index(self, files: Sequence[Path], indexed: dict[Path, FileRecord]) -> Iterator[Outcome]:
        for batch in _batches(files, self.file_batch):
            batch_digests: set[str] = set()
            entries = [self._hash(path, indexed.get(path), batch_digests) for path in batch]
            new_clips = [entry.clip for entry in entries if isinstance(entry, _HashedFile) and entry.clip]
            by_clip = groupby(self.segment(new_clips), key=lambda segment: segment.path)
            for entry in entries:
                if isinstance(entry, Outcome):
                    yield entry
                elif entry.clip is None:
                    self.store.link(entry.record, entry.digest)
                    yield Outcome(entry.record.path, is_known=True)
                else:
                    path, segments = next(by_clip)
                    assert path == entry.clip.path  # segmenters keep the order
                    yield self._store_segments(entry, segments)

    def _hash(
        self, path: Path, previous: FileRecord | None, batch_digests: set[str]
    ) -> _HashedFile | Outcome:
        """Compare size and mtime; hash the file if they differ, and add the digest to `batch_digests`."""
        try:
            status = path.stat()  # before hashing, so that a later write is detected next time
            record = FileRecord(path, status.st_size, status.st_mtime_ns)
            if record == previous:
                return Outcome(path, is_known=True)
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            reason = error.strerror or str(error)
            return Outcome(path, error=f"{path}: it cannot be read ({reason}). Change its permissions.")
        is_known = digest in batch_digests or self.store.has_content(digest)
        batch_digests.add(digest)
        return _HashedFile(record, digest, None if is_known else NewClip(path, _duration(path)))

    def _store_segments(self, file: _HashedFile, segments: Iterator[Segment]) -> Outcome:
        shots: list[Shot] = []
        arrays: list[ShotArrays] = []
        for batch in _batches(segments, _SHOT_BATCH):
            features = []
            for segment in batch:
                if isinstance(segment.result, str):
                    self.store.add(file.record, file.digest, [], {}, segment.result)
                    return Outcome(file.record.path, error=segment.result)
                shots.append(segment.result[0])
                features.append(segment.result[1])
            arrays.append(shot_arrays(self.runs, self.featurizer.encode(features, self.runs), self.words))
        self.store.add(file.record, file.digest, shots, _concatenate(arrays))
        return Outcome(file.record.path, shots=len(shots))


def load_search_runs(folders: Sequence[Path]) -> list[TrainedRun]:
    """Load the runs that search uses: 'embed' runs, and runs that name concepts.

    Raises:
        UsageError: there is no 'embed' run.
        RunError: one of the folders has no usable run.
    """
    runs = load_runs(folders)
    embedding = [run for run in runs if run.task == "embed"]
    if not embedding:
        named = ", ".join(map(str, folders))
        raise UsageError(
            f"A library needs a run of 'embed', and there is none in {named}. Train one, in half a minute: "
            "ctsan train embed --corpus CORPUS --out RUN, then --model RUN"
        )
    return [*embedding, *naming_concepts(runs)]


def run_fingerprints(runs: Sequence[TrainedRun]) -> list[RunFingerprint]:
    return [RunFingerprint(str(run.folder.resolve()), run.task, weights_digest(run.folder)) for run in runs]


def _clips_below(folders: Sequence[Path], problems: list[Problem]) -> list[Path]:
    """Videos and pictures, sorted and without duplicates. A missing folder counts as empty."""
    clips: set[Path] = set()
    for folder in folders:
        root = folder.resolve()
        files = files_below(root, problems) if root.is_dir() else [root] if root.is_file() else []
        clips.update(path for path in files if path.suffix.lower() in CLIP_SUFFIXES)
    return sorted(clips)


def _nothing_to_index(folders: Sequence[Path], problems: Sequence[Problem]) -> UsageError:
    named = ", ".join(map(str, folders))
    default = f"No videos or pictures in {named}. Name a folder that holds some."
    return UsageError("\n".join(map(str, problems)) or default)


def _missing(folders: Sequence[Path], indexed: Iterable[Path]) -> list[Problem]:
    """Folders that do not exist and that the library has no files of, so that they were never indexed."""
    return [
        Problem(folder, None, "there is no such folder", "Check its name.")
        for folder in folders
        for root in [folder.resolve()]
        if not root.exists() and not any(path.is_relative_to(root) for path in indexed)
    ]


def _moved(store: Library, files: set[Path]) -> list[Path]:
    """Files outside the given folders that no longer exist, but whose content has another path."""
    return [path for path in store.copies() if path not in files and not path.exists()]


def _duration(path: Path) -> float:
    """Seconds; 0 if the file cannot be read, which is reported when it is decoded."""
    try:
        return probe(path).duration
    except VideoError:
        return 0.0


def _concatenate(batches: Sequence[ShotArrays]) -> ShotArrays:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
