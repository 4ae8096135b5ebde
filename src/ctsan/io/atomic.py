"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; it replaces `path` unless the block raises, then it is deleted.

    The temporary name is fixed, so the next write overwrites what a killed process left. Processes that may
    write the same path concurrently must hold a lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically; the same value gives the same bytes."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a file name that is not UTF-8
        content = (json.dumps(value, indent=1) + "\n").encode()
    with replacing(path) as temporary:
        temporary.write_bytes(content)
