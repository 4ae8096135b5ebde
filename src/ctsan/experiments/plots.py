"""Inline SVG plots of results: metrics per seed with intervals, and training curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from ctsan.experiments.formats import number
from ctsan.experiments.layout import Column
from ctsan.experiments.results import FilledTable
from ctsan.experiments.systems import label_of

# The Okabe-Ito palette, which is safe for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a6d3b", "#6b6b6b")

_ROW, _LABELS, _WIDTH, _RIGHT = 26, 180, 640, 30

Line = Sequence[tuple[float, float]]


def dot_plot(filled: FilledTable, column: Column) -> str:
    """Plot one column of a table: a point per seed, a bar for the mean, a line for its interval."""
    place = filled.table.columns.index(column)
    rows = [(row.name, cell) for row in filled.rows if (cell := row.cells[place]) is not None]
    if not rows:
        return ""
    ends = [value for _, cell in rows for value in cell.values]
    ends += [cell.mean + sign * (cell.half_width or 0) for _, cell in rows for sign in (-1, 1)]
    room = 0.05 * (max(ends) - min(ends) or max(ends) or 1.0)
    low, high = max(0.0, min(ends) - room), max(ends) + room  # no metric is below 0
    height = _ROW * len(rows) + 44

    def x(value: float) -> float:
        return _LABELS + (_WIDTH - _LABELS - _RIGHT) * (min(max(value, low), high) - low) / (high - low)

    better = ", lower is better" if column.is_lower_better else ""
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(column.title)}">',
        f'<text x="{_LABELS}" y="14" class="strong">{escape(column.title)}{better}</text>',
    ]
    for index in range(5):
        value = low + (high - low) * index / 4
        parts.append(f'<path class="grid" d="M{x(value):.1f} 22V{height - 20}"/>')
        text = number(value, column)
        parts.append(f'<text x="{x(value):.1f}" y="{height - 5}" text-anchor="middle">{text}</text>')
    for index, (name, cell) in enumerate(rows):
        y = 36 + _ROW * index
        parts.append(
            f'<text x="{_LABELS - 12}" y="{y + 4}" text-anchor="end">{escape(label_of(name))}</text>'
        )
        if cell.half_width is not None:
            left, right = (x(cell.mean + sign * cell.half_width) for sign in (-1, 1))
            parts.append(f'<path class="interval" d="M{left:.1f} {y}H{right:.1f}"/>')
        parts.append(f'<path class="mean" d="M{x(cell.mean):.1f} {y - 7}v14"/>')
        parts += [f'<circle class="seed" cx="{x(value):.1f}" cy="{y}" r="3.5"/>' for value in cell.values]
    return "\n".join([*parts, "</svg>"])


def curves(title: str, lines: Mapping[str, Line]) -> str:
    """Plot a validation metric over the training steps, one line per system."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    width, height, left, bottom, right = 460, 250 + 18 * ((len(lines) + 1) // 2), 52, 210, 440
    last, low, high = (
        max(step for step, _ in points),
        min(0.0, *(value for _, value in points)),
        max(value for _, value in points),
    )
    span = (high - low) or 1.0

    def place(step: float, value: float) -> tuple[float, float]:
        return left + (right - left) * step / max(last, 1), bottom - (bottom - 30) * (value - low) / span

    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)} over training">',
        f'<text x="{left}" y="16" class="strong">{escape(title)}</text>',
    ]
    parts += _axes(low, span, last, place, left=left, right=right, bottom=bottom)
    for index, (name, line) in enumerate(lines.items()):
        colour, dash = COLOURS[index % len(COLOURS)], ("", "5 3", "2 2")[index // len(COLOURS) % 3]
        path = " ".join("{:.1f},{:.1f}".format(*place(step, value)) for step, value in line)
        stroke = f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{path}" {stroke}/>')
        key_x, key_y = left + 200 * (index % 2), bottom + 44 + 18 * (index // 2)
        parts.append(f'<path d="M{key_x} {key_y - 4}h18" {stroke}/>')
        parts.append(f'<text x="{key_x + 24}" y="{key_y}">{escape(label_of(name))}</text>')
    return "\n".join([*parts, "</svg>"])


def _axes(
    low: float, span: float, last: float, place: object, *, left: float, right: float, bottom: float
) -> Iterator[str]:
    assert callable(place)
    for index in range(5):
        value = low + span * index / 4
        _, y = place(0, value)
        yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        step, _ = place(last * index / 4, low)
        yield f'<text x="{step:.1f}" y="{bottom + 16}" text-anchor="middle">{last * index / 4:,.0f}</text>'
