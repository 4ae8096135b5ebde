"""Messages to the user through the logger `ctsan`, which the command line prints on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from ctsan.errors import printable

_LOGGER = logging.getLogger("ctsan")


def inform(text: str) -> None:
    """Log progress."""
    _LOGGER.info(text)


def warn(text: str) -> None:
    """Log something that the user may want to change."""
    _LOGGER.warning(text)


def count(number: int, noun: str) -> str:
    """`1 clip`, `1,234 clips`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable_lines(text: str) -> str:
    """`printable` for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def listed(paths: Iterable[Path]) -> str:
    """Paths separated by commas, as the place of a message."""
    return ", ".join(map(printable, paths))
