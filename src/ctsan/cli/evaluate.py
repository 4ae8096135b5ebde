"""`ctsan evaluate`: evaluate trained models on held-out clips."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ctsan.cli.common import PATH
from ctsan.cli.features import WEIGHTS, check_one_per_corpus
from ctsan.cli.output import print_json, print_line, print_metrics, print_table
from ctsan.io.messages import count, warn

if TYPE_CHECKING:
    from ctsan.data.corpus import Split
    from ctsan.tasks.reliance import Reliance


@click.command("evaluate")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option(
    "--corpus",
    "corpora",
    type=PATH,
    multiple=True,
    required=True,
    help="Clips, captioned or with --items. May be repeated: several are used as one.",
)
@click.option(
    "--task",
    "task_name",
    metavar="TASK",
    help="What to ask the runs, such as describe [default: as --items say; else what all runs do].",
)
@click.option(
    "--split",
    type=click.Choice(["train", "val", "test", "all"]),
    help="Clips to measure on [default: those of --items; test; all of a corpus that gives no splits].",
)
@click.option("--items", type=PATH, help="File of test items to answer instead of the corpus' own.")
@click.option(
    "--features",
    type=PATH,
    multiple=True,
    help="Folder that 'ctsan features' filled, one a corpus [default: in the cache, made with the runs' "
    "backbone if need be].",
)
@WEIGHTS
@click.option("--beam", type=click.IntRange(1, 1_000), help="1 is greedy [default: as the run was set].")
@click.option(
    "--reliance",
    is_flag=True,
    help="Measure how much each run relies on its concept words: its answers with others in their place.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the answers.")
def command(
    runs: tuple[Path, ...],
    corpora: tuple[Path, ...],
    task_name: str | None,
    split: Split | Literal["all"] | None,
    items: Path | None,
    features: tuple[Path, ...],
    weights: Path | None,
    beam: int | None,
    reliance: bool,
    as_json: bool,
) -> None:
    """Measure the answers of RUNS and their concept words. Several runs of a task form an ensemble.

    Blanks, choices and queries come from --items or the corpus, or are built from its captions, the same for
    every run. Runs of 'embed' answer choices and queries, and rerank the captions of runs of 'describe'.
    Beside runs of 'choose' or 'rank' they decide alone.
    Captions are scored as in publications, which needs Java. Intervals are 95 % bootstrap intervals over
    clips.

    --reliance measures each run of the task by itself, by the task's primary metric: with each clip's own
    concept words, with another clip's, with random ones, with none, and with the words of its captions (the
    oracle, an upper bound).

    \b
    Examples:
      ctsan evaluate runs/mine --corpus my-clips/ --split test
      ctsan evaluate runs/fill1 runs/fill2 runs/fill3 --corpus my-clips/ --json
      ctsan evaluate runs/rank runs/choose --corpus my-clips/ --items queries.jsonl
      ctsan evaluate runs/embed --corpus my-clips/ --task choose
      ctsan evaluate default --task describe --corpus my-clips/
      ctsan evaluate runs/mine --corpus my-clips/ --split test --reliance
      ctsan evaluate runs/mine --corpus my-clips/ --corpus MSR-VTT/ --split test
    """
    from ctsan.evaluation.coco_metrics import NO_JAVA
    from ctsan.experiments.evaluate import evaluate, evaluate_reliance

    check_one_per_corpus("--features", features, corpora)
    if reliance:
        task, split, measured = evaluate_reliance(
            runs,
            corpora,
            task=task_name,
            split=split,
            items=items,
            features=features,
            weights=weights,
            beam=beam,
        )
        _print_reliance(measured, task, split, as_json=as_json)
        return
    evaluation = evaluate(
        runs, corpora, task=task_name, split=split, items=items, features=features, weights=weights, beam=beam
    )
    if as_json:
        print_json(evaluation.to_json())
        return
    print_metrics(evaluation.metrics, evaluation.intervals)
    of = "" if evaluation.split == "all" else f" of the split '{evaluation.split}'"
    print_line(f"\nMeasured on {count(len(evaluation.answers), 'clip')}{of}.")
    for note in evaluation.notes:
        if note != NO_JAVA:  # printed at the start
            warn(note)


def _print_reliance(measured: Mapping[Path, Reliance], task: str, split: str, *, as_json: bool) -> None:
    from ctsan.tasks.registry import TASKS
    from ctsan.tasks.reliance import SOURCE_LABELS

    if as_json:
        runs = {str(folder): reliance.to_json() for folder, reliance in measured.items()}
        print_json({"task": task, "split": split, "reliance": runs})
        return
    of = "" if split == "all" else f" of the split '{split}'"
    for folder, reliance in measured.items():
        rows = []
        for source, score in reliance.sources.items():
            row = [SOURCE_LABELS[source], f"{score.value:.3f}", "{:.3f} to {:.3f}".format(*score.interval)]
            if score.difference is not None:
                low, high = score.difference.interval
                row += [f"{score.difference.difference:+.3f}", f"{low:+.3f} to {high:+.3f}"]
                row.append(f"{score.changed:.1%}")
            rows.append(row + [""] * (6 - len(row)))
        print_line(f"{folder} ({task}), measured alone: no other run votes or reranks.\n")
        headers = (
            "concept words",
            reliance.metric,
            "95 % interval",
            "difference",
            "95 % interval",
            "changed",
        )
        print_table(rows, headers)
        print_line(
            f"\nMeasured on {count(reliance.clips, 'clip')}{of}; 'changed' is the share of "
            f"{reliance.answers:,} {TASKS[task].answer_noun} that differ from those with the clip's "
            "own words.\n"
        )
