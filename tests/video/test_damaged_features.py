"""Damaged files of a feature store are made again, or named with a remedy that works."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import ctsan.video.extraction as extraction
import ctsan.video.store as store_module
from ctsan.errors import StorageError, StoreError
from ctsan.video.clip_index import ClipIndex, ClipRecord
from ctsan.video.imported import arrays_of, import_features
from ctsan.video.store import FeatureStore, Manifest, Recipe, StoredFeatures, clip_file, write_manifest
from video.byte_features import RECIPE, Clips, contents, fill


@pytest.fixture
def clips(tmp_path: Path) -> Clips:
    """Files of 1 to 5 bytes, whose features have as many frames."""
    made = [(f"clip {number}", tmp_path / f"{number}.mp4") for number in range(5)]
    for number, (_, path) in enumerate(made):
        path.write_bytes(b"x" * (number + 1))
    return made


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="emptied"),
        pytest.param(lambda content: content[:7], id="no header"),
        pytest.param(lambda content: content[:-1], id="truncated"),
        pytest.param(lambda content: content + b"\0", id="extended"),
        pytest.param(lambda content: b"\xff" * len(content), id="overwritten"),
        pytest.param(lambda content: content.replace(b"recipe", b"RECIPE"), id="no recipe"),
        pytest.param(lambda content: content[:-30] + bytes(30), id="zeroed at the end"),
        pytest.param(
            lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:], id="one bit of a map"
        ),
    ],
)
def test_a_damaged_file_of_a_clip_is_made_again(
    clips: Clips, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    before = contents(folder)
    file = clip_file(folder, "clip 3")
    file.write_bytes(damage(file.read_bytes()))
    report = fill(clips, folder)
    assert (report.done, report.kept, report.unreadable) == (1, 4, {})
    assert contents(folder) == before


def test_numbers_that_were_not_written_are_refused_with_a_remedy_that_works(
    clips: Clips, tmp_path: Path
) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    file = clip_file(folder, "clip 3")
    whole = file.read_bytes()
    flip_a_bit_of_the_maps(file)
    with pytest.raises(
        StoreError, match="clip 'clip 3' are .* damaged .*the checksum differs.*Delete the fi"
    ):
        FeatureStore(folder)["clip 3"]
    file.unlink()
    assert fill(clips, folder).done == 1
    assert file.read_bytes() == whole
    assert (FeatureStore(folder)["clip 3"].maps == 4).all()


def test_the_checksum_of_a_file_is_computed_once_a_process(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    computed: list[object] = []
    checksum = store_module._checksum

    def counted(arrays: dict[str, np.ndarray]) -> int:
        computed.append(arrays)
        return checksum(arrays)

    monkeypatch.setattr(store_module, "_checksum", counted)
    for _ in range(3):
        FeatureStore(folder)["clip 2"]
    assert len(computed) == 1
    flip_a_bit_of_the_maps(clip_file(folder, "clip 2"))  # which changes its time
    with pytest.raises(StoreError, match="the checksum differs"):
        FeatureStore(folder)["clip 2"]


def test_files_without_a_checksum_are_read_and_kept(clips: Clips, tmp_path: Path) -> None:
    """Such as those of earlier versions."""
    folder = tmp_path / "f"
    fill(clips, folder)
    file = clip_file(folder, "clip 2")
    with safe_open(file, framework="numpy") as opened:
        header = json.loads(opened.metadata()["ctsan-features"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # no iterator
    assert isinstance(header.pop("crc32"), int)
    file.write_bytes(save(tensors, metadata={"ctsan-features": json.dumps(header, sort_keys=True)}))
    assert (FeatureStore(folder)["clip 2"].maps == 3).all()
    assert fill(clips, folder).kept == len(clips)


def flip_a_bit_of_the_maps(file: Path) -> None:
    content = bytearray(file.read_bytes())
    size = struct.unpack("<Q", content[:8])[0]
    start, _ = json.loads(content[8 : 8 + size])["maps"]["data_offsets"]
    content[8 + size + start] ^= 1
    file.write_bytes(content)


def other_features() -> dict[str, tuple[dict[str, np.ndarray], str]]:
    maps, times = np.ones((2, 1, 1, 8), np.float16), np.zeros(2)
    return {
        "no number": ({"maps": maps * np.float16("nan"), "times": times}, "infinite or no number"),
        "infinite": ({"maps": maps * np.float16("inf"), "times": times}, "infinite or no number"),
        "infinite times": ({"maps": maps, "times": times + np.inf}, "infinite or no number"),
        "shape": ({"maps": maps[..., :7], "times": times}, r"the shape \(2, 1, 1, 7\)"),
        "axes": ({"maps": maps[0], "times": times}, r"the shape \(1, 1, 8\)"),
        "no frames": ({"maps": maps[:0], "times": times[:0]}, r"the shape \(0, 1, 1, 8\)"),
        "type": ({"maps": maps.astype(np.int32), "times": times}, "the type int32"),
        "times": ({"maps": maps, "times": times[:1]}, "another number of times"),
        "mirrored": ({"maps": maps, "times": times, "mirrored": maps[:1]}, r"the shape \(1, 1, 1, 8\)"),
        "nothing": ({"times": times}, "maps"),
    }


@pytest.mark.parametrize("name", other_features())
def test_features_that_no_model_could_use_are_refused(clips: Clips, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    file = clip_file(folder, "clip 1")
    tensors, what = other_features()[name]
    file.write_bytes(save({key: np.ascontiguousarray(value) for key, value in tensors.items()}))
    message = f"features of clip 'clip 1' are missing or damaged .*{what}.*Delete the file and run 'ctsan"
    with pytest.raises(StoreError, match=message):
        FeatureStore(folder)["clip 1"]
    file.unlink()
    assert fill(clips, folder).done == 1
    assert len(FeatureStore(folder)["clip 1"].maps) == 2


def test_numbers_of_a_type_that_numpy_lacks_are_refused(clips: Clips, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    header = json.dumps({"maps": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}).encode()
    clip_file(folder, "clip 1").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(StoreError, match="missing or damaged"):
        FeatureStore(folder)["clip 1"]


def test_maps_of_mirrored_frames_may_not_be_missing(tmp_path: Path) -> None:
    write_manifest(tmp_path / "f", Manifest(RECIPE, {"clip": ClipRecord(2, 1, 1)}, {}))
    maps = np.ones((2, 1, 1, 8), np.float16)
    store_module.write_clip(tmp_path / "f", "clip", StoredFeatures(maps, None), recipe="", source="")
    assert FeatureStore(tmp_path / "f")["clip"].mirrored is None
    mirrored = Recipe("drawn", (1, 1), 8, mirrored=True, details={})
    with pytest.raises(StoreError, match="it has no maps of mirrored frames"):
        store_module.read_clip(tmp_path / "f", "clip", mirrored)


def changed_manifest(**changes: object) -> str:
    """A manifest with other values; None leaves one out."""
    value = {"format": "ctsan-features", "version": 2, "recipe": asdict(RECIPE)} | changes
    return json.dumps({key: part for key, part in value.items() if part is not None})


BAD_MANIFESTS = {
    "nested": "[" * 100_000,
    "nested objects": '{"a":' * 100_000,
    "digits": '{"version": ' + "1" * 5000 + "}",
    "a list": "[]",
    "null": "null",
    "not text": "\udcff",
    "no format": changed_manifest(format=None),
    "no version": changed_manifest(version=None),
    "version": changed_manifest(version="two"),
    "no recipe": changed_manifest(recipe=None),
    "recipe": changed_manifest(recipe=[1, 2]),
    **{
        f"recipe {key}={value!r}": changed_manifest(recipe={**asdict(RECIPE), key: value})
        for key, value in {
            "grid": [4],
            "channels": "many",
            "mirrored": 3,
            "details": [],
            "backbone": None,
            "other": 1,
        }.items()
    },
    "grid": changed_manifest(recipe={**asdict(RECIPE), "grid": [0, -1]}),
    "channels": changed_manifest(recipe={**asdict(RECIPE), "channels": 10**30}),
    "version 1 without clips": changed_manifest(version=1),
    "version 1 clips": changed_manifest(version=1, clips=[], unreadable={}),
    "version 1 clip": changed_manifest(version=1, clips={"a": {"frames": 1}}, unreadable={}),
    "version 1 frames": changed_manifest(
        version=1, clips={"a": {"frames": "x", "size": 1, "mtime_ns": 1}}, unreadable={}
    ),
    "version 1 unreadable": changed_manifest(version=1, clips={}, unreadable={"a": 1}),
}


@pytest.mark.parametrize("content", BAD_MANIFESTS.values(), ids=list(BAD_MANIFESTS))
def test_a_damaged_manifest_is_named_and_its_remedy_works(clips: Clips, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "f"
    fill(clips, folder)
    before = contents(folder)
    (folder / "manifest.json").write_text(content, errors="surrogateescape")
    for read in (lambda: FeatureStore(folder), lambda: fill(clips, folder)):
        with pytest.raises(StoreError, match=r"manifest.json: not a manifest of features .*Delete it and"):
            read()
    (folder / "manifest.json").unlink()
    assert fill(clips, folder).kept == len(clips)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("make", "what"), [(Path.mkdir, "it is a folder"), (os.mkfifo, "it is not a regular file")]
)
def test_a_manifest_is_a_file(tmp_path: Path, make: Callable[[Path], object], what: str) -> None:
    make(tmp_path / "manifest.json")
    with pytest.raises(StoreError, match=f"not a manifest of features .{what}"):
        FeatureStore(tmp_path)


def test_dates_of_format_version_1_beyond_the_range_of_the_index(tmp_path: Path) -> None:
    record = {"frames": 1, "size": 2, "mtime_ns": 10**40}
    content = changed_manifest(version=1, clips={"a": record}, unreadable={})
    (tmp_path / "manifest.json").write_text(content)
    assert fill([], tmp_path).done == 0  # converts it
    assert FeatureStore(tmp_path).manifest.clips["a"] == ClipRecord(1, 2, 2**63 - 1)


def read_all(folder: Path) -> list[object]:
    manifest = FeatureStore(folder).manifest
    return [*manifest.clips.items(), *manifest.unreadable.items()]


@pytest.mark.parametrize(
    "statement",
    [
        "update clips set frames = 'many'",
        "update clips set size = x'00'",
        "update clips set id = 'text ' || place",
        "update clips set id = x'ff' || id",  # text that is not UTF-8
        "update clips set id = cast(x'ff' || id as blob)",
        "update unreadable set reason = 3",
    ],
)
def test_entries_of_other_types_are_damage_of_the_index(clips: Clips, tmp_path: Path, statement: str) -> None:
    folder = tmp_path / "f"
    fill([*clips, ("gone", tmp_path / "gone")], folder)
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"index.sqlite: the index .* missing or damaged .*Delete .*manif"):
        read_all(folder)


def test_a_schema_that_is_not_text_is_damage_of_the_index(clips: Clips, tmp_path: Path) -> None:
    """SQLite quotes it in its message, which Python then cannot decode."""
    folder = tmp_path / "f"
    fill(clips, folder)
    file = folder / "index.sqlite"
    content = file.read_bytes()
    assert b"CREATE TABLE clips" in content
    file.write_bytes(content.replace(b"CREATE TABLE clips", b"CREATE T\x8bBLE clips"))
    with pytest.raises(StoreError, match=r"index.sqlite: the index .*text that is not UTF-8.*Delete .*manif"):
        FeatureStore(folder)


@pytest.mark.parametrize("year", [2300, 1600])
def test_files_of_any_date_are_stored_and_known_again(clips: Clips, tmp_path: Path, year: int) -> None:
    nanoseconds = (year - 1970) * 31_557_600 * 10**9
    for _, path in clips:
        os.utime(path, ns=(nanoseconds, nanoseconds))
    assert fill(clips, tmp_path / "f").done == len(clips)
    report = fill(clips, tmp_path / "f")
    assert (report.done, report.kept) == (0, len(clips))


def test_only_regular_files_are_read(clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a pipe would wait for somebody to write, and a device need not end."""
    special = [("pipe", tmp_path / "pipe.mp4"), ("device", tmp_path / "device.mp4")]
    os.mkfifo(special[0][1])
    special[1][1].symlink_to("/dev/zero")
    opened: list[Path] = []
    digest = extraction._file_digest

    def recorded(path: Path) -> str:
        opened.append(path)
        return digest(clips[0][1] if path in dict(special).values() else path)

    monkeypatch.setattr(extraction, "_file_digest", recorded)
    report = fill([*special, *clips], tmp_path / "f")
    assert set(opened) == {path for _, path in clips}
    assert report.done == len(clips)
    assert set(report.unreadable) == {"pipe", "device"}
    assert report.unreadable["pipe"].endswith("pipe.mp4: it is not a regular file. Name a file.")


