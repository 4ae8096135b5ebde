"""SQLite's errors as errors that a person can mend."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ctsan.errors import StoreError

_DAMAGED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


@contextmanager
def store_errors(file: Path, damage: Callable[[str], str]) -> Iterator[None]:
    """Raise SQLite's errors as `StoreError`, with the file and a remedy.

    Args:
        damage: the message where the file is damaged, from what SQLite says.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        raise StoreError(
            damage(str(error))
            if code in _DAMAGED
            else f"{file}: it cannot be opened or written ({error}). Check the disk space, the permissions, "
            "and whether another process has locked the file; then run the same command again."
        ) from error
