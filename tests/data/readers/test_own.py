from __future__ import annotations

from pathlib import Path

import pytest

from ctsan.data.corpus import Corpus
from ctsan.data.reading import missing_clips, read_corpus
from ctsan.errors import CorpusError
from data.conftest import Write

LINES = [
    {
        "clip": "a.mp4",
        "captions": ["a man drives a car", "someone drives"],
        "split": "train",
        "weather": "rain",
    },
    {"clip": "sub/b.webm", "captions": ["a cat sleeps"], "split": "val", "source": "cats"},
    {"clip": "c.mp4", "captions": [], "split": "test"},
]


def test_json_lines_become_clips_in_their_order(write: Write) -> None:
    root = write({"clips.jsonl": LINES})
    corpus = read_corpus(root)
    first, second, third = corpus
    assert (corpus.name, corpus.format, corpus.root) == ("corpus", "own", root)
    assert (first.id, first.path, first.split, first.source) == ("a.mp4", root / "a.mp4", "train", "a.mp4")
    assert first.captions == ("a man drives a car", "someone drives")
    assert first.extra == {"weather": "rain"}
    assert (second.path, second.source, second.origin) == (
        root / "sub/b.webm",
        "cats",
        (root / "clips.jsonl", 2),
    )
    assert third.captions == ()


def test_the_caption_file_itself_can_be_given_under_any_name(write: Write) -> None:
    root = write({"mine.jsonl": LINES})
    assert next(iter(read_corpus(root / "mine.jsonl"))).path == root / "a.mp4"


def test_blank_lines_windows_line_ends_and_a_byte_order_mark_do_not_matter(write: Write) -> None:
    text = '\ufeff{"clip": "a.mp4"}\r\n\r\n{"clip": "b.mp4"}\r\n'
    assert [clip.id for clip in read_corpus(write({"clips.jsonl": text}))] == ["a.mp4", "b.mp4"]


def test_a_line_separator_inside_a_caption_does_not_end_the_line(write: Write) -> None:
    row = '{"clip": "a.mp4", "captions": ["one\u2028two"]}\n'
    (clip,) = read_corpus(write({"clips.jsonl": row}))
    assert clip.captions == ("one\u2028two",)


@pytest.mark.parametrize(
    ("given", "split"),
    [("training", "train"), ("validation", "val"), ("Valid", "val"), ("dev", "val"), ("public_test", "test")],
)
def test_other_names_of_splits_are_understood(write: Write, given: str, split: str) -> None:
    assert read_corpus(write({"clips.jsonl": [{"clip": "a.mp4", "split": given}]})).clips[0].split == split


def test_an_absolute_path_may_lie_outside_the_folder(write: Write, tmp_path: Path) -> None:
    clip = tmp_path / "elsewhere.mp4"
    clip.touch()
    corpus = read_corpus(write({"clips.jsonl": [{"clip": str(clip)}]}))
    assert corpus.clips[0].path == clip
    assert missing_clips(corpus) == []


def test_csv_rows_of_one_clip_are_gathered(write: Write) -> None:
    table = (
        "clip,caption,split,source,weather\n"
        'a.mp4,"a man, in a car",train,x,rain\n'
        "b.mp4,a cat sleeps,test,,\n"
        "a.mp4,someone drives,,,\n"
        "c.mp4,,val,,\n"
    )
    root = write({"clips.csv": table})
    first, second, third = read_corpus(root)
    assert first.captions == ("a man, in a car", "someone drives")
    assert (first.split, first.source, first.extra, first.origin) == (
        "train",
        "x",
        {"weather": "rain"},
        (root / "clips.csv", 2),
    )
    assert (second.source, second.extra) == ("b.mp4", {})
    assert third.captions == ()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_and_json_lines_say_the_same(write: Write, delimiter: str) -> None:
    table = "\n".join(
        delimiter.join(row)
        for row in (
            ("Clip", "captions", "split", "source"),
            ("a.mp4", "a man drives a car", "train", ""),
            ("a.mp4", "someone drives", "train", ""),
            ("sub/b.webm", "a cat sleeps", "val", "cats"),
            ("c.mp4", "", "test", ""),
        )
    )
    from_csv = read_corpus(write({"clips.csv": table}))
    from_json = read_corpus(write({"other.jsonl": LINES}) / "other.jsonl")

    def told(corpus: Corpus) -> list[tuple[object, ...]]:
        return [(clip.id, clip.path, clip.captions, clip.split, clip.source) for clip in corpus]

    assert told(from_csv) == told(from_json)


