"""The keys of `clips.jsonl` and the columns of `clips.csv`; others are kept unless they look misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from ctsan.errors import Problem, did_you_mean, warn_renamed

T = TypeVar("T")

KNOWN_KEYS = frozenset({"clip", "captions", "caption", "split", "source", "repeat", "external"})
_RENAMED = {"others": "external", "times": "repeat"}

_MISSPELT_CUTOFF = 0.8  # the similarity of 'captoins' and 'captions' is .88, of 'duration' and 'caption' .67


def current_keys(row: Mapping[str, T], file: Path) -> dict[str, T]:
    """A row with deprecated keys replaced by the current ones, with one warning each."""
    for old in row.keys() & _RENAMED.keys():
        warn_renamed(f"{file}: the key {old}", _RENAMED[old])
    return {_RENAMED.get(key, key): value for key, value in row.items()}


def misspelt_keys(keys: Iterable[str], file: Path, line: int) -> list[Problem]:
    """A problem for each key that is similar to a known one, because its value would be ignored."""
    return [
        Problem(
            file, line, f"the key {key!r} is not known", f"{hint}Correct it, or rename a key of your own."
        )
        for key in keys
        if key not in KNOWN_KEYS and (hint := did_you_mean(key, KNOWN_KEYS, cutoff=_MISSPELT_CUTOFF))
    ]
