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

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """Appends rows to a run's metrics file. Rows after the last checkpoint are cut, to be written again."""

    def __init__(self, file: Path, *, size: int, step: int) -> None:
        """Open the file at a checkpoint's `size` and `step`, both 0 for a new run.

        Raises:
            RunError: the file is shorter than it was at the checkpoint.
        """
        self._rows, self._board = file.open("ab"), None
        if (found := self._rows.tell()) < size:
            self.close()
            remedy = "Put it back from a copy, or name another folder for a new run."
            raise RunError(f"{file}: it has {found} bytes, and had {size} at the last checkpoint. {remedy}")
        self._rows.truncate(size)
        self._board = _tensorboard(file.parent / "tensorboard", step)

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.write(json.dumps(_without_nan(row), ensure_ascii=False).encode() + b"\n")
        self._rows.flush()
        if self._board is not None:
            for name, value in _scalars(row):
                self._board.add_scalar(name, value, row["step"])

    def size(self) -> int:
        """Flush to disk, and return the size in bytes."""
        os.fsync(self._rows.fileno())
        return os.fstat(self._rows.fileno()).st_size

    def close(self) -> None:
        self._rows.close()
        if self._board is not None:
            self._board.close()


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """Read the rows; an incomplete last one is left out.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError) as error:
        what = f"the metrics cannot be read ({error})"
        raise RunError(f"{file}: {what}. Name the folder of a run, or train one.") from None


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
