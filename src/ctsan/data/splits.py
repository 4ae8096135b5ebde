"""Splits into train, val and test, with all clips of a source video in the same split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ctsan.data.corpus import Clip, Split
from ctsan.errors import Problem, did_you_mean

HELD_OUT_SHARE = 0.1  # of the clips, for each of val and test

_NAMES: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
    "public_test": "test",
    "blind": "blind",
    "blindtest": "blind",
    "blind_test": "blind",
}


def parse_split(name: str) -> Split | None:
    """The split that a corpus calls `name`; None if there is none."""
    return _NAMES.get(name.strip().lower())


def unknown_split(file: Path, line: int | None, name: object, clip: object) -> Problem:
    hint = did_you_mean(name, _NAMES) if isinstance(name, str) else ""
    return Problem(
        file, line, f"unknown split {name!r} of clip {clip!r}", f"{hint}Use train, val, test or blind."
    )


def seeded_split(clips: Sequence[Clip], *, seed: int) -> tuple[Clip, ...]:
    """Split clips into about 80 % train, 10 % val and 10 % test, by whole sources.

    Sources are visited in the order of the SHA-256 of seed and source, so the order of the clips does not
    matter. A source goes to test or val, whichever has more room left, if it fits there, else to train. If no
    source fits val or test, the smallest training source goes there. With fewer than three sources all clips
    are train.
    """
    sizes = Counter(clip.source for clip in clips)
    if len(sizes) < 3:
        return tuple(replace(clip, split="train") for clip in clips)
    order = sorted(sizes, key=lambda source: sha256(f"{seed}\n{source}".encode(errors="replace")).digest())
    share = max(1, round(HELD_OUT_SHARE * len(clips)))
    room: dict[Split, int] = {"test": share, "val": share}
    split_of: dict[str, Split] = {}
    for source in order:
        split = max(room, key=lambda split: room[split])
        fits = sizes[source] <= room[split]
        split_of[source] = split if fits else "train"
        room[split] -= sizes[source] if fits else 0
    for split in room:
        if split not in split_of.values():
            rest = (source for source in order if split_of[source] == "train")
            split_of[min(rest, key=lambda source: sizes[source])] = split
    return tuple(replace(clip, split=split_of[clip.source]) for clip in clips)


def leaks(clips: Iterable[Clip]) -> list[tuple[Clip, Clip]]:
    """For every source in several splits: its first clip, and its first clip in another split."""
    first: dict[str, Clip] = {}
    second: dict[str, Clip] = {}
    for clip in clips:
        if clip.split != first.setdefault(clip.source, clip).split:
            second.setdefault(clip.source, clip)
    return [(first[source], clip) for source, clip in second.items()]


def split_problems(clips: Sequence[Clip]) -> list[Problem]:
    """Problems of given splits: clips without a split, or a source in several splits."""
    problems = []
    unsplit = [clip for clip in clips if clip.split is None]
    if unsplit and len(unsplit) < len(clips):
        file, line = _origin(unsplit[0])
        what = f"{len(unsplit)} of {len(clips)} clips have no split, the first is {unsplit[0].id!r}"
        remedy = "Give every clip a split, or none and they are split for you."
        problems.append(Problem(file, line, what, remedy))
    for one, other in leaks(clip for clip in clips if clip.split is not None):
        file, line = _origin(other)
        first_line = _origin(one)[1]
        what = (
            f"source {other.source!r} is in {other.split} here and in {one.split} with clip {one.id!r}"
            f"{f' at line {first_line}' if first_line else ''}"
        )
        remedy = "Give all clips of one source the same split, or no clip a split and they are split for you."
        problems.append(Problem(file, line, what, remedy))
    return problems


def _origin(clip: Clip) -> tuple[Path, int | None]:
    return clip.origin or (clip.path, None)
