"""The tables of CONTRIBUTING.md on how data travels are the calls that really happen, in that order."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import ctsan
from commands import ctsan_here
from e2e.small_run import SMALL

REPOSITORY = Path(__file__).parents[2]
PACKAGE = f"{Path(ctsan.__file__).parent}/"

Call = tuple[str, str]  # a file below the package, and a function


def way(heading: str) -> list[Call]:
    """The rows of the table below a heading."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    chapter = text.partition(f"\n{heading}\n")[2].split("\n#")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", chapter, flags=re.MULTILINE)
    assert len(rows) == chapter.count("\n| `") > 0
    return rows


def calls_of(*command: object) -> Iterator[Call]:
    """The functions of ctsan that a command calls, in all threads."""
    calls: list[Call] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001  # Python's signature
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            calls.append((file.removeprefix(PACKAGE), frame.f_code.co_qualname))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        ctsan_here(*command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return iter(calls)


def first_missing(table: list[Call], calls: Iterator[Call]) -> Call | None:
    """The first row that is not called after those above it."""
    return next((row for row in table if row not in calls), None)  # `in` goes on where it stopped


@pytest.fixture(scope="module")
def clip() -> Path:
    return REPOSITORY / "examples/clips/coffee.mp4"


def test_a_clip_travels_as_the_table_says(clip: Path) -> None:
    assert first_missing(way("## How a clip travels"), calls_of("describe", clip)) is None


def test_a_training_batch_travels_as_the_table_says(shapes: Path, tmp_path: Path) -> None:
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", tmp_path / "run")
    quick = ("--set=training.steps=2", "--set=detector.probe=none", "--set=training.out_of_fold=false")
    calls = calls_of("train", "describe", *options, *SMALL, *quick)
    assert first_missing(way("### A training batch"), calls) is None


def test_a_search_query_travels_as_the_table_says(clip: Path, tmp_path: Path) -> None:
    ctsan_here("index", clip.parent, "--store", tmp_path)
    calls = calls_of("search", "a cup on a table", "--store", tmp_path)
    assert first_missing(way("### A search query"), calls) is None
