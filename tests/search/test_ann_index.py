"""Growing arrays, and the nearest of many vectors by an index and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ctsan.search import ann_index as nearest
from ctsan.search.ann_index import Nearest, write_index
from ctsan.search.growable_array import read_rows, write_rows


def test_rows_are_appended_overwritten_and_read_by_anyone(tmp_path: Path) -> None:
    file = tmp_path / "rows.npy"
    rows = np.arange(60, dtype=np.float16).reshape(10, 2, 3)
    write_rows(file, 0, rows[:4])
    write_rows(file, 4, rows[:6])  # of a process that was killed
    write_rows(file, 4, rows[4:])
    np.testing.assert_array_equal(read_rows(file, 10), rows)
    np.testing.assert_array_equal(read_rows(file, 3), rows[:3])
    np.testing.assert_array_equal(np.load(file, mmap_mode="r"), rows)


def test_the_bytes_are_the_same_however_rows_came(tmp_path: Path) -> None:
    rows = np.arange(2000, dtype=np.int32).reshape(1000, 2)
    write_rows(tmp_path / "once.npy", 0, rows)
    for start in range(0, 1000, 100):
        write_rows(tmp_path / "often.npy", start, rows[start : start + 100])
    assert (tmp_path / "once.npy").read_bytes() == (tmp_path / "often.npy").read_bytes()


def test_rows_of_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.npy", 0, np.zeros((5, 0), np.int32))
    assert read_rows(tmp_path / "rows.npy", 5).shape == (5, 0)


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float16]:
    """Vectors around a few hundred centres, as clips of the same kind are."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(300, 32))
    vectors = centres[random.integers(0, 300, 12_000)] + 0.7 * random.normal(size=(12_000, 32))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def test_the_index_finds_nearly_all_that_going_through_finds(
    vectors: NDArray[np.float16], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(0, len(vectors), 2)  # the others are of files that are gone
    write_index(tmp_path / "index.faiss", vectors, rows)
    monkeypatch.setattr(nearest, "EXACT_UP_TO", 1000)
    through, index = Nearest(vectors, rows, None), Nearest(vectors, rows, tmp_path / "index.faiss")
    allowed = rows[rows % 3 == 0]
    shares = []
    for query in vectors[:40].astype(np.float32):
        exact, found = through.find(query, 100), index.find(query, 100)
        assert (
            exact.tolist()
            == rows[np.argsort(-(vectors[rows].astype(np.float32) @ query), kind="stable")[:100]].tolist()
        )
        shares.append(len(np.intersect1d(exact, found)) / 100)
        assert np.isin(index.find(query, 100, allowed), allowed).all()
    assert np.mean(shares) > 0.9


def test_an_index_has_the_same_bytes_each_time(vectors: NDArray[np.float16], tmp_path: Path) -> None:
    rows = np.arange(3000)
    write_index(tmp_path / "a", vectors, rows)
    write_index(tmp_path / "b", vectors, rows)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
