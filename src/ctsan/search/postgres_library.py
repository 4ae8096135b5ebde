"""Read a library in PostgreSQL: see `store.py` for what it offers, `postgres_schema.py` for the tables.

Files belong to a machine: a path is that of the host which indexed it. Contents belong to all, so that what
one machine has encoded no other encodes again. Rows are the ids of shots, and never used for another shot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctsan.errors import StoreError
from ctsan.search.library_format import (
    FileRecord,
    RunFingerprint,
    ShotLocation,
    is_run,
    path_to_bytes,
)
from ctsan.search.postgres_address import PostgresAddress, host_label
from ctsan.search.postgres_schema import Connection
from ctsan.search.postgres_shots import PostgresShots
from ctsan.search.store import LibraryStore, Shots
from ctsan.video.shots import Shot

_OF_FILES = "from files join contents on contents.id = content where host = %s and"


class PostgresLibrary(LibraryStore):
    """Opens a library for reading.

    Raises:
        StoreError: the server cannot be reached, or has no such library.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self.address, self.host = address, host_label()
        self.connection = Connection(address)
        try:
            self.connection.use_library()
        except BaseException:
            self.connection.close()
            raise

    @property
    def label(self) -> str:
        return str(self.address)

    @property
    def how_to_delete(self) -> str:
        return self.connection.how_to_delete

    def damaged(self, what: str) -> StoreError:
        return self.connection.damage(what)

    def close(self) -> None:
        self.connection.close()

    def begin_snapshot(self) -> None:
        self.connection.ready()
        try:
            self._query("begin isolation level repeatable read, read only")
        except StoreError:  # lost since the last query, perhaps because the server was restarted
            self.connection.close()
            self.connection.ready()
            self._query("begin isolation level repeatable read, read only")

    def end_snapshot(self) -> None:
        if not self.connection.is_closed:
            self._query("rollback")

    @property
    def revision(self) -> int:
        [(revision,)] = self._query("select coalesce(sum(number), 0)::bigint from revisions")
        return int(revision)

    def shots(self, dim: int, previous: Shots | None) -> PostgresShots:
        revision = self.revision
        if isinstance(previous, PostgresShots) and previous.revision == revision:
            return previous
        if self._about("dim") != str(dim):
            raise self.damaged("it has vectors of another size than those of these runs")
        [(count,)] = self._query("select count(*) from shots")
        return PostgresShots(self.connection, self.words, revision=revision, count=count)

    @property
    def runs(self) -> list[RunFingerprint]:
        runs = self._about_list("runs")
        if not all(is_run(run) for run in runs):
            raise self.damaged("the runs that it lists are none")
        return [RunFingerprint(**run) for run in runs]

    @property
    def words(self) -> list[str]:
        words = self._about_list("words")
        if not all(isinstance(word, str) for word in words):
            raise self.damaged("its concept words are none")
        return words

    def files(self) -> dict[Path, FileRecord]:
        records = self._query(
            "select path, size, mtime_ns from files where host = %s order by path", (self.host,)
        )
        return {
            path: FileRecord(path, size, mtime) for name, size, mtime in records for path in [_path(name)]
        }

    def errors(self) -> dict[Path, str]:
        records = self._query(f"select path, error {_OF_FILES} error is not null order by path", (self.host,))
        return {_path(name): error.decode(errors="surrogateescape") for name, error in records}

    def unread_files(self, reader: str) -> list[Path]:
        return self._paths(
            f"select path {_OF_FILES} error is not null and reader is distinct from %s order by path", reader
        )

    def lost_files(self) -> list[Path]:
        """None: PostgreSQL checks its pages itself, and refuses to read those that are damaged."""
        return []

    def incomplete_files(self) -> list[Path]:
        return self._paths(f"select path {_OF_FILES} error is null and not has_details order by path")

    def copies(self) -> list[Path]:
        return self._paths(
            "select path from files where host = %s and content in "
            "(select content from files where host = %s group by content having count(*) > 1) order by path",
            self.host,
        )

    def mounts(self) -> list[Path]:
        return self._paths("select path from mounts where host = %s order by path")

    def num_shots(self) -> int:
        [(count,)] = self._query(
            "select count(*) from shots where content in (select content from files where host = %s)",
            (self.host,),
        )
        return int(count)

    def has_content(self, digest: str, reader: str | None = None) -> bool:
        records = self._query("select error, reader, has_details from contents where digest = %s", (digest,))
        return any(
            reader is None or (has_details if error is None else reader == stored)
            for error, stored, has_details in records
        )

    def has_shots(self, digest: str) -> bool:
        return bool(self._query("select 1 from contents where digest = %s and error is null", (digest,)))

    def locate(self, rows: Sequence[int]) -> list[ShotLocation]:
        """A file of this machine, if one has the content."""
        records = self._query(
            "select id, starts, ends, host, path, sizes, dates from shots cross join lateral (select host, "
            "min(path) as path, array_agg(size) as sizes, array_agg(mtime_ns) as dates from files "
            "where files.content = shots.content group by host order by host <> %s, host limit 1) as place "
            "where id = any(%s)",
            (self.host, list(map(int, rows))),
        )
        found = {
            row: ShotLocation(
                row,
                _path(name),
                Shot(start, end),
                frozenset(zip(sizes, dates, strict=True)),
                None if host == self.host else host,
            )
            for row, start, end, host, name, sizes, dates in records
        }
        return [found[row] for row in map(int, rows) if row in found]

    def row_of(self, file: Path, shot: Shot, host: str | None = None) -> int | None:
        records = self._query(
            "select id from shots join files using (content) "
            "where host = %s and sha256(path) = sha256(%s) and starts = %s and ends = %s",
            (host or self.host, path_to_bytes(file), float(shot.start), float(shot.end)),
        )
        return int(records[0][0]) if records else None

    def shots_of(self, file: Path, host: str | None = None) -> list[ShotLocation]:
        records = self._query(
            "select id from shots join files using (content) "
            "where host = %s and sha256(path) = sha256(%s) order by starts",
            (host or self.host, path_to_bytes(file)),
        )
        locations = self.locate([row for (row,) in records])
        return [replace(location, file=file, host=host) for location in locations]

    def captions(self, rows: Sequence[int]) -> dict[int, str]:
        records = self._query(
            "select shot, caption from details where shot = any(%s) and caption is not null",
            (list(map(int, rows)),),
        )
        return dict(records)

    def thumbnail(self, row: int) -> bytes | None:
        records = self._query("select thumbnail from details where shot = %s", (int(row),))
        return records[0][0] if records else None

    def _paths(self, sql: str, *values: object) -> list[Path]:
        return [_path(name) for (name,) in self._query(sql, (self.host, *values))]

    def _about(self, name: str) -> str:
        records = self._query("select value from about where name = %s", (name,))
        if not records:
            raise self.damaged(f"it has no {name!r}")
        return str(records[0][0])

    def _about_list(self, name: str) -> list[Any]:
        try:
            values = json.loads(self._about(name))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list):
            raise self.damaged(f"its {name!r} is no list")
        return values

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        return self.connection.query(sql, values)


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(name))
