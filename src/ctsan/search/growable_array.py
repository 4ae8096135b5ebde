"""Memory-mapped .npy files that rows can be appended to."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def write_rows(file: Path, first: int, rows: NDArray[np.generic]) -> None:
    """Write rows from row `first` on and truncate the file after them; create it if needed.

    Readers must know the number of valid rows: a killed process may have left extra ones.
    """
    header = _header(rows, first + len(rows))
    with file.open("r+b" if file.exists() else "x+b") as stream:
        stream.seek(len(header) + first * _row_bytes(rows))
        stream.write(np.ascontiguousarray(rows).tobytes())
        stream.truncate()
        stream.seek(0)
        stream.write(header)


def read_rows(file: Path, count: int) -> NDArray[np.generic]:
    """Memory-map the first `count` rows of a file."""
    with file.open("rb") as stream:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        offset = stream.tell()
    if count == 0 or 0 in shape[1:]:  # an empty array cannot be mapped
        return np.zeros((count, *shape[1:]), dtype)
    return np.memmap(file, dtype, "r", offset, (count, *shape[1:]))


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
