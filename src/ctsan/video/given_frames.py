"""Clips as frames in memory instead of a file: an array, or a list of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError
from ctsan.video.frames import MAX_FRAMES, SPACING, Frames, sample_frames, subsample
from ctsan.video.video_file import MAX_PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

# A path, RGB pixels (N, height, width, 3), or a list of PIL images or of arrays (height, width, 3).
ClipInput: TypeAlias = Path | str | NDArray[np.uint8] | Sequence["Image"] | Sequence[NDArray[np.uint8]]

_ACCEPTED = (
    "A clip is the path of a video or picture, an array of frames (N, height, width, 3) of type uint8, or a "
    "list of PIL images"
)


def frames_of(clip: ClipInput, *, size: int, middle_box: tuple[int, int] | None = None) -> Frames:
    """The frames of a clip at `size` x `size` pixels; frames in memory get timestamps `SPACING` apart.

    Args:
        middle_box: see `sample_frames`; for files only.

    Raises:
        VideoError: the file cannot be read.
        UsageError: the clip is neither a file nor frames.
    """
    if isinstance(clip, Path | str):
        return sample_frames(Path(clip), size=size, middle_box=middle_box)
    pictures = [_pixels(frame) for frame in _listed(clip)]
    indices = subsample(len(pictures), MAX_FRAMES) if len(pictures) > MAX_FRAMES else np.arange(len(pictures))
    pixels = [_resized(pictures[index], size) for index in indices.tolist()]
    return Frames(np.stack(pixels), indices.astype(np.float64) * SPACING)


def clip_name(clip: ClipInput) -> str:
    """The name of a clip in results."""
    if isinstance(clip, Path | str):
        return str(clip)
    return f"{len(_listed(clip))} frames"


def _listed(clip: object) -> Sequence[object]:
    if isinstance(clip, np.ndarray) and clip.ndim == 4:
        frames: Sequence[object] = list(clip)
    elif isinstance(clip, list | tuple):
        frames = clip
    else:
        shape = f" of shape {clip.shape}" if isinstance(clip, np.ndarray) else ""
        raise UsageError(f"{_ACCEPTED}; this is a {type(clip).__name__}{shape}.")
    if not frames:
        raise UsageError(f"{_ACCEPTED}; this one has no frames.")
    return frames


def _pixels(frame: object) -> NDArray[np.uint8]:
    if not isinstance(frame, np.ndarray):
        convert = getattr(frame, "convert", None)  # of a PIL image
        if convert is None:
            raise UsageError(f"{_ACCEPTED}; this one holds a {type(frame).__name__}.")
        width, height = getattr(frame, "size", (0, 0))
        if width * height > MAX_PIXELS:  # it may be a file that is not decoded yet
            raise UsageError(
                f"An image of {width:,} × {height:,} pixels is larger than is allowed. Scale it down to at "
                f"most {MAX_PIXELS:,} pixels."
            )
        return np.asarray(convert("RGB"))
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise UsageError(
            f"{_ACCEPTED}; this one holds a frame of shape {frame.shape} and type {frame.dtype}."
        )
    return frame


def _resized(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Resize with FFmpeg's scaler, as decoded frames are."""
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    resized = frame.reformat(width=size, height=size, format="rgb24", interpolation="BICUBIC")
    return np.asarray(resized.to_ndarray(), dtype=np.uint8)
