"""Whatever is wrong with a file is that file's VideoError, and nothing else is."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream
from numpy.typing import NDArray
from PIL import Image

from clip_making import counting, encode, numbers
from ctsan.errors import UsageError, VideoError
from ctsan.video import frames as frames_module
from ctsan.video import video_file
from ctsan.video.frames import every_frame, every_picture, pictures_at, probe, sample_frames
from ctsan.video.given_frames import frames_of
from ctsan.video.shots import frames_of_shots
from ctsan.video.video_file import pixel_limit

READERS: dict[str, Callable[[Path], object]] = {
    "probe": probe,
    "sample_frames": lambda path: sample_frames(path, size=16),
    "pictures_at": lambda path: pictures_at(path, np.array([0.0, 1.0]), box=(32, 32)),
    "every_picture": lambda path: list(every_picture(path, box=(32, 32))),
    "every_frame": lambda path: [picture((16, 16)) for picture, _ in every_frame(path)],
    "frames_of_shots": lambda path: list(frames_of_shots(path, size=16)),
}


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return encode(tmp_path / "clip.mp4", counting(24))


@pytest.fixture(params=READERS.values(), ids=list(READERS))
def reader(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    read: Callable[[Path], object] = request.param
    return read


def unknown_codec(path: Path) -> Path:
    encode(path, counting(24))
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"ZZZZ").replace(b"fmp4", b"ZZZZ"))
    return path


def test_a_codec_without_a_decoder_is_named_as_the_fault(
    tmp_path: Path, reader: Callable[[Path], object]
) -> None:
    path = unknown_codec(tmp_path / "clip.avi")
    with pytest.raises(VideoError, match="FFmpeg has no decoder for its video codec. Convert it to mp4"):
        reader(path)


def tagged(path: Path, duration: str) -> Path:
    """One second in a Matroska file whose only duration is a tag."""
    with av.open(str(path), "w", format="matroska", options={"live": "1"}) as container:
        stream = container.add_stream("libx264", rate=24, options={"bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.metadata["DURATIOM"] = duration  # the muxer would not write a duration of ours
        for number, picture in enumerate(counting(24)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 24)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    path.write_bytes(path.read_bytes().replace(b"DURATIOM", b"DURATION"))
    return path


@pytest.mark.parametrize(
    "duration",
    [
        pytest.param("9" * 400 + ":00:00", id="400 digits"),
        pytest.param("9" * 5000 + ":00:00", id="5000 digits"),
        pytest.param("00:00:01." + "9" * 5000, id="5000 decimals"),
        pytest.param("٣" * 3 + ":00:00", id="other digits"),
        pytest.param("999999999:00:00", id="100,000 years"),
    ],
)
def test_an_absurd_duration_tag_is_ignored(tmp_path: Path, duration: str) -> None:
    path = tagged(tmp_path / "clip.mkv", duration)
    assert probe(path).duration == pytest.approx(1, abs=0.05)
    assert numbers(sample_frames(path, size=16)) == [0, 10, 20]


def test_the_duration_tag_counts_where_it_is_possible(tmp_path: Path) -> None:
    assert probe(tagged(tmp_path / "clip.mkv", "00:00:02.5")).duration == pytest.approx(2.5, abs=0.01)


def test_absurd_timestamps_are_limited(tmp_path: Path) -> None:
    """Frames of an AVI that are 136 years apart."""
    path = encode(tmp_path / "clip.avi", counting(60))
    data = bytearray(path.read_bytes())
    header = data.index(b"strh") + 8
    struct.pack_into("<II", data, header + 20, 2**32 - 1, 1)  # scale and rate
    path.write_bytes(data)
    latest = frames_module._LATEST
    assert probe(path).duration == latest
    assert sample_frames(path, size=16).times.max() <= latest
    for shot, frames in frames_of_shots(path, size=16):
        assert 0 <= shot.start <= shot.end <= 2 * latest
        assert np.isfinite(frames.times).all()


def test_timestamps_beyond_any_calendar_are_limited() -> None:
    frame = av.VideoFrame(16, 16)
    for pts in (2**62, -(2**62)):
        frame.pts, frame.time_base = pts, Fraction(2**31 - 1, 1)
        assert abs(frames_module._time(frame, default=0.0)) == frames_module._LATEST


class _Demuxed:
    """A container whose demuxer yields packets and then fails as PyAV does."""

    def __init__(self, packets: list[object], error: BaseException) -> None:
        self.packets, self.error = packets, error

    def demux(self, _stream: object) -> Iterator[object]:
        yield from self.packets
        raise self.error


@pytest.mark.parametrize("error", [IndexError("list index out of range"), ValueError("x"), AssertionError()])
def test_packets_before_a_fault_of_the_demuxer_are_kept(error: Exception) -> None:
    """PyAV raises IndexError at the end of a file in which streams appeared after it was opened."""
    container = _Demuxed(["one", "two"], error)
    assert list(video_file.packets(container, None)) == ["one", "two"]  # type: ignore[arg-type, comparison-overlap]


def test_an_interruption_of_the_demuxer_is_none_of_the_file() -> None:
    container = _Demuxed([], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        list(video_file.packets(container, None))  # type: ignore[arg-type]


def test_streams_that_appear_in_the_middle_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "clip.ts"
    pieces = []
    for sounds in (0, 30):
        piece = tmp_path / f"{sounds}.ts"
        with av.open(str(piece), "w", format="mpegts") as container:
            stream = container.add_stream("mpeg2video", rate=25)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            audio = [container.add_stream("mp2", rate=44100) for _ in range(sounds)]
            for picture in counting(250):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
            for track in audio:
                block = av.AudioFrame.from_ndarray(
                    np.zeros((1, 2 * 44100), np.int16), format="s16", layout="stereo"
                )
                block.sample_rate = 44100
                container.mux(track.encode(block))
                container.mux(track.encode())
        pieces.append(piece.read_bytes())
    path.write_bytes(b"".join(pieces))
    for read in READERS.values():
        assert read(path)


FAULTS = (AttributeError, ValueError, OverflowError, IndexError, AssertionError, ZeroDivisionError)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_libraries_are_those_of_the_file(
    clip: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def failing(*_: object) -> NDArray[np.uint8]:
        raise fault("a private matter of PyAV")

    monkeypatch.setattr(frames_module, "_upright_pixels", failing)
    for name in READERS.keys() - {"probe"}:
        with pytest.raises(VideoError, match="reading failed half-way .a private matter.*Convert it to mp4"):
            READERS[name](clip)
    monkeypatch.setattr(video_file, "_is_cover_art", failing)
    for read in READERS.values():
        with pytest.raises(VideoError, match="a private matter"):
            read(clip)


def test_too_little_memory_is_named(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> NDArray[np.uint8]:
        raise MemoryError

    monkeypatch.setattr(frames_module, "_upright_pixels", failing)
    for name in READERS.keys() - {"probe"}:
        with pytest.raises(VideoError, match="more memory than there is. Reduce its resolution"):
            READERS[name](clip)


@pytest.mark.parametrize("fault", [*FAULTS, MemoryError, KeyboardInterrupt])
def test_faults_of_a_caller_are_not_those_of_the_file(clip: Path, fault: type[BaseException]) -> None:
    for generator in (every_picture(clip, box=(16, 16)), every_frame(clip)):
        next(generator)
        with pytest.raises(fault, match="my own"):
            generator.throw(fault("my own"))  # type: ignore[union-attr]
    with pytest.raises(fault, match="my own"), video_file.open_video(clip):
        raise fault("my own")


def test_an_interruption_passes_unchanged(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> NDArray[np.uint8]:
        raise KeyboardInterrupt

    monkeypatch.setattr(frames_module, "_upright_pixels", interrupted)
    for name in READERS.keys() - {"probe"}:
        with pytest.raises(KeyboardInterrupt):
            READERS[name](clip)


@pytest.fixture(params=["pipe", "socket", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """What looks like a clip, and would block or never end."""
    path = tmp_path / "clip.mp4"
    if request.param == "pipe":
        os.mkfifo(path)
        yield path
    elif request.param == "device":
        path.symlink_to("/dev/zero")
        yield path
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            yield path


def test_only_regular_files_are_opened(special: Path, reader: Callable[[Path], object]) -> None:
    with pytest.raises(VideoError, match="this is a pipe, socket or device, not a file. Save the clip as"):
        reader(special)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".gif", ".webp", ".lossless.webp", ".alpha.webp"])
def test_a_picture_of_too_many_pixels_is_not_decoded(tmp_path: Path, suffix: str) -> None:
    """A file of some 100 kB, which would take a gigabyte."""
    path = tmp_path / f"bomb{suffix}"
    if suffix.endswith("webp"):  # only its header: encoding one takes seconds
        header = {
            ".webp": b"VP8 " + bytes(4) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 9000, 12_000),
            ".lossless.webp": b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 8999 | 11_999 << 14),
            ".alpha.webp": b"VP8X"
            + bytes(8)
            + struct.pack("<IH", 8999 | 11_999 << 24 & 2**32 - 1, 11_999 >> 8),
        }[suffix]
        path.write_bytes(b"RIFF" + bytes(4) + b"WEBP" + header + bytes(100))
    else:
        Image.new("L", (9000, 12_000)).save(path)
    message = r"bomb.*: its frames of 9,000 × 12,000 pixels are larger .* to at most 67,108,864 pixels\.$"
    for read in READERS.values():
        with pytest.raises(VideoError, match=message):
            read(path)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".gif", ".webp", ".mp4", ".avi", ".mkv"])
def test_the_limit_of_pixels_is_inclusive(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"clip{suffix}"
    if suffix in (".png", ".jpg", ".gif", ".webp"):
        Image.new("RGB", (640, 480)).save(path)
    else:
        encode(path, counting(5, size=(480, 640)))
    with pixel_limit(640 * 480):
        assert probe(path).width == 640
    refused = pytest.raises(VideoError, match="its frames of 640 × 480 pixels are larger than is allowed")
    with pixel_limit(640 * 480 - 1), refused:
        probe(path)


def test_frames_that_grow_beyond_the_limit_are_skipped(tmp_path: Path) -> None:
    """Motion JPEG may change its size at every frame."""
    small = encode(tmp_path / "small.avi", counting(3), codec="png")
    large = encode(tmp_path / "large.png.avi", counting(1, size=(96, 128)), codec="png").read_bytes()
    data = bytearray(small.read_bytes())
    starts = [place for place in range(len(data)) if data[place : place + 4] == b"\x89PNG"]
    begin = large.index(b"\x89PNG")
    picture = large[begin : large.index(b"IEND", begin) + 8]
    length = struct.unpack_from("<I", data, starts[2] - 4)[0]
    if len(picture) > length:
        data[starts[2] : starts[2] + length] = (
            picture  # the index of the file ends up wrong, which is allowed
        )
        struct.pack_into("<I", data, starts[2] - 4, len(picture))
    path = tmp_path / "grows.avi"
    path.write_bytes(data)
    assert len(list(every_picture(path, box=(64, 64)))) == 3
    with pixel_limit(64 * 48):
        assert len(list(every_picture(path, box=(64, 64)))) == 2


def test_images_in_memory_have_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.new("L", (64, 48))
    monkeypatch.setattr("ctsan.video.given_frames.MAX_PIXELS", 64 * 48)
    assert frames_of([image], size=16).pixels.shape == (1, 16, 16, 3)
    monkeypatch.setattr("ctsan.video.given_frames.MAX_PIXELS", 64 * 48 - 1)
    with pytest.raises(UsageError, match="64 × 48 pixels.*Scale it down to at most 3,071 pixels"):
        frames_of([image], size=16)


BOXES_OF_BOXES = (b"moov", b"trak", b"mdia", b"minf", b"stbl")


def with_index(data: bytes, samples: int, *, duration: int = 1) -> bytes:
    """The boxes of an mp4, with an index that gives one size, one duration and one chunk to all samples."""
    index = {
        b"stsz": struct.pack(">III", 0, 1, samples),
        b"stts": struct.pack(">IIII", 0, 1, samples, duration),
        b"stsc": struct.pack(">IIIII", 0, 1, 1, samples, 1),
        b"stco": struct.pack(">III", 0, 1, 48),
    }
    rebuilt = b""
    while data:
        size, name = struct.unpack_from(">I4s", data)
        body, data = data[8:size], data[size:]
        if name in BOXES_OF_BOXES:
            body = with_index(body, samples, duration=duration)
        if name not in (b"stss", b"ctts", b"edts"):
            body = index.get(name, body)
            rebuilt += struct.pack(">I4s", len(body) + 8, name) + body
    return rebuilt


def sound(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=48_000)
        block = av.AudioFrame.from_ndarray(np.zeros((1, 4800), np.int16), format="s16", layout="mono")
        block.sample_rate = 48_000
        container.mux(stream.encode(block))
        container.mux(stream.encode())
    return path


def fragmented(path: Path, samples: int | None = None) -> Path:
    """A fragmented mp4; its first run has this number of samples, about none of which it says anything."""
    encode(path, counting(24), container_options={"movflags": "frag_keyframe+empty_moov+default_base_moof"})
    if samples is not None:
        data = bytearray(path.read_bytes())
        struct.pack_into(">II", data, data.index(b"trun") + 4, 1, samples)
        path.write_bytes(data)
    return path


def test_an_index_of_more_frames_than_bytes_is_not_built(
    clip: Path, tmp_path: Path, reader: Callable[[Path], object]
) -> None:
    """A file of some kB, of which FFmpeg would make an index of gigabytes."""
    many = 50_000_000
    data = clip.read_bytes()
    bombs = {
        "plain.mp4": with_index(data, many),
        "sound.mov": with_index(sound(tmp_path / "pcm.mov").read_bytes(), many, duration=2),
        "fragments.mp4": fragmented(tmp_path / "fragments.mp4", many).read_bytes(),
    }
    message = "its index lists 50,000,000 frames, more than its bytes can hold. Copy or download it again, or"
    for name, bomb in bombs.items():
        (tmp_path / name).write_bytes(bomb)
        with pytest.raises(VideoError, match=f"{name}: {message}"):
            reader(tmp_path / name)


def test_an_index_of_as_many_frames_as_bytes_is_read(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "many.mp4"
    size = len(with_index(clip.read_bytes(), 1))
    path.write_bytes(with_index(clip.read_bytes(), size))
    with video_file.open_video(path) as (_, stream):
        assert stream.frames == size
    path.write_bytes(with_index(clip.read_bytes(), size + 1))
    with pytest.raises(VideoError, match=f"lists {size + 1:,} frames"):
        probe(path)


def test_real_indexes_are_read(tmp_path: Path) -> None:
    assert numbers(sample_frames(fragmented(tmp_path / "clip.mp4"), size=16)) == [0, 10, 20]
    pcm = sound(tmp_path / "pcm.mov")
    pcm.write_bytes(with_index(pcm.read_bytes(), 50_000_000))  # cut off, with its index at the front
    with pytest.raises(VideoError, match="it has sound but no pictures"):
        probe(pcm)


class _Undecodable:
    def decode(self) -> list[av.VideoFrame]:
        return []


class _Damaged:
    def decode(self) -> list[av.VideoFrame]:
        raise ValueError("x")


class _Decodable:
    def decode(self) -> list[av.VideoFrame]:
        return [av.VideoFrame(16, 16)]


@pytest.mark.parametrize(("gap", "frames"), [(7, 3), (8, 2)])
def test_a_stream_of_which_nothing_more_can_be_decoded_ends(
    monkeypatch: pytest.MonkeyPatch, gap: int, frames: int
) -> None:
    monkeypatch.setattr(video_file, "_MAX_UNDECODED", 8)
    undecodable = [_Undecodable(), _Damaged()] * 5
    packets = [_Decodable(), *undecodable[:7], _Decodable(), *undecodable[:gap], _Decodable()]
    container = _Demuxed([*packets], IndexError())
    assert len(list(video_file.decoded(container, None))) == frames  # type: ignore[arg-type]


def test_only_so_much_of_an_index_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encode(tmp_path / "clip.mp4", counting(96), options={"g": "12", "sc_threshold": "0"})
    with video_file.open_video(path) as (_, stream):
        assert len(frames_module._keyframe_times(stream)) == 8
        monkeypatch.setattr(frames_module, "_MAX_INDEX", 25)
        assert frames_module._keyframe_times(stream) == [0, 0.5, 1]
    shown = pictures_at(path, np.array([0.0, 3.5]), box=(64, 48))  # which is behind it
    assert [round(time * 24) for _, time in shown] == [0, 84]


@pytest.mark.parametrize("error", [IndexError("list index out of range"), ValueError("x")])
def test_readers_keep_what_comes_before_a_fault_of_the_demuxer(
    clip: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    open_container = video_file._open_container

    class Failing:
        """A container that fails after half of the packets, wherever it is read."""

        def __init__(self, container: InputContainer) -> None:
            self.container = container

        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *_: object) -> None:
            self.container.close()

        def __getattr__(self, name: str) -> object:
            return getattr(self.container, name)

        def demux(self, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
            yield from islice(self.container.demux(stream), 12)
            raise error

    monkeypatch.setattr(video_file, "_open_container", lambda path: Failing(open_container(path)))
    for read in READERS.values():
        assert read(clip)
    assert 1 <= len(list(every_frame(clip))) <= 12
