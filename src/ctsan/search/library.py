"""Read a library: records in SQLite, one row per shot in memory-mapped arrays.

    STORE/NAME/library.sqlite      files, contents, shots, captions, thumbnails, and the runs of the library
    STORE/NAME/numbers-0/*.npy     the arrays of `encodings.py`; the number is the generation
    STORE/NAME/index-7.faiss       FAISS index of a large library, for one revision; see ann_index.py

Contents are keyed by the SHA-256 digest of the file, so renamed and copied files are not decoded again. Array
rows are written and synced before the records that refer to them. A killed process or a power loss therefore
leaves a consistent store: rows without a record are overwritten by the next write. Records hold a checksum of
the rows of each content, and of each caption with its thumbnail, so that what a disk has lost is found and
made again. `library_writer` writes; `library_format` lists the versions. Older ones are read as they are, and
upgraded by the next write.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import StoreError, did_you_mean
from ctsan.io.arrays import check_finite
from ctsan.io.reading import DamagedFileError
from ctsan.search.growable_array import read_rows
from ctsan.search.library_format import (
    ARRAY_KINDS,
    ARRAY_NAMES,
    ARRAY_NAMES_OF_VERSION_2,
    FILE,
    LEGACY_ENCODINGS,
    LOST,
    NO_READER,
    OLD_COLUMNS,
    VERSION,
    ContentRows,
    FileRecord,
    RunFingerprint,
    ShotArrays,
    ShotDetails,
    ShotLocation,
    arrays_checksum,
    damage,
    decode_text,
    folder_mode,
    index_command,
    is_run,
    path_to_bytes,
    read_errors,
    record_errors,
)
from ctsan.search.library_shots import LibraryShots
from ctsan.search.records import Records
from ctsan.search.store import LibraryStore, Shots
from ctsan.video.shots import Shot

_CHECKED_ROWS = 20_000  # libraries of more shots are checked in samples when they are opened for reading
_SAMPLED_ROWS = 256


class Library(LibraryStore):
    """Opens a library for reading. `library_opening.open_for_writing` opens or creates one for writing.

    Args:
        is_writer: whether the caller holds the lock for writing.

    Raises:
        StoreError: there is no such library, or it is damaged or of another version.
    """

    def __init__(self, folder: Path, *, is_writer: bool = False) -> None:
        if not is_library(folder):
            libraries = sorted(path.name for path in folder.parent.glob("*") if is_library(path))
            hint = did_you_mean(folder.name, libraries) or (
                f"There are {', '.join(libraries)}. " if libraries else ""
            )
            raise StoreError(
                f"{folder}: there is no such library. {hint}Make it: ctsan index FOLDER "
                + shlex.join(["--library", folder.name, "--store", str(folder.parent)])
            )
        self.folder = folder
        self._num_words: int | None = None
        with record_errors(folder), read_errors(folder):
            self._records = Records(folder / FILE, is_writer=is_writer)
        [(self.version,)] = self._query("pragma user_version")
        if not 1 <= self.version <= VERSION:
            raise StoreError(
                f"{self.folder / FILE}: the library has version {self.version}, and this ctsan reads "
                f"versions 1 to {VERSION}. Use the ctsan that made it, or delete {self.folder} and index "
                "again."
            )

    @property
    def _database(self) -> sqlite3.Connection:
        return self._records.connection

    @property
    def label(self) -> str:
        return str(self.folder)

    @property
    def how_to_delete(self) -> str:
        return f"delete {self.folder}"

    def damaged(self, what: str) -> StoreError:
        return StoreError(damage(self.folder, what))

    def close(self) -> None:
        self._records.close()

    def begin_snapshot(self) -> None:
        """Begin a read transaction: later reads see one state, whatever other processes write."""
        with record_errors(self.folder), read_errors(self.folder):
            self._records.refresh()
            self._database.execute("begin")

    def end_snapshot(self) -> None:
        with record_errors(self.folder):
            self._database.rollback()

    def shots(self, dim: int, previous: Shots | None) -> LibraryShots:
        revision, generation, file = self.revision, self.generation, self.index_file
        has_index, checked = file.exists(), 0
        if isinstance(previous, LibraryShots):
            is_same_generation = generation == previous.generation
            if revision == previous.revision or (
                previous.has_index and not has_index and is_same_generation
            ):  # the latter: indexing is in progress, and the old index answers until the new one is written
                return previous
            checked = previous.num_checked if is_same_generation else 0
        rows = self.rows()
        arrays: ShotArrays = {}
        if len(rows):
            arrays = self.arrays()
            if arrays["vectors"].shape[1] - dim not in (0, OLD_COLUMNS):
                raise self.array_damage("vectors", "it has other columns than vectors of these runs")
            self.check_arrays(arrays, checked)
        return LibraryShots(
            self, arrays, rows, file if has_index else None, dim=dim, revision=revision, generation=generation
        )

    @property
    def revision(self) -> int:
        """Incremented by every write."""
        return self._get_number("revision")

    @property
    def generation(self) -> int:
        """Of the arrays. Within a generation, a row never moves and is never reused for another shot."""
        return self._get_number("generation")

    @property
    def runs(self) -> list[RunFingerprint]:
        runs = self._get_list("runs")
        if not all(is_run(run) for run in runs):
            raise StoreError(damage(self.folder, "the runs that it lists are none"))
        return [RunFingerprint(**run) for run in runs]

    def matches_runs(self, runs: Sequence[RunFingerprint], words: Sequence[str]) -> bool:
        """See `LibraryStore`.

        Older versions of ctsan also stored clip encodings, and listed more runs. Such a library can still be
        used if its joint embeddings and concept words are the same. Its old shots keep the concept words of
        all its runs with a detector; new shots get those of the given runs.
        """
        stored = [(run.task, run.weights) for run in self.runs]
        current = [(run.task, run.weights) for run in runs]
        if not any(self._array_folder().glob(LEGACY_ENCODINGS)):
            return current == stored
        stored_embed = [run for run in stored if run[0] == "embed"]
        current_embed = [run for run in current if run[0] == "embed"]
        return stored_embed == current_embed and set(current) <= set(stored) and self.words == list(words)

    @property
    def words(self) -> list[str]:
        """The concept words; the `concepts` array holds positions in this list."""
        words = self._get_list("words")
        if not all(isinstance(word, str) for word in words):
            raise StoreError(damage(self.folder, "its concept words are none"))
        return words

    @property
    def index_file(self) -> Path:
        """Path of the FAISS index of the current revision, whether or not it exists."""
        return self.folder / f"index-{self.revision}.faiss"

    def files(self) -> dict[Path, FileRecord]:
        records = self._query("select path, size, mtime_ns from files order by path")
        return {
            path: FileRecord(path, size, mtime)
            for name, size, mtime in records
            for path in [self._path(name)]
        }

    def errors(self) -> dict[Path, str]:
        """Files that cannot be read, with the reason."""
        records = self._query(
            "select path, error from files join contents on contents.id = content "
            "where error is not null order by path"
        )
        return {
            path: f"{path}: {LOST}" if error == LOST else decode_text(error)
            for name, error in records
            for path in [self._path(name)]
        }

    def unread_files(self, reader: str) -> list[Path]:
        """Files with an error of another reader, which this one should try, and the lost ones."""
        records = self._query(
            "select path from files join contents on contents.id = content "
            "where error is not null and reader is not ? order by path",
            (reader,),
        )
        return [self._path(name) for (name,) in records]

    def lost_files(self) -> list[Path]:
        """Files whose array rows were damaged, and that have to be encoded again."""
        records = self._query(
            "select path from files join contents on contents.id = content "
            "where error is not null and reader = ? order by path",
            (NO_READER,),
        )
        return [self._path(name) for (name,) in records]

    def copies(self) -> list[Path]:
        """Files that have the same content as another file."""
        records = self._query(
            "select path from files where content in "
            "(select content from files group by content having count(*) > 1) order by path"
        )
        return [self._path(name) for (name,) in records]

    def mounts(self) -> list[Path]:
        """Mount points that indexed files were below."""
        return [self._path(name) for (name,) in self._query("select path from mounts order by path")]

    def rows(self) -> NDArray[np.int64]:
        """The rows in use, in ascending order."""
        records = self._query("select row from shots order by row")
        try:
            rows = np.array(records, dtype=np.int64).reshape(-1)
        except (TypeError, ValueError) as error:
            raise StoreError(damage(self.folder, "it lists shots without a row")) from error
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self._next_row():
            raise StoreError(damage(self.folder, "it lists shots that were never stored"))
        return rows

    def num_shots(self) -> int:
        return len(self.rows())

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Memory-map all arrays. Only the rows in `rows` are valid. The mapping survives a rewrite.

        Raises:
            StoreError: one is missing or damaged.
        """
        arrays = {name: self.array(name) for name in self._array_names}
        for name, other in (("confidences", "concepts"), ("candidate_confidences", "candidates")):
            if name in arrays and arrays[name].shape != arrays[other].shape:
                raise self.array_damage(name, f"it has other columns than {other}.npy")
        return arrays

    def array(self, name: str) -> NDArray[np.generic]:
        """Memory-map one array.

        Raises:
            StoreError: it is missing or damaged.
        """
        try:
            array = read_rows(self._array_folder() / f"{name}.npy", self._next_row())
        except DamagedFileError as error:
            raise self.array_damage(name, str(error)) from error
        if array.ndim != 2 or array.dtype.kind != ARRAY_KINDS[name]:
            raise self.array_damage(name, f"it holds {array.dtype} of {array.ndim} dimensions")
        return array

    def check_arrays(self, arrays: ShotArrays, since: int = 0) -> None:
        """Check that array rows are those that were written: all, or a sample of a large library.

        Args:
            since: the first row to check, if those before it have been checked in this generation.

        Raises:
            StoreError: some are not.
        """
        rows = self.rows()
        rows = rows[rows >= since]
        if len(rows) > _CHECKED_ROWS:
            numbers = ", ".join(map(str, _sample(rows).tolist()))
            parts = self._content_rows(
                f"where content in (select content from shots where row in ({numbers}))"
            )
        else:
            parts = self._content_rows(f"where row >= {int(since)}")
        for part in parts:
            if not self._is_intact(part, arrays):
                named = self._query("select min(path) from files where content = ?", (part.content_id,))
                of = f" of {self._path(named[0][0])}" if named[0][0] is not None else ""
                raise StoreError(
                    f"{self._array_folder()}: the numbers{of} are damaged. Encode again what is damaged: "
                    f"{index_command(self.folder)}, with any folder of the library"
                )

    def array_damage(self, name: str, what: str) -> StoreError:
        """The error of a damaged array, with the remedy."""
        return StoreError(
            f"{self._array_folder() / f'{name}.npy'}: it is damaged ({what}). Encode again what is damaged: "
            f"{index_command(self.folder)}, with any folder of the library"
        )

    def locate(self, rows: Sequence[int]) -> list[ShotLocation]:
        """Files and times of the shots in the given rows. Rows that no file refers to are left out."""
        locations = []
        for row in rows:
            [(start, end, name)] = self._query(
                "select starts, ends, min(path) from shots join files using (content) where row = ?", (row,)
            )
            if name is not None:
                if not all(isinstance(second, float) and math.isfinite(second) for second in (start, end)):
                    raise StoreError(damage(self.folder, f"shot {row} has no start or end"))
                versions = self._query(
                    "select distinct size, mtime_ns from files join shots using (content) where row = ?",
                    (row,),
                )
                locations.append(
                    ShotLocation(row, self._path(name), Shot(start, end), frozenset(map(tuple, versions)))
                )
        return locations

    def row_of(self, file: Path, shot: Shot, host: str | None = None) -> int | None:  # noqa: ARG002
        """See `LibraryStore`; all files are of this machine."""
        records = self._query(
            "select row from shots join files using (content) where path = ? and starts = ? and ends = ?",
            (path_to_bytes(file), shot.start, shot.end),
        )
        return int(records[0][0]) if records else None

    def shots_of(self, file: Path, host: str | None = None) -> list[ShotLocation]:  # noqa: ARG002
        """See `LibraryStore`; all files are of this machine."""
        records = self._query(
            "select row from shots join files using (content) where path = ? order by starts",
            (path_to_bytes(file),),
        )
        return [replace(location, file=file) for location in self.locate([int(row) for (row,) in records])]

    def has_content(self, digest: str, reader: str | None = None) -> bool:
        """Whether the library has the shots of a content with all that is stored of them, or its error.

        Args:
            reader: errors of other readers do not count; None counts all, and shots without captions too.
        """
        columns = "error, reader, 0" if self.version < 3 else "error, reader, has_details"
        records = self._query(f"select {columns} from contents where digest = ?", (digest,))
        return any(
            reader is None or (has_details if error is None else reader == stored)
            for error, stored, has_details in records
        )

    def has_shots(self, digest: str) -> bool:
        """Whether the library has shots of a content, complete or not."""
        return bool(
            self._query("select 1 from contents where digest = ? and error is null limit 1", (digest,))
        )

    def incomplete_files(self) -> list[Path]:
        """Files whose shots lack captions and thumbnails: of an older version of ctsan, or damaged."""
        has_details = "has_details" if self.version > 2 else "0"
        records = self._query(
            "select path from files join contents on contents.id = content "
            f"where error is null and not {has_details} order by path"
        )
        return [self._path(name) for (name,) in records]

    def captions(self, rows: Sequence[int]) -> dict[int, str]:
        """Captions of the shots in the given rows. Shots without one are left out."""
        captions = {row: self.details(row).caption for row in rows}
        return {row: caption for row, caption in captions.items() if caption is not None}

    def thumbnail(self, row: int) -> bytes | None:
        """The JPEG of a shot; None if there is none, or if it is damaged."""
        return self.details(row).thumbnail

    def details(self, row: int) -> ShotDetails:
        """What is shown of a shot. Where it is missing or damaged, nothing; indexing again makes it anew."""
        if self.version < 3:
            return ShotDetails()
        records = self._query(
            "select caption, thumbnail, details.checksum from shots "
            "join details on details.content = shots.content and number = row - "
            "(select min(row) from shots as others where others.content = shots.content) where row = ?",
            (int(row),),
        )
        return (_checked_details(*records[0]) if records else None) or ShotDetails()

    @property
    def file_mode(self) -> int:
        """Permissions of new files: those of the folder."""
        return folder_mode(self.folder) & 0o666

    def _content_rows(self, where: str = "") -> list[ContentRows]:
        """The rows of each content that has some."""
        checksum = "null" if self.version == 1 else "checksum"
        records = self._query(
            f"select contents.id, min(row), max(row), count(*), {checksum} from shots "
            f"join contents on contents.id = content {where} group by content order by 2"
        )
        return [ContentRows(*record) for record in records]

    def _is_intact(self, part: ContentRows, arrays: ShotArrays) -> bool:
        """Whether rows are those that were written; in version 1, whether they can be."""
        if not 0 <= part.first <= part.last < len(arrays["vectors"]):
            return False
        if part.last - part.first + 1 != part.count:
            return False
        if self.version > 1:
            return arrays_checksum(arrays, part, self._array_names) == part.checksum
        rows = slice(part.first, part.last + 1)
        try:
            for name in self._array_names:
                check_finite(arrays[name][rows])
        except DamagedFileError:
            return False
        if self._num_words is None:
            self._num_words = len(self.words)
        concepts = np.asarray(arrays["concepts"][rows], dtype=np.int64)
        if not ((concepts >= -1) & (concepts < self._num_words)).all():
            return False
        return bool(arrays["vectors"][rows].any(axis=1).all())  # no vector is 0, but lost blocks are

    def _damaged_details(self) -> list[int]:
        """Contents whose captions or thumbnails are not those that were written, by id.

        Of a large library, those of a sample.
        """
        parts = self._content_rows("where error is null and has_details")
        counts = {part.content_id: part.count for part in parts}
        ids = np.array(list(counts), dtype=np.int64)
        if sum(counts.values()) > _CHECKED_ROWS:
            ids = _sample(ids)
        return [
            content_id
            for content_id in dict.fromkeys(ids.tolist())
            if self._num_intact_details(content_id) != counts[content_id]
        ]

    def _num_intact_details(self, content_id: int) -> int:
        records = self._query(
            "select caption, thumbnail, checksum from details where content = ?", (content_id,)
        )
        return sum(_checked_details(*record) is not None for record in records)

    @property
    def _array_names(self) -> Sequence[str]:
        return ARRAY_NAMES if self.version > 2 else ARRAY_NAMES_OF_VERSION_2

    def _content_id(self, digest: str) -> int | None:
        records = self._query("select id from contents where digest = ?", (digest,))
        return int(records[0][0]) if records else None

    def _array_folder(self) -> Path:
        return self.folder / f"numbers-{self.generation}"

    def _next_row(self) -> int:
        return self._get_number("next_row")

    def _path(self, name: object) -> Path:
        if not isinstance(name, bytes) or b"\0" in name:
            raise StoreError(damage(self.folder, "it lists a file without a name"))
        return Path(os.fsdecode(name))

    def _get(self, name: str) -> str:
        records = self._query("select value from about where name = ?", (name,))
        if not records or not isinstance(records[0][0], str):
            raise StoreError(damage(self.folder, f"it has no {name!r}"))
        return str(records[0][0])

    def _get_number(self, name: str) -> int:
        value = self._get(name)
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            raise StoreError(damage(self.folder, f"its {name!r} is no number"))
        return int(value)

    def _get_list(self, name: str) -> list[Any]:
        try:
            values = json.loads(self._get(name))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list):
            raise StoreError(damage(self.folder, f"its {name!r} is no list"))
        return values

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows of an SQL query, read into memory.

        Raises:
            StoreError: the database is damaged, or cannot be read.
        """
        with record_errors(self.folder):
            return self._database.execute(sql, values).fetchall()


def is_library(folder: Path) -> bool:
    """Whether the folder holds a library. A process killed early may have left an empty folder.

    Raises:
        StoreError: the folder cannot be looked into.
    """
    with read_errors(folder):
        return (folder / FILE).is_file()


def _checked_details(caption: object, thumbnail: object, checksum: object) -> ShotDetails | None:
    """A record of `details`; None if it is not what was written."""
    if not isinstance(caption, str | None) or not isinstance(thumbnail, bytes | None):
        return None
    details = ShotDetails(caption, thumbnail)
    return details if details.checksum == checksum else None


def _sample(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers spread over all, and the last ones: a power loss damages what was written last."""
    spread = np.linspace(0, len(numbers) - 1, _SAMPLED_ROWS).astype(np.int64)
    return np.concatenate([numbers[spread], numbers[-_SAMPLED_ROWS:]])
