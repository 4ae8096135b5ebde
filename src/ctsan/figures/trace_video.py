"""Write a video of traces frame by frame, so that memory does not grow with the length of the clip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from av.container import OutputContainer
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from PIL import Image

from ctsan.figures.heat import Pixels
from ctsan.figures.panels import ShownTrace
from ctsan.figures.traces import TraceFigure, picture_box
from ctsan.inference.results import Tracing
from ctsan.video.frames import VideoInfo, every_picture, pictures_at, probe

STILL_SECONDS = 3.0  # length of the video of a picture
_STILL_RATE = 10  # frames a second

_MP4_TICKS = 90_000  # a second; a multiple of all usual frame rates
_GIF_TICKS = 100
_GIF_RATE = 10  # maximum frame rate, to limit the file size
_GIF_WIDTH, _GIF_HEIGHT = 720, 300  # box for the pictures
_GIF_SAMPLES = 5  # frames from which the palette is computed

_MIN_FRAME_SECONDS = 2 / _MP4_TICKS  # clips may have several frames with the same time
_ROUNDING = 1e-3  # tolerance for frame times, in frames or seconds

_BT709 = 1  # code of the colour space in H.264
_STUDIO_RANGE = 1


class TimedPicture(NamedTuple):
    picture: Pixels
    time: float  # in the clip
    start: float  # in the video that is written
    end: float


def write_mp4(
    clip: Path, tracing: Tracing, traces: Sequence[ShownTrace], out: Path, *, on_frame: Callable[[], object]
) -> None:
    """Write H.264 with the frames, rate and length of the clip, without sound."""
    info, box = probe(clip), picture_box(traces)
    figure = _figure(clip, tracing, traces, box)
    reformatter = VideoReformatter()
    with av.open(str(out), "w", format="mp4", options={"movflags": "faststart"}) as container:
        # bf=0: without B-frames the length is exact at a variable frame rate.
        # mbtree=0: the assembly of the macroblock tree is not deterministic.
        options = {"crf": "18", "preset": "veryfast", "bf": "0", "mbtree": "0"}
        stream = _add_stream(container, "libx264", info, figure.size, _MP4_TICKS, options)
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.thread_count = 4  # fixed, because the output depends on it
        context.color_range = _STUDIO_RANGE
        context.colorspace = context.color_primaries = context.color_trc = _BT709

        def to_frame(pixels: Pixels) -> av.VideoFrame:
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            return reformatter.reformat(
                frame, format="yuv420p", dst_colorspace=_BT709, dst_color_range=_STUDIO_RANGE
            )

        pictures = _timed_pictures(every_picture(clip, box=box), info, rate=None, on_frame=on_frame)
        _encode(container, stream, figure, pictures, to_frame, info.duration or STILL_SECONDS)


def write_gif(
    clip: Path, tracing: Tracing, traces: Sequence[ShownTrace], out: Path, *, on_frame: Callable[[], object]
) -> None:
    """Write a smaller video with at most ten frames a second and one palette."""
    info, box = probe(clip), picture_box(traces, width=_GIF_WIDTH, height=_GIF_HEIGHT)
    figure = _figure(clip, tracing, traces, box)
    samples = np.linspace(0, len(tracing.times) - 1, _GIF_SAMPLES).round().astype(int)
    sampled = pictures_at(clip, np.unique(tracing.times[samples] - tracing.times[0]), box=box)
    rendered = np.concatenate([figure.render(picture, time, 0) for picture, time in sampled])
    palette = Image.fromarray(rendered).quantize(256)
    colours = np.full((256, 4), 255, dtype=np.uint8)  # ARGB
    entries = np.array(palette.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
    entries[entries.min(axis=1) >= 247] = 255  # keep the background pure white
    palette.putpalette(entries.tobytes())
    colours[: len(entries), 1:] = entries
    with av.open(str(out), "w", format="gif", options={"loop": "0"}) as container:
        stream = _add_stream(container, "gif", info, figure.size, _GIF_TICKS, {})
        stream.pix_fmt = "pal8"

        def to_frame(pixels: Pixels) -> av.VideoFrame:
            indices = Image.fromarray(pixels).quantize(palette=palette)
            pair = (np.asarray(indices), colours)
            return av.VideoFrame.from_ndarray(pair, format="pal8")  # type: ignore[arg-type]  # as documented

        pictures = _timed_pictures(every_picture(clip, box=box), info, rate=_GIF_RATE, on_frame=on_frame)
        _encode(container, stream, figure, pictures, to_frame, info.duration or STILL_SECONDS)


def _figure(clip: Path, tracing: Tracing, traces: Sequence[ShownTrace], box: tuple[int, int]) -> TraceFigure:
    [(first, _)] = pictures_at(clip, np.zeros(1), box=box)
    height, width = first.shape[:2]
    return TraceFigure(tracing, traces, width=width, height=height)


def _timed_pictures(
    pictures: Iterator[tuple[Pixels, float]],
    info: VideoInfo,
    *,
    rate: float | None,
    on_frame: Callable[[], object],
) -> Iterator[TimedPicture]:
    """The frames of the clip, dropped to at most `rate` a second; a picture lasts `STILL_SECONDS`."""
    if not info.duration:
        still, first = next(pictures)
        count = round(STILL_SECONDS * _STILL_RATE)
        pictures = ((still, first + number / _STILL_RATE) for number in range(count))
    current: tuple[Pixels, float] | None = None
    begin = due = 0.0
    for picture, time in pictures:
        on_frame()
        if current is None:
            begin = time
        elif time - current[1] < _MIN_FRAME_SECONDS or time - begin < due - _ROUNDING:
            continue
        else:
            yield TimedPicture(*current, current[1] - begin, time - begin)
        current = (picture, time)
        if rate:
            due = (np.floor((time - begin) * rate + _ROUNDING) + 1) / rate
    if current is not None:
        start = current[1] - begin
        last = 1 / (info.frame_rate or _STILL_RATE)
        yield TimedPicture(*current, start, max(info.duration or STILL_SECONDS, start + last / 2))


def _add_stream(
    container: OutputContainer,
    codec: str,
    info: VideoInfo,
    size: tuple[int, int],
    ticks: int,
    options: dict[str, str],
) -> VideoStream:
    rate = (
        Fraction(info.frame_rate or _STILL_RATE).limit_denominator(1001) or 1
    )  # a hint; the timestamps are exact
    stream = container.add_stream(codec, rate=rate, options=options)
    assert isinstance(stream, VideoStream)
    stream.width, stream.height = size
    stream.codec_context.time_base = Fraction(1, ticks)
    return stream


def _encode(
    container: OutputContainer,
    stream: VideoStream,
    figure: TraceFigure,
    pictures: Iterator[TimedPicture],
    to_frame: Callable[[Pixels], av.VideoFrame],
    length: float,
) -> None:
    """Encode the video. The words of the caption are highlighted in turn over its length in seconds."""
    time_base = stream.codec_context.time_base
    assert time_base is not None  # set in `_add_stream`
    durations: dict[int, int] = {}
    for picture in pictures:
        word = min(int(picture.start / length * figure.num_words), figure.num_words - 1)
        frame = to_frame(figure.render(picture.picture, picture.time, word))
        frame.time_base = time_base
        frame.pts = round(picture.start / time_base)
        durations[frame.pts] = max(1, round(picture.end / time_base) - frame.pts)
        _mux(container, stream, frame, durations)
    _mux(container, stream, None, durations)


def _mux(
    container: OutputContainer, stream: VideoStream, frame: av.VideoFrame | None, durations: dict[int, int]
) -> None:
    for packet in stream.encode(frame):
        assert packet.pts is not None  # every frame has one
        packet.duration = durations.pop(packet.pts)  # encoders do not set that of the last frame
        container.mux(packet)
