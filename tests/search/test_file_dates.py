"""Files of any date can be recorded in a library."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctsan.search.indexing import _HashedFile, _Indexer


@pytest.mark.parametrize("year", [2300, 1600])
def test_dates_fit_into_the_integers_of_sqlite(tmp_path: Path, year: int) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"no video")
    nanoseconds = (year - 1970) * 31_557_600 * 10**9
    os.utime(path, ns=(nanoseconds, nanoseconds))
    store: Any = SimpleNamespace(words=[], has_content=lambda *_: True)
    hashed = _Indexer(store, [], lambda _: iter(()), file_batch=1)._hash(path, None, set())
    assert isinstance(hashed, _HashedFile)
    assert abs(hashed.record.mtime_ns) < 2**63
