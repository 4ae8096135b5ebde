"""Open SQLite files that others may have made, and translate SQLite's errors."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ctsan.errors import StorageError, StoreError

# Extended codes of writing without space: of SQLite's file or log, and of the memory that processes share.
FULL = {
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE),
    *(sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE),
}
_COMPANIONS = ("-journal", "-wal", "-shm")  # endings of the files that SQLite keeps beside its own
_MAX_INTEGER = 2**63 - 1
_NAMES_A_FILE = bytes.fromhex("d9d505f920a163d7")  # at the end of a journal, after the path of another one
_DAMAGED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def open_file(file: Path, parameters: str, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Connect to an existing file, of which nothing may have an effect beyond it.

    Args:
        parameters: of SQLite's URI, such as `mode=rw`.

    Raises:
        sqlite3.Error: the file cannot be opened, or it or its journal holds what ctsan never writes.
    """
    _check_companions(file)
    uri = f"{file.absolute().as_uri()}?{parameters}"
    connection = sqlite3.connect(uri, uri=True, timeout=60, check_same_thread=check_same_thread)
    try:
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma synchronous = full")  # a commit is on the disk, also after a power loss
        foreign = connection.execute(
            "select type, name from sqlite_master where type not in ('table', 'index') "
            "or sql like 'create virtual%' limit 1"
        ).fetchone()
        if foreign is not None:  # a view may never end, and a trigger writes what nobody asked for
            raise sqlite3.DatabaseError("it holds the {} {!r}, which is not ctsan's".format(*foreign))
    except (sqlite3.Error, UnicodeDecodeError):
        connection.close()
        raise
    return connection


def _check_companions(file: Path) -> None:
    """Check the files that SQLite reads and writes beside a database.

    It follows links, and deletes the file that a journal names, when it rolls that journal back.

    Raises:
        sqlite3.DatabaseError: one is a link, pipe or device, or a journal names another file.
    """
    if obstacle := _obstacle(file):
        raise sqlite3.DatabaseError(f"{obstacle.name} beside it is not a regular file")
    journal = file.with_name(f"{file.name}-journal")
    with suppress(PermissionError, FileNotFoundError), journal.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - len(_NAMES_A_FILE)))
        if stream.read() == _NAMES_A_FILE:
            raise sqlite3.DatabaseError(f"{journal.name} beside it would delete another file")


@contextmanager
def store_errors(file: Path, damage: Callable[[str], str]) -> Iterator[None]:
    """Raise SQLite's errors with the file and a remedy.

    Args:
        damage: the message where the file is damaged, from what SQLite says.

    Raises:
        StorageError: the disk is full. What was not committed is undone.
        StoreError: the file is damaged, locked or inaccessible, or something is in the way of one beside it.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except UnicodeDecodeError as error:  # what SQLite says quotes a damaged part of the file
        raise StoreError(damage("it holds text that is not UTF-8")) from error
    except sqlite3.DatabaseError as error:
        if obstacle := _obstacle(file):
            raise StoreError(
                f"{obstacle}: it is not a regular file, so SQLite cannot use {file.name} ({error}). Delete "
                "it, not the folder, and run the same command again: SQLite makes it again."
            ) from error
        extended_code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        code = extended_code & 0xFF
        if extended_code in FULL:
            raise StorageError(
                f"{file}: it cannot be written ({error}). Free some space on this disk and run the same "
                "command again: what is done is kept."
            ) from error
        raise StoreError(
            damage(str(error))
            if code in _DAMAGED
            else f"{file}: it cannot be opened or written ({error}). Check the disk space, the permissions, "
            "and whether another process has locked the file; then run the same command again."
        ) from error


def _obstacle(file: Path) -> Path | None:
    """What is where SQLite keeps a file beside its own, and is a folder, a pipe or a link."""
    for ending in _COMPANIONS:
        path = file.with_name(file.name + ending)
        with suppress(OSError):  # there is none, or another process has just removed it
            if not stat.S_ISREG(path.lstat().st_mode):
                return path
    return None


def clamped(value: int) -> int:
    """The nearest integer that SQLite can store; the nanoseconds of a file dated after 2262 exceed it."""
    return min(max(value, -_MAX_INTEGER), _MAX_INTEGER)
