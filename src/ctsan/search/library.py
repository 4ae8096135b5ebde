"""On-disk store of a library: records in SQLite, one row per shot in memory-mapped arrays.

    STORE/NAME/library.sqlite      files, contents, shots, and the runs that the library was indexed with
    STORE/NAME/numbers-0/*.npy     the arrays of `encodings.py`; the number is the generation
    STORE/NAME/index-7.faiss       FAISS index of a large library, for one revision; see ann_index.py

Contents are keyed by the SHA-256 digest of the file, so renamed and copied files are not decoded again. Array
rows are written before the records that refer to them. A killed process therefore leaves a consistent store:
rows without a record are overwritten by the next write.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ctsan.errors import StoreError, did_you_mean
from ctsan.io.sqlite import store_errors
from ctsan.search.growable_array import read_rows, write_rows
from ctsan.video.shots import Shot

VERSION = 1
ShotArrays = Mapping[str, NDArray[np.generic]]  # by array name; one row per shot

_FILE = "library.sqlite"
_MAX_UNUSED = 0.25  # share of unused rows above which the arrays are rewritten
_CHUNK_ROWS = 4096
_LEGACY_ENCODINGS = "[0-9]*.npy"  # such as 2.hidden.npy
_SCHEMA = """
create table about (name text primary key, value text not null);
create table contents (id integer primary key, digest text unique not null, error text);
create table shots (
    row integer primary key, content integer not null, starts real not null, ends real not null
);
create index shots_of_content on shots (content);
create table files (
    path blob primary key, size integer not null, mtime_ns integer not null, content integer not null
);
create index files_of_content on files (content);
"""


@dataclass(frozen=True, slots=True)
class FileRecord:
    path: Path
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class ShotLocation:
    """Where a shot is. If several files have the same content, `file` is the first by name."""

    row: int
    file: Path
    shot: Shot


@dataclass(frozen=True, slots=True)
class RunFingerprint:
    """A run that a library was indexed with; `weights` tells whether it has been trained further since."""

    folder: str
    task: str
    weights: str  # digest


class Library:
    """Opens a library for reading. `open_for_writing` opens or creates one for writing.

    Raises:
        StoreError: there is no such library, or it is damaged or of another version.
    """

    def __init__(self, folder: Path) -> None:
        if not is_library(folder):
            others = [path.name for path in folder.parent.glob("*") if is_library(path)]
            hint = did_you_mean(folder.name, others) or (f"There are {', '.join(others)}. " if others else "")
            raise StoreError(
                f"{folder}: there is no such library. {hint}Make it: ctsan index FOLDER --library "
                f"{folder.name} --store {folder.parent}"
            )
        self.folder = folder
        with _store_errors(folder):
            self._database = sqlite3.connect(folder / _FILE, timeout=60)
        self._check_version()

    def _check_version(self) -> None:
        [(version,)] = self._query("pragma user_version")
        if version != VERSION:
            raise StoreError(
                f"{self.folder / _FILE}: the library has version {version}, and this ctsan reads version "
                f"{VERSION}. Use the ctsan that made it, or delete {self.folder} and index again."
            )

    def close(self) -> None:
        self._database.close()

    def begin_snapshot(self) -> None:
        """Begin a read transaction: later reads see one state, whatever other processes write."""
        with _store_errors(self.folder):
            self._database.execute("begin")

    def end_snapshot(self) -> None:
        with _store_errors(self.folder):
            self._database.rollback()

    # Reading

    @property
    def revision(self) -> int:
        """Incremented by every write."""
        return int(self._get("revision"))

    @property
    def generation(self) -> int:
        """Of the arrays. Within a generation, a row never moves and is never reused for another shot."""
        return int(self._get("generation"))

    @property
    def runs(self) -> list[RunFingerprint]:
        return [RunFingerprint(**run) for run in json.loads(self._get("runs"))]

    def matches_runs(self, runs: Sequence[RunFingerprint], words: Sequence[str]) -> bool:
        """Whether the library was indexed with these runs, with the weights that they have now.

        Older versions of ctsan also stored clip encodings, and listed more runs. Such a library can still be
        used if its joint embeddings and concept words are the same. Its old shots keep the concept words of
        all its runs with a detector; new shots get those of the given runs.
        """
        stored = [(run.task, run.weights) for run in self.runs]
        given = [(run.task, run.weights) for run in runs]
        if not any(self._array_folder().glob(_LEGACY_ENCODINGS)):
            return given == stored
        stored_embed = [run for run in stored if run[0] == "embed"]
        given_embed = [run for run in given if run[0] == "embed"]
        return stored_embed == given_embed and set(given) <= set(stored) and self.words == list(words)

    @property
    def words(self) -> list[str]:
        """The concept words; the `concepts` array holds positions in this list."""
        words: list[str] = json.loads(self._get("words"))
        return words

    @property
    def index_file(self) -> Path:
        """Path of the FAISS index of the current revision, whether or not it exists."""
        return self.folder / f"index-{self.revision}.faiss"

    def files(self) -> dict[Path, FileRecord]:
        records = self._query("select path, size, mtime_ns from files order by path")
        return {
            path: FileRecord(path, size, mtime) for name, size, mtime in records for path in [_path(name)]
        }

    def errors(self) -> dict[Path, str]:
        """Files that cannot be read, with the reason."""
        records = self._query(
            "select path, error from files join contents on contents.id = content "
            "where error is not null order by path"
        )
        return {_path(name): error for name, error in records}

    def copies(self) -> list[Path]:
        """Files that have the same content as another file."""
        records = self._query(
            "select path from files where content in "
            "(select content from files group by content having count(*) > 1) order by path"
        )
        return [_path(name) for (name,) in records]

    def rows(self) -> NDArray[np.int64]:
        """The rows in use, in ascending order."""
        records = self._query("select row from shots order by row")
        return np.array(records, dtype=np.int64).reshape(-1)

    def array(self, name: str) -> NDArray[np.generic]:
        """Memory-map an array. Only the rows in `rows` are valid. The mapping survives a rewrite."""
        return read_rows(self._array_folder() / f"{name}.npy", self._next_row())

    def locate(self, rows: Sequence[int]) -> list[ShotLocation]:
        """Files and times of the shots in the given rows. Rows that no file refers to are left out."""
        locations = []
        for row in rows:
            [(start, end, name)] = self._query(
                "select starts, ends, min(path) from shots join files using (content) where row = ?", (row,)
            )
            if name is not None:
                locations.append(ShotLocation(row, _path(name), Shot(start, end)))
        return locations

    def row_of(self, file: Path, shot: Shot) -> int | None:
        """The row of a shot of a file; None if the library no longer has it."""
        records = self._query(
            "select row from shots join files using (content) where path = ? and starts = ? and ends = ?",
            (_name(file), shot.start, shot.end),
        )
        return int(records[0][0]) if records else None

    def has_content(self, digest: str) -> bool:
        return self._content_id(digest) is not None

    # Writing

    def link(self, file: FileRecord, digest: str) -> None:
        """Record a file whose content is already in the library."""
        content_id = self._content_id(digest)
        assert content_id is not None
        with self._transaction():
            self._link(file, content_id)

    def add(
        self,
        file: FileRecord,
        digest: str,
        shots: Sequence[Shot],
        arrays: ShotArrays,
        error: str | None = None,
    ) -> None:
        """Record a file with new content: either shots with one array row each, or the error.

        Args:
            error: why the file cannot be read; then there are no shots.
        """
        first = self._next_row()
        for name, rows in arrays.items():
            write_rows(self._array_folder() / f"{name}.npy", first, rows)
        with self._transaction():
            content_id = self._database.execute(
                "insert into contents (digest, error) values (?, ?)", (digest, error)
            ).lastrowid
            assert content_id is not None
            self._database.executemany(
                "insert into shots values (?, ?, ?, ?)",
                [(row, content_id, shot.start, shot.end) for row, shot in enumerate(shots, start=first)],
            )
            self._set("next_row", first + len(shots))
            self._link(file, content_id)

    def drop(self, files: Sequence[Path]) -> None:
        """Remove files, and every content that no file refers to any more."""
        unreferenced = "from contents where id not in (select content from files)"
        if not files and not self._query(f"select 1 {unreferenced} limit 1"):
            return
        with self._transaction():
            self._database.executemany("delete from files where path = ?", [(_name(path),) for path in files])
            self._database.execute(f"delete from shots where content in (select id {unreferenced})")
            self._database.execute(f"delete {unreferenced}")

    def remove_legacy_encodings(self, runs: Sequence[RunFingerprint]) -> None:
        """Remove the clip encodings of an older ctsan, and the runs that were listed only for them."""
        if files := list(self._array_folder().glob(_LEGACY_ENCODINGS)):
            with self._transaction():
                self._set("runs", _to_json(runs))
            for file in files:
                file.unlink()

    def compact(self) -> None:
        """Rewrite the arrays if too many rows are unused, and remove old arrays and indexes."""
        rows, count = self.rows(), self._next_row()
        if count and (count - len(rows)) / count > _MAX_UNUSED:
            self._rewrite(rows)
        current = {self._array_folder().name, self.index_file.name}
        for path in [*self.folder.glob("numbers-*"), *self.folder.glob("index-*.faiss")]:
            if path.name not in current:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _rewrite(self, rows: NDArray[np.int64]) -> None:
        old, generation = self._array_folder(), self.generation + 1
        new = self.folder / f"numbers-{generation}"
        shutil.rmtree(new, ignore_errors=True)  # left by a killed process
        new.mkdir()
        for file in sorted(old.glob("*.npy")):
            array = read_rows(file, self._next_row())
            for start in range(0, max(len(rows), 1), _CHUNK_ROWS):
                write_rows(new / file.name, start, array[rows[start : start + _CHUNK_ROWS]])
        with self._transaction():
            # Rows only move down, and are updated in ascending order, so no update hits an occupied row.
            moves = [(new_row, int(row)) for new_row, row in enumerate(rows) if new_row != row]
            self._database.executemany("update shots set row = ? where row = ?", moves)
            self._set("generation", generation)
            self._set("next_row", len(rows))

    def _link(self, file: FileRecord, content_id: int) -> None:
        self._database.execute(
            "insert or replace into files values (?, ?, ?, ?)",
            (_name(file.path), file.size, file.mtime_ns, content_id),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _store_errors(self.folder), self._database:  # commits, or rolls back on an exception
            yield
            self._set("revision", self.revision + 1)

    def _content_id(self, digest: str) -> int | None:
        records = self._query("select id from contents where digest = ?", (digest,))
        return int(records[0][0]) if records else None

    def _array_folder(self) -> Path:
        return self.folder / f"numbers-{self.generation}"

    def _next_row(self) -> int:
        return int(self._get("next_row"))

    def _get(self, name: str) -> str:
        records = self._query("select value from about where name = ?", (name,))
        if not records:
            raise StoreError(_damage(self.folder, f"it has no {name!r}"))
        return str(records[0][0])

    def _set(self, name: str, value: object) -> None:
        self._database.execute("insert or replace into about values (?, ?)", (name, str(value)))

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Raises:
        StoreError: the database is damaged, or cannot be read.
        """
        with _store_errors(self.folder):
            return self._database.execute(sql, values).fetchall()


