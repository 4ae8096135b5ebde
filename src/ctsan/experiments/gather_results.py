"""Collect the answers of a plan's runs by table row; missing runs leave their cells empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctsan.experiments.ensemble_answers import measure_ensemble
from ctsan.experiments.plan import Plan, Training
from ctsan.experiments.results import Results, make_results, measure_all
from ctsan.experiments.stored_results import read_answers
from ctsan.experiments.systems import ENSEMBLES, SYSTEMS, MeasuredTask
from ctsan.experiments.train_system import ExperimentContext, stored_result
from ctsan.io.atomic import write_json
from ctsan.runs.run_folder import weights_digest
from ctsan.runs.trained_run import load_runs

Gathered = dict[tuple[str, MeasuredTask], list[Any]]  # (row, task) -> answers, one per seed
GatheredReliance = dict[tuple[str, MeasuredTask], list[Any]]  # the same, by source of concept words


def gather(
    context: ExperimentContext, plan: Plan
) -> tuple[Gathered, dict[str, list[Mapping[str, Any]]], GatheredReliance]:
    """Collect test answers, concept-word statistics of description runs, and answers with other words.

    Older results lack the last. A row appears in a task only if all its seeds are done, since rows are
    compared seed by seed.
    """
    answers: Gathered = {}
    concepts: dict[str, list[Mapping[str, Any]]] = {}
    reliance: GatheredReliance = {}
    planned = set(plan.trainings)
    for name in plan.systems:
        system = SYSTEMS[name]
        for task in system.measured:
            trainings = [Training(system.training(task), name, seed) for seed in range(plan.seeds)]
            results = [stored_result(context, training) for training in trainings if training in planned]
            if len(results) < plan.seeds or not all(result and result["answers"][task] for result in results):
                continue
            answers[name, task] = [result["answers"][task] for result in results if result]
            with_others = [result.get("reliance", {}).get(task) for result in results if result]
            if all(with_others):
                reliance[name, task] = with_others
            if task == "describe":
                concepts[name] = [result["concepts"] for result in results if result]
    for name, ensemble in ENSEMBLES.items():
        if not plan.has(name):
            continue
        for task in ensemble.measured:
            members = plan.members(name, task)
            is_there = plan.ensemble_sizes[task] > 1 and all(
                member in planned and stored_result(context, member) for member in members
            )
            if is_there and (of_ensemble := _ensemble_answers(context, name, task, members)):
                answers[name, task] = [of_ensemble]
    return answers, concepts, reliance


def results_of(context: ExperimentContext, plan: Plan, *, java: Path | None) -> tuple[Results, Gathered]:
    """Compute the tables from all finished runs."""
    answers, concepts, reliance = gather(context, plan)
    measured, notes = measure_all(answers, concepts, context.corpus, java=java, reliance=reliance)
    return make_results(measured, plan.tables, notes, ensemble_sizes=plan.ensemble_sizes), answers


def _ensemble_answers(
    context: ExperimentContext, name: str, task: MeasuredTask, members: Sequence[Training]
) -> Any:
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
