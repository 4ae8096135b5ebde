"""`ctsan describe --scenes`: the shots of a long video as a track of descriptions."""

from __future__ import annotations

import csv
import json
import re
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clip_making import encode
from commands import ctsan_here
from ctsan.errors import CtsanError, VideoError
from ctsan.inference.predictor import Predictor

Runs = dict[str, Path]

COLOURS = ((200, 30, 30), (30, 30, 200), (20, 160, 40))


def shots(count: int, *, seconds: float = 2.0, rate: int = 12) -> Iterable[NDArray[np.uint8]]:
    for number in range(count):
        picture = np.full((48, 64, 3), COLOURS[number % len(COLOURS)], dtype=np.uint8)
        yield from [picture] * round(seconds * rate)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("videos") / "three & more.mp4", shots(3), rate=12)


def test_a_long_video_hints_at_its_scenes_once(
    runs: Runs, video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = [encode(tmp_path / name, shots(3, seconds=40, rate=1), rate=1) for name in ("a.mp4", "b.mp4")]
    ctsan_here("describe", video, *films, "--model", runs["describe"], "--json")
    said = capsys.readouterr()
    assert said.err == f"{films[0]} is 2.0 minutes long. To describe each shot: --scenes\n"
    assert len(said.out.splitlines()) == 3
    ctsan_here("describe", video, "--model", runs["describe"])
    assert capsys.readouterr().err == ""


def test_every_shot_has_a_cue_at_its_time(
    runs: Runs, video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending in ("vtt", "srt", "csv", "edl", "json"):
        ctsan_here("describe", video, "--scenes", "-o", tmp_path / f"a.{ending}", "--model", runs["describe"])
        assert capsys.readouterr().out == f"3 scenes of {video} in {tmp_path / f'a.{ending}'}\n"
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    scenes = content["scenes"]
    assert [(each["start"], each["end"]) for each in scenes] == [
        (pytest.approx(start, abs=0.1), pytest.approx(start + 2, abs=0.1)) for start in (0, 2, 4)
    ]
    assert list(scenes[0]) == ["start", "end", "caption", "score", "log_probability", "concepts"]
    captions = [each["caption"] for each in scenes]
    vtt = (tmp_path / "a.vtt").read_text(encoding="utf-8")
    assert vtt.startswith("WEBVTT\nKind: descriptions\n")
    assert "three &amp; more.mp4" in vtt
    cues = re.findall(r"(\d+)\n(\S+) --> (\S+)\n(.+)\n", vtt)
    assert [cue[0] for cue in cues] == ["1", "2", "3"]
    assert [cue[3] for cue in cues] == captions
    assert cues[0][1] == "00:00:00.000"
    assert cues[1][1] == cues[0][2]
    srt = (tmp_path / "a.srt").read_text(encoding="utf-8")
    assert [each.splitlines()[2] for each in srt.strip().split("\n\n")] == captions
    assert "00:00:00,000 --> 00:00:0" in srt
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["clip"], row["shot"], row["caption"]) for row in rows] == [
        (str(video), str(number), caption) for number, caption in enumerate(captions, start=1)
    ]
    assert [float(row["start"]) for row in rows] == [each["start"] for each in scenes]
    assert rows[0]["concepts"].split() == [concept["word"] for concept in scenes[0]["concepts"]]
    edl = (tmp_path / "a.edl").read_text(encoding="utf-8")
    assert re.findall(r"^\* COMMENT: (.+)$", edl, re.MULTILINE) == captions
    assert "00:00:02:00 00:00:04:00 00:00:02:00 00:00:04:00" in edl  # at 12 frames per second


def test_several_videos_have_a_track_each(
    runs: Runs, video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tracks = tmp_path / "films", tmp_path / "tracks"
    for name in ("one/a.mp4", "one/a.mkv", "two/b.mp4"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        encode(folder / name, shots(2), rate=12)
    (folder / "two" / "text.mp4").write_text("no video", encoding="utf-8")
    model = ("--model", runs["describe"])
    with pytest.raises(SystemExit, match="1"):
        ctsan_here("describe", folder, "--scenes", "-o", tracks, "--format", "csv", *model)
    said = capsys.readouterr()
    assert {path.relative_to(tracks).as_posix() for path in tracks.rglob("*.*")} == {
        "one/a.mp4.csv",
        "one/a.mkv.csv",
        "two/b.csv",
    }
    assert f"2 scenes of {folder / 'two/b.mp4'} in {tracks / 'two/b.csv'}" in said.out
    assert "text.mp4: this is text, not a video" in said.err
    with pytest.raises(SystemExit, match="1"):
        ctsan_here("describe", folder, video, "--scenes", "--json", *model)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["clip"] for line in lines] == [
        *[str(folder / name) for name in ("one/a.mkv", "one/a.mp4", "two/b.mp4") for _ in range(2)],
        *[str(video)] * 3,
        str(folder / "two/text.mp4"),
    ]
    assert "this is text" in lines[-1]["error"]
    ctsan_here("describe", folder / "one", "--scenes", *model)
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(": 00:00:0")[0] for line in printed] == [
        str(folder / "one" / name) for name in ("a.mkv", "a.mkv", "a.mp4", "a.mp4")
    ]
    ctsan_here("describe", folder / "two" / "b.mp4", "--scenes", "-o", tracks, *model)
    assert (tracks / "b.vtt").is_file()  # one video into a folder that exists


