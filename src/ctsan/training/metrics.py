"""`metrics.jsonl`: periodic rows of losses, and one row per evaluation; also TensorBoard, if installed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ctsan.errors import RunError
from ctsan.io.atomic import storage_errors, sync
from ctsan.io.fields import whole_field
from ctsan.io.reading import DamagedFileError, check_regular

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """Appends rows to a run's metrics file. Rows after the last checkpoint are cut, to be written again."""

    def __init__(self, file: Path, *, size: int, step: int) -> None:
        """Open the file at a checkpoint's `size` and `step`, both 0 for a new run.

        Raises:
            RunError: the file is shorter than it was at the checkpoint, or is no file.
            StorageError: it cannot be written to.
        """
        remedy = "Put it back from a copy, or name another folder for a new run."
        if file.exists():
            try:
                check_regular(file)
            except DamagedFileError as error:
                raise RunError(f"{file}: {error}. {remedy}") from None
        self._file, self._board = file, None
        with storage_errors(file):
            self._rows = file.open("ab", buffering=0)  # what cannot be written must not be tried again
            try:
                sync(file.parent)  # its name is on the disk before a checkpoint speaks of its size
            except OSError:
                self.close()
                raise
        if (num_bytes := self._rows.tell()) < size:
            self.close()
            raise RunError(
                f"{file}: it has {num_bytes} bytes, and had {size} at the last checkpoint. {remedy}"
            )
        self._rows.truncate(size)
        self._board = _tensorboard(file.parent / "tensorboard", step)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row as one line of JSON, unbuffered, and its numbers to TensorBoard if there is any.

        Raises:
            StorageError: the disk is full.
        """
        rest = memoryview(json.dumps(_without_nan(row), ensure_ascii=False).encode() + b"\n")
        with storage_errors(self._file):
            while rest:  # the system may write a part
                rest = rest[self._rows.write(rest) :]
            if self._board is not None:
                for name, value in _scalars(row):
                    self._board.add_scalar(name, value, row["step"])

    def size(self) -> int:
        """Flush to disk, and return the size in bytes.

        Raises:
            StorageError: the disk is full.
        """
        with storage_errors(self._file):
            os.fsync(self._rows.fileno())
        return os.fstat(self._rows.fileno()).st_size

    def close(self) -> None:
        self._rows.close()
        if self._board is not None:
            with storage_errors(self._file.parent / "tensorboard"):
                self._board.close()


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """Read the rows; an incomplete last one is left out.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        check_regular(file)
        complete = file.read_bytes().rpartition(b"\n")[0]
        return [_row(number, line) for number, line in enumerate(complete.splitlines(), start=1)]
    except (DamagedFileError, OSError) as error:
        what = f"the metrics cannot be read ({error})"
        raise RunError(f"{file}: {what}. Name the folder of a run, or train one.") from None


def _row(number: int, line: bytes) -> dict[str, Any]:
    """A row with its step, and numbers by name where it has `losses` or `metrics`; null for NaN."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise DamagedFileError(f"line {number} is not JSON") from None
    if not isinstance(row, dict):
        raise DamagedFileError(f"line {number} is not an object")
    whole_field(row, "step")
    for name in ("losses", "metrics"):
        values = row.get(name, {})
        if not isinstance(values, dict) or not all(map(_is_number_or_null, values.values())):
            raise DamagedFileError(f"the {name!r} of line {number} are not numbers")
    if "losses" in row and not _is_number_or_null(row.get("total")):
        raise DamagedFileError(f"the 'total' of line {number} is not a number")
    return row


def _is_number_or_null(value: object) -> bool:
    return (
        value is None
        or (type(value) is int and abs(value) < 2**53)
        or (type(value) is float and math.isfinite(value))
    )


def _tensorboard(folder: Path, step: int) -> Any:
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step + 1)  # hides what was written after the checkpoint


def _scalars(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{name}/")
        elif name not in ("step", "epoch"):
            yield f"{prefix}{name}", value


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, Mapping):
        return {name: _without_nan(inner) for name, inner in value.items()}
    return value if math.isfinite(value) else None
