"""One base error, with the exit code of the command that meets it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path


class CtsanError(Exception):
    """Something a person can mend; the message says how."""

    exit_code = 1


class UsageError(CtsanError):
    """The command was asked for something that does not exist or cannot be combined."""

    exit_code = 2


class OldRunError(UsageError):
    """A run of an older version has a part that this version does not have."""


class VideoError(CtsanError):
    """One clip cannot be read. Commands over many clips list it and go on."""

    def __init__(self, path: Path | str, what: str, remedy: str) -> None:
        super().__init__(f"{path}: {what}. {remedy}")
        self.path, self.what, self.remedy = Path(path), what, remedy


class StoreError(CtsanError):
    """A folder of features is missing, foreign or of another version."""

    exit_code = 2


class RunError(CtsanError):
    """A run folder, or a file in it, cannot be used."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file: where, what, and what to do about it."""

    file: Path
    line: int | None
    what: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else f"{self.file}"
        return f"{place}: {self.what}. {self.remedy}"


class ProblemsError(CtsanError):
    """Carries every problem that was found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class CorpusError(ProblemsError):
    """A corpus cannot be used as it is."""


class WordsError(ProblemsError):
    """Prepared words are missing, damaged or foreign."""


def did_you_mean(given: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`"Did you mean 'x'? "` for the nearest known word, ready to be followed by a sentence, or "".

    Args:
        cutoff: how like the given word it must be at least, from 0 to 1.
    """
    nearest = get_close_matches(given.lower(), sorted(known), n=1, cutoff=cutoff)
    return f"Did you mean {nearest[0]!r}? " if nearest else ""


@cache  # once for each name
def warn_renamed(old: str, new: str) -> None:
    """Say what something is called now; the old name is still read."""
    logging.getLogger(__name__).warning("%s is called %s now.", old, new)
