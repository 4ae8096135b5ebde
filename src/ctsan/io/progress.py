"""Progress bars on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from tqdm import tqdm

from ctsan.errors import printable


def progress_bar(total: int, *, what: str, unit: str = "clip") -> tqdm[NoReturn]:
    """A bar with rate and time left; in a log file, a line now and then."""
    interval = 0.2 if sys.stderr.isatty() else 10.0
    return tqdm(
        total=total,
        desc=printable(what),
        unit=unit,
        mininterval=interval,
        dynamic_ncols=True,
        file=sys.stderr,
    )


def shown_on(bar: tqdm[NoReturn]) -> Callable[[str, int, int], None]:
    """For work of several parts: what is being done, how much of it is done, and how much there is."""

    def show(what: str, done: int, total: int) -> None:
        if bar.desc != f"{what}: ":
            bar.set_description(what, refresh=False)
            bar.reset(total)
        bar.update(done - bar.n)

    return show
