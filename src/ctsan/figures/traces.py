"""A figure of traces: the clip with their attention over it, the concept words, the caption with its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ctsan.errors import UsageError
from ctsan.figures.heat import HeatMap, Pixels, attention_at, overlay
from ctsan.figures.lettering import typeface_for
from ctsan.figures.panels import (
    HEADING,
    PALE,
    TRACE_COLOURS,
    ShownTrace,
    blank,
    draw_caption,
    draw_concepts,
    draw_label,
    label_width,
)
from ctsan.io.atomic import replacing
from ctsan.video.frames import pictures_at

if TYPE_CHECKING:  # it brings PyTorch with it
    from ctsan.inference.predictor import Tracing

FORMATS = (".mp4", ".gif", ".png")
NUM_SHOWN = 3

_MARGIN, _GAP = 36, 10
_WIDTH = 1440  # of all the pictures side by side
_HEIGHT = 480  # at most, of one of them
_STRIP_WIDTH, _STRIP_HEIGHT = 1500, 230  # of a row of frames, in a figure of several
_CAPTION_WIDTH = 900  # at least: a caption goes on in a second line only beyond it
_FRAMES = 6  # that a row has room for; more where pictures are upright


def choose_traces(
    tracing: Tracing, numbers: Sequence[int] | None = None, *, concept: str | None = None
) -> tuple[ShownTrace, ...]:
    """The traces to show: those asked for, else the ones that raise a concept, else the surest ones, most.

    Without a concept, the surest words that the traces together raise get, one after the other, the trace
    that raises them most among those still free. Only a trace that raises its word has a heat map: in place
    of others, and where none raises the word, stands one that says so.

    Args:
        numbers: of traces, from 1.

    Raises:
        UsageError: there is no trace of that number.
    """
    row = None if concept is None else [each.word for each in tracing.raised].index(concept)
    count = tracing.shares.shape[1]
    # What traces may stand for: the word that was asked for, or those that all traces together raise.
    is_raised = tracing.shares.sum(axis=1) > 0 if row is None else np.arange(len(tracing.raised)) == row
    shares = np.where(is_raised[:, None], tracing.shares, 0)  # (raised, L)
    chosen: list[tuple[int, int]] = []  # places of traces and words
    if numbers is not None:
        if wrong := [number for number in numbers if not 1 <= number <= count]:
            listed = ", ".join(map(str, wrong))
            raise UsageError(f"There is no trace {listed}: the model's traces are 1 to {count}.")
        chosen = [(number - 1, int(shares[:, number - 1].argmax())) for number in dict.fromkeys(numbers)]
    elif row is not None:
        best = (-shares[row]).argsort(kind="stable")[:NUM_SHOWN]
        chosen = [(int(trace), row) for trace in best if shares[row, trace] > 0]
    else:
        free = np.ones(count, dtype=bool)
        for word in range(len(tracing.concepts)):
            trace = int(np.where(free, shares[word], 0).argmax())
            if len(chosen) < NUM_SHOWN and free[trace] and shares[word, trace] > 0:
                free[trace] = False
                chosen.append((trace, word))
    if not chosen:
        return (ShownTrace(None, None, 0.0, PALE, _why_none(tracing, row)),)
    shown = []
    for place, (trace, word) in enumerate(chosen):
        share = float(shares[word, trace])
        if share > 0:
            colour = TRACE_COLOURS[place % len(TRACE_COLOURS)]
            shown.append(ShownTrace(trace + 1, tracing.raised[word], share, colour))
        else:
            what = (
                "no word that the traces together raise" if concept is None else f"the score of '{concept}'"
            )
            why = f"trace {trace + 1} {'raises' if concept is None else 'does not raise'} {what}"
            shown.append(ShownTrace(trace + 1, None, 0.0, PALE, why))
    return tuple(shown)


def _why_none(tracing: Tracing, row: int | None) -> str:
    """Why no trace is shown: for the word of a row in `raised`, or for any word."""
    if row is None:
        return "the traces together raise no concept word"
    concept = tracing.raised[row]
    is_named = tracing.has_probe and row < len(tracing.concepts)  # and not only asked for
    return f"no trace raises '{concept.word}'" + ("; the probe names it" if is_named else "")


class Stage:
    """A picture of the clip for each trace side by side, concept words beside, the caption below."""

    def __init__(self, tracing: Tracing, traces: Sequence[ShownTrace], *, width: int, height: int) -> None:
        """For pictures of a width and a height."""
        self._tracing, self._traces = tracing, traces
        self._heat = HeatMap(tracing, width=width, height=height)
        self._face = typeface_for(_all_text(tracing))
        concepts = draw_concepts(tracing, _colours(traces), self._face)
        room = max(width, 120, *(label_width(trace, self._face) for trace in traces))
        labels = [draw_label(trace, self._face, room) for trace in traces]
        self._step = labels[0].width + _GAP
        pictures = len(traces) * self._step - _GAP
        above = pictures + 4 * _GAP + concepts.width
        self._caption_width = max(above, _CAPTION_WIDTH)
        self._top = _MARGIN + labels[0].height
        self._caption_top = max(self._top + height, _MARGIN + concepts.height) + 3 * _GAP
        caption = self._caption(None)
        # Videos want an even width and height.
        width = _even(max(above, caption.width) + 2 * _MARGIN)
        image, _ = blank(width, _even(self._caption_top + caption.height + _MARGIN))
        for place, label in enumerate(labels):
            image.paste(label, (_MARGIN + place * self._step, _MARGIN))
        image.paste(concepts, (_MARGIN + pictures + 4 * _GAP, _MARGIN))
        self._empty = image
        self._backgrounds: dict[int | None, Pixels] = {}

    @property
    def num_words(self) -> int:
        return len(self._tracing.words)

    @property
    def size(self) -> tuple[int, int]:
        return self._empty.size

    def show(self, picture: Pixels, time: float, word: int | None = None) -> Pixels:
        """The whole figure at a moment, with a word of the caption marked."""
        if word not in self._backgrounds:
            image = self._empty.copy()
            image.paste(self._caption(word), (_MARGIN, self._caption_top))
            self._backgrounds[word] = np.asarray(image)
        figure = self._backgrounds[word].copy()
        height, width = picture.shape[:2]
        for place, trace in enumerate(self._traces):
            left = _MARGIN + place * self._step
            figure[self._top : self._top + height, left : left + width] = _with_heat(
                picture, self._tracing, trace, self._heat, time
            )
        return figure

    def _caption(self, word: int | None) -> Image.Image:
        return draw_caption(self._tracing, self._face, max_width=self._caption_width, current=word)


def draw_traces(
    clip: Path,
    tracing: Tracing,
    traces: Sequence[ShownTrace],
    out: Path,
    *,
    on_frame: Callable[[], object] = lambda: None,
) -> None:
    """Draw a figure (.png) or a film (.mp4, .gif) of a clip and some of its traces.

    Args:
        on_frame: called after each frame of a film.

    Raises:
        UsageError: the output has another ending, or cannot be written.
        VideoError: the clip cannot be read.
    """
    ending = check_ending(out)
    try:
        with replacing(out) as temporary:
            if ending == ".png":
                draw_figure(clip, tracing, traces).save(temporary, format="PNG")
            else:
                from ctsan.figures.trace_video import write_gif, write_mp4

                write = write_mp4 if ending == ".mp4" else write_gif
                write(clip, tracing, traces, temporary, on_frame=on_frame)
    except OSError as error:  # FFmpeg's errors of writing are of this kind too
        reason = error.strerror or error
        raise UsageError(
            f"{out}: it cannot be written ({reason}). Make room, or name another place."
        ) from error


def check_ending(out: Path) -> str:
    """Raises: UsageError: a figure cannot be written as a file of that ending."""
    ending = out.suffix.lower()
    if ending not in FORMATS:
        raise UsageError(f"{out}: cannot draw into a file of that name. End it in .mp4, .gif or .png.")
    return ending


def picture_box(
    traces: Sequence[ShownTrace], *, width: int = _WIDTH, height: int = _HEIGHT
) -> tuple[int, int]:
    """How large a picture may be where each trace has one."""
    return (width - (len(traces) - 1) * _GAP) // len(traces), height


def draw_figure(clip: Path, tracing: Tracing, traces: Sequence[ShownTrace]) -> Image.Image:
    """Frames from the beginning to the end of the clip, a row for each trace; for a picture, one row."""
    if len(tracing.times) == 1:
        [(picture, time)] = pictures_at(clip, np.zeros(1), box=picture_box(traces))
        stage = Stage(tracing, traces, width=picture.shape[1], height=picture.shape[0])
        return Image.fromarray(stage.show(picture, time))
    pictures = _strip(clip, tracing.times)
    height, width = pictures[0][0].shape[:2]
    heat = HeatMap(tracing, width=width, height=height)
    face = typeface_for(_all_text(tracing))
    strip = len(pictures) * (width + _GAP) - _GAP
    labels = [draw_label(trace, face, strip) for trace in traces]
    concepts = draw_concepts(tracing, _colours(traces), face)
    beside = strip + 4 * _GAP + concepts.width
    caption = draw_caption(tracing, face, max_width=max(beside, _CAPTION_WIDTH))
    row_height = labels[0].height + height + _GAP
    times_height = HEADING + 2 * _GAP
    below = _MARGIN + max(len(traces) * row_height + times_height, concepts.height) + 2 * _GAP
    image, draw = blank(max(beside, caption.width) + 2 * _MARGIN, below + caption.height + _MARGIN)
    for row, (trace, label) in enumerate(zip(traces, labels, strict=True)):
        top = _MARGIN + row * row_height
        image.paste(label, (_MARGIN, top))
        for column, (picture, time) in enumerate(pictures):
            place = (_MARGIN + column * (width + _GAP), top + label.height)
            image.paste(Image.fromarray(_with_heat(picture, tracing, trace, heat, time)), place)
    for column, (_, time) in enumerate(pictures):
        place = (_MARGIN + column * (width + _GAP) + width // 2, _MARGIN + len(traces) * row_height)
        draw.text(place, f"{time - tracing.times[0]:.1f} s", PALE, face(HEADING), anchor="mt")
    image.paste(concepts, (_MARGIN + strip + 4 * _GAP, _MARGIN))
    image.paste(caption, (_MARGIN, below))
    return image


def _with_heat(picture: Pixels, tracing: Tracing, trace: ShownTrace, heat: HeatMap, time: float) -> Pixels:
    """The picture with the trace's attention over it; as it is where the trace raises no word."""
    if trace.concept is None:
        return picture
    return overlay(picture, heat(attention_at(tracing, trace.place, time)), trace.colour)


def _strip(clip: Path, times: NDArray[np.float64]) -> list[tuple[Pixels, float]]:
    """Evenly spaced frames among those that the model saw, as many as have room side by side."""
    count = min(len(times), _FRAMES)
    box = ((_STRIP_WIDTH + _GAP) // count - _GAP, _STRIP_HEIGHT)
    [(first, _)] = pictures_at(clip, np.zeros(1), box=box)
    count = min(len(times), (_STRIP_WIDTH + _GAP) // (first.shape[1] + _GAP))
    chosen = np.linspace(0, len(times) - 1, count).round().astype(int)
    return pictures_at(clip, times[chosen] - times[0], box=box)


def _colours(traces: Sequence[ShownTrace]) -> dict[str, tuple[int, int, int]]:
    """Of the concept words; one with several traces has the first one's."""
    return {trace.concept.word: trace.colour for trace in reversed(traces) if trace.concept}


def _all_text(tracing: Tracing) -> str:
    return tracing.caption.text + "".join(concept.word for concept in tracing.raised)


def _even(number: int) -> int:
    return number + number % 2
