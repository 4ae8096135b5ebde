"""Real clips of the tests' own making: frame n of a counting clip shows n in binary, as eight stripes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from ctsan.video.frames import Frames

CODECS = {
    ".mp4": "libx264",
    ".mov": "libx264",
    ".mkv": "libx264",
    ".avi": "mpeg4",
    ".webm": "libvpx-vp9",
    ".gif": "gif",
}


def encode(
    path: Path,
    pictures: Iterable[NDArray[np.uint8]],
    *,
    rate: int = 24,
    codec: str | None = None,
    seconds: Iterable[float] | None = None,
    options: Mapping[str, str] | None = None,
) -> Path:
    """Write pictures as a video, at an even rate or at the given times."""
    times = iter(seconds) if seconds is not None else None
    with av.open(str(path), "w") as container:
        codec = codec or CODECS[path.suffix]
        stream = container.add_stream(codec, rate=rate, options=dict(options or {}))
        stream.pix_fmt = {"gif": "rgb8", "png": "rgb24"}.get(codec, "yuv420p")
        stream.codec_context.time_base = Fraction(1, 1000 if times else rate)
        for number, picture in enumerate(pictures):
            if number == 0:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=stream.pix_fmt)
            frame.time_base = stream.codec_context.time_base
            frame.pts = round(next(times) * 1000) if times else number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def counting(frames: int, *, size: tuple[int, int] = (48, 64)) -> Iterable[NDArray[np.uint8]]:
    height, width = size
    for number in range(frames):
        stripes = np.unpackbits(np.uint8(number)) * np.uint8(255)  # (8,)
        row = np.repeat(stripes, width // 8)
        yield np.ascontiguousarray(np.broadcast_to(row[None, :, None], (height, width, 3)))


def numbers(frames: Frames) -> list[int]:
    """Which frames of a counting clip these are."""
    stripes = frames.pixels.reshape(len(frames.pixels), frames.pixels.shape[1], 8, -1).mean(axis=(1, 3))
    return [int(number) for number in np.packbits(stripes > 128, axis=1)[:, 0]]
