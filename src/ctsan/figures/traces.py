"""Draw traces: frames with attention heat maps, the concept words, and the caption with its attention."""

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

if TYPE_CHECKING:  # importing it takes time
    from ctsan.inference.predictor import Tracing

FORMATS = (".mp4", ".gif", ".png")
NUM_SHOWN = 3

_MARGIN, _GAP = 36, 10
_WIDTH = 1440  # of all pictures side by side
_HEIGHT = 480  # maximum, of one picture
_STRIP_WIDTH, _STRIP_HEIGHT = 1500, 230  # of a row of frames in a figure of a video
_CAPTION_WIDTH = 900  # minimum width before a caption is wrapped
_FRAMES = 6  # in a row; more if the frames are upright


def choose_traces(
    tracing: Tracing, numbers: Sequence[int] | None = None, *, concept: str | None = None
) -> tuple[ShownTrace, ...]:
    """Choose the traces to show, each with a concept word.

    - With `numbers`: these traces, each with the word that it raises most.
    - With `concept`: the traces that raise this word most.
    - Otherwise: for each of the most confident words, the trace that raises it most among those not yet used.
      Only words that the traces raise in sum are considered.

    A trace that raises no word has no heat map; its `why_no_map` says so. If there is no trace to show, the
    result is one entry with the reason.

    Args:
        numbers: of traces, from 1.
        concept: a word of `tracing.raised`.

    Raises:
        UsageError: there is no trace with that number.
    """
    row = None if concept is None else [raised.word for raised in tracing.raised].index(concept)
    count = tracing.shares.shape[1]
    # Candidate words: the one that was requested, or those that the traces raise.
    is_raised = tracing.is_raised if row is None else np.arange(len(tracing.raised)) == row
    shares = np.where(is_raised[:, None], tracing.shares, 0)  # (raised, L)
    pairs: list[tuple[int, int]] = []  # indices of traces and words
    if numbers is not None:
        if wrong := [number for number in numbers if not 1 <= number <= count]:
            listed = ", ".join(map(str, wrong))
            raise UsageError(f"There is no trace {listed}: the model's traces are 1 to {count}.")
        pairs = [(number - 1, int(shares[:, number - 1].argmax())) for number in dict.fromkeys(numbers)]
    elif row is not None:
        best = (-shares[row]).argsort(kind="stable")[:NUM_SHOWN]
        pairs = [(int(trace), row) for trace in best if shares[row, trace] > 0]
    else:
        free = np.ones(count, dtype=bool)
        for word in range(len(tracing.concepts)):
            trace = int(np.where(free, shares[word], 0).argmax())
            if len(pairs) < NUM_SHOWN and free[trace] and shares[word, trace] > 0:
                free[trace] = False
                pairs.append((trace, word))
    if not pairs:
        return (ShownTrace(None, None, 0.0, PALE, _why_none(tracing, row)),)
    result = []
    for place, (trace, word) in enumerate(pairs):
        share = float(shares[word, trace])
        if share > 0:
            colour = TRACE_COLOURS[place % len(TRACE_COLOURS)]
            result.append(ShownTrace(trace + 1, tracing.raised[word], share, colour))
        else:
            what = (
                "no word that the traces together raise" if concept is None else f"the score of '{concept}'"
            )
            why = f"trace {trace + 1} {'raises' if concept is None else 'does not raise'} {what}"
            result.append(ShownTrace(trace + 1, None, 0.0, PALE, why))
    return tuple(result)


def _why_none(tracing: Tracing, row: int | None) -> str:
    """Why no trace is shown, for the word in this row of `raised`, or for all words."""
    if row is None:
        return "the traces together raise no concept word"
    concept = tracing.raised[row]
    is_named = tracing.has_probe and row < len(tracing.concepts)  # not only requested
    return f"no trace raises '{concept.word}'" + ("; the probe names it" if is_named else "")


class TraceFigure:
    """One picture per trace side by side, concept words to the right, the caption below.

    Args:
        width, height: of a picture.
    """

    def __init__(self, tracing: Tracing, traces: Sequence[ShownTrace], *, width: int, height: int) -> None:
        self._tracing, self._traces = tracing, traces
        self._heat = HeatMap(tracing, width=width, height=height)
        self._face = typeface_for(_all_text(tracing))
        concepts = draw_concepts(tracing, _colours(traces), self._face)
        column_width = max(width, 120, *(label_width(trace, self._face) for trace in traces))
        labels = [draw_label(trace, self._face, column_width) for trace in traces]
        self._step = labels[0].width + _GAP
        pictures_width = len(traces) * self._step - _GAP
        top_width = pictures_width + 4 * _GAP + concepts.width
        self._caption_width = max(top_width, _CAPTION_WIDTH)
        self._top = _MARGIN + labels[0].height
        self._caption_top = max(self._top + height, _MARGIN + concepts.height) + 3 * _GAP
        caption = self._caption(None)
        # H.264 with yuv420p needs an even width and height.
        width = _even(max(top_width, caption.width) + 2 * _MARGIN)
        image, _ = blank(width, _even(self._caption_top + caption.height + _MARGIN))
        for place, label in enumerate(labels):
            image.paste(label, (_MARGIN + place * self._step, _MARGIN))
        image.paste(concepts, (_MARGIN + pictures_width + 4 * _GAP, _MARGIN))
        self._static = image
        self._backgrounds: dict[int | None, Pixels] = {}

    @property
    def num_words(self) -> int:
        return len(self._tracing.words)

    @property
    def size(self) -> tuple[int, int]:
        return self._static.size

    def render(self, picture: Pixels, time: float, word: int | None = None) -> Pixels:
        """The figure for a frame of the clip, with a word of the caption highlighted."""
        if word not in self._backgrounds:
            image = self._static.copy()
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
    """Write a figure (.png) or a video (.mp4, .gif) of a clip and some of its traces.

    Args:
        on_frame: called after each frame of a video.

    Raises:
        UsageError: the output has another suffix, or cannot be written.
        VideoError: the clip cannot be read.
    """
    suffix = check_suffix(out)
    try:
        with replacing(out) as temporary:
            if suffix == ".png":
                draw_figure(clip, tracing, traces).save(temporary, format="PNG")
            else:
                from ctsan.figures.trace_video import write_gif, write_mp4

                write = write_mp4 if suffix == ".mp4" else write_gif
                write(clip, tracing, traces, temporary, on_frame=on_frame)
    except OSError as error:  # including those of FFmpeg
        reason = error.strerror or error
        raise UsageError(
            f"{out}: it cannot be written ({reason}). Check the disk space, or name another file."
        ) from error


