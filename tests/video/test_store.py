"""The index of a store: costs do not grow with it, a kill leaves it whole, damage has a remedy."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

import ctsan.video.extraction as extraction
from ctsan.errors import StoreError
from ctsan.video.clip_index import ClipRecord
from ctsan.video.extraction import fill_store
from ctsan.video.store import FeatureStore, Manifest, StoredFeatures, write_manifest
from video.byte_features import RECIPE, Clips, contents, features_of, fill

PAGE = 4096  # bytes that SQLite writes at once


@pytest.fixture
def clips(tmp_path: Path) -> Clips:
    """Files of 1 to 9 bytes, whose features have as many frames."""
    folder = tmp_path / "clips"
    folder.mkdir()
    made = [(f"clip {number}", folder / f"{number}") for number in range(9)]
    for number, (_, path) in enumerate(made):
        path.write_bytes(b"x" * (number + 1))
    return made


def as_version_1(folder: Path) -> None:
    """Turn a store into what ctsan wrote before there was an index."""
    manifest = FeatureStore(folder).manifest
    value = {
        "format": "ctsan-features",
        "version": 1,
        "recipe": asdict(manifest.recipe),
        "clips": {clip: asdict(record) for clip, record in manifest.clips.items()},
        "unreadable": dict(manifest.unreadable),
    }
    (folder / "manifest.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    (folder / "index.sqlite").unlink()


def many_records(count: int) -> dict[str, ClipRecord]:
    return {f"clips/{number:08}.mp4": ClipRecord(number % 40 + 1, number, number) for number in range(count)}


def test_opening_takes_no_more_memory_with_more_clips(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest(RECIPE, many_records(30_000), {}))
    tracemalloc.start()
    try:
        store = FeatureStore(tmp_path)
        assert "clips/00029999.mp4" in store
        assert "clips/00030000.mp4" not in store
        assert store.manifest.clips["clips/00029999.mp4"] == ClipRecord(40, 29_999, 29_999)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert len(store) == 30_000
    assert list(store) == list(many_records(30_000))


def test_adding_a_clip_writes_no_more_with_more_clips(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    write_manifest(folder, Manifest(RECIPE, many_records(30_000), {}))
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    numbers = {path: path.stat().st_ino for path in before}
    assert fill(clips[:1], folder).done == 1
    assert list(FeatureStore(folder))[-1] == clips[0][0]
    changed = 0
    for path, content in before.items():
        assert path.stat().st_ino == numbers[path]  # not replaced by another file
        after = path.read_bytes()
        starts = range(0, max(len(content), len(after)), PAGE)
        changed += sum(after[start : start + PAGE] != content[start : start + PAGE] for start in starts)
    assert 0 < changed < 10


def test_what_a_killed_run_did_is_known_without_reading_the_sources_again(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "BLOCK", 3)

    def killed_at_the_eighth(path: Path) -> StoredFeatures:
        if path == clips[7][1]:
            raise KeyboardInterrupt
        return features_of(path)

    with pytest.raises(KeyboardInterrupt):
        fill_store(clips, tmp_path / "f", RECIPE, killed_at_the_eighth, workers=1)
    read: list[Path] = []
    digest = extraction._file_digest

    def recorded(path: Path) -> str:
        read.append(path)
        return digest(path)

    monkeypatch.setattr(extraction, "_file_digest", recorded)
    report = fill(clips, tmp_path / "f")
    assert report.done + report.kept == 9
    assert set(read) == {path for _, path in clips[6:]}
    fill(clips, tmp_path / "whole")
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


def test_a_process_killed_while_it_writes_the_index_leaves_it_as_it_was(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    fill(clips[:5], folder)
    fill(clips[:5], tmp_path / "whole")
    before = contents(folder)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from ctsan.video.clip_index import ClipIndex, ClipRecord, _upsert\n"
        "index = ClipIndex(Path(sys.argv[1])); connection = index._connection\n"
        "connection.execute('pragma cache_size = 1')  # so that pages are written before the end\n"
        "_upsert(connection, {f'new {n}': ClipRecord(1, 1, 1) for n in range(5000)}, {})\n"
        "os._exit(9)\n"
    )
    process = subprocess.run([sys.executable, "-c", script, folder / "index.sqlite"], check=False)
    assert process.returncode == 9
    assert (folder / "index.sqlite-journal").exists()
    assert (folder / "index.sqlite").read_bytes() != before["index.sqlite"]
    assert list(FeatureStore(folder)) == [clip for clip, _ in clips[:5]]
    assert contents(folder) == before
    fill(clips, folder)
    fill(clips, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_change_half_done_is_not_taken_back_from_a_new_index(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    before = contents(folder)
    (folder / "index.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(5000))
    (folder / "manifest.json").unlink()
    assert fill(clips, folder).kept == len(clips)
    assert contents(folder) == before


def test_a_store_of_format_version_1_is_read_as_it_is(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    fill([*clips, ("gone", tmp_path / "gone")], folder)
    as_version_1(folder)
    before = contents(folder)
    store = FeatureStore(folder)
    assert list(store) == [clip for clip, _ in clips]
    assert [len(store[clip].maps) for clip in store] == list(range(1, 10))
    assert store.manifest.clips["clip 3"].frames == 4
    with pytest.raises(StoreError, match="no features of clip 'gone': .*No such file"):
        store["gone"]
    assert contents(folder) == before


def test_filling_a_store_of_format_version_1_converts_it(clips: Clips, tmp_path: Path) -> None:
    for folder in (tmp_path / "f", tmp_path / "whole"):
        fill([*clips[:6], ("gone", tmp_path / "gone")], folder)
    as_version_1(tmp_path / "f")
    # What a conversion that was killed leaves: an index that no manifest speaks of.
    (tmp_path / "f/index.sqlite").write_bytes(b"another")
    for folder in (tmp_path / "f", tmp_path / "whole"):
        report = fill(clips, folder)
        assert (report.done, report.kept) == (3, 6)
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


def test_a_clip_is_listed_as_read_or_as_unreadable_never_both(clips: Clips, tmp_path: Path) -> None:
    folder, (clip, path) = tmp_path / "f", clips[2]
    content = path.read_bytes()
    fill(clips, folder)
    path.unlink()
    fill(clips, folder)
    store = FeatureStore(folder)
    assert clip not in store
    assert list(store.manifest.unreadable) == [clip]
    path.write_bytes(content)
    fill(clips, folder)
    assert clip in store
    assert not store.manifest.unreadable
    assert set(store) == {clip for clip, _ in clips}


def broken_indexes() -> Iterator[tuple[str, bytes | None, str]]:
    yield "missing", None, "there is no such file"
    yield "empty", b"", "no such table"
    yield "text", b"not a database " * 500, "file is not a database"
    yield "cut off", b"SQLite format 3\0", "file is not a database"


@pytest.mark.parametrize(
    ("content", "what"), [pytest.param(*broken, id=name) for name, *broken in broken_indexes()]
)
def test_a_damaged_index_is_named_and_its_remedy_works(
    clips: Clips, tmp_path: Path, content: bytes | None, what: str
) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    before = contents(folder)
    (folder / "index.sqlite").unlink()
    if content is not None:
        (folder / "index.sqlite").write_bytes(content)
    message = rf"index.sqlite: the index .* \({what}.*Delete .*manifest.json and run 'ctsan features' again"
    with pytest.raises(StoreError, match=message):
        FeatureStore(folder)
    with pytest.raises(StoreError, match=message):
        fill(clips, folder)
    (folder / "manifest.json").unlink()
    report = fill(clips, folder)
    assert (report.done, report.kept) == (0, len(clips))
    assert contents(folder) == before


def test_damage_within_an_index_is_named_where_it_is_met(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest(RECIPE, many_records(5_000), {}))
    file = tmp_path / "index.sqlite"
    content = bytearray(file.read_bytes())
    half = len(content) // 2
    content[half:] = b"\xff" * (len(content) - half)
    file.write_bytes(content)
    store = FeatureStore(tmp_path)
    with pytest.raises(StoreError, match=r"index.sqlite: the index .* is missing or damaged \(database disk"):
        list(store)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_store_that_may_not_be_written_can_be_read(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    for path in (folder, folder / "index.sqlite"):
        path.chmod(0o555)
    try:
        assert len(FeatureStore(folder)["clip 4"].maps) == 5
    finally:
        folder.chmod(0o755)  # so that it can be removed


def test_threads_and_processes_may_share_a_store(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    store = FeatureStore(folder)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda clip: len(store[clip].maps), list(store) * 20)) == list(range(1, 10)) * 20
    copy = pickle.loads(pickle.dumps(store))
    shutil.move(folder, tmp_path / "moved")  # the copy has a connection of its own
    assert list(copy) == list(store)

    script = (
        "import os, sys; from pathlib import Path; from ctsan.video.store import FeatureStore\n"
        "store = FeatureStore(Path(sys.argv[1])); assert 'clip 4' in store\n"
        "inherited = store.manifest.index._connection\n"
        "child = os.fork()\n"
        "assert len(store['clip 4'].maps) == 5\n"
        "assert (store.manifest.index._connection is inherited) == bool(child)\n"
        "sys.exit(os.waitpid(child, 0)[1] if child else 0)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "moved"], check=True)
