"""The index of a feature store: a row for each clip, in one SQLite file.

Opening it reads nothing but its first pages, and a change writes only the pages that change, however many
clips there are. A change is one transaction: whenever a process is killed, all of it is there or nothing.
The same changes in the same order give the same bytes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ctsan.errors import StoreError
from ctsan.io.atomic import replacing

MANIFEST_FILE, INDEX_FILE = "manifest.json", "index.sqlite"

T = TypeVar("T")

_DAMAGED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_IDS_AT_ONCE = 10_000
# An id is a blob: the name of a file need not be text.
_SCHEMA = """
create table clips (
    place integer primary key, id blob unique not null,
    frames integer not null, size integer not null, mtime_ns integer not null
);
create table unreadable (place integer primary key, id blob unique not null, reason blob not null);
"""


@dataclass(frozen=True, slots=True)
class ClipRecord:
    """A clip in the index; size and time of its source tell cheaply that nothing changed."""

    frames: int
    size: int
    mtime_ns: int


class ClipIndex:
    """The clips of a store, and why others could not be read, looked up on disk.

    Threads may share one, and a process may inherit one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connect()
        for table in ("clips", "unreadable"):  # a file that is no index is named at once
            self.select(f"select id from {table} limit 1")

    def __reduce__(self) -> tuple[type[ClipIndex], tuple[Path]]:
        return ClipIndex, (self.path,)

    @property
    def clips(self) -> Mapping[str, ClipRecord]:
        return _Table(self, "clips", "frames, size, mtime_ns", ClipRecord)

    @property
    def unreadable(self) -> Mapping[str, str]:
        return _Table(self, "unreadable", "reason", _decode)

    def update(self, records: Mapping[str, ClipRecord], unreadable: Mapping[str, str]) -> None:
        """Enter clips that were read and such as could not be, in one transaction; others stay.

        A clip keeps its place in the order. Where nothing differs, nothing is written.
        """
        records = {clip: record for clip, record in records.items() if self.clips.get(clip) != record}
        unreadable = {clip: why for clip, why in unreadable.items() if self.unreadable.get(clip) != why}
        if records or unreadable:
            with _explaining(self.path), self._lock, self._connection:  # commits, or takes all back
                _enter(self._connection, records, unreadable)

    def select(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """Raises:
        StoreError: the index is missing or damaged, or cannot be read.
        """
        if self._process != os.getpid():  # a connection must not be used on both sides of a fork
            self._connect()
        with _explaining(self.path), self._lock:
            return self._connection.execute(query, values).fetchall()

    def _connect(self) -> None:
        if not self.path.is_file():
            raise StoreError(_damage(self.path, "there is no such file"))
        self._process, self._lock = os.getpid(), threading.Lock()
        # `rw` does not create the file, takes back what a killed process left half done, and reads files
        # that may not be written.
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        with _explaining(self.path):
            self._connection = sqlite3.connect(address, uri=True, timeout=60, check_same_thread=False)
        weakref.finalize(self, self._connection.close)


class _Table(Mapping[str, T]):
    """A table of the index as a mapping from clip ids."""

    def __init__(self, index: ClipIndex, name: str, columns: str, make: Callable[..., T]) -> None:
        self._index, self._name, self._columns, self._make = index, name, columns, make

    def __getitem__(self, clip_id: str) -> T:
        found = self._index.select(
            f"select {self._columns} from {self._name} where id = ?", (_encode(clip_id),)
        )
        if not found:
            raise KeyError(clip_id)
        return self._make(*found[0])

    def __iter__(self) -> Iterator[str]:
        place = 0
        while found := self._index.select(
            f"select place, id from {self._name} where place > ? order by place limit {_IDS_AT_ONCE}",
            (place,),
        ):
            yield from (_decode(clip_id) for _, clip_id in found)
            place = found[-1][0]

    def __len__(self) -> int:
        return int(self._index.select(f"select count(*) from {self._name}")[0][0])


def write_index(folder: Path, records: Mapping[str, ClipRecord], unreadable: Mapping[str, str]) -> ClipIndex:
    """A new index of a folder; the file appears whole or not at all, and takes the place of another."""
    path = folder / INDEX_FILE
    # A change to the file that is replaced, half done when its process was killed: not one to this file.
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    with replacing(path) as temporary:
        temporary.unlink(missing_ok=True)
        with _explaining(path), closing(sqlite3.connect(temporary)) as connection:
            connection.execute("pragma journal_mode = memory")  # no second file beside the temporary one
            connection.executescript(_SCHEMA)
            with connection:
                _enter(connection, records, unreadable)
    return ClipIndex(path)


def _enter(
    connection: sqlite3.Connection, records: Mapping[str, ClipRecord], unreadable: Mapping[str, str]
) -> None:
    """A clip is in one table only."""
    connection.executemany(
        "insert into clips (id, frames, size, mtime_ns) values (?, ?, ?, ?) on conflict (id) do update set "
        "frames = excluded.frames, size = excluded.size, mtime_ns = excluded.mtime_ns",
        ((_encode(clip), *astuple(record)) for clip, record in records.items()),
    )
    connection.executemany("delete from unreadable where id = ?", ((_encode(clip),) for clip in records))
    connection.executemany(
        "insert into unreadable (id, reason) values (?, ?) "
        "on conflict (id) do update set reason = excluded.reason",
        ((_encode(clip), _encode(reason)) for clip, reason in unreadable.items()),
    )
    connection.executemany("delete from clips where id = ?", ((_encode(clip),) for clip in unreadable))


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """SQLite's errors, with the file and what to do."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        raise StoreError(
            _damage(path, str(error))
            if code in _DAMAGED
            else f"{path}: it cannot be used just now ({error}). See to the disk, its space and permissions, "
            "and whether another process has the file; then run the same command again."
        ) from error


def _damage(path: Path, what: str) -> str:
    return (
        f"{path}: the index of these features is missing or damaged ({what}). "
        f"Delete {path.with_name(MANIFEST_FILE)} and run 'ctsan features' again: what is in the folder "
        "will be found."
    )


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decode(content: bytes) -> str:
    return content.decode(errors="surrogatepass")
