"""Sample the frames of a video file or an image.

The paper takes one frame in ten, at most 40, at a wider interval in longer clips. Films run at 24 frames per
second, so samples are 10/24 s apart, whatever the frame rate of a clip. The sample at a time is the frame
that a player shows then; no frame is sampled twice.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from ctsan.errors import printable
from ctsan.io.messages import warn
from ctsan.video.video_file import decoded, guarded, nothing_decoded, open_video, packets, video_errors

# Differs from the paper: frames are spaced in seconds, whatever the frame rate is. The paper takes one in
# ten, which is the same at 24 frames a second.
SPACING = 10 / 24  # seconds
MAX_FRAMES = 40

_ROUNDING = 1e-3  # seconds: some containers have timestamps in milliseconds
_MAX_INDEX = 5_000_000  # entries that are read, 46 hours at 30 frames per second; a million takes a second
_SEEK_COSTS = 12  # frames that can be decoded in the time of one seek
_MAX_OFFSET = 2**63 - 1  # of a seek
_CUT_OFF = 1.0  # seconds that are missing at the end of a file that is cut off, at least
_LATEST = 1e11  # seconds, about 3,000 years: later timestamps are damage, but some recorders count from 1970


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
    middle: NDArray[np.uint8] | None = None  # (h, w, 3): the middle one whole, in its aspect, if asked for


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded frame, which gives upright RGB pixels of any size."""

    path: Path
    frame: VideoFrame
    pixel_aspect: float  # width of a pixel by its height
    reformatter: VideoReformatter

    def __call__(self, size: tuple[int, int]) -> NDArray[np.uint8]:
        """Pixels squashed to (width, height).

        Raises:
            VideoError: FFmpeg cannot convert the frame.
        """
        with video_errors(self.path):
            return _upright_pixels(self.frame, size, self.reformatter)

    def within(self, box: tuple[int, int]) -> NDArray[np.uint8]:
        """Pixels in the display aspect ratio, scaled down to fit into a box, never up.

        Raises:
            VideoError: FFmpeg cannot convert the frame.
        """
        return self(_fitting_size(self.frame, self.pixel_aspect, box, may_enlarge=False))


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
    with open_video(path) as (container, stream), video_errors(path):
        first = next(decoded(container, stream), None)
        if first is None:
            raise nothing_decoded(path)
        rate = stream.average_rate or stream.guessed_rate
        return VideoInfo(
            duration=_duration(path, container, stream),
            frame_rate=float(rate) if rate else 0.0,
            width=first.width,
            height=first.height,
            frames=stream.frames if stream.frames > 0 else None,
        )


def packets_duration(path: Path) -> float:
    """The time from the first timestamp to the last, without decoding; 0 without timestamps.

    Of a truncated file this is what is left; its header may still have the duration of the whole.

    Raises:
        VideoError: it cannot be read.
    """
    return _packets_span(path)[0]


def _packets_span(path: Path) -> tuple[float, float]:
    """The time from the first timestamp to the last, and the longest time between two packets."""
    first, last, previous, longest = math.inf, -math.inf, math.inf, 0.0
    with open_video(path) as (container, stream):
        for packet in packets(container, stream):
            if packet.pts is not None and packet.time_base is not None:
                start, stop = packet.pts, packet.pts + max(packet.duration or 0, 0)
                time = float(start * packet.time_base)
                longest = max(longest, time - previous)
                first, previous = min(first, time), time
                last = max(last, float(stop * packet.time_base))
    return (min(last - first, _LATEST), longest) if first <= last else (0.0, 0.0)


def readable_duration(path: Path, declared: float) -> float:
    """The duration of what is left of a file that is cut off, else `declared`, the duration of its header.

    Raises:
        VideoError: it cannot be read.
    """
    left, longest = _packets_span(path)
    # A picture at the end may stand for as long as others do, and not every container says for how long.
    return left if 0 < left < declared - max(_CUT_OFF, 2 * longest) else declared


