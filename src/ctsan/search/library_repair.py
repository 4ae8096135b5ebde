"""Bring a library up to date before it is written: upgrade older versions, and give up what is damaged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import StoreError
from ctsan.io.atomic import storage_errors
from ctsan.search.candidates import candidate_arrays
from ctsan.search.growable_array import write_rows
from ctsan.search.library_format import (
    LEGACY_ENCODINGS,
    LOST,
    NO_READER,
    UPGRADE_TO_2,
    UPGRADE_TO_3,
    VERSION,
    ContentRows,
    RunFingerprint,
    ShotArrays,
    arrays_checksum,
    record_errors,
    runs_to_json,
)
from ctsan.search.library_writer import LibraryWriter

_CHUNK_ROWS = 4096


class LibraryRepair(LibraryWriter):
    """A library that is being opened for writing."""

    def remove_legacy_encodings(self, runs: Sequence[RunFingerprint]) -> None:
        """Remove the clip encodings of an older ctsan, and the runs that were listed only for them."""
        if files := list(self._array_folder().glob(LEGACY_ENCODINGS)):
            with self._transaction():
                self._set("runs", runs_to_json(runs))
            with storage_errors(self.folder):
                for file in files:
                    file.unlink()

    def upgrade(self) -> None:
        """Bring a library of an older version to this one.

        Rows that are not damaged get checksums, and the confidences of their ten concept words as those of
        all candidates. Captions and thumbnails are made when their files are indexed again.
        """
        if self.version == VERSION:
            return
        intact: list[ContentRows] = []
        checksums: list[tuple[int, int]] = []
        if self._next_row():
            try:
                arrays = self.arrays()
                intact = [part for part in self._content_rows() if self._is_intact(part, arrays)]
                arrays |= self._write_candidates(arrays)
                checksums = [(arrays_checksum(arrays, part), part.content_id) for part in intact]
            except StoreError:  # `repair` gives up all of them
                checksums = []
        with record_errors(self.folder), self._database:
            self._database.execute("begin immediate")
            for statement in (*(UPGRADE_TO_2 if self.version < 2 else ()), *UPGRADE_TO_3):
                self._database.execute(statement)
            self._database.execute("update contents set checksum = null")
            self._database.executemany("update contents set checksum = ? where id = ?", checksums)
            self._database.execute(f"pragma user_version = {VERSION}")
        self.version = VERSION

    def _write_candidates(self, arrays: ShotArrays) -> dict[str, NDArray[np.generic]]:
        """Write the arrays that versions 1 and 2 lack, from the concept words of each shot."""
        count, num_words, folder = self._next_row(), len(self.words), self._array_folder()
        parts: list[ShotArrays] = []
        for start in range(0, count, _CHUNK_ROWS):
            rows = slice(start, min(start + _CHUNK_ROWS, count))
            parts.append(candidate_arrays(arrays["concepts"][rows], arrays["confidences"][rows], num_words))
            for name, values in parts[-1].items():
                write_rows(folder / f"{name}.npy", start, values, self.file_mode)
        self._sync(folder, parts[0])
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def repair(self) -> None:
        """Give up what is damaged.

        `lost_files` are then the files whose array rows were damaged, `incomplete_files` those whose captions
        or thumbnails were.
        """
        if self._next_row() == 0:
            return
        self._repair_arrays()
        self._repair_details()

    def _repair_arrays(self) -> None:
        parts = self._content_rows()
        try:
            arrays = self.arrays()
        except StoreError:
            with storage_errors(self.folder):
                self._make_array_folder(self.generation + 1)
            with self._transaction():
                self._lose(parts)
                self._set("generation", self.generation + 1)
                self._set("next_row", 0)
            return
        damaged = [part for part in parts if not self._is_intact(part, arrays)]
        if damaged:
            with self._transaction():
                self._lose(damaged)

    def _lose(self, parts: Sequence[ContentRows]) -> None:
        ids = [(part.content_id,) for part in parts]
        for table in ("shots", "details"):
            self._database.executemany(f"delete from {table} where content = ?", ids)
        self._database.executemany(
            "update contents set error = ?, reader = ?, checksum = null, has_details = 0 where id = ?",
            [(LOST, NO_READER, *content) for content in ids],
        )

    def _repair_details(self) -> None:
        damaged = [(content_id,) for content_id in self._damaged_details()]
        if damaged:
            with self._transaction():
                self._database.executemany("delete from details where content = ?", damaged)
                self._database.executemany("update contents set has_details = 0 where id = ?", damaged)
