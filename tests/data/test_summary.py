from __future__ import annotations

import json

import pytest

from clip_making import counting, encode
from ctsan.data.corpus import Corpus
from ctsan.data.reading import inspect_corpus, missing_clips
from ctsan.data.summary import check_clips, summarise
from data.conftest import Write


@pytest.fixture
def corpus(write: Write) -> Corpus:
    lines = [
        {"clip": "a.avi", "captions": ["A man drives.", "a man sings"], "split": "train", "source": "x"},
        {"clip": "b.avi", "captions": ["a dog"], "split": "train", "source": "x", "external": True},
        {"clip": "text.avi", "captions": ["a cat"], "split": "test"},
        {"clip": "none.avi", "captions": [], "split": "test"},
    ]
    root = write({"clips.jsonl": lines, "text.avi": "this is no video"})
    encode(root / "a.avi", counting(20), rate=10)
    encode(root / "b.avi", counting(10), rate=10)
    return inspect_corpus(root)[0]


def test_the_summary_counts_everything(corpus: Corpus) -> None:
    missing = missing_clips(corpus)
    calls: list[int] = []
    hours, unreadable = check_clips(corpus, workers=2, progress=lambda: calls.append(1))
    assert hours == pytest.approx(3 / 3600, rel=0.05)
    assert [problem.file.name for problem in unreadable] == ["text.avi"]
    assert str(unreadable[0]).startswith(f"{corpus.root}/text.avi: ")
    assert len(calls) == 4
    summary = summarise(corpus, missing=missing, unreadable=unreadable, hours=hours)
    problems = summary.pop("problems")
    assert isinstance(problems, list)
    assert summary == {
        "name": "corpus",
        "format": "own",
        "path": str(corpus.root),
        "clips": 4,
        "sources": 3,
        "captions": 4,
        "captions_per_clip": 1.0,
        "words": 10,
        "distinct_words": 6,
        "hours": 0.001,
        "splits": {"train": {"clips": 2, "captions": 3}, "test": {"clips": 2, "captions": 1}},
        "external": 1,
        "items": {},
        "features_only": 0,
        "missing": 1,
        "unreadable": 1,
        "notes": [],
    }
    assert [(each["file"], each["line"]) for each in problems] == [
        (str(corpus.root / "clips.jsonl"), 4),
        (str(corpus.root / "text.avi"), None),
    ]
    assert json.loads(json.dumps(summary)) == summary


def test_hours_are_unknown_until_the_clips_are_opened(corpus: Corpus) -> None:
    assert summarise(corpus)["hours"] is None
