"""A run folder: all that is needed to use a trained model, or to resume its training.

settings.json            task, settings, version of ctsan, and the run it was initialised from, if any
weights.safetensors      the best weights so far
checkpoint.safetensors   the state from which training resumes
metrics.jsonl            losses and evaluations

An ensemble folder holds the run folders of its members, named 1, 2, ….
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import ctsan
from ctsan.config import Settings, check_resumable, settings_from_json
from ctsan.errors import OldRunError, RunError, UsageError
from ctsan.io.atomic import make_folder, storage_errors, write_json
from ctsan.io.fields import OtherFormatError, check_format, typed_field, whole_field
from ctsan.io.reading import DamagedFileError, check_regular, read_json_object
from ctsan.runs.weights import WEIGHTS_FILE

SETTINGS_FILE = "settings.json"
CHECKPOINT_FILE = "checkpoint.safetensors"
LOCK_FILE = ".lock"
FORMAT, VERSION = "ctsan-run", 1


_held: set[Path] = set()  # folders whose lock this process holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run that another one was initialised from."""

    run: str  # its folder, as the user gave it
    task: str
    weights: str  # SHA-256 of the weights file
    parts: tuple[str, ...]  # parts of the model that were copied
    kept_words: int
    new_words: int
    kept_candidates: int
    new_candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    folder: Path
    task: str
    profile: str
    settings: Settings
    ctsan: str  # version that wrote the settings
    revision: str | None  # commit, if ctsan ran from a checkout
    origin: Origin | None = None


def members_of(folder: Path) -> list[Path]:
    """List the run folders of an ensemble folder; empty if the folder holds no ensemble."""
    numbered = (folder / str(number) for number in count(1))
    return list(takewhile(lambda member: (member / SETTINGS_FILE).exists(), numbered))


def check_folder(folder: Path) -> None:
    """Check that a run can start or resume in a folder.

    Raises:
        RunError: the folder holds something else.
    """
    if (folder / SETTINGS_FILE).exists():
        return
    if members := members_of(folder):
        what = f"it holds an ensemble of {len(members)}, not one run"
        remedy = f"Go on with it by --ensemble {len(members)}, or name another folder."
        raise RunError(f"{folder}: {what}. {remedy}")
    _check_holds_only(folder, lambda path: path.name == LOCK_FILE)


def check_ensemble_folder(folder: Path) -> None:
    """Check that an ensemble can start or resume in a folder.

    Raises:
        RunError: the folder holds something else.
    """
    if (folder / SETTINGS_FILE).exists():
        raise RunError(f"{folder}: it holds one run, not an ensemble. Name another folder for the ensemble.")
    _check_holds_only(folder, lambda path: path.name.isdecimal() and path.is_dir())


def _check_holds_only(folder: Path, belongs: Callable[[Path], bool]) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file. Name a folder for the run.")
    if folder.exists() and (names := sorted(path.name for path in folder.iterdir() if not belongs(path))):
        what = f"it is no run folder and not empty (it holds {names[0]!r})"
        raise RunError(f"{folder}: {what}. Name a new or an empty folder.")


def has_begun(folder: Path) -> bool:
    """Whether a folder holds a checkpoint or weights. A run without either restarts from scratch."""
    return any((folder / name).exists() for name in (CHECKPOINT_FILE, WEIGHTS_FILE))


def begun_run(folder: Path, *, task: str, settings: Settings) -> Run | None:
    """Open the run in a folder if it can be resumed; None if there is nothing to resume.

    A run without a checkpoint or weights can be restarted with different settings.

    Raises:
        RunError: the folder holds something else, or a run of another task.
        UsageError: the folder holds a run with different settings.
    """
    check_folder(folder)
    old = open_run(folder) if (folder / SETTINGS_FILE).exists() else None
    if not old or not has_begun(folder):
        return None
    if old.task != task:
        what = f"it holds a run of the task {old.task!r}, not {task!r}"
        raise RunError(f"{folder}: {what}. Name another folder for the new run.")
    check_resumable(folder / SETTINGS_FILE, old.settings.to_json(), settings.to_json())
    return old


def check_origin(run: Run, source: Path | None) -> None:
    """Check that a resumed run was initialised from `source`.

    Compares digests of the weights. If the weights of `source` are gone, its path must match.

    Raises:
        UsageError: the run was initialised from other weights than those of `source`.
    """
    origin = run.origin
    if origin is None and source is None:
        return
    if origin is None:
        what, remedy = f"started from no other run, and {source} is given", "Leave out --from"
    elif source is None:
        what, remedy = f"started from {origin.run}", f"Give it --from {origin.run}"
    else:
        gone = not (source / WEIGHTS_FILE).exists()
        if str(source) == origin.run if gone else weights_digest(source) == origin.weights:
            return
        what = f"started from other weights, those that were in {origin.run}, than are in {source}"
        remedy = "Give it the same ones"
    raise UsageError(f"{run.folder}: this run was {what}. {remedy}, or name another folder for a new run.")


