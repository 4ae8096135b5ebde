"""Read arrays and tensors that ctsan wrote. Faults are a `DamagedFileError`, as in `ctsan.io.reading`."""

from __future__ import annotations

import json
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ctsan.io.reading import DamagedFileError, check_regular, reason_of

_EXPONENT = np.uint16(0x7C00)  # the bits that are all set in a float16 that is infinite or no number

# All that NumPy's header parser, mmap and safetensors are known to raise for damaged files.
_FAULTS = (
    *(OSError, ValueError, EOFError, SyntaxError, TypeError, KeyError, OverflowError, MemoryError),
    *(RecursionError, AttributeError, FloatingPointError, tokenize.TokenError, SafetensorError),
)


def read_array(path: Path) -> NDArray[Any]:
    """The array of a `.npy` file, memory-mapped.

    Raises:
        DamagedFileError: it is missing, shorter than its header says, no plain array, or of Python objects.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            if file.read(6) != b"\x93NUMPY":
                raise DamagedFileError("it is not a .npy array")
        with np.errstate(over="raise"):  # the product of the sizes
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except DamagedFileError:
        raise
    except _FAULTS as error:
        raise DamagedFileError(f"it is not a whole .npy array ({reason_of(error)})") from error
    if not isinstance(array, np.ndarray) or array.dtype.hasobject or array.dtype.names:
        raise DamagedFileError("it is not an array of numbers")
    return array


@contextmanager
def open_tensors(path: Path, framework: str = "numpy") -> Iterator[Any]:
    """Open a safetensors file: a `safetensors.safe_open`.

    Raises:
        DamagedFileError: it is missing or damaged, or lacks a tensor that is asked for inside the context.
    """
    check_regular(path)
    try:
        with safe_open(path, framework=framework) as tensors:
            yield tensors
    except DamagedFileError:
        raise
    except _FAULTS as error:
        raise DamagedFileError(f"it is not a whole safetensors file ({reason_of(error)})") from error


def header_of(tensors: Any) -> dict[str, Any]:
    """The JSON object in the metadata of an open safetensors file; empty if there is none.

    Raises:
        DamagedFileError: it is no JSON, or holds another value.
    """
    try:
        value = json.loads((tensors.metadata() or {}).get("ctsan", "{}"))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"its header is not JSON ({reason_of(error)})") from error
    if not isinstance(value, dict):
        raise DamagedFileError("its header is not an object")
    return value


def check_finite(array: NDArray[Any]) -> None:
    """Check that all numbers of an array are finite.

    Raises:
        DamagedFileError: one is infinite or no number.
    """
    if array.dtype == np.float16:  # of each value the bits, which takes a fifth of the time
        is_finite = bool(((array.view(np.uint16) & _EXPONENT) != _EXPONENT).all())
    else:
        is_finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
    if not is_finite:
        raise DamagedFileError("it holds values that are infinite or no number")
