"""A video file or a picture to the few frames that the models look at.

The paper takes one frame in ten, at most 40, and a wider interval in longer clips. Films run at 24 frames a
second, so we space samples 10/24 s apart: clips of 10, 25 and 60 frames a second are then seen alike. The
sample for a moment is the picture on the screen at that moment; no picture is taken twice.
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

Picture = Callable[[tuple[int, int]], NDArray[np.uint8]]  # width and height -> RGB pixels, upright

_ROUNDING = 1e-3  # seconds: some containers count in thousandths
_SEEK_COSTS = 12  # frames that could be decoded in the time that one seek takes

# Real containers and pictures only: FFmpeg would also follow playlists to other files and addresses.
_CONTAINERS = (
    "mov,mp4,m4v,matroska,webm,avi,gif,flv,asf,mpeg,mpegts,mpegvideo,h264,hevc,ogg,rm,mxf,nut,dv,image2,"
    "jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,tiff_pipe,apng,mp3,wav,flac,aac,aiff"
)

_NOT_VIDEO = "Give a video (mp4, avi, mkv, mov, webm, gif) or a picture (jpg, png, webp)."


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What a container says of its video stream."""

    duration: float  # seconds; 0 for a picture
    frame_rate: float  # frames a second; 0 where unknown
    width: int
    height: int
    frames: int | None  # None where the container does not say


@dataclass(frozen=True, slots=True)
class Frames:
    """Sampled frames, upright, squashed to one size, with the times at which the source shows them."""

    pixels: NDArray[np.uint8]  # (N, size, size, 3), RGB
    times: NDArray[np.float64]  # (N,), seconds, as in the source


def sample_times(
    duration: float, *, spacing: float = SPACING, max_frames: int = MAX_FRAMES
) -> NDArray[np.float64]:
    """The moments to look at in a clip of `duration` seconds: from 0, evenly, at most `max_frames`."""
    count = max(1, math.ceil((duration - _ROUNDING) / spacing))
    if count > max_frames:
        count, spacing = max_frames, duration / max_frames
    return np.arange(count, dtype=np.float64) * spacing


def subsample(num_frames: int, max_frames: int) -> NDArray[np.int64]:
    """The places of at most `max_frames` frames, evenly over `num_frames`; all places if there are fewer."""
    kept = min(num_frames, max_frames)
    return np.arange(kept, dtype=np.int64) * num_frames // kept