def test_without_a_file_scenes_are_printed(
    runs: Runs, video: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctsan_here("describe", video, "--scenes", "--model", runs["describe"])
    assert len(re.findall(r"^00:00:0\d\.\d{3}  \w+", capsys.readouterr().out, re.MULTILINE)) == 3
    ctsan_here("describe", video, "--scenes", "--json", "--model", runs["describe"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = list(Predictor.load(runs["describe"]).describe_scenes(video))
    assert [line["caption"] for line in lines] == [scene.caption.text for scene in found]


def test_memory_does_not_grow_with_the_video(runs: Runs, tmp_path: Path) -> None:
    predictor = Predictor.load(runs["describe"])

    def peak(count: int) -> int:
        video = encode(tmp_path / f"{count}.mp4", shots(count, seconds=1.25, rate=8), rate=8)
        tracemalloc.start()
        try:
            assert sum(1 for _ in predictor.describe_scenes(video)) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(3)  # what is loaded once
    assert peak(30) < 1.6 * peak(10)  # twenty more shots would be ten times as much


def test_scenes_that_cannot_be_written_say_so_at_once(runs: Runs, video: Path, tmp_path: Path) -> None:
    model = ("--model", runs["describe"])
    gone = tmp_path / "gone.mp4"
    for message, arguments in (
        ("-o goes with --scenes", (video, "-o", tmp_path / "a.vtt")),
        ("an ending that is not known. Did you mean '.vtt'?", (video, "--scenes", "-o", tmp_path / "a.vtx")),
        ("--format goes with --scenes", (video, "--format", "edl")),
        ("--format goes with -o FOLDER", (video, "--scenes", "--format", "edl")),
        (
            f"this is one file, and there are 2 videos. Name a folder: -o {tmp_path / 'a'}/ --format srt",
            (video, gone, "--scenes", "-o", tmp_path / "a.srt"),
        ),
        (
            f"this is one file, and --format names a kind of file. Name a folder: -o {tmp_path / 'a'}/",
            (video, "--scenes", "-o", tmp_path / "a.srt", "--format", "srt"),
        ),
        ("--n-best does not go with --scenes", (video, "--scenes", "--n-best", 2)),
        ("there is no such file", (gone, "--scenes", "-o", tmp_path / "a.vtt")),
    ):
        with pytest.raises(CtsanError, match=re.escape(message)):
            ctsan_here("describe", *arguments, *model)
    assert not list(tmp_path.iterdir())
    text = tmp_path / "text.mp4"
    text.write_text("no video", encoding="utf-8")
    with pytest.raises(VideoError, match="this is text"):
        list(Predictor.load(runs["describe"]).describe_scenes(text))


def test_a_video_that_cannot_be_read_is_one_json_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("no video", encoding="utf-8")
    for more in ((), ("-o", tmp_path / "a.vtt")):
        with pytest.raises(SystemExit, match="1"):
            ctsan_here("describe", text, "--scenes", "--json", *more)
        told = json.loads(capsys.readouterr().out)
        assert list(told) == ["clip", "error"]
        assert told["clip"] == str(text)
        assert "this is text, not a video" in told["error"]
    assert list(tmp_path.iterdir()) == [text]


def test_a_name_that_is_not_utf8_has_a_track(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = encode(tmp_path / "odd.mp4", shots(1)).rename(tmp_path / "caf\udce9.mp4")
    for ending in ("vtt", "srt", "csv", "edl", "json"):
        ctsan_here("describe", odd, "--scenes", "-o", tmp_path / f"a.{ending}", "--json")
        assert json.loads(capsys.readouterr().out)["clip"] == str(odd)
    assert "caf\\udce9.mp4" in (tmp_path / "a.vtt").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["clip"] == str(odd)


def test_a_picture_is_one_scene(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = encode(tmp_path / "a.mp4", shots(1, seconds=1 / 12))
    ctsan_here("describe", picture, "--scenes", "-o", tmp_path / "a.srt", "--model", runs["describe"])
    assert capsys.readouterr().out.startswith("1 scene of ")
    first, last = (tmp_path / "a.srt").read_text(encoding="utf-8").splitlines()[1].split(" --> ")
    assert first < last
