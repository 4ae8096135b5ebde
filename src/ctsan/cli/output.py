"""Results on stdout: tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import click
from tabulate import tabulate


def print_table(rows: Sequence[Sequence[object]], headers: Sequence[str] = ()) -> None:
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    style = "simple" if headers else "plain"
    click.echo(tabulate(cells, headers=headers, tablefmt=style, disable_numparse=True))


def print_metrics(metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]) -> None:
    rows = [
        (name, f"{value:.3f}", "{:.3f} to {:.3f}".format(*intervals[name]) if name in intervals else "")
        for name, value in metrics.items()
    ]
    print_table(rows, headers=("metric", "value", "95 % interval"))


def print_json(value: object) -> None:
    """Print a value as one line of JSON, escaped to ASCII only if stdout cannot encode it."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a file name in another encoding, or a stdout with a small charset
        text = json.dumps(value)
    click.echo(text)
