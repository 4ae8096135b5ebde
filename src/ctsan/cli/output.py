"""What the commands share in speaking to a person: progress on stderr, tables and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import click
from tabulate import tabulate
from tqdm import tqdm


def progress_bar(total: int, *, what: str, unit: str = "clip") -> tqdm[NoReturn]:
    """A bar with rate and time left; in a log file, a line now and then."""
    interval = 0.2 if sys.stderr.isatty() else 10.0
    return tqdm(total=total, desc=what, unit=unit, mininterval=interval, dynamic_ncols=True, file=sys.stderr)


def shown_on(bar: tqdm[NoReturn]) -> Callable[[str, int, int], None]:
    """For work of several parts: what is being done, how much of it is done, and how much there is."""

    def show(what: str, done: int, total: int) -> None:
        if bar.desc != f"{what}: ":
            bar.set_description(what, refresh=False)
            bar.reset(total)
        bar.update(done - bar.n)

    return show


def listed(paths: Iterable[Path]) -> str:
    """Paths one after the other: the place that a message is about."""
    return ", ".join(map(str, paths))


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
    """One line, with every character as it is where stdout can take them all, and else with escapes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a file name of another encoding, or a stdout of few characters
        text = json.dumps(value)
    click.echo(text)


def count(number: int, noun: str) -> str:
    """`1 clip`, `1,234 clips`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def warn(text: str) -> None:
    click.echo(text, err=True)
