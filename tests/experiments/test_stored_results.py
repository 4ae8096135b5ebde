"""Stored results of runs are whole, or refused with the file and what to do."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctsan.config import Settings
from ctsan.data.corpus import Clip, Corpus
from ctsan.errors import RunError
from ctsan.experiments.shared_words import words_for
from ctsan.experiments.stored_results import read_answers, read_result

CLIPS = {"a", "b"}
BLANKS = {"a": [{"sentence": "a _____", "answer": "dog", "right": "cat"}], "b": []}
RESULT: dict[str, Any] = {
    "settings": {},
    "measured_on": "x",
    "steps": 9,
    "best_step": 3,
    "validation": float("-inf"),  # no score was finite
    "seconds_per_step": 0.5,
    "parameters": 100,
    "answers": {
        "describe": {"a": "a dog", "b": ""},
        "fill": BLANKS,
        "choose": {"a": [{"choice": 1, "right": 0, "scores": [0.5, 1.0]}]},
        "rank": {"a": [{"query": "a dog", "rank": 2, "first": "b"}]},
    },
    "reliance": {"fill": {"other": BLANKS}},
    "concepts": {"precision": [[1.0, 2.0], [0, 3]]},
}


def write(file: Path, value: object) -> Path:
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


def test_a_whole_result_is_read_as_it_is(tmp_path: Path) -> None:
    assert read_result(write(tmp_path / "test.json", RESULT), CLIPS) == RESULT
    older = {key: value for key, value in RESULT.items() if key not in ("reliance", "measured_on")}
    assert read_result(write(tmp_path / "test.json", older), CLIPS) == older
    detector = {key: value for key, value in older.items() if key not in ("answers", "concepts")}
    assert read_result(write(tmp_path / "test.json", detector), CLIPS) == detector


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no settings": lambda r: r.pop("settings"),
    "steps of text": lambda r: r.update(steps="9"),
    "negative steps": lambda r: r.update(steps=-9),
    "no seconds": lambda r: r.pop("seconds_per_step"),
    "seconds that are no number": lambda r: r.update(seconds_per_step=float("nan")),
    "endless seconds": lambda r: r.update(seconds_per_step=float("inf")),
    "answers as a list": lambda r: r.update(answers=[]),
    "an unknown task": lambda r: r["answers"].update(sing={}),
    "answers of a task as a list": lambda r: r["answers"].update(fill=[]),
    "a clip that is not there": lambda r: r["answers"]["fill"].update(c=[]),
    "a caption that is a number": lambda r: r["answers"]["describe"].update(a=3),
    "an answer that is no list": lambda r: r["answers"]["fill"].update(a="dog"),
    "an answer without its word": lambda r: r["answers"]["fill"].update(a=[{"right": "dog"}]),
    "a choice of text": lambda r: r["answers"]["choose"].update(a=[{"choice": "1", "right": 0}]),
    "a rank of text": lambda r: r["answers"]["rank"].update(a=[{"rank": "first"}]),
    "reliance as a list": lambda r: r["reliance"].update(fill=[]),
    "reliance without a word": lambda r: r["reliance"]["fill"].update(other={"a": [{}]}),
    "concepts that are no pairs": lambda r: r["concepts"].update(precision=[[1.0]]),
    "concepts that are no numbers": lambda r: r["concepts"].update(precision=[[1.0, None]]),
    "concepts that are not finite": lambda r: r["concepts"].update(precision=[[1.0, float("nan")]]),
}


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_result_is_refused_and_can_be_made_again(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    damaged = copy.deepcopy(RESULT)
    change(damaged)
    file = write(tmp_path / "test.json", damaged)
    with pytest.raises(RunError) as caught:
        read_result(file, CLIPS)
    assert str(caught.value).startswith(f"{file}: it is damaged (")
    assert str(caught.value).endswith("). Delete it, and it is made again.")


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000])
def test_what_is_no_result_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "test.json"
    file.write_text(content, encoding="utf-8")
    for read in (lambda: read_result(file, CLIPS), lambda: read_answers(file, "fill", CLIPS)):
        with pytest.raises(RunError, match="Delete it, and it is made again"):
            read()


def test_answers_of_an_ensemble_are_checked_alike(tmp_path: Path) -> None:
    file = write(tmp_path / "e.json", {"made_of": [1], "answers": BLANKS})
    assert read_answers(file, "fill", CLIPS) == ([1], BLANKS)
    with pytest.raises(RunError, match="its answer in 'rank' for 'a' is"):
        read_answers(file, "rank", CLIPS)
    with pytest.raises(RunError, match="it has answers of 'a', which is not a test clip"):
        read_answers(file, "fill", {"b"})


def test_a_damaged_record_of_the_words_is_not_taken_for_other_words(tmp_path: Path) -> None:
    corpus = Corpus("mine", Path(), "own", (Clip("a", Path(), ("a dog \ud800",), "train"),))
    (tmp_path / "words.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(
        RunError, match="words.json: it is damaged .* Put it back from a copy, or name another"
    ):
        words_for(corpus, tmp_path, Settings())
