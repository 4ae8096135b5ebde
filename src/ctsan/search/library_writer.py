"""Write a library: add and drop files, compact the arrays. One process at a time holds the lock."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ctsan.io.atomic import storage_errors, sync
from ctsan.search.ann_index import build_index
from ctsan.search.growable_array import write_rows
from ctsan.search.library import Library
from ctsan.search.library_format import (
    UNKNOWN_READER,
    FileRecord,
    ShotArrays,
    ShotDetails,
    arrays_checksum,
    encode_text,
    folder_mode,
    make_folder,
    path_to_bytes,
    record_errors,
    widened,
)
from ctsan.search.store import LibraryWriting
from ctsan.video.shots import Shot

_MAX_UNUSED = 0.25  # share of unused rows, or of the SQLite file, above which they are rewritten
_MIN_UNUSED_BYTES = 1 << 20  # of the SQLite file
_CHUNK_ROWS = 4096


class LibraryWriter(Library, LibraryWriting):
    """A library that this process has locked for writing. `open_for_writing` gives one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, is_writer=True)

    def link(self, file: FileRecord, digest: str) -> bool:
        content_id = self._content_id(digest)
        assert content_id is not None  # this process alone writes
        with self._transaction():
            self._link(file, content_id)
        return True

    def add(
        self,
        file: FileRecord,
        digest: str,
        shots: Sequence[Shot],
        arrays: ShotArrays,
        error: str | None = None,
        reader: str = UNKNOWN_READER,
        *,
        details: Sequence[ShotDetails] = (),
    ) -> None:
        first = self._next_row()
        if first and "vectors" in arrays:
            arrays = {**arrays, "vectors": widened(arrays["vectors"], self.array("vectors").shape[1])}
        for name, rows in arrays.items():
            write_rows(self._array_folder() / f"{name}.npy", first, rows, self.file_mode)
        self._sync(self._array_folder(), arrays)
        checksum = arrays_checksum(arrays) if error is None else None
        values = (
            None if error is None else encode_text(error),
            None if error is None else reader,
            checksum,
            bool(details) and len(details) == len(shots),
        )
        with self._transaction():
            content_id = self._content_id(digest)
            if content_id is None:
                content_id = self._database.execute(
                    "insert into contents (digest, error, reader, checksum, has_details) "
                    "values (?, ?, ?, ?, ?)",
                    (digest, *values),
                ).lastrowid
                assert content_id is not None
            else:
                for table in ("shots", "details"):
                    self._database.execute(f"delete from {table} where content = ?", (content_id,))
                self._database.execute(
                    "update contents set error = ?, reader = ?, checksum = ?, has_details = ? where id = ?",
                    (*values, content_id),
                )
            self._database.executemany(
                "insert into shots values (?, ?, ?, ?)",
                [(row, content_id, shot.start, shot.end) for row, shot in enumerate(shots, start=first)],
            )
            self._database.executemany(
                "insert into details values (?, ?, ?, ?, ?)",
                [
                    (content_id, number, shot.caption, shot.thumbnail, shot.checksum)
                    for number, shot in enumerate(details)
                ],
            )
            self._set("next_row", first + len(shots))
            self._link(file, content_id)

    def add_mounts(self, mounts: Sequence[Path]) -> None:
        """Remember mount points of indexed files."""
        known = set(self.mounts())
        if new := [mount for mount in mounts if mount not in known]:
            with self._transaction():
                self._database.executemany(
                    "insert into mounts values (?)", [(path_to_bytes(path),) for path in new]
                )

    def drop(self, files: Sequence[Path]) -> None:
        """Remove files, and every content that no file refers to any more."""
        unreferenced = "from contents where id not in (select content from files)"
        if not files and not self._query(f"select 1 {unreferenced} limit 1"):
            return
        with self._transaction():
            self._database.executemany(
                "delete from files where path = ?", [(path_to_bytes(path),) for path in files]
            )
            for table in ("shots", "details"):
                self._database.execute(f"delete from {table} where content in (select id {unreferenced})")
            self._database.execute(f"delete {unreferenced}")

    def optimise(self) -> None:
        self.compact()  # before building the index, which is valid for one revision only
        build_index(self)

    def compact(self) -> None:
        """Rewrite arrays and records if too much of them is unused, and remove old arrays and indexes.

        Raises:
            StorageError: the disk is full. The library is as before.
        """
        rows, count = self.rows(), self._next_row()
        if count and (count - len(rows)) / count > _MAX_UNUSED:
            self._rewrite(rows)
        self._vacuum()
        current = {self._array_folder().name, self.index_file.name}
        with storage_errors(self.folder):
            for path in [*self.folder.glob("numbers-*"), *self.folder.glob("index-*.faiss")]:
                if path.name not in current:
                    _remove(path)

    def _rewrite(self, rows: NDArray[np.int64]) -> None:
        arrays, generation = self.arrays(), self.generation + 1
        with storage_errors(self.folder):
            new = self._make_array_folder(generation)
            for name, array in arrays.items():
                for start in range(0, max(len(rows), 1), _CHUNK_ROWS):
                    part = array[rows[start : start + _CHUNK_ROWS]]
                    write_rows(new / f"{name}.npy", start, part, self.file_mode)
            self._sync(new, arrays)
        with self._transaction():
            # Rows only move down, and are updated in ascending order, so no update hits an occupied row.
            moves = [(new_row, int(row)) for new_row, row in enumerate(rows) if new_row != row]
            self._database.executemany("update shots set row = ? where row = ?", moves)
            self._set("generation", generation)
            self._set("next_row", len(rows))

    def _vacuum(self) -> None:
        """Rewrite the SQLite file without the pages of dropped thumbnails, if they are many."""
        [(pages,)], [(unused,)], [(page_bytes,)] = (
            self._query(f"pragma {name}") for name in ("page_count", "freelist_count", "page_size")
        )
        if unused / pages > _MAX_UNUSED and unused * page_bytes > _MIN_UNUSED_BYTES:
            self._query("vacuum")

    def _link(self, file: FileRecord, content_id: int) -> None:
        self._database.execute(
            "insert or replace into files values (?, ?, ?, ?)",
            (path_to_bytes(file.path), file.size, file.mtime_ns, content_id),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with record_errors(self.folder), self._database:  # commits, or rolls back on an exception
            yield
            self._set("revision", self.revision + 1)

    def _make_array_folder(self, generation: int) -> Path:
        folder = self.folder / f"numbers-{generation}"
        if folder.is_dir():
            _remove(folder)  # left by a killed process
        make_folder(folder, folder_mode(self.folder))
        sync(self.folder)
        return folder

    def _sync(self, folder: Path, names: Iterable[str]) -> None:
        """Write arrays to the disk, before a record that refers to them is committed."""
        with storage_errors(folder):
            for name in names:
                sync(folder / f"{name}.npy")
            sync(folder)

    def _set(self, name: str, value: object) -> None:
        self._database.execute("insert or replace into about values (?, ?)", (name, str(value)))


def _remove(path: Path) -> None:
    """Remove a file, a folder with all that is in it, or a link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
