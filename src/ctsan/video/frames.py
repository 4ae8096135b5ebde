"""Sample the frames of a video file or an image.

The paper takes one frame in ten, at most 40, at a wider interval in longer clips. Films run at 24 frames per
second, so samples are 10/24 s apart, whatever the frame rate of a clip. The sample at a time is the frame
that a player shows then; no frame is sampled twice.
"""

from __future__ import annotations

import math
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from ctsan.errors import VideoError

SPACING = 10 / 24  # seconds: one frame in ten at the frame rate of films
MAX_FRAMES = 40

Picture = Callable[[tuple[int, int]], NDArray[np.uint8]]  # (width, height) -> upright RGB pixels

_ROUNDING = 1e-3  # seconds: some containers have timestamps in milliseconds
_SEEK_COSTS = 12  # frames that can be decoded in the time of one seek

# Containers and images only: FFmpeg would also follow playlists to other files and URLs.
_CONTAINERS = (
    "mov,mp4,m4v,matroska,webm,avi,gif,flv,asf,mpeg,mpegts,mpegvideo,h264,hevc,ogg,rm,mxf,nut,dv,image2,"
    "jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,tiff_pipe,apng,mp3,wav,flac,aac,aiff"
)

_NOT_VIDEO = "Give a video (mp4, avi, mkv, mov, webm, gif) or a picture (jpg, png, webp)."


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """The properties of a video stream."""

    duration: float  # seconds; 0 for an image
    frame_rate: float  # frames per second; 0 if unknown
    width: int
    height: int
    frames: int | None  # None if the container does not declare it


@dataclass(frozen=True, slots=True)
class Frames:
    """Sampled frames, upright, squashed to a square, with their timestamps."""

    pixels: NDArray[np.uint8]  # (N, size, size, 3), RGB
    times: NDArray[np.float64]  # (N,), seconds, timestamps of the source


def sample_times(
    duration: float, *, spacing: float = SPACING, max_frames: int = MAX_FRAMES
) -> NDArray[np.float64]:
    """The times to sample in a clip of `duration` seconds: evenly from 0, at most `max_frames`."""
    count = max(1, math.ceil((duration - _ROUNDING) / spacing))
    if count > max_frames:
        count, spacing = max_frames, duration / max_frames
    return np.arange(count, dtype=np.float64) * spacing


def subsample(num_frames: int, max_frames: int) -> NDArray[np.int64]:
    """The indices of at most `max_frames` of `num_frames` frames, evenly spaced; all if there are fewer."""
    count = min(num_frames, max_frames)
    return np.arange(count, dtype=np.int64) * num_frames // count


def probe(path: Path) -> VideoInfo:
    """Open a clip, decode its first frame, and return its properties.

    Raises:
        VideoError: it is missing, empty, truncated, without frames, or not a video.
    """
    with _opened(path) as (container, stream):
        first = next(_decoded(container, stream), None)
        if first is None:
            raise _nothing_decoded(path)
        rate = stream.average_rate or stream.guessed_rate
        return VideoInfo(
            duration=_duration(path, container, stream),
            frame_rate=float(rate) if rate else 0.0,
            width=first.width,
            height=first.height,
            frames=stream.frames or None,
        )


def sample_frames(path: Path, *, size: int, spacing: float = SPACING, max_frames: int = MAX_FRAMES) -> Frames:
    """Sample a clip's frames at `size` x `size` pixels; damaged packets are skipped.

    Raises:
        VideoError: no frame can be read.
    """
    with _opened(path) as (container, stream):
        targets = sample_times(_duration(path, container, stream), spacing=spacing, max_frames=max_frames)
        reformatter = VideoReformatter()
        samples = [
            (_upright_pixels(frame, (size, size), reformatter), time)
            for frame, time in _shown_at(targets, container, stream)
        ]
    if not samples:
        raise _nothing_decoded(path)
    return Frames(np.stack([pixels for pixels, _ in samples]), np.array([time for _, time in samples]))


def pictures_at(
    path: Path, seconds: NDArray[np.float64], *, box: tuple[int, int]
) -> list[tuple[NDArray[np.uint8], float]]:
    """The frames that a player shows at given times, in seconds from the first frame; as `every_picture`."""
    with _opened(path) as (container, stream):
        return list(_fitted_pixels(_shown_at(seconds, container, stream), stream, box))


def every_picture(path: Path, *, box: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint8], float]]:
    """All frames of a clip in order, upright, in their display aspect ratio, with their timestamps.

    Args:
        box: width and height; frames are scaled to fit into it.

    Raises:
        VideoError: the clip cannot be read.
    """
    with _opened(path) as (container, stream):
        yield from _fitted_pixels(_timed(container, stream), stream, box)


