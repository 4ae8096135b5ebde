"""Several corpora used as one: ids, splits, sources and items."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import ctsan
from ctsan.data.corpus import QueryItem, parts_of
from ctsan.data.reading import inspect_corpora, read_corpora, read_corpus
from ctsan.data.union import parts_without_items
from ctsan.errors import CorpusError, UsageError


def make(folder: Path, *rows: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    for row in rows:
        (folder / row["clip"]).touch()
    (folder / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def row(clip: str, split: str | None = "train", **more: object) -> dict[str, Any]:
    return {"clip": clip, "captions": [f"a dog in {clip}"], **({"split": split} if split else {}), **more}


def test_clips_keep_their_splits_and_only_ids_that_two_corpora_have_change(tmp_path: Path) -> None:
    own = make(
        tmp_path / "own", row("a.mp4"), row("b.mp4", "val"), row("c.mp4", "test", external=True, repeat=3)
    )
    more = make(tmp_path / "more", row("a.mp4", "test"), row("d.mp4", "val"))
    both = read_corpora([own, more])
    assert [(clip.id, clip.split, clip.path.parent.name) for clip in both] == [
        ("own/a.mp4", "train", "own"),
        ("b.mp4", "val", "own"),
        ("c.mp4", "test", "own"),
        ("more/a.mp4", "test", "more"),
        ("d.mp4", "val", "more"),
    ]
    assert [(clip.external, clip.repeat) for clip in both] == [(False, 1)] * 2 + [(True, 3)] + [
        (False, 1)
    ] * 2
    turned = read_corpora([more, own])  # the order changes no id
    assert {(clip.id, clip.path) for clip in turned} == {(clip.id, clip.path) for clip in both}
    assert [part.ids for part in parts_of(both)] == [
        {"a.mp4": "own/a.mp4", "b.mp4": "b.mp4", "c.mp4": "c.mp4"},
        {"a.mp4": "more/a.mp4", "d.mp4": "d.mp4"},
    ]
    assert read_corpora([own]) == read_corpus(own)


def test_folders_of_one_name_and_ids_like_those_made_are_told_apart(tmp_path: Path) -> None:
    one = make(tmp_path / "x/clips", row("a.mp4"))
    two = make(tmp_path / "y/clips", row("a.mp4"))
    assert [clip.id for clip in read_corpora([one, two])] == ["x/clips/a.mp4", "y/clips/a.mp4"]
    odd = make(tmp_path / "odd", row("a.mp4"))
    (odd / "clips").mkdir()
    (odd / "clips.jsonl").write_text(json.dumps(row("a.mp4")) + "\n" + json.dumps(row("clips/a.mp4")) + "\n")
    found = [clip.id for clip in read_corpora([one, odd])]
    assert found == ["x/clips/a.mp4", f"{tmp_path.name}/odd/a.mp4", "clips/a.mp4"]
    with pytest.raises(UsageError, match="this corpus is given twice. Give each corpus once"):
        read_corpora([one, two, tmp_path / "y/../x/clips"])


def test_a_source_on_two_sides_of_two_corpora_is_named(tmp_path: Path) -> None:
    own = make(tmp_path / "own", row("a.mp4", source="film"), row("b.mp4", "val", source="other"))
    more = make(tmp_path / "more", row("c.mp4", "val", source="other"), row("d.mp4", "test", source="film"))
    with pytest.raises(CorpusError) as caught:
        read_corpora([own, more])
    assert str(caught.value) == (
        f"{more}/clips.jsonl:2: source 'film' is in test here with clip 'd.mp4', and in train with clip "
        f"'a.mp4' of {own}. Give all clips of one source the same split, or leave out one of the corpora."
    )
    said = ctsan("corpus", "check", own, more, "--no-video", exit_code=2).stderr
    assert "source 'film' is in test here" in said
    ctsan("corpus", "check", own, "--no-video")


def test_clips_of_one_name_are_two_sources_and_one_file_is_one(tmp_path: Path) -> None:
    own = make(tmp_path / "own", row("a.mp4"), row("cut.mp4", source="a.mp4"), row("b.mp4", "val"))
    more = make(tmp_path / "more", row("a.mp4", "test"))
    both = read_corpora([own, more])
    one, cut, _, other = (clip.source for clip in both)
    assert one == cut != other
    (more / "link.mp4").symlink_to(own / "a.mp4")
    (more / "clips.jsonl").write_text(json.dumps(row("link.mp4", "test")) + "\n")
    _, problems = inspect_corpora([own, more])
    assert [problem.what for problem in problems] == [
        f"source '{own}/a.mp4' is in test here with clip 'link.mp4', and in train with clip 'a.mp4' of {own}"
    ]
    (more / "clips.jsonl").write_text(json.dumps(row("link.mp4")) + "\n")
    note = "1 file is a clip of two corpora, the first as 'a.mp4' and 'link.mp4'."
    assert read_corpora([own, more]).notes[-1] == note


def test_each_corpus_is_split_as_by_itself(tmp_path: Path) -> None:
    bare = make(tmp_path / "bare", *(row(f"{n}.mp4", None) for n in range(20)))
    own = make(tmp_path / "own", row("a.mp4"), row("b.mp4", "test"))
    both = read_corpora([bare, own])
    alone = {clip.id: clip.split for clip in read_corpus(bare)}
    assert {clip.id: clip.split for clip in both if clip.id in alone} == alone
    assert both.has_own_splits
    assert both.notes == ("bare: The corpus has no splits; they are generated from seed 0.",)


def test_items_follow_their_clips_and_corpora_without_any_are_known(tmp_path: Path) -> None:
    header = "1001_Movie_00.00.01.000-00.00.02.000"
    films = tmp_path / "films"
    films.mkdir()
    line = f"{header}\t00.00.01.000\t00.00.02.000\t00.00.01.000\t00.00.02.000\tSomeone walks home.\n"
    (films / "LSMDC16_annos_test.csv").write_text(line)
    (films / "LSMDC16_challenge_1000_publictect.csv").write_text(line)
    same = make(tmp_path / "same", {**row(header, "test"), "source": "elsewhere"})
    both = read_corpora([films, same])
    items = both.items["rank", "test"]
    assert items == (QueryItem(query="Someone walks home.", clip=f"films/{header}"),)
    assert [part.root for part in parts_without_items(both, both.split("test"), items)] == [same]
    assert parts_without_items(both, both.split("test"), ()) == []
