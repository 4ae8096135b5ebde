"""The first stage of a search: the clips whose vectors have the largest products with the query's.

Small libraries are gone through whole. Larger ones have an inverted file: vectors stand in lists by the
centre that they are nearest to, about as many lists as there are vectors in one, and only the lists nearest
to the query are read, from the disk as they are needed. Four times the clips then take about twice the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from ctsan.io.atomic import replacing
from ctsan.search.library import Library

EXACT_UP_TO = 20_000  # clips
_LISTS_READ = 48
_SAMPLES_PER_LIST = 40  # to find the centres
_ROWS_AT_ONCE = 8192

Vectors = NDArray[np.floating]


def build_index(library: Library) -> None:
    """Make the index that a library of this size needs, if it is not there."""
    rows = library.rows()
    if len(rows) > EXACT_UP_TO and not library.index_file.exists():
        write_index(library.index_file, library.numbers("vectors"), rows)


def write_index(file: Path, vectors: NDArray[np.generic], rows: NDArray[np.int64]) -> None:
    """An inverted file over some rows of an array, with the rows' numbers; the same bytes each time."""
    lists = max(1, round(2 * len(rows) ** 0.5))
    index: Any = faiss.index_factory(vectors.shape[1], f"IVF{lists}_HNSW16,SQ8", faiss.METRIC_INNER_PRODUCT)
    chosen = rows[:: max(1, len(rows) // (_SAMPLES_PER_LIST * lists))]
    index.cp.niter = 8
    index.train(vectors[chosen].astype(np.float32))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        index.add_with_ids(vectors[some].astype(np.float32), some)
    with replacing(file) as temporary:
        faiss.write_index(index, str(temporary))


class Nearest:
    """Finds the nearest of the rows that count.

    Args:
        file: an index over exactly these rows, if there is one; without it all are gone through.
    """

    def __init__(self, vectors: NDArray[np.generic], rows: NDArray[np.int64], file: Path | None) -> None:
        self._vectors, self._rows = vectors, rows
        self._index = None
        if file is not None:
            self._index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)

    def find(
        self, query: NDArray[np.float32], count: int, allowed: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """The rows with the largest products, the largest first.

        Args:
            allowed: only these of the rows, in rising order.
        """
        rows = self._rows if allowed is None else allowed
        if self._index is None or len(rows) <= EXACT_UP_TO:
            return self._go_through(query, count, rows)
        chosen: Any = faiss.SearchParametersIVF()
        chosen.nprobe = _LISTS_READ
        if allowed is not None:
            chosen.sel = faiss.IDSelectorBatch(allowed)
        _, found = self._index.search(query[None], count, params=chosen)
        return np.asarray(found[0][found[0] >= 0], dtype=np.int64)

    def _go_through(
        self, query: NDArray[np.float32], count: int, rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """A part at a time, so that memory does not grow with the library."""
        best, scores = np.zeros(0, np.int64), np.zeros(0, np.float32)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            best = np.concatenate([best, some])
            scores = np.concatenate([scores, self._vectors[some].astype(np.float32) @ query])
            order = np.argsort(-scores, kind="stable")[:count]
            best, scores = best[order], scores[order]
        return best
