"""Collect the answers of a plan's runs by table row; missing runs leave their cells empty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctsan.experiments.ensembles import answers_of
from ctsan.experiments.plan import Plan, Training
from ctsan.experiments.results import Results, make_results, measure_all
from ctsan.experiments.running import ExperimentContext, stored_result
from ctsan.experiments.systems import ENSEMBLES, SYSTEMS, MeasuredTask

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
            own = [Training(system.training(task), name, seed) for seed in range(plan.seeds)]
            found = [stored_result(context, one) for one in own if one in planned]
            if len(found) < plan.seeds or not all(one and one["answers"][task] for one in found):
                continue
            answers[name, task] = [one["answers"][task] for one in found if one]
            with_others = [one.get("reliance", {}).get(task) for one in found if one]
            if all(with_others):
                reliance[name, task] = with_others
            if task == "describe":
                concepts[name] = [one["concepts"] for one in found if one]
    for name, ensemble in ENSEMBLES.items():
        if not plan.has(name):
            continue
        for task in ensemble.measured:
            members = plan.members(name, task)
            is_there = plan.ensemble_sizes[task] > 1 and all(
                member in planned and stored_result(context, member) for member in members
            )
            if is_there and (said := answers_of(context, name, task, members)):
                answers[name, task] = [said]
    return answers, concepts, reliance


def results_of(context: ExperimentContext, plan: Plan, *, java: Path | None) -> tuple[Results, Gathered]:
    """Compute the tables from all finished runs."""
    answers, concepts, reliance = gather(context, plan)
    measured, notes = measure_all(answers, concepts, context.corpus, java=java, reliance=reliance)
    return make_results(measured, plan.tables, notes, ensemble_sizes=plan.ensemble_sizes), answers
