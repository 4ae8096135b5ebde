"""The index of a feature store: one row per clip, in one SQLite file.

Opening it reads only its first pages, and an update writes only the pages that change, however many clips
there are. An update is one transaction, so a killed process leaves all of it or nothing. The same updates in
the same order give the same bytes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ctsan.errors import StoreError
from ctsan.io.atomic import replacing
from ctsan.io.sqlite import open_file, store_errors

MANIFEST_FILE, INDEX_FILE = "manifest.json", "index.sqlite"

T = TypeVar("T")
Made = TypeVar("Made")

_IDS_PER_QUERY = 10_000
# An id is a blob, because a file name need not be valid text.
_SCHEMA = """
create table clips (
    place integer primary key, id blob unique not null,
    frames integer not null, size integer not null, mtime_ns integer not null
);
create table unreadable (place integer primary key, id blob unique not null, reason blob not null);
"""


@dataclass(frozen=True, slots=True)
class ClipRecord:
    """A clip in the index; size and modification time of its source file detect changes cheaply."""

    frames: int
    size: int
    mtime_ns: int


class ClipIndex:
    """The clips of a store and the unreadable ones with their errors, queried from disk.

    It can be shared by threads, and inherited by a forked process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connect()
        for table in ("clips", "unreadable"):  # raise now if the file is not an index
            self.select(f"select id from {table} limit 1")

    def __reduce__(self) -> tuple[type[ClipIndex], tuple[Path]]:
        return ClipIndex, (self.path,)

    @property
    def clips(self) -> Mapping[str, ClipRecord]:
        return _Table(self, "clips", "frames, size, mtime_ns", _record)

    @property
    def unreadable(self) -> Mapping[str, str]:
        return _Table(self, "unreadable", "reason", _decode)

    def update(self, records: Mapping[str, ClipRecord], unreadable: Mapping[str, str]) -> None:
        """Insert or replace readable and unreadable clips in one transaction; other clips do not change.

        A clip keeps its position in the order. Nothing is written if nothing differs.
        """
        records = {clip: record for clip, record in records.items() if self.clips.get(clip) != record}
        unreadable = {
            clip: reason for clip, reason in unreadable.items() if self.unreadable.get(clip) != reason
        }
        if records or unreadable:
            with _translated_errors(self.path), self._lock, self._connection:  # commits, or rolls back
                _upsert(self._connection, records, unreadable)

    def select(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows of a query.

        Raises:
            StoreError: the index is missing or damaged, or cannot be read.
        """
        if self._process != os.getpid():  # a connection must not be used across a fork
            self._connect()
        with _translated_errors(self.path), self._lock:
            return self._connection.execute(query, values).fetchall()

    def _connect(self) -> None:
        if not self.path.is_file():
            raise StoreError(_damage(self.path, "there is no such file"))
        self._process, self._lock = os.getpid(), threading.Lock()
        # Mode `rw` does not create the file, rolls back what a killed process left, and also opens read-only
        # files.
        with _translated_errors(self.path):
            self._connection = open_file(self.path, "mode=rw", check_same_thread=False)
            weakref.finalize(self, self._connection.close)


class _Table(Mapping[str, T]):
    """A table of the index as a mapping from clip ids."""

    def __init__(self, index: ClipIndex, name: str, columns: str, make: Callable[..., T]) -> None:
        self._index, self._name, self._columns, self._make = index, name, columns, make

    def __getitem__(self, clip_id: str) -> T:
        rows = self._index.select(
            f"select {self._columns} from {self._name} where id = ?", (_encode(clip_id),)
        )
        if not rows:
            raise KeyError(clip_id)
        return self._converted(self._make, *rows[0])

    def __iter__(self) -> Iterator[str]:
        last_place = 0
        while rows := self._index.select(
            f"select place, id from {self._name} where place > ? order by place limit {_IDS_PER_QUERY}",
            (last_place,),
        ):
            yield from [self._converted(_decode, clip_id) for _, clip_id in rows]
            last_place = rows[-1][0]

    def __len__(self) -> int:
        return int(self._index.select(f"select count(*) from {self._name}")[0][0])

    def _converted(self, convert: Callable[..., Made], *values: object) -> Made:
        """A value of the mapping, from those of a row.

        Raises:
            StoreError: they have other types than `write_index` gave them.
        """
        try:
            return convert(*values)
        except (TypeError, ValueError) as error:
            raise StoreError(_damage(self._index.path, f"an entry of '{self._name}': {error}")) from error


def write_index(folder: Path, records: Mapping[str, ClipRecord], unreadable: Mapping[str, str]) -> ClipIndex:
    """Write a new index, atomically replacing that of the folder."""
    path = folder / INDEX_FILE
    # A journal that a killed process left belongs to the old file and must not be applied to the new one.
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    with replacing(path) as temporary:
        temporary.unlink(missing_ok=True)
        with _translated_errors(path), closing(sqlite3.connect(temporary)) as connection:
            connection.execute("pragma journal_mode = memory")  # no journal beside the temporary file
            connection.executescript(_SCHEMA)
            with connection:
                _upsert(connection, records, unreadable)
    return ClipIndex(path)


def _upsert(
    connection: sqlite3.Connection, records: Mapping[str, ClipRecord], unreadable: Mapping[str, str]
) -> None:
    """Insert or replace clips; a clip is in only one of the two tables."""
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


def _translated_errors(path: Path) -> AbstractContextManager[None]:
    return store_errors(path, partial(_damage, path))


def _damage(path: Path, what: str) -> str:
    return (
        f"{path}: the index of these features is missing or damaged ({what}). "
        f"Delete {path.with_name(MANIFEST_FILE)} and run 'ctsan features' again: it reuses the maps that are "
        "in the folder."
    )


def _record(frames: object, size: object, mtime_ns: object) -> ClipRecord:
    if not (isinstance(frames, int) and isinstance(size, int) and isinstance(mtime_ns, int)):
        raise TypeError("a number is missing")
    return ClipRecord(frames, size, mtime_ns)


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decode(content: object) -> str:
    if not isinstance(content, bytes):
        raise TypeError("a text is missing")
    return content.decode(errors="surrogatepass")
