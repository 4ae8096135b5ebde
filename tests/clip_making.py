"""Real clips of the tests' own making: frame n of a counting clip shows n in binary, as eight stripes."""

from __future__ import annotations

import struct
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
    container_options: Mapping[str, str] | None = None,
) -> Path:
    """Write pictures as a video, at an even rate or at the given times."""
    times = iter(seconds) if seconds is not None else None
    with av.open(str(path), "w", options=dict(container_options or {})) as container:
        codec = codec or CODECS[path.suffix]
        stream = container.add_stream(codec, rate=rate, options=dict(options or {}))
        assert isinstance(stream, av.VideoStream)
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


def set_rotation(path: Path, clockwise: int) -> None:
    """Write the display matrix into the track header of an mp4, as a phone does."""
    cosine, sine = {0: (1, 0), 90: (0, 1), 180: (-1, 0), 270: (0, -1)}[clockwise]
    data = bytearray(path.read_bytes())
    # version; times, id, reserved, duration; reserved; layer, volume
    matrix = data.index(b"tkhd") + 4 + 4 + 4 * 5 + 8 + 8
    values = (cosine << 16, sine << 16, 0, -sine << 16, cosine << 16, 0, 0, 0, 1 << 30)
    data[matrix : matrix + 36] = struct.pack(">9i", *values)
    path.write_bytes(data)
