"""Messages to people: through the logger `ctsan`, which the command line prints on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

_LOGGER = logging.getLogger("ctsan")


def inform(text: str) -> None:
    """Say what is being done."""
    _LOGGER.info(text)


def warn(text: str) -> None:
    """Say what a person may want to change."""
    _LOGGER.warning(text)


def count(number: int, noun: str) -> str:
    """`1 clip`, `1,234 clips`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(paths: Iterable[Path]) -> str:
    """Paths one after the other: the place that a message is about."""
    return ", ".join(map(str, paths))
