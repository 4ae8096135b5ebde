"""Open the SQLite file of a library: for writing where that is possible, else for reading alone."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from ctsan.io.sqlite import FULL, open_file

_NOT_WRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


@dataclass(frozen=True, slots=True)
class _FileState:
    """Changes whenever another process writes the file or its log."""

    inode: int
    size: int
    mtime_ns: int
    log_size: int


class Records:
    """A connection to the SQLite file of a library.

    SQLite needs to write beside a file in WAL mode even to read it. Where it cannot, because the medium is
    read-only or full, or the folder belongs to another user, a reader opens the file as one that never
    changes, and again once it has changed. If there is also a log of changes that a killed process left, a
    reader opens a copy of both.

    Args:
        is_writer: whether the file is to be written.

    Raises:
        sqlite3.Error: the file cannot be opened or read.
    """

    def __init__(self, file: Path, *, is_writer: bool) -> None:
        self._is_writer = is_writer
        self._file, self._log = file, file.with_name(f"{file.name}-wal")
        self._state: _FileState | None = None  # of a file that SQLite cannot watch
        self.connection = self._connect()

    def refresh(self) -> None:
        """Open the file again if SQLite cannot see that it has changed. Call it between transactions."""
        if self._state is not None and self._state != self._current_state():
            self.close()
            self.connection = self._connect()

    def close(self) -> None:
        self.connection.close()

    def _connect(self) -> sqlite3.Connection:
        self._state = None
        try:
            return open_file(self._file, "mode=rw")
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", 0)
            can_read = code in FULL or code & 0xFF in _NOT_WRITABLE
            if self._is_writer or not can_read or not self._file.is_file():
                raise
        self._state = self._current_state()
        if self._state.log_size == 0:
            return open_file(self._file, "mode=ro&immutable=1")
        try:
            return open_file(self._file, "mode=ro")  # works while another process writes
        except sqlite3.OperationalError:
            return self._open_copy()

    def _open_copy(self) -> sqlite3.Connection:
        folder = Path(tempfile.mkdtemp(prefix="ctsan-library-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        for source in (self._file, self._log):
            shutil.copyfile(source, folder / source.name)
        return open_file(folder / self._file.name, "mode=rw")

    def _current_state(self) -> _FileState:
        status = self._file.stat()
        log_size = self._log.stat().st_size if self._log.is_file() else 0
        return _FileState(status.st_ino, status.st_size, status.st_mtime_ns, log_size)
