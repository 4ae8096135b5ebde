"""Write the tables in all formats into one folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from ctsan.experiments.example_selection import select_examples
from ctsan.experiments.formats import as_csv, as_json, latex, markdown
from ctsan.experiments.gather_results import Gathered
from ctsan.experiments.layout import TASK_TITLES
from ctsan.experiments.page import page
from ctsan.experiments.plan import Plan, Training
from ctsan.experiments.plots import Line
from ctsan.experiments.results import Results, members_text
from ctsan.experiments.systems import ALL, ENSEMBLES, SYSTEMS, MeasuredTask
from ctsan.experiments.train_system import ExperimentContext, stored_result
from ctsan.io.atomic import replacing, write_json
from ctsan.runs.run_folder import open_run
from ctsan.tasks.registry import TASKS
from ctsan.training.metrics import METRICS_FILE, read_metrics

FILES = ("tables.md", "tables.tex", "tables.csv", "tables.json", "tables.html")


def write_tables(
    context: ExperimentContext, plan: Plan, results: Results, answers: Gathered, *, command: str
) -> list[Path]:
    """Write all formats. Deterministic: the same runs give the same bytes."""
    title = f"CT-SAN and what it is compared with, on {context.corpus.name}"
    facts = facts_of(context, plan, command)
    texts = {
        "tables.md": markdown(results, title, facts),
        "tables.tex": latex(results),
        "tables.csv": as_csv(results),
        "tables.html": page(
            results,
            title=title,
            facts=facts,
            trainings={task: _trainings(context, plan, task) for task in ALL},
            examples={task: select_examples(context, task, answers) for task in ALL},
        ),
    }
    for name, text in texts.items():
        with replacing(context.out / name) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="replace")  # for names that are not UTF-8
    write_json(context.out / "tables.json", as_json(results, facts))
    return [context.out / name for name in FILES]


def facts_of(context: ExperimentContext, plan: Plan, command: str) -> list[tuple[str, str]]:
    """List the corpus, budget and machine behind the figures."""
    corpus, settings = context.corpus, context.settings(plan.trainings[0])
    training = settings.training
    splits = ", ".join(f"{len(corpus.split(split))} {split}" for split in ("train", "val", "test"))
    done = [result for one in plan.trainings if (result := stored_result(context, one))]
    seconds = sum(result["seconds_per_step"] * result["steps"] for result in done)
    began = [open_run(one.folder(context.out)) for one in plan.trainings if stored_result(context, one)]
    revisions = ", ".join(sorted({(run.revision or f"version {run.ctsan}")[:12] for run in began}))
    sizes = ", ".join(
        f"{members_text(task, size)} in {TASK_TITLES[task]}"
        for task, size in plan.ensemble_sizes.items()
        if size > 1
        and any(task in ensemble.measured and plan.has(name) for name, ensemble in ENSEMBLES.items())
    )
    budget = f"{training.steps:,} steps" if training.steps else f"{training.epochs:,} epochs"
    return [
        ("corpus", f"{corpus.name}: {len(corpus):,} clips ({splits})"),
        ("sentences", f"{sum(len(clip.captions) for clip in corpus):,}"),
        ("features", context.store.manifest.recipe.backbone),
        ("budget of every run", f"{budget} of {training.batch_size} clips, profile {context.profile}"),
        ("seeds", f"{plan.seeds}"),
        ("members of an ensemble", sizes or "none"),
        ("captions", f"found with a beam of {context.beam}"),
        ("runs", f"{len(done)} of {len(plan.trainings)}, {seconds / 3600:.1f} hours of training"),
        ("start", "models of blank, choice and retrieval start from the system's description model, if any"),
        ("machine", f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"),
        ("revision", revisions or "none"),
        ("command", command),
    ]


def _trainings(context: ExperimentContext, plan: Plan, task: MeasuredTask) -> tuple[str, Mapping[str, Line]]:
    """Return the primary validation metric at each evaluation, averaged over the finished seeds."""
    metric = TASKS[task].primary_metric
    lines = {}
    for name in plan.systems:
        system = SYSTEMS[name]
        runs = [Training(system.training(task), name, seed) for seed in range(plan.seeds)]
        if task not in system.measured or not all(stored_result(context, run) for run in runs):
            continue
        lines[name] = _mean([_curve(run.folder(context.out) / METRICS_FILE, metric) for run in runs])
    return metric, {name: line for name, line in lines.items() if line}


def _curve(file: Path, metric: str) -> dict[int, float]:
    rows = (row for row in read_metrics(file) if (row.get("metrics") or {}).get(metric) is not None)
    return {row["step"]: row["metrics"][metric] for row in rows}


def _mean(curves: Sequence[Mapping[int, float]]) -> list[tuple[float, float]]:
    """Average over seeds, at the steps that all have."""
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    return [(step, sum(curve[step] for curve in curves) / len(curves)) for step in steps]
