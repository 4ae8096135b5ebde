"""First stage of a search: the shots with the largest inner product with the query vector.

Up to `EXACT_UP_TO` shots, the search is exhaustive. Larger libraries have a FAISS inverted file (IVF). It
holds about 2 sqrt(n) lists for n vectors, is memory-mapped, and a query reads a fixed number of lists. Search
time therefore grows with sqrt(n).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from ctsan.io.atomic import replacing
from ctsan.search.library import Library

EXACT_UP_TO = 20_000  # rows
_NPROBE = 48  # lists read per query
_TRAINING_ROWS_PER_LIST = 40  # for k-means
_CHUNK_ROWS = 8192


def build_index(library: Library) -> None:
    """Write the index of a large library, unless the current revision already has one."""
    rows = library.rows()
    if len(rows) > EXACT_UP_TO and not library.index_file.exists():
        write_index(library.index_file, library.array("vectors"), rows)


def write_index(file: Path, vectors: NDArray[np.generic], rows: NDArray[np.int64]) -> None:
    """Write an IVF index over the given rows, with row numbers as ids. The output is deterministic."""
    num_lists = max(1, round(2 * len(rows) ** 0.5))
    factory = f"IVF{num_lists}_HNSW16,SQ8"
    index: Any = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    training_rows = rows[:: max(1, len(rows) // (_TRAINING_ROWS_PER_LIST * num_lists))]
    index.cp.niter = 8
    index.train(vectors[training_rows].astype(np.float32))
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        index.add_with_ids(vectors[chunk].astype(np.float32), chunk)
    with replacing(file) as temporary:
        faiss.write_index(index, str(temporary))


class AnnIndex:
    """Nearest-neighbour search among the valid rows of an array.

    Args:
        file: a FAISS index over exactly these rows; None searches exhaustively.
    """

    def __init__(self, vectors: NDArray[np.generic], rows: NDArray[np.int64], file: Path | None) -> None:
        self._vectors, self._rows = vectors, rows
        self._index = None
        if file is not None:
            self._index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)

    def search(
        self, query: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """The `k` rows with the largest inner product, largest first.

        Args:
            allowed: restricts the search to these rows, in ascending order.
        """
        rows = self._rows if allowed is None else allowed
        if self._index is None or len(rows) <= EXACT_UP_TO:
            return self._search_exact(query, k, rows)
        parameters: Any = faiss.SearchParametersIVF()
        parameters.nprobe = _NPROBE
        if allowed is not None:
            parameters.sel = faiss.IDSelectorBatch(allowed)
        _, ids = self._index.search(query[None], k, params=parameters)
        return np.asarray(ids[0][ids[0] >= 0], dtype=np.int64)

    def _search_exact(self, query: NDArray[np.float32], k: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Score the rows in chunks, so that memory does not grow with the library."""
        best, scores = np.zeros(0, np.int64), np.zeros(0, np.float32)
        for start in range(0, len(rows), _CHUNK_ROWS):
            chunk = rows[start : start + _CHUNK_ROWS]
            best = np.concatenate([best, chunk])
            scores = np.concatenate([scores, self._vectors[chunk].astype(np.float32) @ query])
            order = np.argsort(-scores, kind="stable")[:k]
            best, scores = best[order], scores[order]
        return best
