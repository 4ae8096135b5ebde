"""Clips as nobody wants them: all verbs answer, or say in one sentence what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from clip_making import counting, encode
from commands import ctsan_here
from ctsan.errors import VideoError
from ctsan.inference.predictor import Predictor

Verb = Callable[[Path], object]


@pytest.fixture(scope="module")
def predictor(runs: dict[str, Path]) -> Predictor:
    return Predictor.load(*(runs[task] for task in ("describe", "fill", "choose", "rank")))


@pytest.fixture(scope="module")
def verbs(predictor: Predictor) -> dict[str, Verb]:
    def rank(clip: Path) -> object:
        found = predictor.rank("a star", [clip])
        for error in found.errors:
            raise error
        return found

    return {
        "describe": predictor.describe,
        "concepts": predictor.concepts,
        "fill": lambda clip: predictor.fill(clip, "a __ star"),
        "choose": lambda clip: predictor.choose(clip, ["a star", "a heart"]),
        "rank": rank,
        "rank_sentences": lambda clip: predictor.rank_sentences(clip, ["a star"]),
        "trace": predictor.trace,
        "scenes": lambda clip: list(predictor.describe_scenes(clip)),
    }


def noise(frames: int, size: tuple[int, int]) -> Iterable[NDArray[np.uint8]]:
    draw = np.random.default_rng(0)
    for _ in range(frames):
        yield draw.integers(0, 256, (*size, 3), dtype=np.uint8)


def sound(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def cut_off(path: Path) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def unknown_codec(path: Path) -> Path:
    encode(path, counting(12))
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"ZZZZ"))
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def bomb(path: Path) -> Path:
    Image.new("1", (10_000, 10_000)).save(path)
    return path


def test_odd_clips_are_answered(verbs: dict[str, Verb], tmp_path: Path) -> None:
    clips = [
        encode(tmp_path / "one frame.mp4", counting(1)),
        encode(tmp_path / "16 pixels.mp4", noise(8, (16, 16))),
        encode(tmp_path / "a line.mp4", noise(8, (2, 640))),
        encode(tmp_path / "one frame a second.avi", counting(3), rate=1),
        cut_off(encode(tmp_path / "cut off.mkv", noise(40, (64, 64)))),
    ]
    for clip in clips:
        for verb in verbs.values():
            assert verb(clip)


def test_clips_without_pictures_say_so(verbs: dict[str, Verb], tmp_path: Path) -> None:
    text, empty = tmp_path / "text.mp4", tmp_path / "empty.mp4"
    text.write_text("no video", encoding="utf-8")
    empty.touch()
    clips = {
        sound(tmp_path / "sound.wav"): "it has sound but no pictures",
        cut_off(encode(tmp_path / "cut off.mp4", noise(20, (64, 64)))): "the file is cut off",
        unknown_codec(tmp_path / "unknown.avi"): "FFmpeg has no decoder for its video codec",
        pipe(tmp_path / "pipe.mp4"): "this is a pipe, socket or device",
        bomb(tmp_path / "large.png"): "its frames of 10,000 × 10,000 pixels are larger than is allowed",
        text: "this is text, not a video",
        empty: "the file is empty",
        tmp_path: "this is a folder",
    }
    for clip, message in clips.items():
        for verb in verbs.values():
            with pytest.raises(VideoError, match=message):
                verb(clip)


def test_one_bad_clip_among_many_costs_no_other(predictor: Predictor, tmp_path: Path) -> None:
    good = [encode(tmp_path / f"{number}.mp4", counting(12 + number)) for number in range(3)]
    found = list(predictor.describe_all([good[0], tmp_path / "gone.mp4", good[1], tmp_path, good[2]]))
    assert [isinstance(each, VideoError) for each in found] == [False, True, False, True, False]
    for clip, each in zip(good, found[::2], strict=True):
        alone = predictor.describe(clip)
        assert not isinstance(each, VideoError)
        assert each.clip == str(clip)
        assert each.caption == alone.caption
        assert [word.confidence for word in each.concepts] == pytest.approx(
            [word.confidence for word in alone.concepts], abs=1e-5
        )


def test_odd_clips_stop_neither_features_nor_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    year_2300 = 10_413_792_000
    os.utime(encode(folder / "good.mp4", counting(12)), (year_2300, year_2300))
    unknown_codec(folder / "unknown.avi")
    bomb(folder / "large.png")
    pipe(folder / "pipe.mp4")
    (folder / "device.mp4").symlink_to("/dev/zero")
    for new in (1, 0):
        ctsan_here("features", folder, "--out", tmp_path / "features", "--json")
        report = json.loads(capsys.readouterr().out)
        assert (report["clips"], report["new"]) == (1, new)
        assert set(report["unreadable"]) == {"unknown.avi", "large.png", "pipe.mp4", "device.mp4"}
    with pytest.raises(SystemExit):
        ctsan_here("corpus", "check", folder, "--json")
    summary = json.loads(capsys.readouterr().out)
    assert (summary["clips"], summary["missing"], summary["unreadable"]) == (5, 2, 2)