def sample_frames(
    path: Path,
    *,
    size: int,
    spacing: float = SPACING,
    max_frames: int = MAX_FRAMES,
    span: tuple[float, float] | None = None,
    middle_box: tuple[int, int] | None = None,
) -> Frames:
    """Sample a clip's frames at `size` x `size` pixels; damaged packets are skipped.

    Warns if the file is cut off, and ends before its header says.

    Args:
        span: start and end in seconds from the first frame, to sample a part of the clip alone.
        middle_box: width and height; also give the middle frame, scaled down to fit into it.

    Raises:
        VideoError: no frame can be read.
    """
    with open_video(path) as (container, stream), video_errors(path):
        start, end = span or (0.0, _duration(path, container, stream))
        duration = end - start
        targets = start + sample_times(duration, spacing=spacing, max_frames=max_frames)
        reformatter = VideoReformatter()
        pixels: list[NDArray[np.uint8]] = []
        times: list[float] = []
        middle: VideoFrame | None = None  # the last sample in the first half
        for frame, time in _frames_at(targets, container, stream):
            pixels.append(_upright_pixels(frame, (size, size), reformatter))
            times.append(time)
            if middle is None or time - times[0] <= duration / 2:
                middle = frame
        if middle is None:
            raise nothing_decoded(path)
        if span is None and targets[-1] - (times[-1] - times[0]) > 2 * SPACING:
            _warn_if_cut_off(path, duration)
        picture = Picture(path, middle, _pixel_aspect(stream), reformatter)
        return Frames(
            np.stack(pixels), np.array(times), picture.within(middle_box) if middle_box is not None else None
        )


def _warn_if_cut_off(path: Path, declared: float) -> None:
    readable = readable_duration(path, declared)
    if readable < declared:
        warn(
            f"{printable(path)}: the file is cut off: {readable:.1f} of {declared:.1f} seconds can be read. "
            "Copy or download it again."
        )


def pictures_at(
    path: Path, seconds: NDArray[np.float64], *, box: tuple[int, int]
) -> list[tuple[NDArray[np.uint8], float]]:
    """The frames that a player shows at given times, in seconds from the first frame; as `every_picture`."""
    with open_video(path) as (container, stream), video_errors(path):
        return list(_fitted_pixels(_frames_at(seconds, container, stream), stream, box))


def every_picture(path: Path, *, box: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint8], float]]:
    """All frames of a clip in order, upright, in their display aspect ratio, with their timestamps.

    Args:
        box: width and height; frames are scaled to fit into it.

    Raises:
        VideoError: the clip cannot be read.
    """
    with open_video(path) as (container, stream):
        yield from guarded(path, _fitted_pixels(_timed(container, stream), stream, box))


def every_frame(path: Path) -> Iterator[tuple[Picture, float]]:
    """All frames of a clip in order, as functions from a size to pixels, with their timestamps.

    Raises:
        VideoError: the clip cannot be read, or none of its frames.
    """
    with open_video(path) as (container, stream):
        reformatter = VideoReformatter()
        is_empty = True
        for frame, time in guarded(path, _timed(container, stream)):
            is_empty = False
            yield Picture(path, frame, _pixel_aspect(stream), reformatter), time
        if is_empty:
            raise nothing_decoded(path)


def _timed(container: InputContainer, stream: VideoStream) -> Iterator[tuple[VideoFrame, float]]:
    expected = 0.0
    for frame in decoded(container, stream):
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
        size = size or _fitting_size(frame, _pixel_aspect(stream), box)
        yield _upright_pixels(frame, size, reformatter), time


def _frames_at(
    targets: NDArray[np.float64], container: InputContainer, stream: VideoStream
) -> Iterator[tuple[VideoFrame, float]]:
    """The frames that a player shows at the target times; seeks if that is faster than decoding."""
    rate = float(stream.average_rate or 24)
    keyframes = _keyframe_times(stream)
    frames = decoded(container, stream)
    current: tuple[VideoFrame, float] | None = None
    start = 0.0
    position = 0  # in targets
    landing = -1  # the index of the keyframe of the last seek until a frame after it is decoded, else -1
    while position < len(targets):
        frame = next(frames, None)
        if frame is None:
            break
        time = _time(frame, default=current[1] + 1 / rate if current else 0.0)
        is_past = time - start > targets[position] + _ROUNDING
        if current is None:
            start = time
        elif is_past and landing >= 0:  # the container's index was wrong: the target is before this keyframe
            landing -= 1
            _seek(container, stream, keyframes[max(landing, 0)])
            frames = decoded(container, stream)
            continue
        elif is_past:
            yield current
            position = int(np.searchsorted(targets, time - start - _ROUNDING))
            if position < len(targets):
                nearest = bisect_right(keyframes, targets[position] + start + _ROUNDING) - 1
                if nearest >= 0 and (keyframes[nearest] - time) * rate > _SEEK_COSTS:
                    _seek(container, stream, keyframes[nearest])
                    frames = decoded(container, stream)
                    landing = nearest
                    current = (frame, time)
                    continue
        landing = -1
        current = (frame, time)
    if current is not None and position < len(targets):
        yield current  # the last frame is shown until the end


