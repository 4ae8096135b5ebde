"""A run folder: all that is needed to use a training, or to go on with it.

settings.json            what was asked for, and of which ctsan
weights.safetensors      the best weights so far
checkpoint.safetensors   the last moment that training can go on from
metrics.jsonl            losses and evaluations
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

import ctsan
from ctsan.atomic import write_json
from ctsan.config import Settings, check_resumable, settings_from_json
from ctsan.errors import RunError, UsageError
from ctsan.training.checkpoint import CHECKPOINT_FILE, WEIGHTS_FILE

SETTINGS_FILE = "settings.json"
LOCK_FILE = ".lock"
FORMAT, VERSION = "ctsan-run", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    folder: Path
    task: str
    profile: str
    settings: Settings
    ctsan: str  # the version that began it
    revision: str | None  # its commit, where it ran from a checkout


def check_folder(folder: Path) -> None:
    """Raises:
    RunError: a run can neither begin nor go on in this folder, for it holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file. Name a folder for the run.")
    if not folder.exists() or (folder / SETTINGS_FILE).exists():
        return
    if found := sorted(path.name for path in folder.iterdir() if path.name != LOCK_FILE):
        what = f"it is no run folder and not empty (it holds {found[0]!r})"
        raise RunError(f"{folder}: {what}. Name a new or an empty folder.")


def has_begun(folder: Path) -> bool:
    """Whether there is something to lose: a run that ended before its first checkpoint begins anew."""
    return any((folder / name).exists() for name in (CHECKPOINT_FILE, WEIGHTS_FILE))


def create_run(folder: Path, *, task: str, profile: str, settings: Settings) -> Run:
    """Begin a run in a folder, or take up the one that has begun there if it is the same.

    Raises:
        RunError: the folder holds something else, or a run of another task has begun there.
        UsageError: a run with other settings has begun there.
    """
    check_folder(folder)
    new = Run(
        folder=folder,
        task=task,
        profile=profile,
        settings=settings,
        ctsan=ctsan.__version__,
        revision=_revision(),
    )
    old = open_run(folder) if (folder / SETTINGS_FILE).exists() else None
    if old and has_begun(folder):
        if old.task != task:
            what = f"it holds a run of the task {old.task!r}, not {task!r}"
            raise RunError(f"{folder}: {what}. Name another folder for the new run.")
        check_resumable(folder / SETTINGS_FILE, old.settings.to_json(), settings.to_json())
    write_json(
        folder / SETTINGS_FILE,
        {
            "format": FORMAT,
            "version": VERSION,
            "task": task,
            "profile": profile,
            "ctsan": new.ctsan,
            "revision": new.revision,
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
        )
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder}: no run is there. Train one with 'ctsan train', or name another.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}: it is damaged ({error!r}). {again}") from None
    except UsageError as error:
        raise RunError(f"{file}: {error} {again}") from None


@contextmanager
def training_alone(folder: Path) -> Iterator[None]:
    """Keep a second training out of a folder; the lock goes with the process, however it ends.

    Raises:
        RunError: there is one already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK_FILE).acquire(timeout=0):
            yield
    except Timeout:
        what = "another process is training in this folder"
        raise RunError(f"{folder}: {what}. Wait until it ends, or name another folder.") from None


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
