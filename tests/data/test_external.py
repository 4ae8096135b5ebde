"""External corpora: what is learnt from them, how often own clips count, and what stays to be measured on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from commands import ctsan
from ctsan.data.corpus import Corpus, parts_of
from ctsan.data.reading import inspect_corpora, inspect_corpus, read_corpora, read_corpus
from ctsan.errors import CorpusError, UsageError, warn_renamed


def make(
    folder: Path,
    splits: Mapping[str, str | None],
    captions: tuple[str, ...] = ("a dog runs",),
    **more: object,
) -> Path:
    folder.mkdir()
    with (folder / "clips.jsonl").open("w", encoding="utf-8") as file:
        for name, split in splits.items():
            (folder / name).touch()
            row = {"clip": name, "captions": captions} | ({"split": split} if split else {}) | more
            file.write(json.dumps(row) + "\n")
    return folder


def learnt(corpus: Corpus) -> list[tuple[str, int, bool]]:
    """The training clips by folder and name, how often each counts, and whether others captioned it."""
    return [
        (f"{clip.path.parent.name}/{clip.path.name}", clip.repeat, clip.external)
        for clip in corpus.split("train")
    ]


def test_own_captions_are_half_of_what_is_learnt_and_alone_in_what_is_measured(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "train", "c.mp4": "val", "d.mp4": "test"})
    splits = {"a.mp4": "test", "v.mp4": "val"} | {f"{n}.png": "train" for n in range(5)}
    more = make(tmp_path / "more", splits, ("a", "cat"))
    both = read_corpora([own], external=[more])
    assert learnt(both) == [
        *(("own/a.mp4", 5, False), ("own/b.mp4", 5, False)),  # 2 x 5 captions beside 5 x 2
        *((f"more/{n}.png", 1, True) for n in range(5)),
    ]
    assert [(clip.id, clip.split, clip.repeat) for clip in both if clip.split != "train"] == [
        ("c.mp4", "val", 1),
        ("d.mp4", "test", 1),
    ]
    assert {clip.captions for clip in both} == {("a dog runs",), ("a", "cat")}
    assert [set(part.ids) for part in parts_of(both)] == [
        {"a.mp4", "b.mp4", "c.mp4", "d.mp4"},
        {f"{n}.png" for n in range(5)},
    ]
    few = make(tmp_path / "few", {"1.png": "train"})
    assert [times for _, times, _ in learnt(read_corpora([own], external=[few]))] == [1, 1, 1]


def test_an_external_corpus_without_splits_is_learnt_from_as_a_whole(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"})
    bare = make(tmp_path / "bare", {f"{n}.mp4": None for n in range(10)})
    both = read_corpora([own], external=[bare])
    assert [name for name, _, others in learnt(both) if others] == [f"bare/{n}.mp4" for n in range(10)]
    assert both.has_own_splits
    unsplit = read_corpora([bare], external=[own])  # own splits are made as without the external corpus
    alone = {clip.path: clip.split for clip in read_corpus(bare)}
    assert {clip.path: clip.split for clip in unsplit if not clip.external} == alone


def test_files_that_are_held_and_sources_that_are_held_out_are_left_out(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"}, repeat=3, note="sea")
    more = make(tmp_path / "more", {"b.mp4": "train", "d.mp4": "train"})  # another b than ours
    (more / "link.mp4").symlink_to(own / "b.mp4")
    rows = [
        {"clip": "link.mp4", "captions": ["a dog"], "split": "train"},
        {"clip": "cut.mp4", "captions": ["a dog"], "split": "train", "source": "film"},
    ]
    with (more / "clips.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    film = make(tmp_path / "film", {"e.mp4": "test"}, source="film")
    again = tmp_path / "again.jsonl"
    again.write_text(json.dumps({"clip": str(more / "d.mp4"), "captions": ["it"], "split": "train"}) + "\n")
    new = make(tmp_path / "new", {"f.mp4": "train"}, repeat=7)
    both, problems = inspect_corpora([own, film], external=[more, new])
    assert not problems
    expected = [("own/a.mp4", 3, False), *((name, 1, True) for name in ("more/b.mp4", "more/d.mp4"))]
    assert learnt(both) == [*expected, ("new/f.mp4", 1, True)]
    assert both.clips[0].extra == {"note": "sea"}
    _, problems = inspect_corpora([own, film], external=[more, again])  # a file is taken once
    assert [(problem.file, problem.what[:44]) for problem in problems] == [
        (again, "none of its clips can be used for training: ")
    ]


def test_what_brings_nothing_or_is_given_twice_is_refused(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"})
    silent = make(tmp_path / "silent", {"a.mp4": None}, captions=())
    with pytest.raises(
        CorpusError, match="silent: none of its clips can be used for training.*Leave out this --external"
    ):
        read_corpora([own], external=[silent])
    with pytest.raises(CorpusError, match=r"nowhere: it does not exist") as caught:
        read_corpora([own], external=[tmp_path / "nowhere"])
    assert len(caught.value.problems) == 1
    for corpora, external in (([own], [own]), ([silent], [own, own])):
        with pytest.raises(UsageError, match="own: this corpus is given twice"):
            read_corpora(corpora, external=external)


def test_clips_that_are_marked_already_stay_others_and_count_among_them(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"own.mp4": "train", "own-2.mp4": "val"})
    marked = make(tmp_path / "marked", {"marked.mp4": "train"}, external=True)
    most = make(tmp_path / "most", {"most.mp4": "train"})
    assert learnt(read_corpora([own, marked], external=[most])) == [
        ("own/own.mp4", 2, False),
        ("marked/marked.mp4", 1, True),
        ("most/most.mp4", 1, True),
    ]
    assert learnt(read_corpora([marked], external=[most])) == [  # nothing to repeat
        ("marked/marked.mp4", 1, True),
        ("most/most.mp4", 1, True),
    ]


def test_tables_say_in_any_case_that_others_captioned_a_clip(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).touch()
    rows = ["clip,caption,split,external", "a.mp4,a dog runs,train,TRUE", "a.mp4,a dog,train,true"]
    (tmp_path / "clips.csv").write_text("\n".join([*rows, "b.mp4,a cat,train,"]), encoding="utf-8")
    corpus, problems = inspect_corpus(tmp_path)
    assert not problems
    assert [clip.external for clip in corpus] == [True, False]


@pytest.mark.parametrize(
    ("written", "read"), [(True, True), (False, False), ("true", True), ("False", False), ("", False)]
)
def test_whether_others_captioned_a_clip_is_true_or_false(
    tmp_path: Path, written: object, read: bool
) -> None:
    row = {"clip": "a.mp4", "captions": ["a dog runs"], "split": "train", "external": written}
    (tmp_path / "a.mp4").touch()
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    [clip] = read_corpus(tmp_path)
    assert clip.external is read


@pytest.mark.parametrize("others", ["some", 2, None])
def test_others_that_are_neither_are_a_problem(tmp_path: Path, others: object) -> None:
    row = {"clip": "a.mp4", "captions": ["a dog runs"], "external": others}
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    _, problems = inspect_corpus(tmp_path)
    wrong = [problem.line for problem in problems if '"external" is neither true nor false' in problem.what]
    assert wrong == [1]


@pytest.mark.parametrize("times", [0, 1001, "often", 1.5, None])
def test_times_that_are_no_number_are_a_problem(tmp_path: Path, times: object) -> None:
    row = {"clip": "a.mp4", "captions": ["a dog runs"], "repeat": times}
    (tmp_path / "clips.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    _, problems = inspect_corpus(tmp_path)
    assert [problem.line for problem in problems if '"repeat" is not a whole number' in problem.what] == [1]


def test_a_check_counts_clips_that_are_marked(tmp_path: Path) -> None:
    own = make(tmp_path / "own", {"a.mp4": "train", "b.mp4": "val", "c.mp4": "test"})
    marked = make(tmp_path / "marked", {"1.png": "train", "2.png": "train"}, external=True)
    table = ctsan("corpus", "check", own, marked, "--no-video").stdout
    assert ["external", "2", "clips"] in [line.split() for line in table.splitlines()]
    assert "external" not in ctsan("corpus", "check", own, "--no-video").stdout


def test_keys_are_read_by_their_old_names_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_renamed.cache_clear()
    old = make(tmp_path / "old", {"a.mp4": "train", "b.mp4": "val"}, others=True, times=3)
    assert [(clip.external, clip.repeat) for clip in read_corpus(old)] == [(True, 3)] * 2
    file = old / "clips.jsonl"
    assert sorted(record.message for record in caplog.records) == [
        f"{file}: the key others is called external now.",
        f"{file}: the key times is called repeat now.",
    ]
