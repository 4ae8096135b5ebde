"""The paper's figures and claims. They are for LSMDC 2016, a different corpus."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from ctsan.experiments.systems import ALL, MeasuredTask

# The metric by which two systems are compared in each task: the last of the paper's columns that is finest.
COMPARED_BY: dict[MeasuredTask, str] = {
    "describe": "CIDEr",
    "fill": "accuracy",
    "choose": "accuracy",
    "rank": "R@10",
}
# Members of the paper's ensembles (4.2, B); one multiple-choice model joins the six for retrieval.
ENSEMBLE_SIZES: dict[MeasuredTask, int] = {"fill": 3, "choose": 6, "rank": 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that one system is better than, or as good as, another in some tasks.

    Both are initialised from a description model, or neither is.
    """

    better: str
    worse: str
    tasks: tuple[MeasuredTask, ...]
    statement: str  # where and how the paper states it, in short
    kind: Literal["above", "alike"] = "above"
    better_in_paper: str | None = None  # the system whose figure the paper prints, if different


@cache
def _paper() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    value: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(
        (files("ctsan.experiments") / "paper.json").read_text(encoding="utf-8")
    )
    return value


def figure(system: str, task: MeasuredTask, metric: str) -> float | None:
    """Return the paper's figure for a system on LSMDC; None if it has none."""
    return _paper()["systems"].get(system, {}).get(task, {}).get(metric)


def published_entries(*tasks: MeasuredTask) -> dict[str, dict[str, dict[str, float]]]:
    """Return other challenge entries with figures for these tasks: by name, task and metric."""
    return {
        name: figures
        for name, figures in _paper()["others"].items()
        if any(task in figures for task in tasks)
    }


CLAIMS: tuple[Claim, ...] = (
    Claim(
        better="ct-san",
        worse="base-san",
        tasks=ALL,
        statement="4.2: significant gaps; blank, choice and retrieval gain from detector and attention",
    ),
    Claim(
        better="ct-san-alone",
        worse="simple-lstm",
        tasks=("fill",),
        statement="4.2: outperforms the simple variants, which start from no description model",
        better_in_paper="ct-san",
    ),
    Claim(
        better="ct-san-alone",
        worse="simple-blstm",
        tasks=("fill",),
        statement="4.2: outperforms the simple variants, which start from no description model",
        better_in_paper="ct-san",
    ),
    Claim(better="ct-san", worse="s2vt", tasks=("describe",), statement="4.2: ranks first in CIDEr"),
    Claim(
        better="ct-san-ensemble",
        worse="ct-san",
        tasks=("fill", "choose", "rank"),
        statement="4.2: an ensemble improves further",
    ),
    Claim(
        better="ct-san",
        worse="no-att-san",
        tasks=ALL,
        statement="C.1: no-ATT-SAN is poorer in all four tasks",
    ),
    Claim(
        better="no-att-san",
        worse="base-san",
        tasks=ALL,
        statement="C.1: no-ATT-SAN is better in all four tasks",
    ),
    Claim(
        better="no-att-san",
        worse="nn-san",
        tasks=ALL,
        statement="C.1: no-ATT-SAN is better in all four tasks",
    ),
    Claim(
        better="ct-san",
        worse="rand-san",
        tasks=ALL,
        statement="C.1: the quality of concept words is crucial: the same model, with random words",
    ),
    Claim(
        better="base-san", worse="rand-san", tasks=ALL, statement="C.1: rand-SAN is much inferior to Base-SAN"
    ),
    Claim(
        better="base-san",
        worse="nn-san",
        tasks=("describe", "fill"),
        statement="C.1: retrieved words are not so helpful",
    ),
    Claim(
        better="ct-san",
        worse="decoupled",
        tasks=("describe", "fill"),
        statement="C.1: joint learning is effective, decoupled is worse",
    ),
    Claim(
        better="ct-san",
        worse="only-input",
        tasks=("describe", "fill"),
        statement="C.2: both attentions above one",
    ),
    Claim(
        better="ct-san",
        worse="only-output",
        tasks=("describe", "fill"),
        statement="C.2: both attentions above one",
    ),
    Claim(
        better="ct-san",
        worse="ct-san-k5",
        tasks=("describe", "fill", "choose"),
        statement="C.3: only a marginal difference by the number of words",
        kind="alike",
    ),
    Claim(
        better="ct-san-k20",
        worse="ct-san",
        tasks=("describe", "fill", "choose"),
        statement="C.3: only a marginal difference by the number of words",
        kind="alike",
    ),
)