def check_suffix(out: Path) -> str:
    """The suffix in lower case.

    Raises:
        UsageError: a figure cannot be written in that format.
    """
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{out}: a figure cannot be written in that format. End it in .mp4, .gif or .png.")
    return suffix


def picture_box(
    traces: Sequence[ShownTrace], *, width: int = _WIDTH, height: int = _HEIGHT
) -> tuple[int, int]:
    """Maximum width and height of a picture, if there is one per trace."""
    return (width - (len(traces) - 1) * _GAP) // len(traces), height


def draw_figure(clip: Path, tracing: Tracing, traces: Sequence[ShownTrace]) -> Image.Image:
    """A still figure: evenly spaced frames of a video, one row per trace; of a picture, a `TraceFigure`."""
    if len(tracing.times) == 1:
        [(picture, time)] = pictures_at(clip, np.zeros(1), box=picture_box(traces))
        figure = TraceFigure(tracing, traces, width=picture.shape[1], height=picture.shape[0])
        return Image.fromarray(figure.render(picture, time))
    pictures = _strip(clip, tracing.times)
    height, width = pictures[0][0].shape[:2]
    heat = HeatMap(tracing, width=width, height=height)
    face = typeface_for(_all_text(tracing))
    strip_width = len(pictures) * (width + _GAP) - _GAP
    labels = [draw_label(trace, face, strip_width) for trace in traces]
    concepts = draw_concepts(tracing, _colours(traces), face)
    top_width = strip_width + 4 * _GAP + concepts.width
    caption = draw_caption(tracing, face, max_width=max(top_width, _CAPTION_WIDTH))
    row_height = labels[0].height + height + _GAP
    times_height = HEADING + 2 * _GAP
    caption_top = _MARGIN + max(len(traces) * row_height + times_height, concepts.height) + 2 * _GAP
    image, draw = blank(max(top_width, caption.width) + 2 * _MARGIN, caption_top + caption.height + _MARGIN)
    for row, (trace, label) in enumerate(zip(traces, labels, strict=True)):
        top = _MARGIN + row * row_height
        image.paste(label, (_MARGIN, top))
        for column, (picture, time) in enumerate(pictures):
            place = (_MARGIN + column * (width + _GAP), top + label.height)
            image.paste(Image.fromarray(_with_heat(picture, tracing, trace, heat, time)), place)
    for column, (_, time) in enumerate(pictures):
        place = (_MARGIN + column * (width + _GAP) + width // 2, _MARGIN + len(traces) * row_height)
        draw.text(place, f"{time - tracing.times[0]:.1f} s", PALE, face(HEADING), anchor="mt")
    image.paste(concepts, (_MARGIN + strip_width + 4 * _GAP, _MARGIN))
    image.paste(caption, (_MARGIN, caption_top))
    return image


def _with_heat(picture: Pixels, tracing: Tracing, trace: ShownTrace, heat: HeatMap, time: float) -> Pixels:
    """The picture with the attention of the trace; unchanged if the trace raises no word."""
    if trace.concept is None:
        return picture
    return overlay(picture, heat(attention_at(tracing, trace.index, time)), trace.colour)


def _strip(clip: Path, times: NDArray[np.float64]) -> list[tuple[Pixels, float]]:
    """Evenly spaced frames among those that the model used, as many as fit into a row."""
    count = min(len(times), _FRAMES)
    box = ((_STRIP_WIDTH + _GAP) // count - _GAP, _STRIP_HEIGHT)
    [(first, _)] = pictures_at(clip, np.zeros(1), box=box)
    count = min(len(times), (_STRIP_WIDTH + _GAP) // (first.shape[1] + _GAP))
    frames = np.linspace(0, len(times) - 1, count).round().astype(int)
    return pictures_at(clip, times[frames] - times[0], box=box)


def _colours(traces: Sequence[ShownTrace]) -> dict[str, tuple[int, int, int]]:
    """Colours of the concept words; a word with several traces has the colour of the first."""
    return {trace.concept.word: trace.colour for trace in reversed(traces) if trace.concept}


def _all_text(tracing: Tracing) -> str:
    return tracing.caption.text + "".join(concept.word for concept in tracing.raised)


def _even(number: int) -> int:
    return number + number % 2
