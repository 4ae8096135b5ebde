"""Memory-mapped .npy files that rows can be appended to."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ctsan.io.arrays import read_array
from ctsan.io.atomic import storage_errors
from ctsan.io.reading import DamagedFileError


def write_rows(file: Path, first: int, rows: NDArray[np.generic], mode: int = 0o600) -> None:
    """Write rows from row `first` on and truncate the file after them; create it if needed.

    Readers must know the number of valid rows: a killed process may have left extra ones. At every moment the
    file has as many rows as its header says, so that readers may open it. The caller syncs it.

    Args:
        mode: permissions of a new file.

    Raises:
        StorageError: the disk is full, or the file cannot be written to.
    """
    start = len(_header(rows, first)) + first * _row_bytes(rows)
    with storage_errors(file):
        is_new = not file.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(file, flags, mode), "r+b") as stream:
            if is_new:
                os.fchmod(stream.fileno(), mode)  # whatever the umask is
            if stream.seek(0, os.SEEK_END) > start:
                _write_header(stream, rows, first)
            stream.truncate(start)
            stream.seek(start)
            stream.write(np.ascontiguousarray(rows).tobytes())
            stream.flush()
            _write_header(stream, rows, first + len(rows))


def read_rows(file: Path, count: int) -> NDArray[np.generic]:
    """Memory-map the first `count` rows of a file.

    Raises:
        DamagedFileError: it is missing or no array of rows, or has fewer.
    """
    array = read_array(file)
    if array.ndim == 0 or not array.flags.c_contiguous:
        raise DamagedFileError("it is not an array of rows")
    if len(array) < count:
        raise DamagedFileError(f"it has {len(array):,} rows, and the records speak of {count:,}")
    return np.asarray(array)[:count]  # slices of `np.memmap` are slow


def _write_header(stream: io.BufferedRandom, rows: NDArray[np.generic], count: int) -> None:
    stream.seek(0)
    stream.write(_header(rows, count))
    stream.flush()


def _header(rows: NDArray[np.generic], count: int) -> bytes:
    """The .npy header. NumPy pads it, so that its length does not depend on the number of rows."""
    stream = io.BytesIO()
    fields = {
        "descr": npy.dtype_to_descr(rows.dtype),
        "fortran_order": False,
        "shape": (count, *rows.shape[1:]),
    }
    npy.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def _row_bytes(rows: NDArray[np.generic]) -> int:
    return rows.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
