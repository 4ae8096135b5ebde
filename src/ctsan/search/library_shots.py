"""The shots of a library in a folder: memory-mapped arrays, and the index over their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctsan.io.arrays import check_finite
from ctsan.io.reading import DamagedFileError
from ctsan.search.ann_index import AnnIndex
from ctsan.search.candidates import least_level, stored_levels, to_confidence
from ctsan.search.library_format import ShotArrays, widened
from ctsan.search.store import EVERYTHING, ConceptFilter, Shots

if TYPE_CHECKING:
    from ctsan.search.library import Library


class LibraryShots(Shots):
    """See `Shots`. Arrays and index stay mapped when a writer replaces them.

    Args:
        arrays: checked.
        file: the FAISS index of the revision, if there is one.
        dim: columns of the vectors that are compared; older versions stored more.
    """

    def __init__(
        self,
        library: Library,
        arrays: ShotArrays,
        rows: NDArray[np.int64],
        file: Path | None,
        *,
        dim: int,
        revision: int,
        generation: int,
    ) -> None:
        self._library, self._arrays, self._rows = library, arrays, rows
        self._dim, self.revision, self.generation = dim, revision, generation
        self.has_index = file is not None
        self.num_checked = len(arrays["vectors"]) if arrays else 0  # rows of this generation
        self._word_ids = {word: word_id for word_id, word in enumerate(library.words)}
        self.index = (
            AnnIndex(arrays["vectors"], rows, file, has_checksums=library.version > 1) if arrays else None
        )

    def __len__(self) -> int:
        return len(self._rows)

    def count(self, where: ConceptFilter = EVERYTHING) -> int:
        return len(self._allowed(where))

    def sample(self, size: int, where: ConceptFilter = EVERYTHING) -> NDArray[np.int64]:
        rows = self._allowed(where)
        return rows[:: max(1, len(rows) // size)]

    def nearest(
        self, vector: NDArray[np.float32], k: int, where: ConceptFilter = EVERYTHING
    ) -> NDArray[np.int64]:
        if self.index is None:
            return np.zeros(0, np.int64)
        [query] = widened(vector[None], self._arrays["vectors"].shape[1])
        return self.index.search(query, k, self._allowed(where) if where else None)

    def known(self, rows: Sequence[int]) -> NDArray[np.int64]:
        return np.array([row for row in rows if row < self.num_checked], np.int64)

    def last(self, count: int) -> NDArray[np.int64]:
        return self._rows[: -count - 1 : -1]

    def confidences(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return to_confidence(self._levels(words, rows))

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        vectors = self._arrays["vectors"][rows, : self._dim]
        self._check("vectors", vectors)
        return np.asarray(vectors, dtype=np.float16)

    def concepts(self, rows: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
        if not rows:
            return {}
        chosen = np.asarray(rows, dtype=np.int64)
        word_ids, confidences = (self._arrays[name][chosen] for name in ("concepts", "confidences"))
        self._check("confidences", confidences)
        self._check("concepts", word_ids)
        ids = np.asarray(word_ids, dtype=np.int64)
        if not ((ids >= -1) & (ids < len(self._word_ids))).all():
            raise self._library.array_damage("concepts", "it names words that the library does not have")
        pairs = zip(ids.tolist(), confidences.tolist(), strict=True)
        return {
            row: [(word_id, level) for word_id, level in zip(*pair, strict=True) if word_id >= 0]
            for row, pair in zip(rows, pairs, strict=True)
        }

    def _allowed(self, where: ConceptFilter) -> NDArray[np.int64]:
        """The rows that a filter lets through, in ascending order."""
        rows = self._rows
        for shown in where.showing:
            rows = rows[self._levels(shown.words, rows) >= least_level(shown.min_confidence)]
        for shown in where.hiding:
            rows = rows[self._levels(shown.words, rows) < least_level(shown.min_confidence)]
        return rows

    def _levels(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        ids = [self._word_ids[word] for word in words if word in self._word_ids]
        return stored_levels(self._arrays, rows, ids)

    def _check(self, name: str, values: NDArray[np.generic]) -> None:
        """Of a large library, only a sample of the rows has been checked before."""
        try:
            check_finite(values)
        except DamagedFileError as error:
            raise self._library.array_damage(name, str(error)) from error
