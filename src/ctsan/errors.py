"""The error classes: one base class, each class with the exit code of a command that fails with it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path


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
        super().__init__(f"{path}: {what}. {remedy}")
        self.path, self.what, self.remedy = Path(path), what, remedy


class StoreError(CtsanError):
    """A feature store is missing, is not a feature store, or has another version."""

    exit_code = 2


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
        place = f"{self.file}:{self.line}" if self.line is not None else f"{self.file}"
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


def did_you_mean(given: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`"Did you mean 'x'? "` for the closest known word, to stand before a sentence; "" if none is close.

    Args:
        cutoff: the least similarity to the given word, from 0 to 1.
    """
    nearest = get_close_matches(given.lower(), sorted(known), n=1, cutoff=cutoff)
    return f"Did you mean {nearest[0]!r}? " if nearest else ""


@cache  # warns once per name
def warn_renamed(old: str, new: str) -> None:
    """Log a warning that a name is deprecated; the caller still accepts it."""
    logging.getLogger(__name__).warning("%s is called %s now.", old, new)
