"""Read the weights of a trained run as NumPy arrays, and write those of a pack.

Weights are one safetensors file. In a pack (`packing`) they are in half precision or 8 bits, and tensors that
several runs share are in one file next to the run folders.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ctsan.errors import RunError
from ctsan.io.arrays import header_of, open_tensors
from ctsan.io.atomic import replacing
from ctsan.io.fields import OtherFormatError, check_format
from ctsan.io.reading import DamagedFileError, check_regular

WEIGHTS_FILE = "weights.safetensors"
SHARED_FILE = "shared.safetensors"  # in a pack, in the parent of the run folders
SCALE = "/scale"  # suffix of the tensor with the row scales of an 8-bit matrix
WEIGHTS_FORMAT, SHARED_FORMAT = "ctsan-weights", "ctsan-shared-weights"
VERSION = 1

Array = NDArray[Any]

_REMOVED = frozenset({"clip_encoder.word_noise"})  # in files of older runs; no current model has them
_DTYPES = frozenset({"float16", "float32", "float64", "int8", "int64", "bool"})
_AGAIN = "Put it back from a copy, or name another folder for a new run."


def read_weights(file: Path) -> dict[str, Array]:
    """Read the weights of a run, in a pack or not, as single precision.

    Raises:
        RunError: the file is missing, damaged, or of another format or version.
    """
    tensors, header = _read(file, WEIGHTS_FORMAT)
    names = header.get("shared") or {}  # tensor name -> key in the shared file
    with damage_of(file):
        if not isinstance(names, dict) or not all(isinstance(key, str) for key in names.values()):
            raise DamagedFileError("its 'shared' does not name tensors")
    if names:
        shared, _ = _read(file.parent.parent / SHARED_FILE, SHARED_FORMAT, only=set(names.values()))
        tensors |= {name: shared[key] for name, key in names.items()}
    with damage_of(file):
        return {
            name: _to_float32(name, tensor, tensors.get(name + SCALE))
            for name, tensor in without_removed(tensors).items()
            if not name.endswith(SCALE)
        }


def check_weights(file: Path) -> None:
    """Check that a weights file can be opened, without reading its tensors.

    Raises:
        RunError: the file is missing, damaged, or of another format or version.
    """
    with opened_tensors(file, WEIGHTS_FORMAT):
        pass


def write_packed_weights(file: Path, tensors: Mapping[str, Array], shared: Mapping[str, str]) -> None:
    """Write the weights of one run of a pack.

    Args:
        tensors: those that no other run has.
        shared: tensor name -> key in the shared file.
    """
    _write(file, WEIGHTS_FORMAT, tensors, {"shared": shared})


def write_shared_weights(file: Path, tensors: Mapping[str, Array]) -> None:
    """Write the tensors that several runs of a pack share, by key."""
    _write(file, SHARED_FORMAT, tensors, {})


def _write(file: Path, kind: str, tensors: Mapping[str, Array], header: Mapping[str, object]) -> None:
    with replacing(file) as temporary:
        temporary.write_bytes(save(dict(tensors), metadata=metadata_of(kind, header)))


def metadata_of(kind: str, header: Mapping[str, object]) -> dict[str, str]:
    """One entry only: the library writes several in an order that is not deterministic."""
    return {"ctsan": json.dumps({"format": kind, "version": VERSION, **header})}


def _read(
    file: Path, kind: str, only: Collection[str] | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read the header of a file and its tensors, or only those named in `only`."""
    with opened_tensors(file, kind) as (opened, header):
        names = opened.keys() if only is None else only
        tensors = {name: opened.get_tensor(name) for name in names}  # copies of the memory-mapped file
        for name, tensor in tensors.items():
            _check_numbers(name, tensor)
        return tensors, header


@contextmanager
def opened_tensors(file: Path, kind: str, framework: str = "numpy") -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open a safetensors file of ours (memory-mapped) and read its header.

    Raises:
        RunError: the file is missing, damaged, or of another format or version.
    """
    try:
        check_regular(file)
    except DamagedFileError as error:
        remedy = "Train first, or name another run." if not file.exists() else _AGAIN
        raise RunError(f"{file}: {error}. {remedy}") from None
    with damage_of(file), open_tensors(file, framework=framework) as opened:
        header = header_of(opened)
        check_format(header, kind, VERSION)
        yield opened, header


@contextmanager
def damage_of(file: Path) -> Iterator[None]:
    """Raise damage of a file as `RunError`, with the file and the remedy."""
    try:
        yield
    except OtherFormatError as error:
        raise RunError(f"{file}: {error}. Use the ctsan that made it, or name another folder.") from None
    except DamagedFileError as error:
        raise RunError(f"{file}: it is damaged ({error}). {_AGAIN}") from None


def without_removed(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out tensors of older runs that no model has any more."""
    return {name: tensor for name, tensor in tensors.items() if name not in _REMOVED}


def _to_float32(name: str, tensor: Array, scale: Array | None) -> Array:
    if scale is not None:
        if tensor.ndim < 2 or scale.dtype.kind != "f" or scale.shape != tensor.shape[:1]:
            raise DamagedFileError(f"the scales of {name} do not fit")
        return tensor * scale.astype(np.float32, copy=False).reshape(-1, *[1] * (tensor.ndim - 1))
    return tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor


def _check_numbers(name: str, tensor: Array) -> None:
    """The sum is finite only if all numbers are, and is computed faster than a mask of them."""
    if tensor.dtype.name not in _DTYPES:
        raise DamagedFileError(f"its {name} is of the type {tensor.dtype}")
    if tensor.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        is_suspicious = not np.isfinite(tensor.sum(dtype=np.float32))
    if is_suspicious and not np.isfinite(tensor).all():
        raise DamagedFileError(f"its {name} has values that are infinite or no number")