def every_frame(path: Path) -> Iterator[tuple[Picture, float]]:
    """All frames of a clip in order, as functions from a size to pixels, with their timestamps.

    Raises:
        VideoError: the clip cannot be read, or none of its frames.
    """
    with _opened(path) as (container, stream):
        reformatter = VideoReformatter()
        is_empty = True
        for frame, time in _timed(container, stream):
            is_empty = False
            yield partial(_upright_pixels, frame, reformatter=reformatter), time
        if is_empty:
            raise _nothing_decoded(path)


def _timed(container: InputContainer, stream: VideoStream) -> Iterator[tuple[VideoFrame, float]]:
    expected = 0.0
    for frame in _decoded(container, stream):
        time = _time(frame, default=expected)
        expected = time + 1 / float(stream.average_rate or 24)
        yield frame, time


def _fitted_pixels(
    frames: Iterable[tuple[VideoFrame, float]], stream: VideoStream, box: tuple[int, int]
) -> Iterator[tuple[NDArray[np.uint8], float]]:
    """Pixels scaled into a box; all in the size of the first frame, because some clips change theirs."""
    reformatter = VideoReformatter()
    size: tuple[int, int] | None = None
    for frame, time in frames:
        size = size or _fitting_size(frame, stream, box)
        yield _upright_pixels(frame, size, reformatter), time


def _shown_at(
    targets: NDArray[np.float64], container: InputContainer, stream: VideoStream
) -> Iterator[tuple[VideoFrame, float]]:
    """The frames that a player shows at the target times; seeks if that is faster than decoding."""
    rate = float(stream.average_rate or 24)
    keyframes = _keyframe_times(stream)
    frames = _decoded(container, stream)
    shown: tuple[VideoFrame, float] | None = None
    start = 0.0
    position = 0  # in targets
    landing = -1  # the index of the keyframe of the last seek until a frame after it is decoded, else -1
    while position < len(targets):
        frame = next(frames, None)
        if frame is None:
            break
        time = _time(frame, default=shown[1] + 1 / rate if shown else 0.0)
        is_past = time - start > targets[position] + _ROUNDING
        if shown is None:
            start = time
        elif is_past and landing >= 0:  # the container's index was wrong: the target is before this keyframe
            landing -= 1
            _seek(container, stream, keyframes[max(landing, 0)])
            frames = _decoded(container, stream)
            continue
        elif is_past:
            yield shown
            position = int(np.searchsorted(targets, time - start - _ROUNDING))
            if position < len(targets):
                nearest = bisect_right(keyframes, targets[position] + start + _ROUNDING) - 1
                if nearest >= 0 and (keyframes[nearest] - time) * rate > _SEEK_COSTS:
                    _seek(container, stream, keyframes[nearest])
                    frames = _decoded(container, stream)
                    landing = nearest
                    shown = (frame, time)
                    continue
        landing = -1
        shown = (frame, time)
    if shown is not None and position < len(targets):
        yield shown  # the last frame is shown until the end


def _seek(container: InputContainer, stream: VideoStream, time: float) -> None:
    assert stream.time_base is not None  # true for all streams with keyframe times
    container.seek(round(time / stream.time_base), stream=stream, backward=True)


def _keyframe_times(stream: VideoStream) -> list[float]:
    """The presentation times of the keyframes; empty if the container has no index."""
    entries = getattr(stream, "index_entries", None)  # PyAV 16 and later
    if not entries or stream.time_base is None:
        return []
    # The index has decoding times; presentation times differ by a delay that is constant at a constant rate.
    delay = (stream.start_time or 0) - min(entry.timestamp for entry in entries)
    return [float((entry.timestamp + delay) * stream.time_base) for entry in entries if entry.is_keyframe]


def _decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Every frame that can be decoded, in presentation order."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:  # truncated in the middle of a packet: keep the frames before it
            return
        if packet is None:
            return
        try:
            frames = packet.decode()
        except av.FFmpegError:  # a damaged packet
            continue
        yield from (frame for frame in frames if isinstance(frame, VideoFrame) and not frame.is_corrupt)


def _time(frame: VideoFrame, *, default: float) -> float:
    return frame.time if frame.time is not None else default