def weights_digest(folder: Path) -> str:
    """Compute the SHA-256 of a run's weights file.

    Raises:
        RunError: the run in the folder has no weights yet, or they are not a regular file.
    """
    file = folder / WEIGHTS_FILE
    try:
        check_regular(file)  # reading a pipe or a device need not end
    except DamagedFileError as error:
        raise RunError(f"{file}: {error}. Train first, or name another run.") from None
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def create_run(
    folder: Path, *, task: str, profile: str, settings: Settings, origin: Origin | None = None
) -> Run:
    """Create a run in a folder, or reopen the one that is there if it is the same.

    Raises:
        RunError: the folder holds something else, or a run of another task.
        UsageError: the folder holds a run with different settings.
    """
    old = begun_run(folder, task=task, settings=settings)
    new = Run(
        folder=folder,
        task=task,
        profile=profile,
        settings=settings,
        ctsan=ctsan.__version__,
        revision=_revision(),
        origin=old.origin if old else origin,
    )
    write_json(
        folder / SETTINGS_FILE,
        {
            "format": FORMAT,
            "version": VERSION,
            "task": task,
            "profile": profile,
            "ctsan": new.ctsan,
            "revision": new.revision,
            "from": asdict(new.origin) if new.origin else None,
            "settings": settings.to_json(),
        },
    )
    return new


def open_run(folder: Path) -> Run:
    """Open the run in a folder.

    Raises:
        RunError: there is none, or its settings file is damaged, of another format or of another version.
    """
    file = folder / SETTINGS_FILE
    again = "Put it back from a copy, or train again in another folder."
    if not file.exists():
        if members := members_of(folder):
            names = ", ".join(map(str, members))
            raise RunError(f"{folder}: an ensemble is there, not one run. Name a member: {names}.")
        raise RunError(f"{folder}: no run is there. Train one with 'ctsan train', or name another.")
    try:
        value = read_json_object(file)
        check_format(value, FORMAT, VERSION)
        return Run(
            folder=folder,
            task=typed_field(value, "task", str),
            profile=typed_field(value, "profile", str),
            settings=settings_from_json(value.get("settings")),
            ctsan=typed_field(value, "ctsan", str),
            revision=None if value.get("revision") is None else typed_field(value, "revision", str),
            origin=None if value.get("from") is None else _origin(typed_field(value, "from", dict)),
        )
    except OtherFormatError as error:
        raise RunError(f"{file}: {error}. Name a run folder, or use the ctsan that made this one.") from None
    except DamagedFileError as error:
        raise RunError(f"{file}: it is damaged ({error}). {again}") from None
    except OldRunError as error:
        raise RunError(f"{file}: {error}") from None
    except UsageError as error:
        raise RunError(f"{file}: {error} {again}") from None


@contextmanager
def training_alone(folder: Path) -> Iterator[None]:
    """Lock a run folder against training by another process. The lock is released when the process ends.

    Reentrant: a nested block for the same folder does nothing.

    Raises:
        RunError: another process is training in the folder.
    """
    place = folder.resolve()
    if place in _held:
        yield
        return
    lock = FileLock(folder / LOCK_FILE)
    try:
        with storage_errors(folder):
            make_folder(folder)
            lock.acquire(timeout=0)
    except Timeout:
        what = "another process is training in this folder"
        raise RunError(f"{folder}: {what}. Wait until it ends, or name another folder.") from None
    _held.add(place)
    try:
        yield
    finally:
        _held.remove(place)
        lock.release()


def _origin(value: Mapping[str, Any]) -> Origin:
    parts = typed_field(value, "parts", list)
    if not all(isinstance(part, str) for part in parts):
        raise DamagedFileError("its 'parts' are not names")
    return Origin(
        run=typed_field(value, "run", str),
        task=typed_field(value, "task", str),
        weights=typed_field(value, "weights", str),
        parts=tuple(parts),
        kept_words=whole_field(value, "kept_words"),
        new_words=whole_field(value, "new_words"),
        kept_candidates=whole_field(value, "kept_candidates"),
        new_candidates=whole_field(value, "new_candidates"),
    )


def _revision() -> str | None:
    """Return the commit of the checkout that this package runs from; None for an installed package."""
    package = Path(ctsan.__file__).parent
    command = ["git", "-C", str(package), "rev-parse", "--show-prefix", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    # An installed package may lie inside the checkout of another project.
    prefix, _, commit = answer.strip().partition("\n")
    return commit if prefix == "src/ctsan/" else None
