"""Plot training curves: each loss term and each validation metric over the steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from ctsan.io.atomic import replacing
from ctsan.training.metrics import read_metrics

Line = Sequence[tuple[float, float]]

# The Okabe-Ito palette, which is safe for colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_WIDTH, _HEIGHT, _COLUMNS = 320, 210, 3  # size of a panel in pixels; panels per row
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 46, 44  # margins of a panel


def draw_curves(metrics: Path, out: Path) -> None:
    """Draw a metrics file as SVG, with one panel per series because their scales differ.

    Only metrics `x` and `x on train` share a panel, to show the gap between them.

    Raises:
        RunError: the metrics file is missing or damaged.
    """
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in read_metrics(metrics):
        values = {f"loss: {name}": value for name, value in row.get("losses", {}).items()}
        if len(values) > 1:
            values = {"loss": row["total"], **values}
        for name, value in (values | row.get("metrics", {})).items():
            if value is not None:
                lines = panels.setdefault(name.split(" on ")[0], {})
                lines.setdefault(name, []).append((row["step"], value))
    width, height = _COLUMNS * _WIDTH, math.ceil(len(panels) / _COLUMNS) * _HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    parts = [
        head + f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#444">'
    ]
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for index, (title, lines) in enumerate(panels.items()):
        place = f"translate({index % _COLUMNS * _WIDTH} {index // _COLUMNS * _HEIGHT})"
        parts += [f'<g transform="{place}">', *_panel(title, lines), "</g>"]
    with replacing(out) as temporary:
        temporary.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _panel(title: str, lines: Mapping[str, Line]) -> Iterator[str]:
    points = [point for line in lines.values() for point in line]
    last, values = max(step for step, _ in points), _ticks(*_span([value for _, value in points]))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(step: float) -> float:
        return _LEFT + (right - _LEFT) * step / max(last, 1)

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * (value - values[0]) / (values[-1] - values[0])

    yield f'<text x="{_LEFT}" y="18" font-size="13" font-weight="bold" fill="#111">{escape(title)}</text>'
    for value in values:
        yield f'<path d="M{_LEFT} {y(value):.1f}H{right}" stroke="#e4e4e4"/>'
        yield f'<text x="{_LEFT - 7}" y="{y(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    for step in [tick for tick in _ticks(0, last) if tick <= last]:
        yield f'<path d="M{x(step):.1f} {bottom}v4" stroke="#888"/>'
        yield f'<text x="{x(step):.1f}" y="{bottom + 17}" text-anchor="middle">{_number(step)}</text>'
    yield f'<path d="M{_LEFT} {bottom}H{right}" stroke="#888"/>'
    yield f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">step</text>'
    key = float(_LEFT)
    for index, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        if len(line) == 1:
            yield f'<circle cx="{x(line[0][0]):.1f}" cy="{y(line[0][1]):.1f}" r="2.5" fill="{colour}"/>'
        if len(lines) > 1:
            yield f'<path d="M{key:.0f} 32h12" stroke="{colour}" stroke-width="3"/>'
            yield f'<text x="{key + 16:.0f}" y="36">{escape(name)}</text>'
            key += 36 + 6 * len(name)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Range of an axis. It starts at 0 if that is near, so that small changes do not look large."""
    low, high = min(values), max(values)
    return (0.0 if 0 < low < 0.7 * high else low), high


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round tick values that cover a range."""
    span = (high - low) or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(span / 4))
    step = next(unit * factor for factor in (1, 2, 5, 10) if span / (unit * factor) <= 6)
    first, last = math.floor(low / step), math.ceil((low + span) / step)
    return [step * tick for tick in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 10):g}"
