"""Fill a library: find videos and pictures, look at what is new, and forget what is gone."""

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
from ctsan.search.encodings import concept_words, numbers_of
from ctsan.search.library import FileRecord, Library, Numbers, RunMark, changing, is_library
from ctsan.search.segments import LookAt, NewClip, Part, look_at_clips
from ctsan.video.frames import probe
from ctsan.video.shots import Shot

T = TypeVar("T")

_FILES_AT_ONCE = 32  # are hashed before the first of them is decoded
_FILES_ON_RAY = 1024  # so that all of a cluster has something to do
_SHOTS_AT_ONCE = 16  # of a long video are encoded together


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: shots where it was looked at, or the error."""

    file: Path
    shots: int = 0
    is_known: bool = False  # unchanged, renamed or a copy: nothing was decoded
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    files: int  # that can be searched
    shots: int
    new: int  # files that were decoded now
    known: int
    dropped: int
    seconds: float
    errors: dict[Path, str]


@dataclass(frozen=True, slots=True)
class _Met:
    file: FileRecord
    digest: str
    clip: NewClip | None  # None where the content is known, or that of a file just before


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
    """Bring a library up to date with what is in some folders; what it knows of others stays.

    Stopped at any moment, the same call goes on from there, and ends with the same store.

    Args:
        models: runs of 'embed', and such as have a concept detector where there are some; those that the
            library was made with if none are given.
        ray: where the Ray cluster is that decodes and makes features; see on_ray.py. None is right here.
        on_start: is told how many files there are.
        on_file: is told of each of them.

    Raises:
        UsageError: no run embeds, there is nothing to index, or Ray cannot be used.
        StoreError: the library cannot be used.
    """
    started = time.monotonic()
    runs = searching_runs(models or [Path(run.folder) for run in Library(library).runs])
    problems: list[Problem] = []
    files = _clips_below(folders, problems)
    if not files and not is_library(library):  # and none is made
        raise _nothing_to_index(folders, [*problems, *_missing(folders, ())])
    with changing(library, runs=marks_of(runs), words=concept_words(runs)) as store:
        known = store.files()
        below = [folder.resolve() for folder in folders]
        gone = [path for path in known if path not in files and any(map(path.is_relative_to, below))]
        problems += _missing(folders, known)
        if not files and not gone:
            raise _nothing_to_index(folders, problems)
        if on_start:
            on_start(len(files))
        outcomes = []
        with _looking(store, runs, weights, ray) as looking:
            for outcome in looking.outcomes(files, known):
                outcomes.append(outcome)
                if on_file:
                    on_file(outcome)
        gone += _moved(store, set(files))
        store.drop(gone)
        store.tidy()  # before the index, which is of this revision alone
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
def _looking(
    store: Library, runs: Sequence[TrainedRun], weights: Path | None, ray: str | None
) -> Iterator[_Looking]:
    featurizer = ClipFeaturizer(weights)
    for run in runs:
        featurizer.backbone(run.recipe)  # before any work: is its network there?
    if ray is None:
        look_at = partial(look_at_clips, runs=runs, featurizer=featurizer)
        yield _Looking(store, runs, featurizer, look_at, at_once=_FILES_AT_ONCE)
        return
    from ctsan.search.ray_backend import looking_on_ray

    with looking_on_ray(ray, runs, weights) as look_at_on_ray:
        yield _Looking(store, runs, featurizer, look_at_on_ray, at_once=_FILES_ON_RAY)


class _Looking:
    """Takes files through all of it, one after the other, each with a commit of its own.

    Args:
        at_once: so many files are hashed before the first of them is decoded.
    """

    def __init__(
        self,
        store: Library,
        runs: Sequence[TrainedRun],
        featurizer: ClipFeaturizer,
        look_at: LookAt,
        *,
        at_once: int,
    ) -> None:
        self.store, self.runs, self.featurizer = store, runs, featurizer
        self.look_at, self.at_once = look_at, at_once
        self.words = store.words

    def outcomes(self, files: Sequence[Path], known: dict[Path, FileRecord]) -> Iterator[Outcome]:
        for some in _in_batches(files, self.at_once):
            coming: set[str] = set()
            found = [self._meet(path, known.get(path), coming) for path in some]
            new = [one.clip for one in found if isinstance(one, _Met) and one.clip]
            by_clip = groupby(self.look_at(new), key=lambda part: part.path)
            for one in found:
                if isinstance(one, Outcome):
                    yield one
                elif one.clip is None:
                    self.store.link(one.file, one.digest)
                    yield Outcome(one.file.path, is_known=True)
                else:
                    path, parts = next(by_clip)
                    assert path == one.clip.path  # clips come back as they were given
                    yield self._take_in(one, parts)

    def _meet(self, path: Path, before: FileRecord | None, coming: set[str]) -> _Met | Outcome:
        """Size and time first; then the content, which is added to what is `coming`."""
        try:
            status = path.stat()
            file = FileRecord(path, status.st_size, status.st_mtime_ns)  # before reading: see changes later
            if file == before:
                return Outcome(path, is_known=True)
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            reason = error.strerror or str(error)
            return Outcome(path, error=f"{path}: it cannot be read ({reason}). Change its permissions.")
        is_known = digest in coming or self.store.has_content(digest)
        coming.add(digest)
        return _Met(file, digest, None if is_known else NewClip(path, _duration(path)))

    def _take_in(self, one: _Met, parts: Iterator[Part]) -> Outcome:
        shots: list[Shot] = []
        numbers: list[Numbers] = []
        for some in _in_batches(parts, _SHOTS_AT_ONCE):
            looks = []
            for part in some:
                if isinstance(part.found, str):
                    self.store.add(one.file, one.digest, [], {}, part.found)
                    return Outcome(one.file.path, error=part.found)
                shots.append(part.found[0])
                looks.append(part.found[1])
            numbers.append(numbers_of(self.runs, self.featurizer.encode(looks, self.runs), self.words))
        self.store.add(one.file, one.digest, shots, _joined(numbers))
        return Outcome(one.file.path, shots=len(shots))


def searching_runs(folders: Sequence[Path]) -> list[TrainedRun]:
    """The runs in some folders that a search makes use of: joint embeddings, and those that name concepts.

    Raises:
        UsageError: none of them embeds.
        RunError: there is no usable run in one of them.
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


