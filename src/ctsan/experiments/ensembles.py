"""Evaluate several seeds of a system as an ensemble on the test split, and cache the answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ctsan.experiments.plan import Training
from ctsan.experiments.running import ExperimentContext
from ctsan.experiments.systems import MeasuredTask
from ctsan.io.atomic import write_json
from ctsan.runs.run_folder import weights_digest
from ctsan.runs.trained_run import load_runs


def answers_of(context: ExperimentContext, name: str, task: MeasuredTask, members: Sequence[Training]) -> Any:
    """Compute an ensemble's answers; cached until a run, its settings or the test split changes."""
    folders = [member.folder(context.out) for member in members]
    settings = context.settings(members[0])
    made_of = [*(weights_digest(folder) for folder in folders), context.measured_on, settings.to_json()]
    file = context.out / "runs" / task / f"{name}.json"
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept.get("made_of") == made_of:
            return kept["answers"]
    runs = load_runs(folders)
    answering = [run.loaded for run in runs]
    test = context.test_task(task, runs[0].settings, answering[0].model)
    answers = test.measure(answering).answers
    write_json(file, {"made_of": made_of, "answers": answers})
    return answers