def _seek(container: InputContainer, stream: VideoStream, time: float) -> None:
    assert stream.time_base is not None  # true for all streams with keyframe times
    offset = round(time / stream.time_base)
    container.seek(min(max(offset, -_MAX_OFFSET), _MAX_OFFSET), stream=stream, backward=True)


def _keyframe_times(stream: VideoStream) -> list[float]:
    """The presentation times of the keyframes; empty if the container has no index."""
    entries = getattr(stream, "index_entries", None)  # PyAV 16 and later
    if not entries or stream.time_base is None:
        return []
    # The index has decoding times; presentation times differ by a delay that is constant at a constant rate.
    delay = (stream.start_time or 0) - min(entry.timestamp for entry in islice(entries, _MAX_INDEX))
    numerator, denominator = stream.time_base.as_integer_ratio()
    return [
        (entry.timestamp + delay) * numerator / denominator  # a `Fraction` takes ten times as long
        for entry in islice(entries, _MAX_INDEX)
        if entry.is_keyframe
    ]


def _time(frame: VideoFrame, *, default: float) -> float:
    """The timestamp of a frame in seconds; a damaged one is moved to the nearest that is possible."""
    return min(max(default if frame.time is None else frame.time, -_LATEST), _LATEST)


def _duration(path: Path, container: InputContainer, stream: VideoStream) -> float:
    """The duration of the video stream, from the headers, or else from the packets, without decoding."""
    if container.format.name == "image2" or container.format.name.endswith("_pipe"):
        return 0.0
    for duration in (_declared_duration(stream), _tagged_duration(stream)):
        if duration is not None and 0 < duration <= _LATEST:
            return duration
    return packets_duration(path)


def _declared_duration(stream: VideoStream) -> float | None:
    return float(stream.duration * stream.time_base) if stream.duration and stream.time_base else None


def _tagged_duration(stream: VideoStream) -> float | None:
    """The duration by the tag of a Matroska file.

    Its header has one too, which includes sound and the time before the first frame.
    """
    match = re.fullmatch(
        r"([0-9]{1,9}):([0-9]{2}):([0-9]{2}(?:\.[0-9]{1,20})?)", stream.metadata.get("DURATION", "")
    )
    if match is None:
        return None
    end = 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3])
    return end - float((stream.start_time or 0) * (stream.time_base or 0))


def _upright_pixels(
    frame: VideoFrame, size: tuple[int, int], reformatter: VideoReformatter
) -> NDArray[np.uint8]:
    """RGB pixels of the whole frame, resized to (width, height) and rotated as a player does."""
    quarter_turns = _quarter_turns(frame)
    width, height = reversed(size) if quarter_turns % 2 else size
    resized = reformatter.reformat(frame, width=width, height=height, format="rgb24", interpolation="BICUBIC")
    pixels = np.asarray(resized.to_ndarray(), dtype=np.uint8)
    return np.ascontiguousarray(np.rot90(pixels, quarter_turns)) if quarter_turns else pixels


def _pixel_aspect(stream: VideoStream) -> float:
    return float(stream.sample_aspect_ratio or 1)


def _fitting_size(
    frame: VideoFrame, pixel_aspect: float, box: tuple[int, int], *, may_enlarge: bool = True
) -> tuple[int, int]:
    """Width and height of the upright frame in the box; pixels in the file need not be square."""
    shape = (frame.width * pixel_aspect, float(frame.height))
    width, height = reversed(shape) if _quarter_turns(frame) % 2 else shape
    scale = min(box[0] / width, box[1] / height)
    if not may_enlarge:
        scale = min(scale, 1.0)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _quarter_turns(frame: VideoFrame) -> int:
    """How many times to rotate a frame counter-clockwise by 90 degrees, from its display matrix."""
    return round(frame.rotation / 90) % 4
