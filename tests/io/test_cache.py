"""The cache folder: for its owner only, shown with its size, and cleared without touching anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan_here
from ctsan.errors import UsageError
from ctsan.io.cache import cache_entries, clear_cache
from ctsan.io.paths import CACHE_TAG, cache_folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    folder = cache_folder()
    for name, size in (
        ("onnx/a.onnx", 5_000_000),
        ("onnx/b.onnx", 9),
        ("features/mine-1/net/maps.npy", 400_000),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))
    return folder


def test_the_folder_is_for_its_owner_only(cache: Path) -> None:
    assert cache.stat().st_mode & 0o777 == 0o700
    assert (
        (cache / CACHE_TAG)
        .read_text(encoding="utf-8")
        .startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    )


def test_the_default_folder_of_an_older_version_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CTSAN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ctsan" / "onnx").mkdir(parents=True)
    (tmp_path / "ctsan").chmod(0o755)
    assert cache_folder() == tmp_path / "ctsan"
    assert (tmp_path / "ctsan").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "ctsan" / CACHE_TAG).is_file()


def test_a_folder_that_somebody_named_keeps_its_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path))
    cache_folder()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_the_command_shows_what_is_there(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ctsan_here("cache")
    said = capsys.readouterr().out
    assert said.startswith(f"{cache}: 5.4 MB\n\nonnx: networks")
    assert [line.split() for line in said.splitlines() if line.startswith("  ")] == [
        ["5.0", "MB", "a.onnx"],
        ["9", "B", "in", "1", "small", "file"],
        ["400", "kB", "mine-1"],
    ]
    ctsan_here("cache", "--json")
    report = json.loads(capsys.readouterr().out)
    assert (report["folder"], report["bytes"]) == (str(cache), 5_400_009)
    assert [entry["part"] for entry in report["entries"]] == ["onnx", "onnx", "features"]


def test_an_empty_cache_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "none"))
    ctsan_here("cache")
    assert capsys.readouterr().out == f"{tmp_path / 'none'}: 0 B\n"


def test_parts_are_cleared_by_name(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ctsan_here("cache", "clear", "onnx")
    assert capsys.readouterr().out == f"Deleted 2 files (5.0 MB) in {cache}\n"
    assert [entry.path.name for entry in cache_entries()] == ["mine-1"]
    ctsan_here("cache", "clear", "--json")
    assert json.loads(capsys.readouterr().out)["bytes"] == 400_000
    assert cache_entries() == []
    with pytest.raises(UsageError, match="no part 'onx'. Did you mean 'onnx'?"):
        clear_cache(["onx"])


def test_nothing_but_its_parts_is_deleted(cache: Path, tmp_path: Path) -> None:
    (cache / "mine.txt").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    (cache / "features" / "link").symlink_to(tmp_path / "elsewhere")
    (cache / "words").symlink_to(tmp_path / "elsewhere")
    clear_cache()
    assert {path.name for path in cache.iterdir()} >= {"mine.txt", "words"}
    assert (tmp_path / "elsewhere" / "kept").exists()
    assert not (cache / "features" / "link").is_symlink()


def test_a_folder_with_files_of_others_is_not_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of somebody who set CTSAN_CACHE to a home folder, which has a folder `words`."""
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "novel.txt").touch()
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"other files were in this folder before ctsan.*yourself: words\."):
        clear_cache()
    assert (tmp_path / "words" / "novel.txt").exists()


def test_a_cache_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "file" / "cache"))
    assert cache_entries() == []
