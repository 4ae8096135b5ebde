"""All seeds of a system as one, measured on the test split once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ctsan.atomic import write_json
from ctsan.tables.plan import Training
from ctsan.tables.running import Workshop
from ctsan.tables.systems import ENSEMBLES, MeasuredTask
from ctsan.trained_run import load_runs
from ctsan.training.run_folder import weights_digest


def members_of(name: str, task: MeasuredTask, *, seeds: int) -> list[Training]:
    """As in the paper, a model of multiple choice helps those of retrieval."""
    of = ENSEMBLES[name].of
    helpers = [Training("choose", of, 0)] if task == "rank" else []
    return [*(Training(task, of, seed) for seed in range(seeds)), *helpers]


def answers_of(workshop: Workshop, name: str, task: MeasuredTask, members: Sequence[Training]) -> Any:
    """What trained runs say as one; kept, and said anew only if a run or what is asked is another."""
    folders = [member.folder(workshop.out) for member in members]
    digests = [*(weights_digest(folder) for folder in folders), workshop.measured_on]
    file = workshop.out / "runs" / task / f"{name}.json"
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["members"] == digests:
            return kept["answers"]
    runs = load_runs(folders)
    answering = [run.member for run in runs]
    test = workshop.test_task(task, runs[0].settings, answering[0].model)
    answers = test.measure(answering).answers
    write_json(file, {"members": digests, "answers": answers})
    return answers
