"""Test items of three tasks as JSON lines.

- fill: `{"clip", "sentence": "a man is _____ a car", "answer": "driving"}`;
- choose: `{"clip", "choices": [sentences], "answer": 0-based index}`;
- rank: `{"query", "clip"}`.

A file contains items of one task; further keys are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from pathlib import Path

from ctsan.data.corpus import BLANK, BlankItem, ChoiceItem, Corpus, Item, ItemTask, QueryItem
from ctsan.data.readers.files import lines_of
from ctsan.errors import CorpusError, Problem, did_you_mean
from ctsan.io.atomic import replacing
from ctsan.text.tokens import tokenize

_EXAMPLES: dict[ItemTask, str] = {
    "fill": '{"clip": "a.mp4", "sentence": "a man is _____ a car", "answer": "driving"}',
    "choose": '{"clip": "a.mp4", "choices": ["a man drives", "a cat sleeps"], "answer": 0}',
    "rank": '{"query": "a man drives a car", "clip": "a.mp4"}',
}
_MAX_CLIPS_FOR_HINT = 1000  # "Did you mean …?" over more clips is too slow per line
Fault = tuple[str, str]  # what is wrong with an item, and the remedy
_TASK_BY_KEY: dict[str, ItemTask] = {"sentence": "fill", "choices": "choose", "query": "rank"}


def task_of(item: Item) -> ItemTask:
    """The task of an item."""
    if isinstance(item, BlankItem):
        return "fill"
    return "choose" if isinstance(item, ChoiceItem) else "rank"


def item_line(item: Item) -> str:
    """An item as one line of JSON, without a line break."""
    return json.dumps(asdict(item), ensure_ascii=False)


def write_items(path: Path | str, items: Iterable[Item]) -> None:
    """Write items, one per line, atomically."""
    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{item_line(item)}\n" for item in items)


def read_items(path: Path | str, *, corpus: Corpus | None = None) -> tuple[Item, ...]:
    """Read the items of one task.

    Args:
        corpus: if given, it must contain the items' clips.

    Raises:
        CorpusError: with every problem of the file.
    """
    path = Path(path)
    problems: list[Problem] = []
    clips = None if corpus is None else frozenset(clip.id for clip in corpus)
    items: list[Item] = []
    for line, text in lines_of(path, problems):
        if not text.strip():
            continue
        faults: list[Fault] = []
        item = _item(text, clips, faults)
        if item is not None and not faults:
            items.append(item)
            if task_of(item) != task_of(items[0]):
                what = f"this is an item of {task_of(item)!r} in a file of {task_of(items[0])!r}"
                faults.append((what, "Keep the items of each task in a file of their own."))
        problems += [Problem(path, line, what, remedy) for what, remedy in faults]
    if not items and not problems:
        problems.append(
            Problem(path, None, "the file holds no items", f"Write lines such as {_EXAMPLES['fill']}")
        )
    if problems:
        raise CorpusError(problems)
    return tuple(items)


def _item(text: str, clips: Collection[str] | None, faults: list[Fault]) -> Item | None:
    """The item of one line; its faults are appended to `faults`."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults.append((f"the line is not JSON ({error})", f"Write {_EXAMPLES['fill']}"))
        return None
    task = next((task for key, task in _TASK_BY_KEY.items() if isinstance(row, dict) and key in row), None)
    if task is None:
        what = 'the line is not an object with "sentence", "choices" or "query"'
        faults.append((what, f"Write {' or '.join(_EXAMPLES.values())}"))
        return None
    clip = row.get("clip")
    if not isinstance(clip, str) or not clip:
        faults.append(('the item has no "clip"', f"Write {_EXAMPLES[task]}"))
        clip = ""
    elif clips is not None and clip not in clips:
        hint = did_you_mean(clip, clips) if len(clips) < _MAX_CLIPS_FOR_HINT else ""
        faults.append((f"clip {clip!r} is not in the corpus", f"{hint}Name a clip of the corpus."))
    return _PARSERS[task](row, clip, faults)


def _blank(row: dict[str, object], clip: str, faults: list[Fault]) -> BlankItem:
    sentence, answer = str(row["sentence"]), row.get("answer")
    blanks = sentence.count(BLANK)
    if blanks != 1:
        faults.append((f"the sentence has {blanks or 'no'} blanks ({BLANK})", "Leave out exactly one word."))
    if not isinstance(answer, str) or not tokenize(answer):
        faults.append((f"the answer is not a word ({answer!r})", "Give the word that was left out."))
    return BlankItem(clip=clip, sentence=sentence, answer=str(answer))


def _choice(row: dict[str, object], clip: str, faults: list[Fault]) -> ChoiceItem:
    choices, answer = row["choices"], row.get("answer")
    if not isinstance(choices, list) or not all(
        isinstance(choice, str) and tokenize(choice) for choice in choices
    ):
        faults.append(('"choices" is not a list of sentences', f"Write {_EXAMPLES['choose']}"))
        choices = []
    elif len(choices) < 2:
        faults.append((f"there are too few choices ({len(choices)})", "Give at least two."))
    elif type(answer) is not int or not 0 <= answer < len(choices):
        what = f"the answer {answer!r} is not the index of one of the {len(choices)} choices"
        faults.append((what, f"Count from 0: give 0 to {len(choices) - 1}."))
    return ChoiceItem(clip=clip, choices=tuple(choices), answer=answer if type(answer) is int else 0)


def _query(row: dict[str, object], clip: str, faults: list[Fault]) -> QueryItem:
    query = row["query"]
    if not isinstance(query, str) or not tokenize(query):
        faults.append((f"the query has no words ({query!r})", "Write a sentence that describes the clip."))
    return QueryItem(query=str(query), clip=clip)


_PARSERS: dict[ItemTask, Callable[[dict[str, object], str, list[Fault]], Item]] = {
    "fill": _blank,
    "choose": _choice,
    "rank": _query,
}
