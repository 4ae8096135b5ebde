"""Compute every cell of the tables from finished runs, and test whether the paper's claims hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ctsan.data.corpus import Corpus
from ctsan.evaluation.bootstrap import Interval, compare_over_seeds, interval, over_seeds
from ctsan.evaluation.clip_statistics import ClipStatistic, mean_of, ratio
from ctsan.evaluation.coco_metrics import score_systems
from ctsan.evaluation.diversity import diversity
from ctsan.evaluation.items import item_statistics
from ctsan.experiments.layout import TASK_TITLES, Column, Table, changed_metric, reliance_metric
from ctsan.experiments.paper import CLAIMS, COMPARED_BY, Claim, figure
from ctsan.experiments.systems import ENSEMBLES, MeasuredTask, label_of
from ctsan.tasks.registry import TASKS
from ctsan.tasks.reliance import WordSource, changed_share

Verdict = Literal["holds", "does not hold", "cannot tell"]
_VERDICTS: Mapping[str, Verdict] = {
    "larger": "holds",
    "smaller": "does not hold",
    "within noise": "cannot tell",
}
FEWEST_SEEDS = 3  # with fewer there is no verdict: the variance between seeds is unknown
_ALIKE = 0.1  # relative difference below which two figures count as equal
Answers = Mapping[tuple[str, MeasuredTask], Sequence[Mapping[str, Any]]]  # one per seed
AnswersBySource = Mapping[tuple[str, MeasuredTask], Sequence[Mapping[WordSource, Mapping[str, Any]]]]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The metrics of one row in one task, by seed."""

    seeds: tuple[dict[str, ClipStatistic], ...]  # by metric
    plain: tuple[dict[str, float], ...]  # metrics that are not sums over clips
    clips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    values: tuple[float, ...]  # one per seed
    mean: float
    half_width: float | None  # of the 95 % interval of the mean: over seeds, or over clips with one seed
    interval: Interval | None  # over clips
    is_best: bool
    paper: float | None  # on LSMDC


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    label: str  # for an ensemble, includes the number of members
    cells: tuple[Cell | None, ...]  # one per column; None if not applicable or not done yet


@dataclass(frozen=True, slots=True)
class FilledTable:
    table: Table
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on a claim in one task."""

    claim: Claim
    task: MeasuredTask
    metric: str
    difference: float
    interval: Interval
    verdict: Verdict
    in_paper: float | None  # the same difference on LSMDC


@dataclass(frozen=True, slots=True)
class Results:
    tables: tuple[FilledTable, ...]
    checked: tuple[Checked, ...]
    notes: tuple[str, ...]


def measure_all(
    answers: Answers,
    concepts: Mapping[str, Sequence[Mapping[str, Any]]],
    corpus: Corpus,
    *,
    java: Path | None,
    reliance: AnswersBySource | None = None,
) -> tuple[dict[tuple[str, MeasuredTask], Measured], tuple[str, ...]]:
    """Compute the metrics of all answers, and notes on differences from the official metrics.

    Args:
        concepts: by table row, statistics of the description runs' concept words, one per seed.
        java: from `find_java`.
        reliance: answers with concept words from other sources than the clip itself.
    """
    captions = {clip.id: clip.captions for clip in corpus.split("test") if clip.captions}
    training = [caption for clip in corpus.split("train") for caption in clip.captions]
    predictions = {
        f"{row}/{seed}": {clip: str(caption) for clip, caption in seed_answers.items()}
        for (row, task), seeds in answers.items()
        if task == "describe"
        for seed, seed_answers in enumerate(seeds)
    }
    judged = score_systems(captions, predictions, java=java) if predictions else {}
    notes = tuple(dict.fromkeys(note for one in judged.values() for note in one.notes))
    with_others = reliance or {}
    predictions_with_others = {
        f"{row}/{seed}/{source}": {clip: str(caption) for clip, caption in source_answers.items()}
        for (row, task), seeds in with_others.items()
        if task == "describe"
        for seed, sources in enumerate(seeds)
        for source, source_answers in sources.items()
    }
    if predictions_with_others:
        judged |= score_systems(captions, predictions_with_others, java=java, meteor=False)
    measured = {}
    for (row, task), seeds in answers.items():
        statistics: list[dict[str, ClipStatistic]] = []
        plain: list[dict[str, float]] = []
        for seed, seed_answers in enumerate(seeds):
            if task == "describe":
                statistics.append(dict(judged[f"{row}/{seed}"].statistics))
                references = {clip: captions[clip] for clip in seed_answers}
                plain.append(diversity(references, predictions[f"{row}/{seed}"], training))
                statistics[-1] |= {
                    name: _shares(rows) for name, rows in concepts.get(row, [{}] * len(seeds))[seed].items()
                }
            else:
                statistics.append(item_statistics(task, seed_answers))
        for seed, sources in enumerate(with_others.get((row, task), ())):
            metric, by_metric = TASKS[task].primary_metric, statistics[seed]
            by_metric[reliance_metric(metric, "own")] = by_metric[metric]
            for source, source_answers in sources.items():
                source_statistics = (
                    judged[f"{row}/{seed}/{source}"].statistics
                    if task == "describe"
                    else item_statistics(task, source_answers)
                )
                by_metric[reliance_metric(metric, source)] = source_statistics[metric]
                by_metric[changed_metric(source)] = changed_share(task, seeds[seed], source_answers)
        measured[row, task] = Measured(tuple(statistics), tuple(plain), tuple(seeds[0]) if seeds else ())
    return measured, notes


def make_results(
    measured: Mapping[tuple[str, MeasuredTask], Measured],
    tables: Sequence[Table],
    notes: tuple[str, ...],
    *,
    ensemble_sizes: Mapping[MeasuredTask, int],
) -> Results:
    return Results(
        tables=tuple(_filled(table, measured, ensemble_sizes) for table in tables),
        checked=tuple(check_claims(measured)),
        notes=notes,
    )


def check_claims(measured: Mapping[tuple[str, MeasuredTask], Measured]) -> list[Checked]:
    """Test every claim whose two sides are measured, by paired bootstrap over clips and seeds.

    With fewer than three seeds on a side the verdict is "cannot tell". An ensemble counts as one seed.
    """
    checked = []
    for claim in CLAIMS:
        for task in claim.tasks:
            ours, theirs = measured.get((claim.better, task)), measured.get((claim.worse, task))
            if ours is None or theirs is None or ours.clips != theirs.clips:
                continue
            metric = COMPARED_BY[task]
            verdict: Verdict
            mine, other = (
                [seed_statistics[metric] for seed_statistics in row.seeds] for row in (ours, theirs)
            )
            comparison = compare_over_seeds(mine, other)
            if min(len(mine), len(other)) < FEWEST_SEEDS:
                verdict = "cannot tell"
            elif claim.kind == "alike":
                verdict = _alike(comparison.interval, margin=_ALIKE * mean_of(other).value)
            else:
                verdict = _VERDICTS[comparison.verdict]
            before = figure(claim.worse, task, metric)
            after = figure(claim.better_in_paper or claim.better, task, metric)
            in_paper = None if before is None or after is None else after - before
            checked.append(
                Checked(claim, task, metric, comparison.difference, comparison.interval, verdict, in_paper)
            )
    return checked


def _alike(difference: Interval, *, margin: float) -> Verdict:
    """Test for equivalence within a margin. Too few clips or seeds do not count as evidence of it."""
    if -margin <= difference.low and difference.high <= margin:
        return "holds"
    return "cannot tell" if difference.low <= 0 <= difference.high else "does not hold"


def members_text(task: MeasuredTask, size: int) -> str:
    """Format an ensemble's size: `6`, or `6 + 1` if a multiple-choice model joins the retrieval models."""
    return f"{size} + 1" if task == "rank" else f"{size}"


