"""Results on stdout: tables and JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import click

from ctsan.errors import printable
from ctsan.io.messages import printable_lines


def print_line(text: str = "") -> None:
    """Print text. Commands print nothing on stdout but by this module: see `printable`."""
    click.echo(printable_lines(text))


def print_path(path: PurePath) -> None:
    """Print a path on a line, byte for byte, for other programs."""
    click.echo(os.fsencode(path))


def print_table(rows: Sequence[Sequence[object]], headers: Sequence[str] = ()) -> None:
    from tabulate import tabulate

    cells = [[_cell(value) for value in row] for row in rows]
    style = "simple" if headers else "plain"
    print_line(tabulate(cells, headers=headers, tablefmt=style, disable_numparse=True))


def _cell(value: object) -> object:
    if isinstance(value, str | PurePath):
        return printable(value)
    return f"{value:,}" if isinstance(value, int) else value


def print_metrics(metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]) -> None:
    rows = [
        (name, f"{value:.3f}", "{:.3f} to {:.3f}".format(*intervals[name]) if name in intervals else "")
        for name, value in metrics.items()
    ]
    print_table(rows, headers=("metric", "value", "95 % interval"))


def print_json(value: object) -> None:
    """Print a value as one line of JSON, escaped to ASCII only where stdout or a terminal needs it."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")  # stdout is None if it is closed
        is_plain = text == printable(text)
    except UnicodeEncodeError:  # a file name in another encoding, or a stdout with a small charset
        is_plain = False
    click.echo(text if is_plain else json.dumps(value))
