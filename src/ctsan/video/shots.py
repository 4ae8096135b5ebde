"""Detect the shots of a long video and sample their frames, in one pass.

A cut is a frame whose colour histogram changes much more than those of the frames around it, so that fast
motion and flicker are not cuts. Every frame is decoded once, and only a few past frames are kept, so memory
does not grow with the length of the video. A jump of the timestamps ends a shot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.video.frames import MAX_FRAMES, SPACING, Frames, Picture, every_frame, subsample

MAX_SECONDS = 30.0  # longer shots are split
MIN_SECONDS = 0.5  # shorter shots are merged with the neighbour that they differ from less

# Tuned on concatenated five-second pieces of web videos (docs/search.md).
_MIN_CHANGE = 0.25  # of the colour histogram at a cut
_MIN_RATIO = 3.0  # of the change at a cut to the mean change around it
_NEIGHBOURS = 2  # frames on each side
_NOISE = 0.01  # the change between frames that look the same

_COMPARE_SIZE = (48, 36)  # width and height at which frames are compared
_REGIONS, _SHADES = 2, 4  # bins per spatial axis and per colour channel
_ROUNDING = 1e-3  # seconds


@dataclass(frozen=True, slots=True)
class Shot:
    """Start and end in seconds from the first frame of the source, as in a player."""

    start: float
    end: float


class _Sample(NamedTuple):
    pixels: NDArray[np.uint8]
    time: float
    whole: NDArray[np.uint8] | None  # in its aspect ratio, if asked for


class _SampledShot(NamedTuple):
    """A shot that may still be merged with the next one."""

    shot: Shot
    samples: list[_Sample]
    change: float  # of the colour histogram at its first frame


class _TimedFrame(NamedTuple):
    picture: Picture
    time: float  # seconds from the first frame
    change: float  # of the colour histogram since the previous frame, from 0 to 1


def frames_of_shots(
    path: Path,
    *,
    size: int,
    middle_box: tuple[int, int] | None = None,
) -> Iterator[tuple[Shot, Frames]]:
    """Every shot with its frames, sampled as `sample_frames` samples a clip; an image is a shot of length 0.

    Args:
        middle_box: width and height; also give the middle frame of each shot, scaled down to fit into it.

    Raises:
        VideoError: the video cannot be read.
    """
    for shot, samples, _ in _merged_shots(path, size=size, middle_box=middle_box):
        sampled = [samples[index] for index in subsample(len(samples), MAX_FRAMES)]
        pixels = np.stack([sample.pixels for sample in sampled])
        middle = min(samples, key=lambda sample: abs(sample.time - (shot.start + shot.end) / 2)).whole
        yield shot, Frames(pixels, np.array([sample.time for sample in sampled]), middle)


def frames_of_shots_by_size(
    path: Path, sizes: Sequence[int], *, middle_box: tuple[int, int] | None = None
) -> Iterator[tuple[Shot, dict[int, Frames]]]:
    """Every shot with its frames in several sizes; the video is decoded once per size.

    Args:
        middle_box: see `frames_of_shots`; the frames of the first size have the middle one.

    Raises:
        VideoError: the video cannot be read.
    """
    boxes = [middle_box, *[None] * len(sizes)]
    by_size = (
        frames_of_shots(path, size=size, middle_box=box) for size, box in zip(sizes, boxes, strict=False)
    )
    for parts in zip(*by_size, strict=True):
        yield parts[0][0], {size: frames for size, (_, frames) in zip(sizes, parts, strict=True)}


def _merged_shots(path: Path, *, size: int, middle_box: tuple[int, int] | None) -> Iterator[_SampledShot]:
    """Shots of at least `MIN_SECONDS`: of the two cuts around a shorter one, the weaker is dropped."""
    before: _SampledShot | None = None
    current: _SampledShot | None = None
    for following in _raw_shots(_timed_frames(path), size=size, middle_box=middle_box):
        if current is None:
            current = following
            continue
        joins_before = _is_short(current) and before is not None and _can_merge(before, current)
        joins_following = _is_short(current) and current.shot.end == following.shot.start
        if joins_before and not (joins_following and current.change > following.change):
            assert before is not None  # implied by `joins_before`
            before, current = _merge(before, current), following
        elif joins_following:
            current = _merge(current, following)
        else:
            if before is not None:
                yield before
            before, current = current, following
    if before is not None and current is not None and _is_short(current) and _can_merge(before, current):
        before, current = _merge(before, current), None
    yield from (shot for shot in (before, current) if shot is not None)


def _can_merge(first: _SampledShot, second: _SampledShot) -> bool:
    return first.shot.end == second.shot.start and _length(first) < MAX_SECONDS


def _merge(first: _SampledShot, second: _SampledShot) -> _SampledShot:
    return _SampledShot(Shot(first.shot.start, second.shot.end), first.samples + second.samples, first.change)


def _raw_shots(
    frames: Iterable[_TimedFrame], *, size: int, middle_box: tuple[int, int] | None
) -> Iterator[_SampledShot]:
    """Shots from each cut to the next, of at most `MAX_SECONDS`.

    A frame that is shown for longer ends its shot at that length, because the timestamps of a video may jump
    by years.
    """
    start, next_sample, last_duration, start_change = 0.0, 0.0, 0.0, 0.0
    samples: list[_Sample] = []
    previous: tuple[Picture, float] | None = None

    def sample_previous() -> None:
        if previous and (not samples or samples[-1].time < previous[1]):
            picture, time = previous
            whole = picture.within(middle_box) if middle_box is not None else None
            samples.append(_Sample(picture((size, size)), time, whole))

    for (picture, time, change), is_cut in _cuts(frames):
        if previous and next_sample < time - _ROUNDING:  # the previous frame was shown at the sample's time
            sample_previous()
            next_sample += SPACING * math.ceil((time - _ROUNDING - next_sample) / SPACING)
        duration = time - previous[1] if previous else 0.0
        if previous and (is_cut or time - start > MAX_SECONDS - _ROUNDING):
            end = start + MAX_SECONDS if duration > MAX_SECONDS else time
            yield _SampledShot(Shot(start, end), samples, start_change)
            start = next_sample = time
            samples, start_change = [], change
        last_duration = min(duration, MAX_SECONDS)
        previous = picture, time
    if previous is not None:
        end = previous[1] + last_duration  # the last frame is shown for as long as the one before
        if next_sample < end or not samples:
            sample_previous()
        yield _SampledShot(Shot(start, end), samples, start_change)


def _cuts(frames: Iterable[_TimedFrame]) -> Iterator[tuple[_TimedFrame, bool]]:
    """Frames, and whether they begin a shot; delayed by `_NEIGHBOURS` frames."""
    window: deque[_TimedFrame] = deque(maxlen=2 * _NEIGHBOURS + 1)
    pending: deque[_TimedFrame] = deque()
    for frame in frames:
        window.append(frame)
        pending.append(frame)
        if len(pending) > _NEIGHBOURS:
            oldest = pending.popleft()
            yield oldest, _is_cut(oldest, window)
    for frame in pending:
        yield frame, _is_cut(frame, window)


def _is_cut(frame: _TimedFrame, window: Iterable[_TimedFrame]) -> bool:
    around = [other.change for other in window if other is not frame and abs(other.time - frame.time) < 1]
    mean_change = sum(around) / len(around) if around else 0.0
    return frame.change > max(_MIN_CHANGE, _MIN_RATIO * (mean_change + _NOISE))


def _timed_frames(path: Path) -> Iterator[_TimedFrame]:
    first_time: float | None = None
    previous: NDArray[np.float64] | None = None
    for picture, time in every_frame(path):
        first_time = time if first_time is None else first_time
        histogram = _colour_histogram(picture(_COMPARE_SIZE))
        change = 0.0 if previous is None else float(np.abs(histogram - previous).sum()) / 2
        previous = histogram
        yield _TimedFrame(picture, time - first_time, change)


def _colour_histogram(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The share of each colour in each region of a frame; the shares sum to 1."""
    height, width, _ = pixels.shape
    red, green, blue = np.moveaxis(pixels.astype(np.int64) * _SHADES // 256, -1, 0)
    rows = np.arange(height)[:, None] * _REGIONS // height
    columns = np.arange(width) * _REGIONS // width
    bins = (((rows * _REGIONS + columns) * _SHADES + red) * _SHADES + green) * _SHADES + blue
    counts = np.bincount(bins.ravel(), minlength=_REGIONS**2 * _SHADES**3)
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def _is_short(sampled: _SampledShot) -> bool:
    return _length(sampled) < MIN_SECONDS


def _length(sampled: _SampledShot) -> float:
    return sampled.shot.end - sampled.shot.start
