"""A run folder: all that is needed to use a training, or to go on with it.

settings.json            what was asked for, of which ctsan, and the run that it started from, if any
weights.safetensors      the best weights so far
checkpoint.safetensors   the last moment that training can go on from
metrics.jsonl            losses and evaluations

The folder of an ensemble holds the run folders of its members: 1, 2 and so on.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import ctsan
from ctsan.config import Settings, check_resumable, settings_from_json
from ctsan.errors import OldRunError, RunError, UsageError
from ctsan.io.atomic import write_json
from ctsan.runs.checkpoint import CHECKPOINT_FILE, WEIGHTS_FILE

SETTINGS_FILE = "settings.json"
LOCK_FILE = ".lock"
FORMAT, VERSION = "ctsan-run", 1


_held: set[Path] = set()  # folders that this process trains in


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run whose weights another one started from."""

    run: str  # its folder, as it was named
    task: str
    weights: str  # digest of their file
    parts: tuple[str, ...]  # of the model, that were taken over
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
    ctsan: str  # the version that began it
    revision: str | None  # its commit, where it ran from a checkout
    origin: Origin | None = None


def members_of(folder: Path) -> list[Path]:
    """The run folders of the ensemble that a folder holds; none if it holds no ensemble."""
    numbered = (folder / str(number) for number in count(1))
    return list(takewhile(lambda member: (member / SETTINGS_FILE).exists(), numbered))


def check_folder(folder: Path) -> None:
    """Raises:
    RunError: a run can neither begin nor go on in this folder, for it holds something else.
    """
    if (folder / SETTINGS_FILE).exists():
        return
    if members := members_of(folder):
        what = f"it holds an ensemble of {len(members)}, not one run"
        remedy = f"Go on with it by --ensemble {len(members)}, or name another folder."
        raise RunError(f"{folder}: {what}. {remedy}")
    _check_holds_only(folder, lambda path: path.name == LOCK_FILE)


def check_ensemble_folder(folder: Path) -> None:
    """Raises:
    RunError: an ensemble can neither begin nor go on in this folder, for it holds something else.
    """
    if (folder / SETTINGS_FILE).exists():
        raise RunError(f"{folder}: it holds one run, not an ensemble. Name another folder for the ensemble.")
    _check_holds_only(folder, lambda path: path.name.isdecimal() and path.is_dir())


def _check_holds_only(folder: Path, belongs: Callable[[Path], bool]) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file. Name a folder for the run.")
    if folder.exists() and (found := sorted(path.name for path in folder.iterdir() if not belongs(path))):
        what = f"it is no run folder and not empty (it holds {found[0]!r})"
        raise RunError(f"{folder}: {what}. Name a new or an empty folder.")


def has_begun(folder: Path) -> bool:
    """Whether there is something to lose: a run that ended before its first checkpoint begins anew."""
    return any((folder / name).exists() for name in (CHECKPOINT_FILE, WEIGHTS_FILE))


def begun_run(folder: Path, *, task: str, settings: Settings) -> Run | None:
    """The run that has begun in a folder and can be gone on with; None if none has begun.

    Raises:
        RunError: the folder holds something else, or a run of another task has begun there.
        UsageError: a run with other settings has begun there.
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
    """Refuse to go on with a run as if it had started from other weights; they need not be there any more.

    Raises:
        UsageError: it started from another run than `source`.
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
    """Raises:
    RunError: the run in the folder has no weights yet.
    """
    file = folder / WEIGHTS_FILE
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        raise RunError(f"{file}: there is no such file. Train first, or name another run.") from None


def create_run(
    folder: Path, *, task: str, profile: str, settings: Settings, origin: Origin | None = None
) -> Run:
    """Begin a run in a folder, or take up the one that has begun there if it is the same.

    Raises:
        RunError: the folder holds something else, or a run of another task has begun there.
        UsageError: a run with other settings has begun there.
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
    """The run that a folder holds.

    Raises:
        RunError: there is none, or its settings are damaged, foreign or of another version.
    """
    file = folder / SETTINGS_FILE
    again = "Put it back from a copy, or train again in another folder."
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
        if value["format"] != FORMAT:
            raise RunError(f"{file}: its format is {value['format']!r}, not {FORMAT!r}. Name a run folder.")
        if value["version"] != VERSION:
            what = f"a run of version {value['version']}, and this ctsan reads version {VERSION}"
            raise RunError(f"{file}: {what}. Use the ctsan that made it, or train again in another folder.")
        return Run(
            folder=folder,
            task=value["task"],
            profile=value["profile"],
            settings=settings_from_json(value["settings"]),
            ctsan=value["ctsan"],
            revision=value["revision"],
            origin=_origin(value.get("from")),
        )
    except (FileNotFoundError, NotADirectoryError):
        if members := members_of(folder):
            names = ", ".join(map(str, members))
            raise RunError(f"{folder}: an ensemble is there, not one run. Name a member: {names}.") from None
        raise RunError(f"{folder}: no run is there. Train one with 'ctsan train', or name another.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}: it is damaged ({error!r}). {again}") from None
    except OldRunError as error:
        raise RunError(f"{file}: {error}") from None
    except UsageError as error:
        raise RunError(f"{file}: {error} {again}") from None


@contextmanager
def training_alone(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a folder; the lock goes with the process, however it ends.

    Inside another such block for the same folder there is nothing left to do.

    Raises:
        RunError: another process trains there.
    """
    place = folder.resolve()
    if place in _held:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK_FILE).acquire(timeout=0):
            _held.add(place)
            try:
                yield
            finally:
                _held.remove(place)
    except Timeout:
        what = "another process is training in this folder"
        raise RunError(f"{folder}: {what}. Wait until it ends, or name another folder.") from None


def _origin(value: Any) -> Origin | None:
    return Origin(**{**value, "parts": tuple(value["parts"])}) if value else None


def _revision() -> str | None:
    """The commit of the checkout that this package runs from; None where it was installed."""
    package = Path(ctsan.__file__).parent
    command = ["git", "-C", str(package), "rev-parse", "--show-prefix", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    # An installed package may lie below somebody else's checkout.
    prefix, _, commit = answer.strip().partition("\n")
    return commit if prefix == "src/ctsan/" else None