def probe(path: Path) -> VideoInfo:
    """Open a clip, decode its first picture, and tell what it is.

    Raises:
        VideoError: it is missing, empty, cut off, without pictures, or no video at all.
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
    """Sample a clip's frames as `size` x `size` pixels. Damaged packets cost what they hold, not the clip.

    Raises:
        VideoError: no picture at all can be read; the message says why.
    """
    with _opened(path) as (container, stream):
        targets = sample_times(_duration(path, container, stream), spacing=spacing, max_frames=max_frames)
        reformatter = VideoReformatter()
        taken = [
            (_upright_pixels(frame, (size, size), reformatter), time)
            for frame, time in _shown_at(targets, container, stream)
        ]
    if not taken:
        raise _nothing_decoded(path)
    return Frames(np.stack([pixels for pixels, _ in taken]), np.array([time for _, time in taken]))


def pictures_at(
    path: Path, seconds: NDArray[np.float64], *, box: tuple[int, int]
) -> list[tuple[NDArray[np.uint8], float]]:
    """What is on the screen so long after the first picture; otherwise as `every_picture`."""
    with _opened(path) as (container, stream):
        return list(_to_look_at(_shown_at(seconds, container, stream), stream, box))


def every_picture(path: Path, *, box: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint8], float]]:
    """All pictures of a clip in turn, upright, in a player's proportions, with their times in the source.

    Args:
        box: width and height; a picture is as large as fits into it.

    Raises:
        VideoError: the clip cannot be read.
    """
    with _opened(path) as (container, stream):
        yield from _to_look_at(_timed(container, stream), stream, box)


def every_frame(path: Path) -> Iterator[tuple[Picture, float]]:
    """All pictures of a clip in turn, to be had in any size, with their times in the source.

    Raises:
        VideoError: the clip cannot be read, or not one picture in it.
    """
    with _opened(path) as (container, stream):
        reformatter = VideoReformatter()
        nothing = True
        for frame, time in _timed(container, stream):
            nothing = False
            yield partial(_upright_pixels, frame, reformatter=reformatter), time
        if nothing:
            raise _nothing_decoded(path)


def _timed(container: InputContainer, stream: VideoStream) -> Iterator[tuple[VideoFrame, float]]:
    after = 0.0
    for frame in _decoded(container, stream):
        time = _time(frame, after=after)
        after = time + 1 / float(stream.average_rate or 24)
        yield frame, time


def _to_look_at(
    frames: Iterable[tuple[VideoFrame, float]], stream: VideoStream, box: tuple[int, int]
) -> Iterator[tuple[NDArray[np.uint8], float]]:
    """For people; all in the size of the first, since some clips change it on the way."""
    reformatter = VideoReformatter()
    size: tuple[int, int] | None = None
    for frame, time in frames:
        size = size or _fitting(frame, stream, box)
        yield _upright_pixels(frame, size, reformatter), time


def _shown_at(
    targets: NDArray[np.float64], container: InputContainer, stream: VideoStream
) -> Iterator[tuple[VideoFrame, float]]:
    """The frames on the screen at the target times, seeking where whole stretches can be skipped."""
    rate = float(stream.average_rate or 24)
    keyframes = _keyframe_times(stream)
    frames = _decoded(container, stream)
    shown: tuple[VideoFrame, float] | None = None
    start = 0.0
    position = 0
    landing = -1  # the keyframe that was just sought, if any
    while position < len(targets):
        frame = next(frames, None)
        if frame is None:
            break
        time = _time(frame, after=shown[1] + 1 / rate if shown else 0.0)
        is_past = time - start > targets[position] + _ROUNDING
        if shown is None:
            start = time
        elif is_past and landing >= 0:  # the index was wrong: what is wanted lies before this keyframe
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
        yield shown  # nothing follows it, so it is on the screen until the end


def _seek(container: InputContainer, stream: VideoStream, time: float) -> None:
    assert stream.time_base is not None  # only streams with keyframe times come here
    container.seek(round(time / stream.time_base), stream=stream, backward=True)


def _keyframe_times(stream: VideoStream) -> list[float]:
    """When the keyframes of a container with an index are shown; empty where there is no index."""
    entries = getattr(stream, "index_entries", None)  # PyAV 16 and later
    if not entries or stream.time_base is None:
        return []
    # The index holds decoding times; showing starts later by a delay that is constant at a constant rate.
    delay = (stream.start_time or 0) - min(entry.timestamp for entry in entries)
    return [float((entry.timestamp + delay) * stream.time_base) for entry in entries if entry.is_keyframe]


def _decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Every frame that can be decoded, in the order of showing."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:  # cut off in the middle of a packet: what came before stays
            return
        if packet is None:
            return
        try:
            frames = packet.decode()
        except av.FFmpegError:  # a damaged packet
            continue
        yield from (frame for frame in frames if isinstance(frame, VideoFrame) and not frame.is_corrupt)


def _time(frame: VideoFrame, *, after: float) -> float:
    return frame.time if frame.time is not None else after


def _duration(path: Path, container: InputContainer, stream: VideoStream) -> float:
    """Seconds of pictures, from the headers; where they are silent, from the packets, without decoding."""
    if container.format.name == "image2" or container.format.name.endswith("_pipe"):
        return 0.0
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    # Matroska's own duration counts sound and whatever lies before the first picture; a tag may be better.
    if match := re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", stream.metadata.get("DURATION", "")):
        end = 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3])
        return end - float((stream.start_time or 0) * (stream.time_base or 0))
    times: list[float] = []
    with _opened(path) as (again, same_stream):
        for packet in again.demux(same_stream):
            if packet.pts is not None and packet.time_base is not None:
                shown, until = packet.pts, packet.pts + (packet.duration or 0)
                times += [float(shown * packet.time_base), float(until * packet.time_base)]
    return max(times) - min(times) if times else 0.0


def _upright_pixels(
    frame: VideoFrame, size: tuple[int, int], reformatter: VideoReformatter
) -> NDArray[np.uint8]:
    """RGB pixels of all of the picture, brought to a width and a height, turned as a player would."""
    quarter_turns = _quarter_turns(frame)
    width, height = reversed(size) if quarter_turns % 2 else size
    small = reformatter.reformat(frame, width=width, height=height, format="rgb24", interpolation="BICUBIC")
    pixels = np.asarray(small.to_ndarray(), dtype=np.uint8)
    return np.ascontiguousarray(np.rot90(pixels, quarter_turns)) if quarter_turns else pixels


def _fitting(frame: VideoFrame, stream: VideoStream, box: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the upright picture in the box, with pixels that need not be square in the file."""
    shape = (frame.width * float(stream.sample_aspect_ratio or 1), float(frame.height))
    width, height = reversed(shape) if _quarter_turns(frame) % 2 else shape
    scale = min(box[0] / width, box[1] / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _quarter_turns(frame: VideoFrame) -> int:
    """How often to turn a picture to the left by 90 degrees, by what phones and cameras write."""
    return round(frame.rotation / 90) % 4


@contextmanager
def _opened(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open the pictures of a file, or say in one sentence what the file is instead."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise VideoError(path, "there is no such file", "Check the path.") from None
    except (OSError, ValueError) as error:  # no permission, a name too long, a loop of links
        raise _no_access(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(path, "this is a folder, not a clip", "Name a file in it.")
    if status.st_size == 0:
        raise VideoError(path, "the file is empty (0 bytes)", "Copy or download it again.")
    options = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}
    if path.suffix.lower() in {".jpg", ".jpeg", ".png", ".webp"}:
        options["pattern_type"] = "none"  # a % in a picture's name is only a %
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
        stream.codec_context.thread_count = 1  # cores are kept busy by clips side by side
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
    return VideoError(path, f"this is no video or picture that FFmpeg can read ({reason})", _NOT_VIDEO)


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
    what = "not one picture could be decoded: the file is damaged or cut off"
    return VideoError(path, what, "Copy or download it again.")
