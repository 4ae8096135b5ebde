"""The keys of `clips.jsonl` and columns of `clips.csv`. Others are kept, unless they look like a mistake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ctsan.errors import Problem, did_you_mean

KNOWN_KEYS = frozenset({"clip", "captions", "caption", "split", "source", "times", "others"})

_ALIKE = 0.8  # 'captoins' and 'captions' are .88 alike, 'duration' and 'caption' .67


def misspelt_keys(keys: Iterable[str], file: Path, line: int) -> list[Problem]:
    """A key that is nearly a known one would be kept, and what it says lost."""
    return [
        Problem(
            file, line, f"the key {key!r} is not known", f"{hint}Correct it, or rename a key of your own."
        )
        for key in keys
        if key not in KNOWN_KEYS and (hint := did_you_mean(key, KNOWN_KEYS, cutoff=_ALIKE))
    ]
