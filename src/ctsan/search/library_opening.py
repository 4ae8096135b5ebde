"""Open a library for writing: lock it, create it if there is none, upgrade and repair it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ctsan.errors import StoreError
from ctsan.io.atomic import make_folder as make_synced_folder
from ctsan.io.atomic import replacing, storage_errors, sync
from ctsan.search.library import is_library
from ctsan.search.library_format import (
    FILE,
    SCHEMA,
    VERSION,
    RunFingerprint,
    folder_mode,
    make_folder,
    record_errors,
    runs_to_json,
)
from ctsan.search.library_repair import LibraryRepair
from ctsan.search.library_writer import LibraryWriter
from ctsan.search.store import check_runs


@contextmanager
def open_for_writing(
    folder: Path, *, runs: Sequence[RunFingerprint], words: Sequence[str]
) -> Iterator[LibraryWriter]:
    """Open a library under an exclusive lock, and repair it; create it if there is none.

    Raises:
        StoreError: it was indexed with other runs, another process is writing it, or it cannot be used.
        StorageError: the disk is full, or the folder cannot be written to.
    """
    with _locked(folder):
        if not is_library(folder):
            _create(folder, runs, words)
        with closing(LibraryRepair(folder)) as library:
            check_runs(library, runs, words)
            library.remove_legacy_encodings(runs)
            library.upgrade()
            library.repair()
            yield library
            library.compact()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Create the folder if needed, and lock it. A new one is for its owner alone."""
    with storage_errors(folder):
        if not folder.is_dir():
            make_synced_folder(folder.parent)
            make_folder(folder, 0o700)
            sync(folder.parent)
        lock = FileLock(folder / ".lock", timeout=0, mode=folder_mode(folder) & 0o666)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(f"{folder}: another ctsan is indexing. Wait for that one, or stop it.") from None
    try:
        yield
    finally:
        lock.release()


def _create(folder: Path, runs: Sequence[RunFingerprint], words: Sequence[str]) -> None:
    """Create the database under a temporary name and rename it, so that it is never incomplete."""
    about = {
        "generation": "0",
        "revision": "0",
        "next_row": "0",
        "runs": runs_to_json(runs),
        "words": json.dumps(list(words), ensure_ascii=False),
    }
    mode = folder_mode(folder)
    with replacing(folder / FILE) as temporary, record_errors(folder):
        for leftover in folder.glob(f"{temporary.name}*"):
            leftover.unlink()
        if not (folder / "numbers-0").is_dir():
            make_folder(folder / "numbers-0", mode)
        temporary.touch(exist_ok=False)
        temporary.chmod(mode & 0o666)  # SQLite gives its other files the permissions of this one
        with closing(sqlite3.connect(temporary)) as database:
            database.executescript(SCHEMA)
            with database:
                database.executemany("insert into about values (?, ?)", about.items())
            database.execute(f"pragma user_version = {VERSION}")
            database.execute("pragma journal_mode = wal")  # readers and the writer do not block each other
