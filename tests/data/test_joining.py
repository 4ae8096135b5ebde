"""Corpora joined to one: what is learnt, how often, and what stays to be measured on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan
from ctsan.data.joining import join_corpora
from ctsan.data.reading import inspect_corpus, read_corpus
from ctsan.errors import UsageError


def make(folder: Path, splits: dict[str, str | None], captions: tuple[str, ...] = ("a dog runs",)) -> Path:
    folder.mkdir()
    with (folder / "clips.jsonl").open("w", encoding="utf-8") as file:
        for name, split in splits.items():
            (folder / name).touch()
            row = {"clip": name, "captions": captions} | ({"split": split} if split else {})
            file.write(json.dumps(row) + "\n")
    return folder


def test_own_captions_are_half_of_what_is_learnt_and_alone_in_what_is_measured(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "train", "c.mp4": "val", "d.mp4": "test"})
    more = make(tmp_path / "more", {"a.mp4": "test"} | {f"{n}.png": "train" for n in range(5)}, ("a", "cat"))
    assert join_corpora(read_corpus(own), [read_corpus(more)], tmp_path / "both") == (5, 5)
    both = read_corpus(tmp_path / "both")
    assert join_corpora(read_corpus(own), [read_corpus(more)], tmp_path / "as told", times=2) == (5, 2)
    assert [(clip.path.parent.name, clip.path.name, clip.times) for clip in both.split("train")] == [
        *(("own", "a.mp4", 5), ("own", "b.mp4", 5)),
        *(("more", f"{n}.png", 1) for n in range(5)),
    ]
    for split in ("val", "test"):
        assert [clip.path.parent.name for clip in both.split(split)] == ["own"]
    assert all(clip.path.exists() for clip in both)
    assert {clip.captions for clip in both} == {("a dog runs",), ("a", "cat")}


def test_nothing_to_learn_and_a_corpus_that_is_there_are_refused(tmp_path: Path) -> None:
    own = read_corpus(make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"}))
    silent = read_corpus(make(tmp_path / "silent", {"a.mp4": None}, captions=()))
    with pytest.raises(UsageError, match="silent: no captioned clip of the split 'train', so nothing would"):
        join_corpora(own, [silent], tmp_path / "both")
    with pytest.raises(UsageError, match="silent: .*nothing to add to"):
        join_corpora(silent, [own], tmp_path / "both")
    with pytest.raises(UsageError, match="own: there is a corpus already"):
        join_corpora(own, [own], tmp_path / "own")


@pytest.mark.parametrize("times", [0, 1001, "often", 1.5, None])
def test_times_that_are_no_number_are_a_problem(tmp_path: Path, times: object) -> None:
    row = {"clip": "a.mp4", "captions": ["a dog runs"], "times": times}
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    _, problems = inspect_corpus(tmp_path)
    assert [problem.line for problem in problems if '"times" is not a whole number' in problem.what] == [1]


def test_the_command_says_what_came_of_it(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"})
    more = make(tmp_path / "more", {"1.png": "train", "2.png": "train"})
    said = ctsan("corpus", "join", tmp_path / "both", own, more).stdout
    assert "2 clips come to those of" in said
    assert "count 2-fold" in said