def _row_label(name: str, tasks: Sequence[MeasuredTask], ensemble_sizes: Mapping[MeasuredTask, int]) -> str:
    if name not in ENSEMBLES:
        return label_of(name)
    sizes = (f"{members_text(task, ensemble_sizes[task])} in {TASK_TITLES[task]}" for task in tasks)
    return f"{label_of(name)}, {', '.join(sizes)}"


def _filled(
    table: Table,
    measured: Mapping[tuple[str, MeasuredTask], Measured],
    ensemble_sizes: Mapping[MeasuredTask, int],
) -> FilledTable:
    columns = [
        {
            row: _cell(measured[row, column.task], row, column)
            for row in table.rows
            if (row, column.task) in measured
        }
        for column in table.columns
    ]
    rows = []
    for name in table.rows:
        cells = []
        for column, cells_by_row in zip(table.columns, columns, strict=True):
            cell = cells_by_row.get(name)
            means = [row_cell.mean for row_cell in cells_by_row.values() if row_cell is not None]
            best = (min if column.is_lower_better else max)(means, default=None)
            differ = len(set(map(_rounded, means))) > 1
            is_best = cell is not None and differ and _rounded(cell.mean) == _rounded(best)
            cells.append(None if cell is None else replace(cell, is_best=is_best))
        if any(cell is not None for cell in cells):
            filled = zip(table.columns, cells, strict=True)
            tasks = list(dict.fromkeys(column.task for column, cell in filled if cell is not None))
            rows.append(Row(name, _row_label(name, tasks, ensemble_sizes), tuple(cells)))
    return FilledTable(table, tuple(rows))


def _cell(measured: Measured, row: str, column: Column) -> Cell | None:
    metric = column.metric
    within = None
    if all(metric in by_metric for by_metric in measured.seeds):
        statistics = [by_metric[metric] for by_metric in measured.seeds]
        values = [statistic.value for statistic in statistics]
        within = interval(mean_of(statistics))
    elif measured.plain and all(metric in by_metric for by_metric in measured.plain):
        values = [by_metric[metric] for by_metric in measured.plain]
    else:
        return None
    mean, half_width = over_seeds(values)
    if half_width is None and within is not None:
        half_width = (within.high - within.low) / 2
    return Cell(tuple(values), mean, half_width, within, False, figure(row, column.task, metric))


def _rounded(value: float | None) -> float | None:
    """Round as printed, so that equal figures count as equally good."""
    return None if value is None else round(value, 3)


def _shares(rows: Sequence[Sequence[float]]) -> ClipStatistic:
    parts, wholes = np.asarray(rows, dtype=np.float64).reshape(-1, 2).T
    return ratio(parts, wholes)
