"""Panels of a figure around the clip: trace labels, concept words, and the caption with its attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ctsan.figures.heat import Colour
from ctsan.figures.lettering import Typeface
from ctsan.inference.results import Concept, Tracing

WHITE: Colour = (255, 255, 255)
INK: Colour = (34, 34, 34)
PALE: Colour = (118, 118, 118)

# Okabe and Ito's palette, which is distinguishable with colour blindness.
TRACE_COLOURS: tuple[Colour, ...] = ((213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233))
_OUTPUT: Colour = (0, 114, 178)
_INPUT: Colour = (230, 159, 0)

_EMPTY: Colour = (242, 242, 242)  # a weight of zero
_UNMARKED: Colour = (170, 178, 186)  # bars of concept words without a shown trace
_CURRENT: Colour = (255, 240, 190)  # background of the current word

HEADING, TEXT, LABEL, CAPTION = 17, 18, 22, 28  # font sizes in pixels
_ROW, _CELL_WIDTH, _CELL_HEIGHT = 28, 26, 20
_EFFECT_ROW = 22
_BAR = 150
_MAX_SPREAD = 66  # extra pixels between words, if there is room


@dataclass(frozen=True, slots=True)
class ShownTrace:
    """A trace with the concept word that it raises; or the reason why there is none and no heat map."""

    number: int | None  # from 1
    concept: Concept | None
    share: float  # contribution to the traces' score of the concept word
    colour: Colour
    why_no_map: str = ""

    @property
    def index(self) -> int:
        """Index in the arrays of a `Tracing`."""
        assert self.number is not None  # it has a heat map
        return self.number - 1

    def __str__(self) -> str:
        return f"{self.number} ({self.concept.word} {self.share:+.2g})" if self.concept else self.why_no_map


def blank(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width, height), WHITE)
    return image, ImageDraw.Draw(image)


def draw_label(trace: ShownTrace, face: Typeface, width: int) -> Image.Image:
    """`man  trace 3, +0.12`, without the second half if there is no room for it.

    If the trace has no heat map, the reason.
    """
    image, draw = blank(max(width, label_width(trace, face)), LABEL + 12)
    middle = LABEL // 2 + 3
    if trace.concept is None:
        draw.text((0, middle + 1), trace.why_no_map, PALE, face(HEADING), anchor="lm")
        return image
    draw.rectangle((0, middle - 7, 13, middle + 7), fill=trace.colour)
    draw.text((22, middle), trace.concept.word, INK, face(LABEL), anchor="lm")
    start = 22 + face(LABEL).getlength(trace.concept.word) + 12
    note = f"trace {trace.number}, {trace.share:+.2g}"
    if start + face(HEADING).getlength(note) <= width:
        draw.text((start, middle + 1), note, PALE, face(HEADING), anchor="lm")
    return image


def label_width(trace: ShownTrace, face: Typeface) -> int:
    """Minimum width of a label: the reason for a missing heat map must not be cut off."""
    return 0 if trace.concept else round(face(HEADING).getlength(trace.why_no_map)) + 1


def draw_concepts(tracing: Tracing, colours: Mapping[str, Colour], face: Typeface) -> Image.Image:
    """A bar for the confidence of each concept word, in the colour of its trace if one is shown.

    With a probe, the line in the bar and the second number are the confidence of the probe alone.
    """
    concepts = tracing.raised
    margin = max(round(face(TEXT).getlength(concept.word)) for concept in concepts)
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
            probe_confidence = float(tracing.probe_confidences[row - 1])
            x = left + round(_BAR * probe_confidence)
            draw.line((x, top, x, bottom), fill=INK, width=2)
            number += f"  ({probe_confidence:.2f})"
        draw.text((left + _BAR + 10, middle), number, PALE, face(HEADING), anchor="lm")
    return image


def draw_caption(
    tracing: Tracing, face: Typeface, *, max_width: int, current: int | None = None
) -> Image.Image:
    """The caption; below each word, the largest effects and the attention on each concept word.

    Args:
        current: index of the word to highlight.
    """
    attentions = [
        (name, colour, weights)
        for name, colour, weights in (
            ("when generated (output)", _OUTPUT, tracing.output_weights),
            ("as it is read (input)", _INPUT, tracing.input_weights),
        )
        if weights is not None
    ]
    effects = _effect_lines(tracing)
    names = [concept.word for concept in tracing.concepts] if attentions else []
    margin = max((round(face(TEXT).getlength(name)) + 16 for name in names), default=0)
    columns = [
        max(
            round(face(CAPTION).getlength(word)),
            len(attentions) * _CELL_WIDTH,
            *(round(face(HEADING).getlength(line)) for line in word_effects),
        )
        + 16
        for word, word_effects in zip(tracing.words, effects, strict=True)
    ]
    lines = _wrap(columns, max_width - margin)
    used = max(sum(columns[place] for place in line) for line in lines)
    spread = max(0, min(_MAX_SPREAD, (max_width - margin - used) // max(map(len, lines))))
    columns = [width + spread for width in columns]
    cell = _CELL_WIDTH + spread // 3
    legends = _legends(tracing, attentions)
    top = len(legends) * _ROW
    below = CAPTION + 20 + max(map(len, effects)) * _EFFECT_ROW  # top of the cells
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
                draw.rectangle((left, top, left + columns[place] - 1, top + block), fill=_CURRENT)
            centre = left + columns[place] / 2
            baseline = top + CAPTION + 4
            draw.text((centre, baseline), tracing.words[place], INK, face(CAPTION), anchor="ms")
            for row, effect in enumerate(effects[place]):
                y = top + CAPTION + 16 + row * _EFFECT_ROW + _EFFECT_ROW // 2
                draw.text((centre, y), effect, INK, face(HEADING), anchor="mm")
            for column, (_, colour, weights) in enumerate(attentions):
                x = round(centre - len(attentions) * cell / 2) + column * cell
                _draw_cells(draw, (x, top + below), cell, weights[place], colour)
            left += columns[place]
        top += block + 8
    return image


_Attention = tuple[str, Colour, NDArray[np.float32]]  # name, colour, weights (words, K)


def _effect_lines(tracing: Tracing) -> list[list[str]]:
    """The lines below each word of the caption, such as `horse x2.2`."""
    if tracing.effects is None:
        return [[] for _ in tracing.words]
    return [[str(effect) for effect in tracing.effects.largest(place)] for place in range(len(tracing.words))]


def _legends(tracing: Tracing, attentions: Sequence[_Attention]) -> list[tuple[str, Sequence[_Attention]]]:
    """Legends of the effects and of the cells. The cells show one run, as an ensemble has no attention."""
    legends: list[tuple[str, Sequence[_Attention]]] = []
    if any(_effect_lines(tracing)):
        legends.append(("x2.2: the word is 2.2 times as likely as without that concept word", ()))
    elif tracing.effects is not None:
        legends.append(("no concept word makes a word of the caption likelier by x1.1 or more", ()))
    if attentions:
        ensemble = f"; it is one of {len(tracing.captioned_by)} models that generated this sentence"
        legend = f"what '{tracing.run_name}' attended to for each word"
        legends.append((legend + (ensemble if len(tracing.captioned_by) > 1 else ""), attentions))
    return legends


def _legend_width(legend: str, attentions: Sequence[_Attention], face: Typeface) -> int:
    font = face(HEADING)
    keys = sum(20 + font.getlength(name) + 24 for name, _, _ in attentions)
    return round(font.getlength(legend) + 24 + keys)


def _draw_legend(
    draw: ImageDraw.ImageDraw, top: int, legend: str, attentions: Sequence[_Attention], face: Typeface
) -> None:
    font, middle = face(HEADING), top + _ROW // 2 - 2
    draw.text((0, middle), legend, PALE, font, anchor="lm")
    left = font.getlength(legend) + 24
    for name, colour, _ in attentions:
        draw.rectangle((left, middle - 6, left + 12, middle + 6), fill=colour)
        draw.text((left + 20, middle), name, PALE, font, anchor="lm")
        left += 20 + font.getlength(name) + 24


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
    """Indices of the words in each line."""
    lines: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if lines[-1] and sum(widths[word] for word in lines[-1]) + width > available:
            lines.append([])
        lines[-1].append(place)
    return lines
