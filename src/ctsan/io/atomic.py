"""Files appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and goes otherwise.

    Its name is always the same, so that what a killed process leaves is overwritten by the next one; two
    processes that might write one path at a time must hold a lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write readable JSON, with the same bytes for the same value."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a file name of another encoding
        content = (json.dumps(value, indent=1) + "\n").encode()
    with replacing(path) as temporary:
        temporary.write_bytes(content)
