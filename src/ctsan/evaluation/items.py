"""Metrics of answers to items, clip by clip, from the answers as `ctsan evaluate` prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctsan.data.corpus import ItemTask
from ctsan.evaluation.clip_statistics import ClipStatistic, ratio
from ctsan.evaluation.retrieval import rank_statistics
from ctsan.text.tokens import tokenize

Answers = Mapping[str, Sequence[Mapping[str, Any]]]  # by clip, one for each of its items


def item_statistics(task: ItemTask, answers: Answers) -> dict[str, ClipStatistic]:
    """The metrics of a task's answers."""
    match task:
        case "fill":
            return blank_tallies(answers)
        case "choose":
            return choice_tallies(answers)
        case "rank":
            return query_tallies(answers)


def blank_tallies(answers: Answers) -> dict[str, ClipStatistic]:
    """Accuracy of words in blanks."""
    right = [sum(tokenize(one["right"]) == [one["answer"]] for one in own) for own in answers.values()]
    return {"accuracy": ratio(right, [len(own) for own in answers.values()])}


def choice_tallies(answers: Answers) -> dict[str, ClipStatistic]:
    """Accuracy of choices."""
    right = [sum(one["choice"] == one["right"] for one in own) for own in answers.values()]
    return {"accuracy": ratio(right, [len(own) for own in answers.values()])}


def query_tallies(answers: Answers) -> dict[str, ClipStatistic]:
    """Recalls and ranks of the clips that were asked for."""
    return rank_statistics([[one["rank"] for one in own] for own in answers.values()])
