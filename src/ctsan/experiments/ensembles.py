"""Evaluate several seeds of a system as an ensemble on the test split, and cache the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctsan.experiments.ensemble_answers import measure_ensemble
from ctsan.experiments.plan import Training
from ctsan.experiments.running import ExperimentContext
from ctsan.experiments.stored_results import read_answers
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
        cached_of, cached = read_answers(file, task, context.test_clips)
        if cached_of == made_of:
            return cached
    runs = load_runs(folders)
    test = context.test_task(task, runs[0].settings, runs[0].model)
    answers = measure_ensemble(test, runs).answers
    write_json(file, {"made_of": made_of, "answers": answers})
    return answers
