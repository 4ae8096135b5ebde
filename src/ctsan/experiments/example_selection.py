"""Select example test clips by a fixed rule, with the answers of CT-SAN and the other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctsan.experiments.plan import Training
from ctsan.experiments.systems import MeasuredTask, label_of
from ctsan.experiments.train_system import ExperimentContext
from ctsan.runs.trained_run import load_runs
from ctsan.tasks.task import Example

SHOWN = "ct-san"
RULE = (
    "The clips are chosen by a rule, not by hand: of all test clips in the order of their score, then of "
    "their names, those at one sixth, three sixths and five sixths; where answers are right or wrong, "
    "those at one and two thirds of the right ones and of the wrong ones. The model is CT-SAN of the first "
    "seed."
)
_BESIDE: Mapping[MeasuredTask, tuple[str, ...]] = {
    "describe": ("base-san", "no-att-san", "s2vt", "temporal-attention"),
    "fill": ("base-san", "no-att-san", "simple-blstm"),
    "choose": ("base-san", "no-att-san", "dual-encoder"),
    "rank": ("base-san", "no-att-san", "dual-encoder"),
}


@dataclass(frozen=True, slots=True)
class ComparedExample:
    example: Example
    answers: tuple[tuple[str, str], ...]  # (system, answer) of the systems that it is compared with


def select_examples(
    context: ExperimentContext, task: MeasuredTask, answers: Mapping[tuple[str, MeasuredTask], Sequence[Any]]
) -> list[ComparedExample]:
    if (SHOWN, task) not in answers:
        return []
    [run] = load_runs([Training(task, SHOWN, 0).folder(context.out)])
    examples = context.test_task(task, run.settings, run.model).examples()
    selected = _evenly_spaced(examples) if task == "describe" else _right_and_wrong(examples)
    return [
        ComparedExample(
            example,
            tuple(
                (label_of(name), _answer_text(task, answers[name, task][0][example.clip]))
                for name in _BESIDE[task]
                if (name, task) in answers
            ),
        )
        for example in selected
    ]


def _evenly_spaced(examples: Sequence[Example]) -> list[Example]:
    ranked = sorted(examples, key=lambda example: (-example.score, example.clip))
    places = dict.fromkeys(len(ranked) * sixth // 6 for sixth in (1, 3, 5))
    return [ranked[place] for place in places if place < len(ranked)]


def _right_and_wrong(examples: Sequence[Example]) -> list[Example]:
    selected = []
    for is_right in (True, False):
        candidates = sorted(
            (one for one in examples if (one.score == 1) == is_right), key=lambda one: one.clip
        )
        places = dict.fromkeys(len(candidates) * third // 3 for third in (1, 2))
        selected += [candidates[place] for place in places if place < len(candidates)]
    return selected


def _answer_text(task: MeasuredTask, answer: Any) -> str:
    """Format a clip's answer, or the first of several, as text."""
    match task:
        case "describe":
            return str(answer)
        case "fill":
            return f"[{answer[0]['answer']}]"
        case "choose":
            return "right" if answer[0]["choice"] == answer[0]["right"] else "wrong"
        case "rank":
            return f"rank {answer[0]['rank']}"