def is_library(folder: Path) -> bool:
    """Whether the folder holds a library. A process killed early may have left an empty folder."""
    return (folder / _FILE).is_file()


@contextmanager
def open_for_writing(
    folder: Path, *, runs: Sequence[RunFingerprint], words: Sequence[str]
) -> Iterator[Library]:
    """Open a library under an exclusive lock; create it if there is none.

    Raises:
        StoreError: it was indexed with other runs, another process is writing it, or it cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            if not is_library(folder):
                _create(folder, runs, words)
            with closing(Library(folder)) as library:
                _check_runs(library, runs, words)
                library.remove_legacy_encodings(runs)
                yield library
                library.compact()
    except Timeout:
        raise StoreError(f"{folder}: another ctsan is indexing. Wait for that one, or stop it.") from None


def _create(folder: Path, runs: Sequence[RunFingerprint], words: Sequence[str]) -> None:
    """Create the database under a temporary name and rename it, so that it is never incomplete."""
    temporary = folder / f".{_FILE}.tmp"
    for leftover in folder.glob(f"{temporary.name}*"):
        leftover.unlink()
    (folder / "numbers-0").mkdir(exist_ok=True)
    with closing(sqlite3.connect(temporary)) as database:
        database.executescript(_SCHEMA)
        about = {
            "generation": "0",
            "revision": "0",
            "next_row": "0",
            "runs": _to_json(runs),
            "words": json.dumps(list(words), ensure_ascii=False),
        }
        with database:
            database.executemany("insert into about values (?, ?)", about.items())
        database.execute(f"pragma user_version = {VERSION}")
        database.execute("pragma journal_mode = wal")  # readers and the writer do not block each other
    temporary.replace(folder / _FILE)


def _to_json(runs: Sequence[RunFingerprint]) -> str:
    return json.dumps([{"folder": run.folder, "task": run.task, "weights": run.weights} for run in runs])


def _check_runs(library: Library, runs: Sequence[RunFingerprint], words: Sequence[str]) -> None:
    if not library.matches_runs(runs, words):
        stored = ", ".join(f"{run.folder} ({run.task})" for run in library.runs)
        raise StoreError(
            f"{library.folder}: this library was indexed with other runs: {stored}. Name those with --model, "
            f"choose another --library, or delete {library.folder} to start over."
        )


def _store_errors(folder: Path) -> AbstractContextManager[None]:
    return store_errors(folder / _FILE, partial(_damage, folder))


def _damage(folder: Path, what: str) -> str:
    return f"{folder / _FILE}: it is damaged ({what}). Delete {folder} and index again."


def _name(path: Path) -> bytes:
    """Paths are stored as bytes, because file names need not be valid text."""
    return os.fsencode(path)


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(name))
