"""Growable arrays, and nearest-neighbour search with and without a FAISS index."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ctsan.errors import StorageError
from ctsan.io.reading import DamagedFileError
from ctsan.search import ann_index, growable_array
from ctsan.search.ann_index import AnnIndex, build_index, write_index
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


def test_a_reader_can_open_the_file_at_every_moment_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that a killed process left are cut off; until then, the header must not speak of them."""
    file, valid = tmp_path / "rows.npy", np.ones((4, 3), np.float16)
    write_rows(file, 0, valid)
    write_rows(file, 4, np.zeros((6, 3), np.float16))  # left by a killed process
    header = growable_array._header
    seen = []

    def look(*given: Any) -> bytes:
        seen.append(read_rows(file, 4).copy())
        return header(*given)

    monkeypatch.setattr(growable_array, "_header", look)
    write_rows(file, 4, np.zeros((1, 3), np.float16))
    assert len(seen) >= 3
    assert all((rows == valid).all() for rows in seen)


def test_an_array_of_fewer_rows_is_damaged(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.npy", 0, np.zeros((5, 2), np.int32))
    with pytest.raises(DamagedFileError, match="it has 5 rows, and the records speak of 6"):
        read_rows(tmp_path / "rows.npy", 6)


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


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zero_head(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(100)
        stream.write(b"\0" * 1000)


def fill_head(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(8)
        stream.write(b"\xff" * 64)


def zero_tail(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(-1000, os.SEEK_END)
        stream.write(b"\0" * 900)


def zero_entries(file: Path) -> None:
    """Behind what is checked at the end; a search finds it."""
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.seek(size // 3)
        stream.write(b"\0" * (size - size // 3 - 40 - ann_index._CHECKED_ENTRIES))


def become_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def become_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "damage",
    [
        *(cut, zero_head, fill_head, zero_tail, zero_entries, become_a_folder, become_a_pipe),
        *(lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"\0" * file.stat().st_size)),
    ],
)
def test_a_damaged_index_is_said_and_the_search_is_exhaustive(
    vectors: NDArray[np.float16],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
) -> None:
    monkeypatch.setattr(ann_index, "EXACT_UP_TO", 1000)
    file, rows = tmp_path / "main" / "index-7.faiss", np.arange(len(vectors))
    write_index(file, vectors, rows)
    damage(file)
    query = vectors[5].astype(np.float32)
    found = AnnIndex(vectors, rows, file).search(query, 10)
    assert found.tolist() == AnnIndex(vectors, rows, None).search(query, 10).tolist()
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [f"{file}: it is damaged"]
    assert f"ctsan index FOLDER --library main --store {tmp_path}" in caplog.text


def test_an_index_of_other_rows_is_not_used(
    vectors: NDArray[np.float16], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_index(tmp_path / "index-7.faiss", vectors, np.arange(3000))
    AnnIndex(vectors, np.arange(3001), tmp_path / "index-7.faiss")
    assert "it is of 3,000 shots, and the library has 3,001" in caplog.text


def test_an_index_of_an_older_ctsan_is_used_in_a_library_of_that_version(
    vectors: NDArray[np.float16],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ann_index, "EXACT_UP_TO", 1000)
    file, rows = tmp_path / "index-7.faiss", np.arange(len(vectors))
    write_index(file, vectors, rows)
    query = vectors[5].astype(np.float32)
    expected = AnnIndex(vectors, rows, file).search(query, 10).tolist()
    os.truncate(file, file.stat().st_size - 40)  # without checksums
    assert AnnIndex(vectors, rows, file, has_checksums=False).search(query, 10).tolist() == expected
    assert not caplog.records
    AnnIndex(vectors, rows, file)
    assert "it is cut off, or of an older ctsan" in caplog.text


class LibraryOfVectors:
    """As much of a library as `build_index` reads."""

    file_mode = 0o600

    def __init__(self, file: Path, vectors: NDArray[np.float16]) -> None:
        self.index_file, self._vectors = file, vectors

    def rows(self) -> NDArray[np.int64]:
        return np.arange(len(self._vectors))

    def array(self, name: str) -> NDArray[np.float16]:
        assert name == "vectors"
        return self._vectors


@pytest.mark.parametrize("damage", [cut, zero_head, zero_tail, become_a_folder, Path.unlink])
def test_a_damaged_index_is_written_anew(
    vectors: NDArray[np.float16],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], object],
) -> None:
    monkeypatch.setattr(ann_index, "EXACT_UP_TO", 1000)
    library: Any = LibraryOfVectors(tmp_path / "index-7.faiss", vectors)
    build_index(library)
    whole = library.index_file.read_bytes()
    assert stat.S_IMODE(library.index_file.stat().st_mode) == 0o600
    damage(library.index_file)
    build_index(library)
    assert library.index_file.read_bytes() == whole


def test_a_full_disk_is_said_and_leaves_no_index(
    vectors: NDArray[np.float16], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    callback_writer = ann_index._writer
    broken: Any = SimpleNamespace(write=full)
    monkeypatch.setattr(ann_index, "_writer", lambda _: callback_writer(broken))
    with pytest.raises(StorageError, match="index-7.faiss: No space left on device. Free some space"):
        write_index(tmp_path / "index-7.faiss", vectors, np.arange(3000))
    assert not list(tmp_path.iterdir())
