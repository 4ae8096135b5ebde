"""The store of a library: records in SQLite, numbers in memory-mapped arrays.

    STORE/NAME/library.sqlite      files, what they hold, shots, and which runs looked at them
    STORE/NAME/numbers-0/*.npy     one array for each kind of number, a row for each shot
    STORE/NAME/index-7.faiss       over the vectors, for large libraries; see nearest.py

What a file holds goes by the digest of its bytes, so a file that was renamed or copied is known. Numbers are
written before the records that speak of them: whenever a process is killed, the store is whole, and rows that
no record speaks of are overwritten by the next ones.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ctsan.errors import StoreError, did_you_mean
from ctsan.search.growable_array import read_rows, write_rows
from ctsan.video.shots import Shot

VERSION = 1
Numbers = Mapping[str, NDArray[np.generic]]  # by kind, a row for each shot

_FILE = "library.sqlite"
_HOLES = 0.25  # the share of rows that nothing speaks of, from which on arrays are written anew
_ROWS_AT_ONCE = 4096
_ENCODINGS = "[0-9]*.npy"  # such as 2.hidden.npy
_DAMAGED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
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
class Place:
    """Where a shot is: the first, by name, of the files that hold it."""

    row: int
    file: Path
    shot: Shot


@dataclass(frozen=True, slots=True)
class RunMark:
    """A run that looked at the clips of a library, as it was then."""

    folder: str
    task: str
    weights: str  # digest


class Library:
    """Open a library to read it; `changing` opens or creates one to change it."""

    def __init__(self, folder: Path) -> None:
        if not is_library(folder):
            others = [each.name for each in folder.parent.glob("*") if is_library(each)]
            hint = did_you_mean(folder.name, others) or (f"There are {', '.join(others)}. " if others else "")
            raise StoreError(
                f"{folder}: there is no such library. {hint}Make it: ctsan index FOLDER --library "
                f"{folder.name} --store {folder.parent}"
            )
        self.folder = folder
        with _explaining(folder):
            self._records = sqlite3.connect(folder / _FILE, timeout=60)
        self._check()

    def _check(self) -> None:
        [(version,)] = self._read("pragma user_version")
        if version != VERSION:
            raise StoreError(
                f"{self.folder / _FILE}: a library of version {version}, and this ctsan has version "
                f"{VERSION}. Use the ctsan that made it, or delete {self.folder} and index again."
            )

    def close(self) -> None:
        self._records.close()

    def hold(self) -> None:
        """From now on, read the records as they are at the next look, whatever other processes change."""
        with _explaining(self.folder):
            self._records.execute("begin")

    def release(self) -> None:
        with _explaining(self.folder):
            self._records.rollback()

    # What is there.

    @property
    def revision(self) -> int:
        """Another one whenever something has changed."""
        return int(self._about("revision"))

    @property
    def generation(self) -> int:
        """Of the arrays. Within one a row never moves, and is never given to another shot."""
        return int(self._about("generation"))

    @property
    def runs(self) -> list[RunMark]:
        return [RunMark(**run) for run in json.loads(self._about("runs"))]

    def is_made_by(self, runs: Sequence[RunMark], words: Sequence[str]) -> bool:
        """Whether these runs looked at the clips, with the weights that they have now.

        A library of an older ctsan, which kept clip encodings, names further runs. It may be gone on with if
        its joint embeddings and concept words are the same: its older shots have concept words by all of its
        runs with a detector, its newer ones by those that are given.
        """
        stored = [(run.task, run.weights) for run in self.runs]
        given = [(run.task, run.weights) for run in runs]
        if not any(self._numbers().glob(_ENCODINGS)):
            return given == stored
        embedding = [[mark for mark in marks if mark[0] == "embed"] for marks in (stored, given)]
        return embedding[0] == embedding[1] and set(given) <= set(stored) and self.words == list(words)

    @property
    def words(self) -> list[str]:
        """The concept words that clips are said to show, by their numbers."""
        words: list[str] = json.loads(self._about("words"))
        return words

    @property
    def index_file(self) -> Path:
        """Where an index of exactly what is there now would be."""
        return self.folder / f"index-{self.revision}.faiss"

    def files(self) -> dict[Path, FileRecord]:
        found = self._read("select path, size, mtime_ns from files order by path")
        return {path: FileRecord(path, size, mtime) for name, size, mtime in found for path in [_path(name)]}

    def errors(self) -> dict[Path, str]:
        """Files that cannot be read, and why."""
        found = self._read(
            "select path, error from files join contents on contents.id = content "
            "where error is not null order by path"
        )
        return {_path(name): error for name, error in found}

    def copies(self) -> list[Path]:
        """Files whose content another file holds too."""
        found = self._read(
            "select path from files where content in "
            "(select content from files group by content having count(*) > 1) order by path"
        )
        return [_path(name) for (name,) in found]

    def rows(self) -> NDArray[np.int64]:
        """The rows that count, in rising order."""
        found = self._read("select row from shots order by row")
        return np.array(found, dtype=np.int64).reshape(-1)

    def numbers(self, kind: str) -> NDArray[np.generic]:
        """An array, memory-mapped; only `rows` of it count. It can still be read when it was replaced."""
        return read_rows(self._numbers() / f"{kind}.npy", self._next_row())

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Where the shots in some rows are; rows that no file holds any more are left out."""
        found = []
        for row in rows:
            [(start, end, name)] = self._read(
                "select starts, ends, min(path) from shots join files using (content) where row = ?", (row,)
            )
            if name is not None:
                found.append(Place(row, _path(name), Shot(start, end)))
        return found

    def row_of(self, file: Path, shot: Shot) -> int | None:
        """The row of a shot of a file, if the library still has it."""
        found = self._read(
            "select row from shots join files using (content) where path = ? and starts = ? and ends = ?",
            (_name(file), shot.start, shot.end),
        )
        return int(found[0][0]) if found else None

    def has_content(self, digest: str) -> bool:
        return self._content(digest) is not None

    # What changes it.

    def link(self, file: FileRecord, digest: str) -> None:
        """Say what a file holds; that is known already."""
        content = self._content(digest)
        assert content is not None
        with self._changing():
            self._link(file, content)

    def add(
        self, file: FileRecord, digest: str, shots: Sequence[Shot], numbers: Numbers, error: str | None = None
    ) -> None:
        """A file with what it holds: shots with a row of numbers each, or why it cannot be read."""
        first = self._next_row()
        for kind, rows in numbers.items():
            write_rows(self._numbers() / f"{kind}.npy", first, rows)
        with self._changing():
            content = self._records.execute(
                "insert into contents (digest, error) values (?, ?)", (digest, error)
            ).lastrowid
            assert content is not None
            self._records.executemany(
                "insert into shots values (?, ?, ?, ?)",
                [(first + place, content, shot.start, shot.end) for place, shot in enumerate(shots)],
            )
            self._set("next_row", first + len(shots))
            self._link(file, content)

    def drop(self, files: Sequence[Path]) -> None:
        """Forget files, and what no other file holds, be it of these or of files that have changed."""
        unheld = "from contents where id not in (select content from files)"
        if not files and not self._read(f"select 1 {unheld} limit 1"):
            return
        with self._changing():
            self._records.executemany("delete from files where path = ?", [(_name(path),) for path in files])
            self._records.execute(f"delete from shots where content in (select id {unheld})")
            self._records.execute(f"delete {unheld}")

    def forget_encodings(self, runs: Sequence[RunMark]) -> None:
        """Remove the clip encodings that an older ctsan kept, and the runs that had no other part in it."""
        if encodings := list(self._numbers().glob(_ENCODINGS)):
            with self._changing():
                self._set("runs", _listed(runs))
            for file in encodings:
                file.unlink()

    def tidy(self) -> None:
        """Write the arrays anew where too many rows are of files that are gone, and remove leftovers."""
        rows, count = self.rows(), self._next_row()
        if count and (count - len(rows)) / count > _HOLES:
            self._rewrite(rows)
        kept = {self._numbers().name, self.index_file.name}
        for other in [*self.folder.glob("numbers-*"), *self.folder.glob("index-*.faiss")]:
            if other.name not in kept:
                shutil.rmtree(other) if other.is_dir() else other.unlink()

    def _rewrite(self, rows: NDArray[np.int64]) -> None:
        old, generation = self._numbers(), self.generation + 1
        new = self.folder / f"numbers-{generation}"
        shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
        new.mkdir()
        for file in sorted(old.glob("*.npy")):
            numbers = read_rows(file, self._next_row())
            for start in range(0, max(len(rows), 1), _ROWS_AT_ONCE):
                write_rows(new / file.name, start, numbers[rows[start : start + _ROWS_AT_ONCE]])
        with self._changing():
            # Rows only ever move down, in rising order, so none takes the place of one that has not moved.
            moves = [(place, int(row)) for place, row in enumerate(rows) if place != row]
            self._records.executemany("update shots set row = ? where row = ?", moves)
            self._set("generation", generation)
            self._set("next_row", len(rows))

    def _link(self, file: FileRecord, content: int) -> None:
        self._records.execute(
            "insert or replace into files values (?, ?, ?, ?)",
            (_name(file.path), file.size, file.mtime_ns, content),
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with _explaining(self.folder), self._records:  # commits, or takes all back
            yield
            self._set("revision", self.revision + 1)

    def _content(self, digest: str) -> int | None:
        found = self._read("select id from contents where digest = ?", (digest,))
        return int(found[0][0]) if found else None

    def _numbers(self) -> Path:
        return self.folder / f"numbers-{self.generation}"

    def _next_row(self) -> int:
        return int(self._about("next_row"))

    def _about(self, name: str) -> str:
        found = self._read("select value from about where name = ?", (name,))
        if not found:
            raise StoreError(_damage(self.folder, f"it has no {name!r}"))
        return str(found[0][0])

    def _read(self, question: str, values: Sequence[object] = ()) -> list[Any]:
        """Raises: StoreError: the records are damaged, or cannot be read."""
        with _explaining(self.folder):
            return self._records.execute(question, values).fetchall()

    def _set(self, name: str, value: object) -> None:
        self._records.execute("insert or replace into about values (?, ?)", (name, str(value)))


def is_library(folder: Path) -> bool:
    """Whether a library was made there; a process that was killed early may have left only the folder."""
    return (folder / _FILE).is_file()


@contextmanager
def changing(folder: Path, *, runs: Sequence[RunMark], words: Sequence[str]) -> Iterator[Library]:
    """Open a library to change it, alone; it is made if there is none.

    Raises:
        StoreError: other runs looked at its clips, another process is changing it, or it cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            if not is_library(folder):
                _create(folder, runs, words)
            with closing(Library(folder)) as library:
                _check_runs(library, runs, words)
                library.forget_encodings(runs)
                yield library
                library.tidy()
    except Timeout:
        raise StoreError(f"{folder}: another ctsan is indexing. Wait for that one, or stop it.") from None


def _create(folder: Path, runs: Sequence[RunMark], words: Sequence[str]) -> None:
    """The file appears whole or not at all."""
    temporary = folder / f".{_FILE}.tmp"
    for left in folder.glob(f"{temporary.name}*"):
        left.unlink()
    (folder / "numbers-0").mkdir(exist_ok=True)
    with closing(sqlite3.connect(temporary)) as records:
        records.executescript(_SCHEMA)
        about = {
            "generation": "0",
            "revision": "0",
            "next_row": "0",
            "runs": _listed(runs),
            "words": json.dumps(list(words), ensure_ascii=False),
        }
        with records:
            records.executemany("insert into about values (?, ?)", about.items())
        records.execute(f"pragma user_version = {VERSION}")
        records.execute("pragma journal_mode = wal")  # readers and the one writer do not wait for each other
    temporary.replace(folder / _FILE)


def _listed(runs: Sequence[RunMark]) -> str:
    return json.dumps([{"folder": run.folder, "task": run.task, "weights": run.weights} for run in runs])


def _check_runs(library: Library, runs: Sequence[RunMark], words: Sequence[str]) -> None:
    if not library.is_made_by(runs, words):
        made = ", ".join(f"{run.folder} ({run.task})" for run in library.runs)
        raise StoreError(
            f"{library.folder}: the clips of this library were looked at by other runs: {made}. Name those "
            f"with --model, or another --library; or delete {library.folder} to begin anew."
        )


@contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    """SQLite's errors, with the file and what to do."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        raise StoreError(
            _damage(folder, str(error))
            if code in _DAMAGED
            else f"{folder / _FILE}: it cannot be used just now ({error}). See to the disk, its space and "
            "permissions, and whether another process has the file."
        ) from error


def _damage(folder: Path, what: str) -> str:
    return f"{folder / _FILE}: it is damaged ({what}). Delete {folder} and index again."


def _name(path: Path) -> bytes:
    """File names need not be text."""
    return os.fsencode(path)


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(name))
