"""SQLite's errors as errors that a person can mend, and its range of integers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ctsan.errors import StorageError, StoreError

# Extended codes of writing without space: of SQLite's file or log, and of the memory that processes share.
FULL = {
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE),
    *(sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE),
}
_MAX_INTEGER = 2**63 - 1
_DAMAGED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


@contextmanager
def store_errors(file: Path, damage: Callable[[str], str]) -> Iterator[None]:
    """Raise SQLite's errors with the file and a remedy.

    Args:
        damage: the message where the file is damaged, from what SQLite says.

    Raises:
        StorageError: the disk is full. What was not committed is undone.
        StoreError: the file is damaged, locked or inaccessible.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except UnicodeDecodeError as error:  # what SQLite says quotes a damaged part of the file
        raise StoreError(damage("it holds text that is not UTF-8")) from error
    except sqlite3.DatabaseError as error:
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


def clamped(value: int) -> int:
    """The nearest integer that SQLite can store; the nanoseconds of a file dated after 2262 exceed it."""
    return min(max(value, -_MAX_INTEGER), _MAX_INTEGER)
