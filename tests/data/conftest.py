"""Corpora of the tests' own writing, made in a temporary folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Write = Callable[[Mapping[str, object]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files below a folder: text or bytes as they are, a list as JSON lines, a dict as JSON."""

    def write(files: Mapping[str, object]) -> Path:
        root = tmp_path / "corpus"
        root.mkdir(exist_ok=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, list):
                content = "".join(json.dumps(row) + "\n" for row in content)
            elif isinstance(content, dict):
                content = json.dumps(content)
            path.write_bytes(content if isinstance(content, bytes) else str(content).encode("utf-8"))
        return root

    return write
