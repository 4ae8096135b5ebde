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
    learnt = [
        (clip.path.parent.name, clip.path.name, clip.times, clip.others) for clip in both.split("train")
    ]
    assert learnt == [
        *(("own", "a.mp4", 5, False), ("own", "b.mp4", 5, False)),
        *(("more", f"{n}.png", 1, True) for n in range(5)),
    ]
    for split in ("val", "test"):
        assert [clip.path.parent.name for clip in both.split(split)] == ["own"]
    assert all(clip.path.exists() for clip in both)
    assert {clip.captions for clip in both} == {("a dog runs",), ("a", "cat")}


def test_what_is_held_already_is_left_out_and_what_was_written_is_kept(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"})
    rows = [json.loads(line) for line in (own / "clips.jsonl").read_text().splitlines()]
    rows[0] |= {"times": 3, "note": "holiday"}
    (own / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    more = make(tmp_path / "more", {"b.mp4": "train", "d.mp4": "train"})  # another b than ours
    same = [read_corpus(more), read_corpus(more), read_corpus(own)]
    assert join_corpora(read_corpus(own), same, tmp_path / "both", times=2) == (2, 2)
    both = read_corpus(tmp_path / "both")  # no clip is declared twice, and no source on two sides
    found = {f"{clip.path.parent.name}/{clip.path.name}": clip.times for clip in both.split("train")}
    assert found == {"own/a.mp4": 6, "more/b.mp4": 1, "more/d.mp4": 1}
    assert [clip.extra for clip in both.split("train")] == [{"note": "holiday"}, {}, {}]
    with pytest.raises(
        UsageError, match=r"more: no captioned clip .* does not hold, so nothing would be added"
    ):
        join_corpora(both, [read_corpus(more)], tmp_path / "again")


def test_nothing_to_learn_and_a_corpus_that_is_there_are_refused(tmp_path: Path) -> None:
    own = read_corpus(make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"}))
    silent = read_corpus(make(tmp_path / "silent", {"a.mp4": None}, captions=()))
    with pytest.raises(UsageError, match="silent: no captioned clip of the split 'train'.* so nothing would"):
        join_corpora(own, [silent], tmp_path / "both")
    with pytest.raises(UsageError, match="silent: .*nothing to add to"):
        join_corpora(silent, [own], tmp_path / "both")
    with pytest.raises(UsageError, match="own: there is a corpus already"):
        join_corpora(own, [own], tmp_path / "own")


def test_others_stay_others_where_all_count_once_and_where_more_are_joined(tmp_path: Path) -> None:
    own, more, most = (
        read_corpus(make(tmp_path / name, {f"{name}.mp4": "train", f"{name}-2.mp4": "val"}))
        for name in ("own", "more", "most")
    )
    join_corpora(own, [more], tmp_path / "both", times=1)
    join_corpora(read_corpus(tmp_path / "both"), [most], tmp_path / "all", times=1)
    found = {clip.path.name: clip.others for clip in read_corpus(tmp_path / "all").split("train")}
    assert found == {"own.mp4": False, "more.mp4": True, "most.mp4": True}
    assert join_corpora(read_corpus(tmp_path / "both"), [most], tmp_path / "half") == (1, 2)
    counts = {clip.path.name: clip.times for clip in read_corpus(tmp_path / "half").split("train")}
    assert counts == {"own.mp4": 2, "more.mp4": 1, "most.mp4": 1}  # half of all captions are one's own


def test_tables_say_in_any_case_that_others_captioned_a_clip(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).touch()
    rows = ["clip,caption,split,others", "a.mp4,a dog runs,train,TRUE", "a.mp4,a dog,train,true"]
    (tmp_path / "clips.csv").write_text("\n".join([*rows, "b.mp4,a cat,train,"]), encoding="utf-8")
    corpus, problems = inspect_corpus(tmp_path)
    assert not problems
    assert [clip.others for clip in corpus] == [True, False]


@pytest.mark.parametrize(
    ("written", "read"), [(True, True), (False, False), ("true", True), ("False", False), ("", False)]
)
def test_whether_others_captioned_a_clip_is_true_or_false(
    tmp_path: Path, written: object, read: bool
) -> None:
    row = {"clip": "a.mp4", "captions": ["a dog runs"], "split": "train", "others": written}
    (tmp_path / "a.mp4").touch()
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    [clip] = read_corpus(tmp_path)
    assert clip.others is read


@pytest.mark.parametrize("others", ["some", 2, None])
def test_others_that_are_neither_are_a_problem(tmp_path: Path, others: object) -> None:
    row = {"clip": "a.mp4", "captions": ["a dog runs"], "others": others}
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    _, problems = inspect_corpus(tmp_path)
    assert [problem.line for problem in problems if '"others" is neither true nor false' in problem.what] == [
        1
    ]


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
    assert "2 clips of others beside those of" in said
    assert "count 2-fold" in said
    table = ctsan("corpus", "check", tmp_path / "both", "--no-video").stdout
    assert ["captioned", "by", "others", "2", "clips"] in [line.split() for line in table.splitlines()]
    assert "others" not in ctsan("corpus", "check", own, "--no-video").stdout
