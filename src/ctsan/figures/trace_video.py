"""A film of traces, one frame at a time: however long the clip, no more than a few frames are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import av
import numpy as np
from av.container import OutputContainer
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from PIL import Image

from ctsan.figures.heat import Pixels
from ctsan.figures.panels import ShownTrace
from ctsan.figures.traces import Stage, picture_box
from ctsan.video.frames import VideoInfo, every_picture, pictures_at, probe

if TYPE_CHECKING:  # it brings PyTorch with it
    from ctsan.inference.predictor import Tracing

STILL_SECONDS = 3.0  # how long a picture is shown, in a film
_STILL_RATE = 10

_MP4_TICKS = 90_000  # a second: whole numbers for the frames of all usual rates
_GIF_TICKS = 100
_GIF_RATE = 10  # at most: a GIF is large enough as it is
_GIF_WIDTH, _GIF_HEIGHT = 720, 300  # of the pictures
_GIF_SAMPLES = 5  # frames that its colours are chosen by

_SHORTEST = 2 / _MP4_TICKS  # seconds that a frame is shown: clips may have frames at the same time
_ROUNDING = 1e-3

_BT709 = 1  # how colours are written, in H.264's numbers
_STUDIO_RANGE = 1


class Moment(NamedTuple):
    """A picture of the clip, when it is shown in the clip, and from when to when in the film."""

    picture: Pixels
    time: float
    start: float
    end: float


def write_mp4(
    clip: Path, tracing: Tracing, traces: Sequence[ShownTrace], out: Path, *, on_frame: Callable[[], object]
) -> None:
    """H.264 that plays everywhere, with frames, rate and length of the clip, without its sound."""
    info, box = probe(clip), picture_box(traces)
    stage = _stage(clip, tracing, traces, box)
    reformatter = VideoReformatter()
    with av.open(str(out), "w", format="mp4", options={"movflags": "faststart"}) as container:
        # Frames in the order of showing (no B-frames): only then is the length exact at an uneven rate.
        # Without x264's macroblock tree, whose assembly gives other bytes from one run to the next.
        options = {"crf": "18", "preset": "veryfast", "bf": "0", "mbtree": "0"}
        stream = _add_stream(container, "libx264", info, stage.size, _MP4_TICKS, options)
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.thread_count = 4  # on every machine, since the bytes depend on it
        context.color_range = _STUDIO_RANGE
        context.colorspace = context.color_primaries = context.color_trc = _BT709

        def encodable(figure: Pixels) -> av.VideoFrame:
            frame = av.VideoFrame.from_ndarray(figure, format="rgb24")
            return reformatter.reformat(
                frame, format="yuv420p", dst_colorspace=_BT709, dst_color_range=_STUDIO_RANGE
            )

        moments = _moments(every_picture(clip, box=box), info, rate=None, on_frame=on_frame)
        _encode(container, stream, stage, moments, encodable, info.duration or STILL_SECONDS)


def write_gif(
    clip: Path, tracing: Tracing, traces: Sequence[ShownTrace], out: Path, *, on_frame: Callable[[], object]
) -> None:
    """Smaller, with at most ten frames a second and one palette for the whole film."""
    info, box = probe(clip), picture_box(traces, width=_GIF_WIDTH, height=_GIF_HEIGHT)
    stage = _stage(clip, tracing, traces, box)
    some = np.linspace(0, len(tracing.times) - 1, _GIF_SAMPLES).round().astype(int)
    sampled = pictures_at(clip, np.unique(tracing.times[some] - tracing.times[0]), box=box)
    figures = np.concatenate([stage.show(picture, time, 0) for picture, time in sampled])
    palette = Image.fromarray(figures).quantize(256)
    colours = np.full((256, 4), 255, dtype=np.uint8)  # ARGB
    listed = np.array(palette.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
    listed[listed.min(axis=1) >= 247] = 255  # paper is white, not the mean of all that is nearly white
    palette.putpalette(listed.tobytes())
    colours[: len(listed), 1:] = listed
    with av.open(str(out), "w", format="gif", options={"loop": "0"}) as container:
        stream = _add_stream(container, "gif", info, stage.size, _GIF_TICKS, {})
        stream.pix_fmt = "pal8"

        def encodable(figure: Pixels) -> av.VideoFrame:
            indices = Image.fromarray(figure).quantize(palette=palette)
            pair = (np.asarray(indices), colours)
            return av.VideoFrame.from_ndarray(pair, format="pal8")  # type: ignore[arg-type]  # as documented

        moments = _moments(every_picture(clip, box=box), info, rate=_GIF_RATE, on_frame=on_frame)
        _encode(container, stream, stage, moments, encodable, info.duration or STILL_SECONDS)


def _stage(clip: Path, tracing: Tracing, traces: Sequence[ShownTrace], box: tuple[int, int]) -> Stage:
    [(first, _)] = pictures_at(clip, np.zeros(1), box=box)
    height, width = first.shape[:2]
    return Stage(tracing, traces, width=width, height=height)


def _moments(
    pictures: Iterator[tuple[Pixels, float]],
    info: VideoInfo,
    *,
    rate: float | None,
    on_frame: Callable[[], object],
) -> Iterator[Moment]:
    """The clip's pictures, or only as many of them as `rate` allows; a still is shown for a while."""
    if not info.duration:
        still, first = next(pictures)
        count = round(STILL_SECONDS * _STILL_RATE)
        pictures = ((still, first + number / _STILL_RATE) for number in range(count))
    shown: tuple[Pixels, float] | None = None
    begin = due = 0.0
    for picture, time in pictures:
        on_frame()
        if shown is None:
            begin = time
        elif time - shown[1] < _SHORTEST or time - begin < due - _ROUNDING:
            continue
        else:
            yield Moment(*shown, shown[1] - begin, time - begin)
        shown = (picture, time)
        if rate:
            due = (np.floor((time - begin) * rate + _ROUNDING) + 1) / rate
    if shown is not None:
        start = shown[1] - begin
        last = 1 / (info.frame_rate or _STILL_RATE)
        yield Moment(*shown, start, max(info.duration or STILL_SECONDS, start + last / 2))


