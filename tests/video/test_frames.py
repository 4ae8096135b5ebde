"""Which frames of a clip are looked at, whatever its rate, container and state."""

from __future__ import annotations

import itertools
import shutil
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition
from numpy.typing import NDArray

from clip_making import counting, encode, numbers, set_rotation
from ctsan.errors import VideoError
from ctsan.video.frames import MAX_FRAMES, SPACING, probe, readable_duration, sample_frames, sample_times
from ctsan.video.video_file import pixel_limit


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
        assert stream.time_base is not None
        original(container, round(time / stream.time_base), stream=stream, backward=True)

    monkeypatch.setattr(module, "_seek", counted)
    sought = sample_frames(path, size=16, spacing=1.1)
    monkeypatch.setattr(module, "_keyframe_times", lambda stream: [])
    decoded = sample_frames(path, size=16, spacing=1.1)
    np.testing.assert_array_equal(sought.pixels, decoded.pixels)
    np.testing.assert_array_equal(sought.times, decoded.times)
    if hasattr(av.stream.Stream, "index_entries") and options["g"] != "250":
        assert len(seeks) >= 3


@pytest.mark.parametrize("gop", ["15", "30"])
def test_seeking_survives_a_changing_frame_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gop: str
) -> None:
    """With reordered frames and pauses, the index tells wrong times of showing."""
    random = np.random.default_rng(0)
    seconds = np.cumsum(random.choice([0.033, 0.033, 0.033, 1.5], size=200))
    path = encode(tmp_path / "clip.mp4", counting(200), seconds=seconds, options={"g": gop, "bf": "3"})
    sought = sample_frames(path, size=16, max_frames=25)
    monkeypatch.setattr("ctsan.video.frames._keyframe_times", lambda stream: [])
    decoded = sample_frames(path, size=16, max_frames=25)
    assert numbers(sought) == numbers(decoded)
    np.testing.assert_array_equal(sought.times, decoded.times)


def _matroska(path: Path, *, live: bool = False, starts: float = 0.0, sound: float = 0.0) -> Path:
    """Four seconds of pictures; without any duration in the headers if live."""
    with av.open(str(path), "w", format="matroska", options={"live": "1"} if live else {}) as container:
        video = container.add_stream("libx264", rate=24, options={"bf": "0"})
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        audio = container.add_stream("pcm_s16le", rate=8000) if sound else None
        if audio is not None:
            samples = np.zeros((1, int(8000 * sound)), dtype=np.int16)
            block = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
            block.sample_rate, block.pts = 8000, 0
            container.mux(audio.encode(block))
        for number, picture in enumerate(counting(96)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = number + round(24 * starts)
            frame.time_base = Fraction(1, 24)
            container.mux(video.encode(frame))
        container.mux(video.encode())
        if audio is not None:
            container.mux(audio.encode())
    return path


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("starts", "sound"), [(0.0, 0.0), (100.0, 0.0), (0.0, 30.0)])
def test_the_length_of_the_pictures_counts_whatever_the_file_says(
    tmp_path: Path, live: bool, starts: float, sound: float
) -> None:
    path = _matroska(tmp_path / "clip.mkv", live=live, starts=starts, sound=sound)
    assert probe(path).duration == pytest.approx(4, abs=0.05)
    frames = sample_frames(path, size=16)
    assert numbers(frames) == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert frames.times[0] == pytest.approx(starts, abs=0.01)


@pytest.mark.parametrize(("orientation", "corner"), [(1, 0), (6, 1), (3, 2), (8, 3)])
def test_the_orientation_of_photographs_is_honoured(tmp_path: Path, orientation: int, corner: int) -> None:
    from PIL import Image

    picture = np.zeros((64, 64, 3), dtype=np.uint8)
    picture[:32, :32] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "a camera"
    Image.fromarray(picture).save(tmp_path / "photo.jpg", exif=exif)
    assert _light_corner(sample_frames(tmp_path / "photo.jpg", size=8).pixels[0]) == corner


def _light_corner(shown: NDArray[np.uint8]) -> int:
    """0 top left, then clockwise."""
    quarters = (shown[:4, :4], shown[:4, 4:], shown[4:, 4:], shown[4:, :4])
    return int(np.argmax([quarter.mean() for quarter in quarters]))


