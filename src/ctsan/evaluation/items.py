"""Metrics of answers to test items, per clip, from the answers in the format that `ctsan evaluate` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctsan.data.corpus import ItemTask
from ctsan.evaluation.clip_statistics import ClipStatistic, ratio
from ctsan.evaluation.retrieval import rank_statistics
from ctsan.text.tokens import tokenize

Answers = Mapping[str, Sequence[Mapping[str, Any]]]  # by clip, one answer per item


def item_statistics(task: ItemTask, answers: Answers) -> dict[str, ClipStatistic]:
    """The metrics of a task's answers."""
    match task:
        case "fill":
            return blank_statistics(answers)
        case "choose":
            return choice_statistics(answers)
        case "rank":
            return query_statistics(answers)


def blank_statistics(answers: Answers) -> dict[str, ClipStatistic]:
    """Accuracy of fill-in-the-blank answers."""
    num_correct = [
        sum(tokenize(answer["right"]) == [answer["answer"]] for answer in clip_answers)
        for clip_answers in answers.values()
    ]
    return {"accuracy": ratio(num_correct, [len(clip_answers) for clip_answers in answers.values()])}


def choice_statistics(answers: Answers) -> dict[str, ClipStatistic]:
    """Accuracy of multiple-choice answers."""
    num_correct = [
        sum(answer["choice"] == answer["right"] for answer in clip_answers)
        for clip_answers in answers.values()
    ]
    return {"accuracy": ratio(num_correct, [len(clip_answers) for clip_answers in answers.values()])}


def query_statistics(answers: Answers) -> dict[str, ClipStatistic]:
    """Recalls and ranks of the clips that the queries were written for."""
    return rank_statistics([[answer["rank"] for answer in clip_answers] for clip_answers in answers.values()])
