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


@pytest.fixture
def make_video() -> Callable[..., None]:
    """Encode a tiny real video: a grey square that grows lighter."""
    import av
    import numpy as np

    def make_video(path: Path, *, frames: int = 10, rate: int = 10) -> None:
        with av.open(str(path), "w") as container:
            stream = container.add_stream("mpeg4", rate=rate)
            stream.width = stream.height = 32
            for n in range(frames):
                pixels = np.full((32, 32, 3), 20 * n % 256, dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())

    return make_video