@pytest.mark.parametrize(("degrees", "corner"), [(0, 0), (90, 1), (180, 2), (270, 3)])
def test_rotation_is_honoured(tmp_path: Path, degrees: int, corner: int) -> None:
    """A light corner, top left in the stored picture, moves as a player would show it."""
    picture = np.zeros((64, 64, 3), dtype=np.uint8)
    picture[:32, :32] = 255
    path = tmp_path / "clip.mp4"
    encode(path, [picture] * 5)
    set_rotation(path, degrees)
    assert _light_corner(sample_frames(path, size=8).pixels[0]) == corner


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
    path = encode(tmp_path / "clip.avi", counting(96), codec="png")
    data = bytearray(path.read_bytes())
    pictures = [place for place in range(len(data)) if data[place : place + 4] == b"\x89PNG"]
    assert len(pictures) == 96
    for number in (10, 50):  # both would be looked at
        data[pictures[number] : pictures[number] + 40] = b"\xff" * 40
    path.write_bytes(data)
    with av.open(str(path)) as container, pytest.raises(av.InvalidDataError):
        list(container.decode(video=0))  # what FFmpeg itself makes of it
    assert numbers(sample_frames(path, size=16)) == [0, 9, 20, 30, 40, 49, 60, 70, 80, 90]


def test_a_cut_off_clip_gives_what_it_has(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mkv", counting(96))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    frames = sample_frames(path, size=16)
    assert 2 <= len(frames.times) < 10
    assert numbers(frames)[:2] == [0, 10]


def test_a_clip_that_is_cut_off_is_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not one whose last picture stands for long."""
    noise = np.random.default_rng(0).integers(0, 256, (120, 48, 64, 3), dtype=np.uint8)
    whole = encode(tmp_path / "whole.mkv", noise, rate=12)
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    slides = encode(tmp_path / "slides.mp4", noise[:3], seconds=(0, 4, 9.5))
    shown = encode(tmp_path / "shown.mkv", noise[:3], seconds=(0, 0.5, 9.5))
    for path in (whole, slides, shown):
        sample_frames(path, size=16)
        assert readable_duration(path, 10.0) == 10.0
    assert not caplog.messages
    sample_frames(cut, size=16)
    [message] = caplog.messages
    readable = readable_duration(cut, probe(cut).duration)
    assert readable == pytest.approx(5, abs=1)
    assert message.startswith(f"{cut}: the file is cut off: {readable:.1f} of 10.0 seconds can be read.")


def _audio(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 800, "NONE", ""))
        file.writeframes(b"\0\1" * 800)


def _song_with_a_cover(path: Path) -> None:
    with av.open(str(path), "w", format="mp3") as container:
        audio = container.add_stream("mp3", rate=44100)
        cover = container.add_stream("png")
        cover.width, cover.height, cover.pix_fmt = 64, 48, "rgb24"
        cover.disposition = Disposition.attached_pic
        picture = av.VideoFrame.from_ndarray(next(iter(counting(1))), format="rgb24")
        container.mux(cover.encode(picture))
        samples = np.zeros((2, 44100), dtype=np.int16)
        block = av.AudioFrame.from_ndarray(samples, format="s16p", layout="stereo")
        block.sample_rate = 44100
        container.mux(audio.encode(block))
        container.mux(audio.encode())


def _animated_webp(path: Path) -> None:
    from PIL import Image

    pictures = [Image.fromarray(picture) for picture in counting(3)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:])


def _cut_off(path: Path) -> None:
    encode(path.with_name("whole.mp4"), counting(30))
    path.write_bytes(path.with_name("whole.mp4").read_bytes()[:600])


def _headers_only(path: Path) -> None:
    encode(path.with_name("whole.avi"), counting(30))
    data = path.with_name("whole.avi").read_bytes()
    path.write_bytes(data[: data.index(b"movi") + 4])


def test_an_address_is_not_called_a_missing_file() -> None:
    with pytest.raises(VideoError, match="this is an address, not a file. Download it first"):
        probe(Path("https://example.org/clip.mp4"))


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
        ("noise.mp4", lambda path: path.write_bytes(bytes(range(256)) * 40), "this is not a video or"),
        ("sound.wav", _audio, "it has sound but no pictures. Give a video"),
        ("song.mp3", _song_with_a_cover, "it has sound but no pictures. Give a video"),
        ("moving.webp", _animated_webp, "an animated WebP, which FFmpeg does not read. Convert it"),
        ("n" * 300 + ".mp4", lambda path: None, "it cannot be read (File name too long)"),
        ("cut.mp4", _cut_off, "the file is cut off: its index is missing. Copy or download it again"),
        ("bare.avi", _headers_only, "no picture could be decoded: the file is damaged or cut off"),
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


@pytest.mark.parametrize("ending", [".mp4", ".mkv", ".avi", ".webm", ".gif"])
def test_frames_beyond_the_pixel_limit_are_not_decoded(tmp_path: Path, ending: str) -> None:
    path = encode(tmp_path / f"clip{ending}", counting(12, size=(480, 640)))
    with pixel_limit(480 * 640):
        assert probe(path).width == 640
        assert len(sample_frames(path, size=16).pixels) > 0
    with pixel_limit(480 * 640 // 2):
        for read in (lambda: probe(path), lambda: sample_frames(path, size=16)):
            with pytest.raises(VideoError):
                read()
    assert probe(path).width == 640
