"""Growable arrays, and nearest-neighbour search with and without a FAISS index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ctsan.search import ann_index
from ctsan.search.ann_index import AnnIndex, write_index
from ctsan.search.growable_array import read_rows, write_rows


def test_rows_are_appended_overwritten_and_readable_by_numpy(tmp_path: Path) -> None:
    file = tmp_path / "rows.npy"
    rows = np.arange(60, dtype=np.float16).reshape(10, 2, 3)
    write_rows(file, 0, rows[:4])
    write_rows(file, 4, rows[:6])  # left by a killed process
    write_rows(file, 4, rows[4:])
    np.testing.assert_array_equal(read_rows(file, 10), rows)
    np.testing.assert_array_equal(read_rows(file, 3), rows[:3])
    np.testing.assert_array_equal(np.load(file, mmap_mode="r"), rows)


def test_the_bytes_do_not_depend_on_the_number_of_writes(tmp_path: Path) -> None:
    rows = np.arange(2000, dtype=np.int32).reshape(1000, 2)
    write_rows(tmp_path / "one_write.npy", 0, rows)
    for start in range(0, 1000, 100):
        write_rows(tmp_path / "many_writes.npy", start, rows[start : start + 100])
    assert (tmp_path / "one_write.npy").read_bytes() == (tmp_path / "many_writes.npy").read_bytes()


def test_rows_without_columns(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.npy", 0, np.zeros((5, 0), np.int32))
    assert read_rows(tmp_path / "rows.npy", 5).shape == (5, 0)


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float16]:
    """Vectors clustered around a few hundred centres, like the embeddings of similar clips."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(300, 32))
    vectors = centres[random.integers(0, 300, 12_000)] + 0.7 * random.normal(size=(12_000, 32))
    unit: NDArray[np.float16] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    return unit


def test_the_index_finds_nearly_all_that_an_exhaustive_search_finds(
    vectors: NDArray[np.float16], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(0, len(vectors), 2)  # the other rows are unused
    write_index(tmp_path / "index.faiss", vectors, rows)
    monkeypatch.setattr(ann_index, "EXACT_UP_TO", 1000)
    exhaustive, index = AnnIndex(vectors, rows, None), AnnIndex(vectors, rows, tmp_path / "index.faiss")
    allowed = rows[rows % 3 == 0]
    recalls = []
    for query in vectors[:40].astype(np.float32):
        exact, approximate = exhaustive.search(query, 100), index.search(query, 100)
        assert (
            exact.tolist()
            == rows[np.argsort(-(vectors[rows].astype(np.float32) @ query), kind="stable")[:100]].tolist()
        )
        recalls.append(len(np.intersect1d(exact, approximate)) / 100)
        assert np.isin(index.search(query, 100, allowed), allowed).all()
    assert np.mean(recalls) > 0.9


def test_writing_an_index_is_deterministic(vectors: NDArray[np.float16], tmp_path: Path) -> None:
    rows = np.arange(3000)
    write_index(tmp_path / "a", vectors, rows)
    write_index(tmp_path / "b", vectors, rows)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