def full_disk(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_the_file_and_loses_nothing(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "f"
    fill(clips[:3], folder)
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(StorageError, match=r"safetensors: No space left on device. Free some space .* kept"):
        fill(clips, folder)
    monkeypatch.undo()
    assert list(FeatureStore(folder)) == [clip for clip, _ in clips[:3]]
    report = fill(clips, folder)
    assert (report.done, report.kept) == (2, 3)
    fill(clips[:3], tmp_path / "whole")
    fill(clips, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_folder_that_cannot_be_made_for_want_of_space(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", full_disk)
    with pytest.raises(StorageError, match="f: No space left on device. Free some space on this disk"):
        fill(clips, tmp_path / "f")


def test_a_disk_that_is_full_for_the_index_is_named_and_nothing_is_lost(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "f"
    fill(clips[:1], folder)
    connect = ClipIndex._connect

    def connect_to_full_disk(self: ClipIndex) -> None:
        connect(self)
        self._connection.execute("pragma max_page_count = 1")  # rounded up to the pages that there are

    records = {f"clip {'x' * 500} {number}": ClipRecord(1, 1, 1) for number in range(100)}
    monkeypatch.setattr(ClipIndex, "_connect", connect_to_full_disk)
    index = ClipIndex(folder / "index.sqlite")
    with pytest.raises(StorageError, match=r"index.sqlite: .*disk is full.*Free some space"):
        index.update(records, {})
    monkeypatch.undo()
    assert list(FeatureStore(folder)) == [clips[0][0]]
    assert fill(clips, folder).kept == 1


def test_features_are_on_the_disk_before_the_index_speaks_of_them(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "f"
    synced: set[int] = set()
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    update = ClipIndex.update

    def checked(self: ClipIndex, records: dict[str, ClipRecord], unreadable: dict[str, str]) -> None:
        for clip in records:
            file = clip_file(folder, clip)
            assert file.stat().st_ino in synced
            assert file.parent.stat().st_ino in synced
        update(self, records, unreadable)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(ClipIndex, "update", checked)
    assert fill(clips, folder).done == len(clips)
    assert ClipIndex(folder / "index.sqlite").select("pragma synchronous") == [(2,)]


def npy(header: str) -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


BAD_ARRAYS = {
    "empty": b"",
    "cut off": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }")[:60],
    "no end": npy("{'descr': '<f4', 'shape': ("),
    "huge": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 4000000000), }"),
    "negative": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 8), }"),
    "too short": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }") + bytes(95),
    "records": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3, 8), }") + bytes(96),
    "damaged archive": b"PK\x03\x04" + bytes(50),
    "pickle": b"\x80\x04\x95\x0b",
}


@pytest.mark.parametrize("content", BAD_ARRAYS.values(), ids=list(BAD_ARRAYS))
def test_a_damaged_array_is_reported_and_the_others_are_imported(tmp_path: Path, content: bytes) -> None:
    np.save(tmp_path / "good.npy", np.zeros((3, 8), dtype=np.float32))
    (tmp_path / "bad.npy").write_bytes(content)
    report = import_features(arrays_of(["bad", "good"], tmp_path), tmp_path / "f", name="mine")
    assert report.done == 1
    assert "it is not a" in report.unreadable["bad"]
    assert report.unreadable["bad"].endswith("Save one array of numbers per clip with numpy.save.")


def test_an_array_is_a_regular_file(tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.zeros((3, 8), dtype=np.float32))
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    sources = arrays_of(["pipe", "folder", "good"], tmp_path)
    report = import_features(sources, tmp_path / "f", name="mine")
    assert report.done == 1
    assert "it is not a regular file" in report.unreadable["pipe"]
    assert "it is a folder" in report.unreadable["folder"]
