"""A long video to its shots, in one pass that also samples their frames.

A cut is where the colours of the picture change at once: more than they do in any case around it, so that
fast motion and flicker cut nothing. Every picture is decoded once, and little is held of the past: memory
does not grow with the length of the video. Where its clock jumps, a shot ends.
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
MIN_SECONDS = 1.0  # shorter ones belong to the shot before

# Chosen on joined five-second pieces of web videos (docs/search.md).
_CHANGE = 0.25  # the least share of the colours that a cut changes
_TIMES_AROUND = 3.0  # and how many times as much as changes between the pictures around it
_AROUND = 2  # pictures on each side
_STILL = 0.01  # so much changes between pictures that look the same

_LOOK = (48, 36)  # width and height in which pictures are compared
_REGIONS, _SHADES = 2, 4  # of both sides; of each colour
_ROUNDING = 1e-3  # seconds


@dataclass(frozen=True, slots=True)
class Shot:
    """Seconds in the source, as a player counts them from its first picture."""

    start: float
    end: float


class _Piece(NamedTuple):
    """A shot that may still be joined with the next one."""

    shot: Shot
    taken: list[tuple[NDArray[np.uint8] | None, float]]  # pixels where they are wanted, times


class _Seen(NamedTuple):
    picture: Picture
    time: float  # from the first picture on
    change: float  # of the colours since the picture before, from 0 to 1


def shots_of(path: Path) -> Iterator[Shot]:
    """The shots of a video in turn; a picture is one shot of no length.

    Raises:
        VideoError: the video cannot be read.
    """
    for piece in _pieces(path, size=None):
        yield piece.shot


def frames_of_shots(
    path: Path, *, size: int, spacing: float = SPACING, max_frames: int = MAX_FRAMES
) -> Iterator[tuple[Shot, Frames]]:
    """Every shot with its frames, sampled from its start on as `sample_frames` does with a clip.

    Raises:
        VideoError: the video cannot be read.
    """
    for shot, taken in _pieces(path, size=size, spacing=spacing):
        chosen = [taken[place] for place in subsample(len(taken), max_frames)]
        pixels = np.stack([pixels for pixels, _ in chosen if pixels is not None])
        yield shot, Frames(pixels, np.array([time for _, time in chosen]))


def frames_of_sizes(path: Path, sizes: Sequence[int]) -> Iterator[tuple[Shot, dict[int, Frames]]]:
    """Every shot with its frames in several sizes; the video is decoded once for each.

    Raises:
        VideoError: the video cannot be read.
    """
    for parts in zip(*(frames_of_shots(path, size=size) for size in sizes), strict=True):
        yield parts[0][0], {size: frames for size, (_, frames) in zip(sizes, parts, strict=True)}


def _pieces(path: Path, *, size: int | None, spacing: float = SPACING) -> Iterator[_Piece]:
    """Shots of a second or more: what is shorter goes to the shot before, or after if there is none."""
    held: _Piece | None = None
    for piece in _raw_pieces(_seen(path), size=size, spacing=spacing):
        if held is None:
            held = piece
        elif held.shot.end == piece.shot.start and (
            _is_short(held) or (_is_short(piece) and _length(held) < MAX_SECONDS)
        ):
            held = _Piece(Shot(held.shot.start, piece.shot.end), held.taken + piece.taken)
        else:
            yield held
            held = piece
    if held is not None:
        yield held


def _raw_pieces(seen: Iterable[_Seen], *, size: int | None, spacing: float) -> Iterator[_Piece]:
    """From each cut to the next, or as long as a shot may be.

    A picture that stays longer ends its shot at that length: the clock of the video may have jumped by years.
    """
    start, due, last = 0.0, 0.0, 0.0
    taken: list[tuple[NDArray[np.uint8] | None, float]] = []
    shown: tuple[Picture, float] | None = None  # the picture before

    def take() -> None:
        if shown and (not taken or taken[-1][1] < shown[1]):
            taken.append((shown[0]((size, size)) if size else None, shown[1]))

    for picture, time, is_cut in _cuts(seen):
        if shown and due < time - _ROUNDING:  # what was on the screen when samples were due
            take()
            due += spacing * math.ceil((time - _ROUNDING - due) / spacing)
        stays = time - shown[1] if shown else 0.0
        if shown and (is_cut or time - start > MAX_SECONDS - _ROUNDING):
            yield _Piece(Shot(start, start + MAX_SECONDS if stays > MAX_SECONDS else time), taken)
            start = due = time
            taken = []
        last = min(stays, MAX_SECONDS)
        shown = picture, time
    if shown is not None:
        end = shown[1] + last  # the last picture is shown as long as the one before
        if due < end or not taken:
            take()
        yield _Piece(Shot(start, end), taken)


def _cuts(seen: Iterable[_Seen]) -> Iterator[tuple[Picture, float, bool]]:
    """Pictures with their times, and whether a shot begins with them; a few pictures late."""
    window: deque[_Seen] = deque(maxlen=2 * _AROUND + 1)
    ahead: deque[_Seen] = deque()
    for one in seen:
        window.append(one)
        ahead.append(one)
        if len(ahead) > _AROUND:
            now = ahead.popleft()
            yield now.picture, now.time, _is_cut(now, window)
    for now in ahead:
        yield now.picture, now.time, _is_cut(now, window)


def _is_cut(now: _Seen, window: Iterable[_Seen]) -> bool:
    around = [one.change for one in window if one is not now and abs(one.time - now.time) < 1]
    usual = sum(around) / len(around) if around else 0.0
    return now.change > max(_CHANGE, _TIMES_AROUND * (usual + _STILL))


def _seen(path: Path) -> Iterator[_Seen]:
    first: float | None = None
    before: NDArray[np.float64] | None = None
    for picture, time in every_frame(path):
        first = time if first is None else first
        colours = _colours(picture(_LOOK))
        change = 0.0 if before is None else float(np.abs(colours - before).sum()) / 2
        before = colours
        yield _Seen(picture, time - first, change)


def _colours(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The share of each colour in each region of a picture; all add up to one."""
    height, width, _ = pixels.shape
    red, green, blue = np.moveaxis(pixels.astype(np.int64) * _SHADES // 256, -1, 0)
    rows = np.arange(height)[:, None] * _REGIONS // height
    columns = np.arange(width) * _REGIONS // width
    bins = (((rows * _REGIONS + columns) * _SHADES + red) * _SHADES + green) * _SHADES + blue
    counts = np.bincount(bins.ravel(), minlength=_REGIONS**2 * _SHADES**3)
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def _is_short(piece: _Piece) -> bool:
    return _length(piece) < MIN_SECONDS


def _length(piece: _Piece) -> float:
    return piece.shot.end - piece.shot.start
