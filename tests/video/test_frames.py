"""Which frames of a clip are looked at, whatever its rate, container and state."""

from __future__ import annotations

import itertools
import shutil
import struct
import wave
from pathlib import Path

import av
import numpy as np
import pytest

from clip_making import counting, encode, numbers
from ctsan.errors import VideoError
from ctsan.video.frames import MAX_FRAMES, SPACING, probe, sample_frames, sample_times


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Four seconds at 24 frames a second."""
    return encode(tmp_path / "clip.mp4", counting(96))


def test_one_frame_in_ten_of_a_film(clip: Path) -> None:
    frames = sample_frames(clip, size=32)
    assert numbers(frames) == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    np.testing.assert_allclose(frames.times, np.arange(10) * SPACING, atol=1e-3)
    assert frames.pixels.shape == (10, 32, 32, 3)


@pytest.mark.parametrize("rate", [10, 25, 60])
def test_clips_of_any_rate_are_looked_at_at_the_same_moments(tmp_path: Path, rate: int) -> None:
    path = encode(tmp_path / "clip.mp4", counting(rate), rate=rate)  # one second
    times = sample_frames(path, size=16).times
    assert len(times) == 3
    wanted = np.arange(3) * SPACING
    assert ((wanted - times >= -1e-3) & (wanted - times < 1 / rate)).all()  # the picture on the screen then


def test_a_long_clip_is_looked_at_forty_times_over_its_whole_length(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", itertools.islice(counting(100), 100), rate=4)  # 25 s
    frames = sample_frames(path, size=16)
    assert len(frames.times) == MAX_FRAMES
    np.testing.assert_allclose(np.diff(frames.times), 25 / 40, atol=0.26)
    assert frames.times[-1] > 23.9


@pytest.mark.parametrize(
    ("duration", "count", "last"), [(0, 1, 0.0), (0.04, 1, 0.0), (10, 24, 23 * SPACING), (100, 40, 97.5)]
)
def test_sample_times(duration: float, count: int, last: float) -> None:
    times = sample_times(duration)
    assert len(times) == count
    assert times[0] == 0
    assert times[-1] == pytest.approx(last)


def test_a_clip_of_exactly_one_interval_has_one_sample() -> None:
    assert len(sample_times(SPACING)) == 1
    assert len(sample_times(SPACING + 0.01)) == 2


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv", ".avi", ".webm", ".gif"])
def test_every_container_gives_the_same_frames(tmp_path: Path, suffix: str) -> None:
    path = encode(tmp_path / f"clip{suffix}", counting(50), rate=20)  # 2.5 s
    frames = sample_frames(path, size=16)
    np.testing.assert_allclose(frames.times, [0, 0.4, 0.8, 1.25, 1.65, 2.05], atol=0.02)
    assert numbers(frames) == [0, 8, 16, 25, 33, 41]
    assert probe(path).duration == pytest.approx(2.5, abs=0.06)


def test_variable_frame_rate_follows_the_clock_not_the_count(tmp_path: Path) -> None:
    seconds = [0.0, 0.1, 0.2, 0.3, 1.0, 1.7, 1.8, 1.9, 2.0]
    path = encode(tmp_path / "clip.mkv", counting(9), seconds=seconds)
    frames = sample_frames(path, size=16)
    # Shown at 0, .42, .83, 1.25, 1.67: frames 0, 3, 3, 4, 4; and 2.08 is past the end. None is taken twice.
    assert numbers(frames)[:3] == [0, 3, 4]
    assert len(set(numbers(frames))) == len(frames.times)
    np.testing.assert_allclose(frames.times[:3], [0.0, 0.3, 1.0], atol=0.002)


@pytest.mark.parametrize("options", [{"g": "12", "bf": "0"}, {"g": "25", "bf": "2"}, {"g": "250"}])
def test_seeking_gives_the_same_frames_as_decoding_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    path = encode(tmp_path / "clip.mp4", counting(110), rate=24, options=options)
    seeks = []
    monkeypatch.setattr("ctsan.video.frames._SEEK_COSTS", 0)
    original = av.container.InputContainer.seek

    import ctsan.video.frames as module

    def counted(container: av.container.InputContainer, stream: av.VideoStream, time: float) -> None:
        seeks.append(time)
        original(container, round(time / stream.time_base), stream=stream, backward=True)

    monkeypatch.setattr(module, "_seek", counted)
    sought = sample_frames(path, size=16, spacing=1.1)
    monkeypatch.setattr(module, "_keyframe_times", lambda stream: [])
    decoded = sample_frames(path, size=16, spacing=1.1)
    np.testing.assert_array_equal(sought.pixels, decoded.pixels)
    np.testing.assert_array_equal(sought.times, decoded.times)
    if hasattr(av.stream.Stream, "index_entries") and options["g"] != "250":
        assert len(seeks) >= 3


@pytest.mark.parametrize(("degrees", "corner"), [(0, 0), (90, 1), (180, 2), (270, 3)])
def test_rotation_is_honoured(tmp_path: Path, degrees: int, corner: int) -> None:
    """A light corner, top left in the stored picture, moves as a player would show it."""
    picture = np.zeros((64, 64, 3), dtype=np.uint8)
    picture[:32, :32] = 255
    path = tmp_path / "clip.mp4"
    encode(path, [picture] * 5)
    _set_rotation(path, degrees)
    shown = sample_frames(path, size=8).pixels[0]
    means = [quarter.mean() for quarter in (shown[:4, :4], shown[:4, 4:], shown[4:, 4:], shown[4:, :4])]
    assert int(np.argmax(means)) == corner


def _set_rotation(path: Path, clockwise: int) -> None:
    """Write the display matrix into the track header of an mp4, as a phone does."""
    cosine, sine = {0: (1, 0), 90: (0, 1), 180: (-1, 0), 270: (0, -1)}[clockwise]
    data = bytearray(path.read_bytes())
    matrix = (
        data.index(b"tkhd") + 4 + 4 + 4 * 5 + 8 + 8
    )  # version, times, id, reserved, duration; layer, volume
    values = (cosine << 16, sine << 16, 0, -sine << 16, cosine << 16, 0, 0, 0, 1 << 30)
    data[matrix : matrix + 36] = struct.pack(">9i", *values)
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_a_picture_is_a_clip_of_one_frame(tmp_path: Path, suffix: str) -> None:
    from skimage.io import imsave

    path = tmp_path / f"100%03d picture{suffix}"  # a name that FFmpeg would take for a pattern
    picture = np.zeros((40, 60, 3), dtype=np.uint8)
    picture[:, 30:] = (200, 30, 30)
    imsave(path, picture, check_contrast=False)
    frames = sample_frames(path, size=32)
    assert frames.pixels.shape == (1, 32, 32, 3)
    np.testing.assert_allclose(frames.pixels[0, 16, 24], (200, 30, 30), atol=12)
    assert probe(path).duration == 0
    assert (probe(path).width, probe(path).height) == (60, 40)


def test_a_clip_of_one_frame(tmp_path: Path) -> None:
    assert numbers(sample_frames(encode(tmp_path / "clip.mp4", counting(1)), size=16)) == [0]


def test_a_tiny_clip(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", counting(24, size=(16, 16)))
    assert sample_frames(path, size=224).pixels.shape == (3, 224, 224, 3)


def test_a_damaged_packet_costs_that_packet_not_the_clip(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.avi", counting(96), options={"g": "1"})
    data = bytearray(path.read_bytes())
    start = data.index(b"movi")
    for place in range(start + 3000, start + 3400):
        data[place] = 0xFF
    path.write_bytes(data)
    frames = sample_frames(path, size=16)
    assert 8 <= len(frames.times) <= 10
    assert numbers(frames)[0] == 0
    assert numbers(frames)[-1] >= 80


def test_a_cut_off_clip_gives_what_it_has(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mkv", counting(96))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    frames = sample_frames(path, size=16)
    assert 2 <= len(frames.times) < 10
    assert numbers(frames)[:2] == [0, 10]


def _audio(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 800, "NONE", ""))
        file.writeframes(b"\0\1" * 800)


def _cut_off(path: Path) -> None:
    encode(path.with_name("whole.mp4"), counting(30))
    path.write_bytes(path.with_name("whole.mp4").read_bytes()[:600])


def _headers_only(path: Path) -> None:
    encode(path.with_name("whole.avi"), counting(30))
    data = path.with_name("whole.avi").read_bytes()
    path.write_bytes(data[: data.index(b"movi") + 4])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("missing.mp4", lambda path: None, "there is no such file. Check the path"),
        ("folder.mp4", lambda path: path.mkdir(), "this is a folder, not a clip. Name a file in it"),
        ("empty.mp4", lambda path: path.touch(), "the file is empty (0 bytes). Copy or download it again"),
        (
            "text.mp4",
            lambda path: path.write_text("a café\n" * 900),
            "this is text, not a video. Give a video",
        ),
        (
            "list.mp4",
            lambda path: path.write_text("#EXTM3U\n#EXTINF:1,\na.ts\n"),
            "this is text, not a video",
        ),
        ("notes.txt", lambda path: path.write_text("hello " * 900), "this is text, not a video"),
        ("noise.mp4", lambda path: path.write_bytes(bytes(range(256)) * 40), "this is no video or picture"),
        ("sound.wav", _audio, "it has sound but no pictures. Give a video"),
        ("cut.mp4", _cut_off, "the file is cut off: its index is missing. Copy or download it again"),
        ("bare.avi", _headers_only, "not one picture could be decoded: the file is damaged or cut off"),
    ],
)
def test_each_kind_of_bad_file_has_its_own_message(
    tmp_path: Path, name: str, damage: object, message: str
) -> None:
    path = tmp_path / name
    assert callable(damage)
    damage(path)
    for read in (probe, lambda p: sample_frames(p, size=16)):
        with pytest.raises(VideoError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: {message}")
        assert str(caught.value).endswith(".")


def test_names_that_ffmpeg_would_take_for_addresses(tmp_path: Path, clip: Path) -> None:
    odd = tmp_path / "concat: a|b, été #1.mp4"
    shutil.copy(clip, odd)
    assert len(sample_frames(odd, size=16).times) == 10