def _duration(path: Path, container: InputContainer, stream: VideoStream) -> float:
    """The duration of the video stream, from the headers, or else from the packets, without decoding."""
    if container.format.name == "image2" or container.format.name.endswith("_pipe"):
        return 0.0
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    # Matroska's own duration includes sound and what comes before the first frame; the tag is more precise.
    if match := re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", stream.metadata.get("DURATION", "")):
        end = 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3])
        return end - float((stream.start_time or 0) * (stream.time_base or 0))
    times: list[float] = []
    with _opened(path) as (reopened, same_stream):
        for packet in reopened.demux(same_stream):
            if packet.pts is not None and packet.time_base is not None:
                start, stop = packet.pts, packet.pts + (packet.duration or 0)
                times += [float(start * packet.time_base), float(stop * packet.time_base)]
    return max(times) - min(times) if times else 0.0


def _upright_pixels(
    frame: VideoFrame, size: tuple[int, int], reformatter: VideoReformatter
) -> NDArray[np.uint8]:
    """RGB pixels of the whole frame, resized to (width, height) and rotated as a player does."""
    quarter_turns = _quarter_turns(frame)
    width, height = reversed(size) if quarter_turns % 2 else size
    resized = reformatter.reformat(frame, width=width, height=height, format="rgb24", interpolation="BICUBIC")
    pixels = np.asarray(resized.to_ndarray(), dtype=np.uint8)
    return np.ascontiguousarray(np.rot90(pixels, quarter_turns)) if quarter_turns else pixels


def _fitting_size(frame: VideoFrame, stream: VideoStream, box: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the upright frame in the box; pixels in the file need not be square."""
    shape = (frame.width * float(stream.sample_aspect_ratio or 1), float(frame.height))
    width, height = reversed(shape) if _quarter_turns(frame) % 2 else shape
    scale = min(box[0] / width, box[1] / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _quarter_turns(frame: VideoFrame) -> int:
    """How many times to rotate a frame counter-clockwise by 90 degrees, from its display matrix."""
    return round(frame.rotation / 90) % 4


@contextmanager
def _opened(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open the video stream of a file.

    Raises:
        VideoError: it is missing, inaccessible, not a video, or damaged.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise VideoError(path, "there is no such file", "Check the path.") from None
    except (OSError, ValueError) as error:  # no permission, too long a name, a loop of links
        raise _no_access(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(path, "this is a folder, not a clip", "Name a file in it.")
    if status.st_size == 0:
        raise VideoError(path, "the file is empty (0 bytes)", "Copy or download it again.")
    options = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}
    if path.suffix.lower() in {".jpg", ".jpeg", ".png", ".webp"}:
        options["pattern_type"] = "none"  # a % in the name of an image is no pattern
    try:
        container = av.open(f"file:{path}", options=options, metadata_errors="replace")
    except PermissionError as error:
        raise _no_access(path, error) from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise _cannot_open(path, error) from error
    with container:
        stream = next((s for s in container.streams.video if not _is_cover_art(s)), None)
        if stream is None:
            what = "it has sound but no pictures" if container.streams.audio else "it has no video stream"
            raise VideoError(path, what, _NOT_VIDEO)
        stream.codec_context.thread_count = 1  # clips are decoded in parallel, one per core
        try:
            yield container, stream
        except (av.FFmpegError, MemoryError) as error:
            raise VideoError(
                path, f"reading failed half-way ({error})", "Convert it to mp4, or leave it out."
            ) from error


def _is_cover_art(stream: VideoStream) -> bool:
    return bool(stream.disposition & Disposition.attached_pic)


def _no_access(path: Path, error: OSError | ValueError) -> VideoError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return VideoError(path, f"it cannot be read ({reason})", "Change its permissions, or rename it.")


def _cannot_open(path: Path, error: Exception) -> VideoError:
    with path.open("rb") as file:
        head = file.read(4096)
    if head[4:8] == b"ftyp" or head[:4] in (b"RIFF", b"\x1a\x45\xdf\xa3"):
        return VideoError(path, "the file is cut off: its index is missing", "Copy or download it again.")
    if _is_text(head):
        return VideoError(path, "this is text, not a video", _NOT_VIDEO)
    reason = getattr(error, "strerror", None) or str(error)
    return VideoError(path, f"this is not a video or picture that FFmpeg can read ({reason})", _NOT_VIDEO)


def _is_text(head: bytes) -> bool:
    try:
        text = head[:4000].decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        if error.start < len(head[:4000]) - 4:
            return False
        text = head[: error.start].decode("utf-8")
    return all(character.isprintable() or character in "\r\n\t\f" for character in text)


def _nothing_decoded(path: Path) -> VideoError:
    with path.open("rb") as file:
        head = file.read(64)
    if head[8:12] == b"WEBP" and b"ANIM" in head:
        return VideoError(path, "an animated WebP, which FFmpeg does not read", "Convert it to gif or mp4.")
    what = "no picture could be decoded: the file is damaged or cut off"
    return VideoError(path, what, "Copy or download it again.")