def marks_of(runs: Sequence[TrainedRun]) -> list[RunMark]:
    return [RunMark(str(run.folder.resolve()), run.task, weights_digest(run.folder)) for run in runs]


def _clips_below(folders: Sequence[Path], problems: list[Problem]) -> list[Path]:
    """Videos and pictures by name, each once; a folder that is gone holds none."""
    found: set[Path] = set()
    for folder in folders:
        place = folder.resolve()
        listed = files_below(place, problems) if place.is_dir() else [place] if place.is_file() else []
        found.update(path for path in listed if path.suffix.lower() in CLIP_SUFFIXES)
    return sorted(found)


def _nothing_to_index(folders: Sequence[Path], problems: Sequence[Problem]) -> UsageError:
    looked_in = ", ".join(map(str, folders))
    nothing = f"No videos or pictures in {looked_in}. Name a folder that holds some."
    return UsageError("\n".join(map(str, problems)) or nothing)


def _missing(folders: Sequence[Path], known: Iterable[Path]) -> list[Problem]:
    """Folders that are not there and never were; of one that is gone, the library knows files."""
    return [
        Problem(folder, None, "there is no such folder", "Check its name.")
        for folder in folders
        for place in [folder.resolve()]
        if not place.exists() and not any(path.is_relative_to(place) for path in known)
    ]


def _moved(store: Library, files: set[Path]) -> list[Path]:
    """Files elsewhere that are gone, and whose content is known under another name."""
    return [path for path in store.copies() if path not in files and not path.exists()]


def _duration(path: Path) -> float:
    """Seconds; none of what cannot be read, which is said by whoever reads it."""
    try:
        return probe(path).duration
    except VideoError:
        return 0.0


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return {kind: np.concatenate([part[kind] for part in parts]) for kind in parts[0]}


def _in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some
