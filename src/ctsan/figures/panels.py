"""What stands around the clip in a figure: names of traces, concept words, the caption and its attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ctsan.figures.heat import Colour
from ctsan.figures.lettering import Typeface

if TYPE_CHECKING:  # it brings PyTorch with it
    from ctsan.inference.predictor import Concept, Tracing

WHITE: Colour = (255, 255, 255)
INK: Colour = (34, 34, 34)
PALE: Colour = (118, 118, 118)

# Okabe and Ito's colours, which people who see fewer of them can tell apart.
TRACE_COLOURS: tuple[Colour, ...] = ((213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233))
_SAID: Colour = (0, 114, 178)
_READ: Colour = (230, 159, 0)

_EMPTY: Colour = (242, 242, 242)  # a weight of nought
_UNMARKED: Colour = (170, 178, 186)  # bars of concepts that no trace is shown for
_NOW: Colour = (255, 240, 190)  # behind the word that is being said

HEADING, TEXT, LABEL, CAPTION = 17, 18, 22, 28  # sizes of letters
_ROW, _CELL_WIDTH, _CELL_HEIGHT = 28, 26, 20
_OWED_ROW = 22
_BAR = 150
_SPREAD = 66  # pixels at most that are put between words where there is room


@dataclass(frozen=True, slots=True)
class ShownTrace:
    """A trace with the concept word that it raises; or why there is none, and so no heat map."""

    number: int | None  # from 1
    concept: Concept | None
    share: float  # what it adds to the traces' score of the concept
    colour: Colour
    why_no_map: str = ""

    @property
    def place(self) -> int:
        """In the arrays of a `Tracing`."""
        assert self.number is not None  # it has a heat map
        return self.number - 1

    def __str__(self) -> str:
        return f"{self.number} ({self.concept.word} {self.share:+.2f})" if self.concept else self.why_no_map


def blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width, height), WHITE)
    return image, ImageDraw.Draw(image)


def draw_label(trace: ShownTrace, face: Typeface, width: int) -> Image.Image:
    """`man  trace 3, +0.12`, in the trace's colour; the second half only where there is room for it.

    Where there is no heat map, why.
    """
    image, draw = blank(max(width, label_width(trace, face)), LABEL + 12)
    middle = LABEL // 2 + 3
    if trace.concept is None:
        draw.text((0, middle + 1), trace.why_no_map, PALE, face(HEADING), anchor="lm")
        return image
    draw.rectangle((0, middle - 7, 13, middle + 7), fill=trace.colour)
    draw.text((22, middle), trace.concept.word, INK, face(LABEL), anchor="lm")
    start = 22 + face(LABEL).getlength(trace.concept.word) + 12
    note = f"trace {trace.number}, {trace.share:+.2f}"
    if start + face(HEADING).getlength(note) <= width:
        draw.text((start, middle + 1), note, PALE, face(HEADING), anchor="lm")
    return image


def label_width(trace: ShownTrace, face: Typeface) -> int:
    """That a label needs at least: why there is no heat map is never cut off."""
    return 0 if trace.concept else round(face(HEADING).getlength(trace.why_no_map)) + 1


def draw_concepts(tracing: Tracing, colours: Mapping[str, Colour], face: Typeface) -> Image.Image:
    """A bar for each concept word's confidence, in the colour of its trace if one is shown.

    Where there is a probe, a line in the bar, and the second number, are its confidence without the traces.
    """
    concepts = tracing.raised
    margin = max(round(face(TEXT).getlength(each.word)) for each in concepts)
    heading = "concept words" + (", in brackets by the probe alone" if tracing.has_probe else "")
    width = (
        margin + 12 + max(_BAR + (116 if tracing.has_probe else 54), round(face(HEADING).getlength(heading)))
    )
    image, draw = blank(width, (len(concepts) + 1) * _ROW)
    draw.text((margin + 12, _ROW // 2 - 2), heading, PALE, face(HEADING), anchor="lm")
    for row, concept in enumerate(concepts, start=1):
        middle = row * _ROW + _ROW // 2
        colour = colours.get(concept.word)
        draw.text((margin, middle), concept.word, INK, face(TEXT), anchor="rm")
        left, top, bottom = margin + 12, middle - _CELL_HEIGHT // 2, middle + _CELL_HEIGHT // 2 - 1
        draw.rectangle((left, top, left + _BAR, bottom), fill=_EMPTY)
        end = left + round(_BAR * concept.confidence)
        draw.rectangle((left, top, end, bottom), fill=colour or _UNMARKED)
        number = f"{concept.confidence:.2f}"
        if tracing.has_probe:
            own = float(tracing.probe_confidences[row - 1])
            draw.line((left + round(_BAR * own), top, left + round(_BAR * own), bottom), fill=INK, width=2)
            number += f"  ({own:.2f})"
        draw.text((left + _BAR + 10, middle), number, PALE, face(HEADING), anchor="lm")
    return image


def draw_caption(
    tracing: Tracing, face: Typeface, *, max_width: int, current: int | None = None
) -> Image.Image:
    """The caption, and below each word how much of its attention each concept word gets.

    Args:
        current: the word that is marked as being said.
    """
    kinds = [
        (name, colour, weights)
        for name, colour, weights in (
            ("as it is said (output)", _SAID, tracing.output_weights),
            ("as it is read (input)", _READ, tracing.input_weights),
        )
        if weights is not None
    ]
    owed = _owed(tracing)
    names = [concept.word for concept in tracing.concepts] if kinds else []
    margin = max((round(face(TEXT).getlength(name)) + 16 for name in names), default=0)
    columns = [
        max(
            round(face(CAPTION).getlength(word)),
            len(kinds) * _CELL_WIDTH,
            *(round(face(HEADING).getlength(line)) for line in lines_of_word),
        )
        + 16
        for word, lines_of_word in zip(tracing.words, owed, strict=True)
    ]
    lines = _wrap(columns, max_width - margin)
    used = max(sum(columns[place] for place in line) for line in lines)
    spread = max(0, min(_SPREAD, (max_width - margin - used) // max(map(len, lines))))
    columns = [width + spread for width in columns]
    cell = _CELL_WIDTH + spread // 3
    legends = _legends(tracing, kinds)
    top = len(legends) * _ROW
    below = CAPTION + 20 + max(map(len, owed)) * _OWED_ROW  # where the cells begin
    block = below + len(names) * _ROW
    used = max(sum(columns[place] for place in line) for line in lines)
    image, draw = blank(
        max(margin + used, *(_legend_width(*legend, face) for legend in legends), 1),
        top + len(lines) * (block + 8),
    )
    for row, legend in enumerate(legends):
        _draw_legend(draw, row * _ROW, *legend, face)
    for line in lines:
        for row, name in enumerate(names):
            middle = top + below + row * _ROW + _ROW // 2
            draw.text((margin - 12, middle), name, INK, face(TEXT), anchor="rm")
        left = margin
        for place in line:
            if place == current:
                draw.rectangle((left, top, left + columns[place] - 1, top + block), fill=_NOW)
            centre = left + columns[place] / 2
            baseline = top + CAPTION + 4
            draw.text((centre, baseline), tracing.words[place], INK, face(CAPTION), anchor="ms")
            for row, told in enumerate(owed[place]):
                y = top + CAPTION + 16 + row * _OWED_ROW + _OWED_ROW // 2
                draw.text((centre, y), told, INK, face(HEADING), anchor="mm")
            for kind, (_, colour, weights) in enumerate(kinds):
                x = round(centre - len(kinds) * cell / 2) + kind * cell
                _draw_cells(draw, (x, top + below), cell, weights[place], colour)
            left += columns[place]
        top += block + 8
    return image


_Kind = tuple[str, Colour, NDArray[np.float32]]


def _owed(tracing: Tracing) -> list[list[str]]:
    """The lines under each word of the caption: `horse x2.2`."""
    if tracing.effects is None:
        return [[] for _ in tracing.words]
    return [[str(each) for each in tracing.effects.owed(place)] for place in range(len(tracing.words))]


def _legends(tracing: Tracing, kinds: Sequence[_Kind]) -> list[tuple[str, Sequence[_Kind]]]:
    """What the numbers say, and what the cells. Cells are of one run: several have no attention in common."""
    legends: list[tuple[str, Sequence[_Kind]]] = []
    if any(_owed(tracing)):
        legends.append(("x2.2: the word is 2.2 times as likely as without that concept word", ()))
    elif tracing.effects is not None:
        legends.append(("every word of the caption owes less than x1.1 to each concept word", ()))
    if kinds:
        among = f"; it is one of {len(tracing.said_by)} models that said this sentence"
        whose = f"what '{tracing.run_name}' attended to for each word"
        legends.append((whose + (among if len(tracing.said_by) > 1 else ""), kinds))
    return legends


def _legend_width(legend: str, kinds: Sequence[_Kind], face: Typeface) -> int:
    letters = face(HEADING)
    named = sum(20 + letters.getlength(name) + 24 for name, _, _ in kinds)
    return round(letters.getlength(legend) + 24 + named)


def _draw_legend(
    draw: ImageDraw.ImageDraw, top: int, legend: str, kinds: Sequence[_Kind], face: Typeface
) -> None:
    letters, middle = face(HEADING), top + _ROW // 2 - 2
    draw.text((0, middle), legend, PALE, letters, anchor="lm")
    left = letters.getlength(legend) + 24
    for name, colour, _ in kinds:
        draw.rectangle((left, middle - 6, left + 12, middle + 6), fill=colour)
        draw.text((left + 20, middle), name, PALE, letters, anchor="lm")
        left += 20 + letters.getlength(name) + 24


def _draw_cells(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], width: int, weights: NDArray[np.float32], colour: Colour
) -> None:
    left, top = at
    for row, weight in enumerate(weights):
        y = top + row * _ROW + (_ROW - _CELL_HEIGHT) // 2
        fill = tuple(
            round(low + float(weight) * (high - low)) for low, high in zip(_EMPTY, colour, strict=True)
        )
        draw.rectangle((left + 1, y, left + width - 2, y + _CELL_HEIGHT - 1), fill=fill)


def _wrap(widths: Sequence[int], available: int) -> list[list[int]]:
    """Places of the words of each line."""
    lines: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if lines[-1] and sum(widths[each] for each in lines[-1]) + width > available:
            lines.append([])
        lines[-1].append(place)
    return lines
