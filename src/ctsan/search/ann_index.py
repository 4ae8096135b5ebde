"""First stage of a search: the shots with the largest inner product with the query vector.

Up to `EXACT_UP_TO` shots, the search is exhaustive. Larger libraries have a FAISS inverted file (IVF). It
holds about 2 sqrt(n) lists for n vectors, is memory-mapped, and a query reads a fixed number of lists. Search
time therefore grows with sqrt(n).

A file is an index as FAISS writes it, and 40 bytes that FAISS ignores: checksums of its head, which is all
but the entries of the lists, and of its last entries. FAISS would follow a damaged head anywhere. Checking
all entries would take too long, so a search checks those that it finds. FAISS is imported on first use: most
libraries are small.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ctsan.io.atomic import replacing
from ctsan.io.messages import warn
from ctsan.io.reading import DamagedFileError, check_regular
from ctsan.search.library_format import index_command

if TYPE_CHECKING:
    from ctsan.search.library import Library

EXACT_UP_TO = 20_000  # rows
_NPROBE = 48  # lists read per query
_TRAINING_ROWS_PER_LIST = 40  # for k-means
_CHUNK_ROWS = 8192
_TRAILER = struct.Struct("<8sQQQII")  # magic, bytes of the head, bytes of the entries, rows, two checksums
_MAGIC = b"ctsanIVF"
_CHECKED_ENTRIES = 1 << 16  # bytes at the end
_CHUNK_BYTES = 1 << 20
_ID_BYTES = 8


def build_index(library: Library) -> None:
    """Write the index of a large library, unless the current revision already has an intact one.

    Raises:
        StorageError: the disk is full.
    """
    rows, file = library.rows(), library.index_file
    if len(rows) <= EXACT_UP_TO:
        return
    try:
        _check_index(file, len(rows))
    except DamagedFileError:
        if file.is_dir():
            shutil.rmtree(file)
        write_index(file, library.array("vectors"), rows, library.file_mode)


def write_index(file: Path, vectors: NDArray[np.generic], rows: NDArray[np.int64], mode: int = 0o600) -> None:
    """Write an IVF index over the given rows, with row numbers as ids. The output is deterministic.

    Args:
        mode: permissions of the file.

    Raises:
        StorageError: the disk is full.
    """
    import faiss

    num_lists = max(1, round(2 * len(rows) ** 0.5))
    factory = f"IVF{num_lists}_HNSW16,SQ8"
    index: Any = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    training_rows = rows[:: max(1, len(rows) // (_TRAINING_ROWS_PER_LIST * num_lists))]
    index.cp.niter = 8
    index.train(vectors[training_rows].astype(np.float32))
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        index.add_with_ids(vectors[chunk].astype(np.float32), chunk)
    with replacing(file) as temporary, temporary.open("w+b") as stream:
        os.fchmod(stream.fileno(), mode)
        faiss.write_index(index, _writer(stream))
        entries = len(rows) * (index.code_size + _ID_BYTES)
        head = stream.seek(0, os.SEEK_END) - entries
        checksums = _checksums(stream, head, entries)
        stream.seek(0, os.SEEK_END)
        stream.write(_TRAILER.pack(_MAGIC, head, entries, len(rows), *checksums))


def _writer(stream: BinaryIO) -> Any:
    """A writer of FAISS that raises the errors of the stream; its own does not say which they are."""
    import faiss

    return faiss.PyCallbackIOWriter(stream.write)  # type: ignore[attr-defined]  # not in its stubs


def _check_index(file: Path, num_rows: int) -> None:
    """Check that a file is an index over this many rows, and that FAISS can open it.

    Raises:
        DamagedFileError: it is not.
    """
    check_regular(file)
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TRAILER.size))
            trailer = stream.read(_TRAILER.size)
            if len(trailer) < _TRAILER.size or not trailer.startswith(_MAGIC):
                raise DamagedFileError("it is cut off, or of an older ctsan")
            _, head, entries, rows, *checksums = _TRAILER.unpack(trailer)
            if head + entries + _TRAILER.size != size or _checksums(stream, head, entries) != checksums:
                raise DamagedFileError("it is not what was written")
            if rows != num_rows:
                raise DamagedFileError(f"it is of {rows:,} shots, and the library has {num_rows:,}")
    except OSError as error:
        raise DamagedFileError(f"it cannot be read ({error.strerror})") from error


def _checksums(stream: BinaryIO, head: int, entries: int) -> list[int]:
    """Of the head, and of the last entries."""
    stream.seek(0)
    checksum, left = 0, head
    while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
        checksum, left = zlib.crc32(chunk, checksum), left - len(chunk)
    checked = min(entries, _CHECKED_ENTRIES)
    stream.seek(head + entries - checked)
    return [checksum, zlib.crc32(stream.read(checked))]


class AnnIndex:
    """Nearest-neighbour search among the valid rows of an array.

    An index that is damaged is not used: the search is then exhaustive, and a warning says how to mend it.

    Args:
        file: a FAISS index over exactly these rows; None searches exhaustively.
        has_checksums: False if it is of a version of ctsan that wrote none.

    Raises:
        FileNotFoundError: there is no such file; a writer may just have replaced it.
    """

    def __init__(
        self,
        vectors: NDArray[np.generic],
        rows: NDArray[np.int64],
        file: Path | None,
        *,
        has_checksums: bool = True,
    ) -> None:
        self._vectors, self._rows, self._file = vectors, rows, file
        self._index: Any = None
        if file is not None:
            try:
                self._index = _open_index(file, vectors.shape[1], len(rows), has_checksums)
            except DamagedFileError as error:
                if not file.exists():
                    raise FileNotFoundError(file) from error
                self._warn_of_damage(str(error))

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
        import faiss

        parameters: Any = faiss.SearchParametersIVF()
        parameters.nprobe = _NPROBE
        if allowed is not None:
            parameters.sel = faiss.IDSelectorBatch(allowed)
        _, ids = self._index.search(query[None], k, params=parameters)
        hits = np.asarray(ids[0][ids[0] != -1], dtype=np.int64)
        places = np.searchsorted(rows, hits).clip(max=len(rows) - 1)
        if (rows[places] != hits).any() or len(np.unique(hits)) < len(hits):
            self._index = None
            self._warn_of_damage("it lists shots that are not in the library, or one twice")
            return self._search_exact(query, k, rows)
        return hits

    def _warn_of_damage(self, what: str) -> None:
        assert self._file is not None
        warn(
            f"{self._file}: it is damaged ({what}). Searching without it, which takes longer. "
            f"Write it anew: {index_command(self._file.parent)}"
        )

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


def _open_index(file: Path, dim: int, num_rows: int, has_checksums: bool) -> Any:
    """Memory-map an index.

    Raises:
        DamagedFileError: it is not one over this many vectors of this size.
    """
    import faiss

    check_regular(file)
    if has_checksums:
        _check_index(file, num_rows)
    try:
        index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    except (RuntimeError, MemoryError) as error:
        raise DamagedFileError("FAISS cannot open it") from error
    if (index.d, index.ntotal) != (dim, num_rows):
        raise DamagedFileError("it is of other vectors")
    return index
