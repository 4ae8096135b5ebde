"""Pictures and videos of uncommon endings are described, stored and found; what is passed over is counted."""

from __future__ import annotations

import json
from pathlib import Path

import av
import pillow_heif
import pytest
from PIL import Image

from clip_making import counting
from commands import ctsan_here
from ctsan.errors import UsageError
from ctsan.search import listing

NAMES = ("camera.mts", "phone.heic", "scan.tiff", "web.avif")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    with av.open(str(folder / "camera.mts"), "w", format="mpegts") as output:
        stream = output.add_stream("libx264", rate=24)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for picture in counting(24):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        output.mux(stream.encode())
    red = Image.new("RGB", (64, 48), (200, 30, 30))
    pillow_heif.from_pillow(red).save(folder / "phone.heic")
    red.save(folder / "scan.tiff")
    red.save(folder / "web.avif")
    for name in ("song.mp3", "raw.cr2", "raw2.cr2", "notes.txt", "camera.srt"):
        (folder / name).write_bytes(b"\0\1")
    return folder


def test_every_clip_of_a_folder_is_described_and_stored(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctsan_here("describe", folder, "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(line["clip"]).name for line in lines] == [*NAMES]
    assert all(line["caption"] for line in lines)
    ctsan_here("features", folder, "--out", tmp_path / "features", "--json")
    assert json.loads(capsys.readouterr().out)["clips"] == len(NAMES)


def test_the_report_of_an_index_counts_what_it_passed_over(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ctsan_here("index", folder, "--store", tmp_path)
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("4 files with 4 shots in ")
    assert second == "3 files skipped: .cr2 2, .mp3 1"
    ctsan_here("index", folder, "--store", tmp_path, "--json")
    report = json.loads(capsys.readouterr().out)
    assert (report["files"], report["known"], report["skipped"]) == (4, 4, {".cr2": 2, ".mp3": 1})
    monkeypatch.setattr(listing, "reads_heic", lambda: False)
    ctsan_here("index", folder, "--store", tmp_path)
    assert "4 files skipped: .cr2 2, .heic 1, .mp3 1. HEIC pictures are read with: pip install" in (
        said := capsys.readouterr().out
    )
    assert "4 files with 4 shots" in said  # the picture that is indexed stays


def test_a_folder_of_other_files_alone_says_which(tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "song.mp3").touch()
    with pytest.raises(UsageError, match=r"No videos or pictures in .*\n1 file skipped: \.mp3 1$"):
        ctsan_here("index", tmp_path / "music", "--store", tmp_path / "store")
