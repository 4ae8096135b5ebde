"""The error classes: one base class, each class with the exit code of a command that fails with it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

# Control characters, line separators, and marks that reorder the text after them
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_MOST_SHOWN = 80  # characters of a value
_MOST_LETTERS = 200  # of a word that another one may be suggested for: the time grows with their product


class CtsanError(Exception):
    """An error that the user can fix; the message says how."""

    exit_code = 1


class UsageError(CtsanError):
    """The arguments name something that does not exist, or exclude each other."""

    exit_code = 2


class OldRunError(UsageError):
    """A run of an older version has a module that this version does not have."""


class VideoError(CtsanError):
    """A clip cannot be read. Commands over many clips report it and continue."""

    def __init__(self, path: Path | str, what: str, remedy: str) -> None:
        super().__init__(f"{printable(path)}: {what}. {remedy}")
        self.path, self.what, self.remedy = Path(path), what, remedy


class StoreError(CtsanError):
    """A feature store is missing, is not a feature store, or has another version."""

    exit_code = 2


class StorageError(CtsanError):
    """The disk is full, or a folder cannot be written to."""


class RunError(CtsanError):
    """A run folder, or a file in it, cannot be used."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a file: the place, the fault and the remedy."""

    file: Path
    line: int | None
    what: str
    remedy: str

    def __str__(self) -> str:
        file = printable(self.file)
        place = f"{file}:{self.line}" if self.line is not None else file
        return f"{place}: {self.what}. {self.remedy}"


class ProblemsError(CtsanError):
    """Carries all problems, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class CorpusError(ProblemsError):
    """A corpus cannot be used as it is."""


class WordsError(ProblemsError):
    """A file of prepared words or word vectors is missing, damaged or of another format."""


def printable(name: object) -> str:
    """A name with its control characters as escapes, such as `\\x1b`.

    File names may contain any character, and a terminal obeys those that begin with ESC.
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), str(name))


def abridged(value: object) -> str:
    """The `repr` of a value that may be as long as a file, cut after 80 characters."""
    try:
        text = repr(value[:_MOST_SHOWN] if isinstance(value, str) else value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists nested as deeply
        return f"a {type(value).__name__} that is too long to print"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def did_you_mean(given: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`"Did you mean 'x'? "` for the closest known word, to stand before a sentence; "" if none is close.

    Args:
        cutoff: the least similarity to the given word, from 0 to 1.
    """
    if len(given) > _MOST_LETTERS:
        return ""
    nearest = get_close_matches(given.lower(), sorted(known), n=1, cutoff=cutoff)
    return f"Did you mean {nearest[0]!r}? " if nearest else ""


@cache  # warns once per name
def warn_renamed(old: str, new: str) -> None:
    """Log a warning that a name is deprecated; the caller still accepts it."""
    logging.getLogger(__name__).warning("%s is called %s now.", old, new)
