from __future__ import annotations

from pathlib import Path

import pytest

from ctsan.data.corpus import BlankItem, ChoiceItem, Item, ItemTask, QueryItem
from ctsan.data.items import read_items, task_of, write_items
from ctsan.data.reading import read_corpus
from ctsan.errors import CorpusError
from data.conftest import Write

ITEMS: dict[ItemTask, tuple[Item, ...]] = {
    "fill": (
        BlankItem("a.mp4", "a man is _____ a café", "painting"),
        BlankItem("b.mp4", "_____ sing", "birds"),
    ),
    "choose": (ChoiceItem("a.mp4", ("one man", "two men", "no man"), 2),),
    "rank": (QueryItem("a man paints", "a.mp4"),),
}
LINES: dict[ItemTask, str] = {
    "fill": '{"clip": "a.mp4", "sentence": "a man is _____ a café", "answer": "painting"}\n'
    '{"clip": "b.mp4", "sentence": "_____ sing", "answer": "birds"}\n',
    "choose": '{"clip": "a.mp4", "choices": ["one man", "two men", "no man"], "answer": 2}\n',
    "rank": '{"query": "a man paints", "clip": "a.mp4"}\n',
}


@pytest.mark.parametrize("task", ITEMS)
def test_items_are_written_in_the_documented_form_and_read_back(tmp_path: Path, task: ItemTask) -> None:
    file = tmp_path / "items.jsonl"
    write_items(file, ITEMS[task])
    assert file.read_text(encoding="utf-8") == LINES[task]
    assert read_items(file) == ITEMS[task]
    assert {task_of(item) for item in ITEMS[task]} == {task}
    assert [path.name for path in tmp_path.iterdir()] == ["items.jsonl"]


def test_further_keys_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"query": "a man paints", "clip": "a.mp4", "by": "someone"}\n', encoding="utf-8")
    assert read_items(file) == ITEMS["rank"]


FILL = '{"clip": "a.mp4", "sentence": "a man is _____ a car", "answer": "driving"}'
CHOOSE = '{"clip": "a.mp4", "choices": ["a man drives", "a cat sleeps"], "answer": 0}'
RANK = '{"query": "a man drives a car", "clip": "a.mp4"}'
DAMAGE = {
    '{"clip"': f"the line is not JSON (Expecting ':' delimiter: line 1 column 8 (char 7)). Write {FILL}",
    '{"clip": "a.mp4"}': (
        f'the line is not an object with "sentence", "choices" or "query". Write {FILL} or {CHOOSE} or {RANK}'
    ),
    '{"sentence": "a _____", "answer": "man"}': f'the item has no "clip". Write {FILL}',
    '{"clip": "a.mp5", "query": "a man"}': (
        "clip 'a.mp5' is not in the corpus. Did you mean 'a.mp4'? Name a clip of the corpus."
    ),
    '{"clip": "a.mp4", "sentence": "a man", "answer": "man"}': (
        "the sentence has no blanks (_____). Leave out exactly one word."
    ),
    '{"clip": "a.mp4", "sentence": "_____ and _____", "answer": "man"}': (
        "the sentence has 2 blanks (_____). Leave out exactly one word."
    ),
    '{"clip": "a.mp4", "sentence": "a _____", "answer": 3}': (
        "the answer is not a word (3). Give the word that was left out."
    ),
    '{"clip": "a.mp4", "choices": ["a man", "a dog"], "answer": 2}': (
        "the answer 2 is not the index of one of the 2 choices. Count from 0: give 0 to 1."
    ),
    '{"clip": "a.mp4", "choices": ["a man", "a dog"], "answer": true}': (
        "the answer True is not the index of one of the 2 choices. Count from 0: give 0 to 1."
    ),
    '{"clip": "a.mp4", "choices": ["a man"], "answer": 0}': (
        "there are too few choices (1). Give at least two."
    ),
    '{"clip": "a.mp4", "choices": ["a man", ""], "answer": 0}': (
        f'"choices" is not a list of sentences. Write {CHOOSE}'
    ),
    '{"clip": "a.mp4", "query": " "}': (
        "the query has no words (' '). Write a sentence that describes the clip."
    ),
}


def test_every_problem_of_an_item_file_comes_in_one_go(write: Write, tmp_path: Path) -> None:
    corpus = read_corpus(write({"a.mp4": ""}))
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join(DAMAGE), encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        read_items(file, corpus=corpus)
    assert [str(problem) for problem in caught.value.problems] == [
        f"{file}:{line}: {message}" for line, message in enumerate(DAMAGE.values(), start=1)
    ]


def test_a_file_holds_items_of_one_task(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text(f"{RANK}\n{FILL}\n", encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        read_items(file)
    assert str(caught.value) == (
        f"{file}:2: this is an item of 'fill' in a file of 'rank'. "
        "Keep the items of each task in a file of their own."
    )


def test_an_empty_file_and_a_missing_one(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.touch()
    with pytest.raises(CorpusError, match="the file holds no items"):
        read_items(file)
    with pytest.raises(CorpusError, match="there is no such file"):
        read_items(tmp_path / "none.jsonl")