def test_a_quoted_csv_cell_over_two_lines_keeps_the_line_numbers_right(write: Write) -> None:
    table = 'clip,caption\na.mp4,"a man\ndrives"\nb.mp4,one,two\n'
    with pytest.raises(CorpusError) as caught:
        read_corpus(write({"clips.csv": table}))
    (problem,) = caught.value.problems
    assert problem.line == 4


def test_a_folder_of_clips_is_a_corpus_sorted_without_hidden_and_foreign_files(write: Write) -> None:
    names = ["b.mp4", "a.MOV", "sub/deep/c.gif", ".hidden.mp4", ".cache/d.mp4", "notes.txt", "still.png"]
    corpus = read_corpus(write(dict.fromkeys(names, "")))
    assert [clip.id for clip in corpus] == ["a.MOV", "b.mp4", "still.png", "sub/deep/c.gif"]
    assert corpus.format == "clips"
    assert all(clip.split is None and clip.captions == () for clip in corpus)


def test_a_folder_that_links_back_to_itself_is_read_once(write: Write) -> None:
    root = write({"a.mp4": ""})
    (root / "loop").symlink_to(root, target_is_directory=True)
    assert [clip.id for clip in read_corpus(root)] == ["a.mp4"]


def test_a_single_clip_is_a_corpus_of_one(write: Write) -> None:
    root = write({"a.mp4": "", "b.mp4": ""})
    corpus = read_corpus(root / "a.mp4")
    assert [(clip.id, clip.path) for clip in corpus] == [("a.mp4", root / "a.mp4")]


def test_a_misspelt_key_is_named(write: Write) -> None:
    rows = [
        {"clip": "a.mp4", "captions": ["a dog runs"], "duration": 3, "title": "dogs", "weather": "rain"},
        {"clip": "b.mp4", "captoins": ["a cat sleeps"], "Split": "train"},
    ]
    root = write({"clips.jsonl": rows})
    with pytest.raises(CorpusError) as caught:
        read_corpus(root)
    assert str(caught.value).splitlines() == [
        f"{root / 'clips.jsonl'}:2: the key 'captoins' is not known. Did you mean 'captions'? "
        "Correct it, or rename a key of your own.",
        f"{root / 'clips.jsonl'}:2: the key 'Split' is not known. Did you mean 'split'? "
        "Correct it, or rename a key of your own.",
    ]


def test_a_misspelt_column_is_named_once(write: Write) -> None:
    root = write({"clips.csv": "clip,captoin,weather\na.mp4,a dog runs,rain\nb.mp4,a cat sleeps,sun\n"})
    with pytest.raises(CorpusError) as caught:
        read_corpus(root)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (root / "clips.csv", 1)
    assert str(problem).endswith("Did you mean 'caption'? Correct it, or rename a key of your own.")


def test_one_caption_may_be_given_as_in_the_table(write: Write) -> None:
    root = write({"clips.jsonl": [{"clip": "a.mp4", "caption": "a dog runs"}]})
    assert read_corpus(root).clips[0].captions == ("a dog runs",)


def test_clips_that_the_caption_file_does_not_name_are_noted(write: Write) -> None:
    root = write({"clips.jsonl": [{"clip": "a.mp4"}], "a.mp4": "", "sub/b.mp4": "", "notes.txt": ""})
    assert read_corpus(root).notes == (
        f"1 clip in the folder is not in the caption file, the first is {Path('sub/b.mp4')}.",
    )
