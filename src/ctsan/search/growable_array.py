"""Rows of numbers in .npy files that grow, to be memory-mapped."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def write_rows(file: Path, first: int, rows: NDArray[np.generic]) -> None:
    """Put rows into a file, made if need be, from the row `first` on; whatever was there is overwritten.

    Who reads must know how many rows count: a process that was killed may have left some that do not.
    """
    header = _header(rows, first + len(rows))
    with file.open("r+b" if file.exists() else "x+b") as stream:
        stream.seek(len(header) + first * _row_bytes(rows))
        stream.write(np.ascontiguousarray(rows).tobytes())
        stream.truncate()
        stream.seek(0)
        stream.write(header)


def read_rows(file: Path, count: int) -> NDArray[np.generic]:
    """The first rows of a file, read from the disk as they are used."""
    with file.open("rb") as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        offset = stream.tell()
    if count == 0 or 0 in shape[1:]:  # which cannot be mapped
        return np.zeros((count, *shape[1:]), dtype)
    return np.memmap(file, dtype, "r", offset, (count, *shape[1:]))


def _header(rows: NDArray[np.generic], count: int) -> bytes:
    """NumPy leaves room for a growing number of rows, so that it is as long for any of them."""
    stream = io.BytesIO()
    described = {
        "descr": npy.dtype_to_descr(rows.dtype),
        "fortran_order": False,
        "shape": (count, *rows.shape[1:]),
    }
    npy.write_array_header_1_0(stream, described)
    return stream.getvalue()


def _row_bytes(rows: NDArray[np.generic]) -> int:
    return rows.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