def _add_stream(
    container: OutputContainer,
    codec: str,
    info: VideoInfo,
    size: tuple[int, int],
    ticks: int,
    options: dict[str, str],
) -> VideoStream:
    rate = Fraction(info.frame_rate or _STILL_RATE).limit_denominator(1001) or 1  # a hint; times are exact
    stream = container.add_stream(codec, rate=rate, options=options)
    assert isinstance(stream, VideoStream)
    stream.width, stream.height = size
    stream.codec_context.time_base = Fraction(1, ticks)
    return stream


def _encode(
    container: OutputContainer,
    stream: VideoStream,
    stage: Stage,
    moments: Iterator[Moment],
    encodable: Callable[[Pixels], av.VideoFrame],
    length: float,
) -> None:
    """The caption's words are marked one after the other over the length of the film."""
    time_base = stream.codec_context.time_base
    assert time_base is not None  # it was set
    durations: dict[int, int] = {}
    for moment in moments:
        word = min(int(moment.start / length * stage.num_words), stage.num_words - 1)
        frame = encodable(stage.show(moment.picture, moment.time, word))
        frame.time_base = time_base
        frame.pts = round(moment.start / time_base)
        durations[frame.pts] = max(1, round(moment.end / time_base) - frame.pts)
        _mux(container, stream, frame, durations)
    _mux(container, stream, None, durations)


def _mux(
    container: OutputContainer, stream: VideoStream, frame: av.VideoFrame | None, durations: dict[int, int]
) -> None:
    for packet in stream.encode(frame):
        assert packet.pts is not None  # every frame has one
        packet.duration = durations.pop(packet.pts)  # encoders do not say how long the last frame is shown
        container.mux(packet)
