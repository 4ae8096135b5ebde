"""`ctsan tables`: reproduce the paper's tables on a corpus, from training to the HTML page."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import PATH
from ctsan.cli.output import print_json, print_line
from ctsan.io.messages import count, inform, warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.experiments.plan import Plan, Training
    from ctsan.experiments.train_system import ExperimentContext
    from ctsan.training.loop import Progress


@click.command("tables")
@click.option(
    "--corpus",
    "corpora",
    type=PATH,
    multiple=True,
    required=True,
    help="Captioned clips with train, val and test splits. May be repeated: several are used as one.",
)
@click.option(
    "--out", type=PATH, default=Path("tables"), show_default=True, help="Folder of runs and tables."
)
@click.option("--profile", default="laptop", show_default=True, help="laptop, or paper for its own sizes.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Table, system or task to do; may be repeated [default: all]. See docs/tables.md for the names.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each system."
)
@click.option(
    "--ensemble-sizes",
    type=click.Choice(["seeds", "paper"]),
    default="seeds",
    show_default=True,
    help="Members of the ensembles of CT-SAN and Base-SAN: as many as seeds, or the paper's 3 (blank), 6 "
    "(choice) and 6 + 1 (retrieval), trained where there are fewer seeds.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Budget of every run [default: the profile's].")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.SETTING=VALUE",
    help="For all systems alike, unless it is what makes a system; may be repeated.",
)
@click.option(
    "--features",
    type=PATH,
    multiple=True,
    help="Folder that 'ctsan features' filled, one a corpus [default: in the cache, made if need be].",
)
@click.option("--done-only", is_flag=True, help="Train nothing: write the tables of runs that are done.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object.")
def command(
    corpora: tuple[Path, ...],
    out: Path,
    profile: str,
    only: tuple[str, ...],
    seeds: int,
    ensemble_sizes: str,
    steps: int | None,
    overrides: tuple[str, ...],
    features: tuple[Path, ...],
    done_only: bool,
    as_json: bool,
) -> None:
    """Train every system of the paper on a corpus, and write its tables and one of reliance on concept words.

    The same command resumes after an interruption, without repeating finished runs. The tables are written as
    Markdown, LaTeX, CSV, JSON and an HTML page, tables.html.

    \b
    Examples:
      ctsan tables --corpus my-clips/
      ctsan tables --corpus my-clips/ --steps 300 --out results/
      ctsan tables --corpus my-clips/ --corpus MSR-VTT/ --out both/
      ctsan tables --corpus my-clips/ --only concept-words --seeds 1
      ctsan tables --corpus my-clips/ --only ct-san --only base-san --only fill
      ctsan tables --corpus LSMDC16/ --profile paper --features features/ --ensemble-sizes paper
    """
    from ctsan.cli.features import check_one_per_corpus
    from ctsan.evaluation.coco_metrics import NO_JAVA
    from ctsan.evaluation.java import find_java
    from ctsan.experiments.formats import as_json as results_json
    from ctsan.experiments.gather_results import results_of
    from ctsan.experiments.paper import ENSEMBLE_SIZES
    from ctsan.experiments.plan import check_overrides, make_plan
    from ctsan.experiments.table_files import facts_of, write_tables

    check_one_per_corpus("--features", features, corpora)
    plan = make_plan(only, seeds=seeds, ensemble_sizes=ENSEMBLE_SIZES if ensemble_sizes == "paper" else None)
    overrides = (*overrides, *(() if steps is None else (f"training.steps={steps}",)))
    check_overrides(plan, profile=profile, overrides=overrides)
    java = find_java()
    if java is None and any(training.task == "describe" for training in plan.trainings):
        warn(NO_JAVA)
    context = _context(corpora, out, profile, overrides, features, plan)
    if not done_only:
        _train_all(context, plan)
    results, answers = results_of(context, plan, java=java)
    command_line = shlex.join(["ctsan", *sys.argv[1:]])
    files = write_tables(context, plan, results, answers, command=command_line)
    if as_json:
        print_json(results_json(results, facts_of(context, plan, command_line)))
        return
    verdicts = [one.verdict for one in results.checked]
    print_line(
        f"Of {count(len(verdicts), 'claim')} of the paper, {verdicts.count('holds')} hold here, "
        f"{verdicts.count('does not hold')} do not, and {verdicts.count('cannot tell')} cannot be decided "
        "with these clips and seeds."
    )
    print_line(f"Open {files[-1]}; the same figures are in {', '.join(file.name for file in files[:-1])}.")


def _context(
    corpora: tuple[Path, ...],
    out: Path,
    profile: str,
    overrides: tuple[str, ...],
    features: tuple[Path, ...],
    plan: Plan,
) -> ExperimentContext:
    """Prepare the features and words that all runs share."""
    from ctsan.data.reading import read_corpora
    from ctsan.errors import UsageError
    from ctsan.experiments.plan import settings_of
    from ctsan.experiments.shared_words import words_for
    from ctsan.experiments.train_system import ExperimentContext
    from ctsan.training.features import make_features, open_features
    from ctsan.training.setup import TrainRequest, check_features, check_splits, warn_unless_mirrored

    settings = [settings_of(one, profile=profile, overrides=overrides) for one in plan.trainings]
    clips = read_corpora(corpora)
    order = TrainRequest(
        task="describe",
        corpora=corpora,
        profile=profile,
        overrides=overrides,
        features=features,
        source=None,
    )
    check_splits(order, clips)
    if not any(clip.captions for clip in clips.split("test")):
        raise UsageError(
            f"{order.place}: no clip of the split 'test' has captions, and figures are taken there. 'ctsan "
            "corpus check' shows the splits; without any, three sources or more are split for you."
        )
    if not features:
        mirrored = settings[0].training.hflip
        make_features(clips, order.stores(settings[0]), order.network, mirrored=mirrored)
    store = open_features(clips, order.stores(settings[0]))
    check_features(order, clips, store, ("train", "val", "test"))
    warn_unless_mirrored(order, settings[0], store)
    return ExperimentContext(
        out=out,
        profile=profile,
        overrides=overrides,
        corpus=clips,
        store=store,
        words=words_for(clips, out, settings[0]),
    )


def _train_all(context: ExperimentContext, plan: Plan) -> None:
    """Train the runs one by one, with a progress bar each and the time left for all."""
    from ctsan.experiments.train_system import run, stored_result

    step_seconds: dict[str, list[float]] = {}  # seconds a step, by task
    missing: list[Training] = []
    for training in plan.trainings:
        if (done := stored_result(context, training)) is None:
            missing.append(training)
        else:
            step_seconds.setdefault(training.task, []).append(done["seconds_per_step"])
    num_done = len(plan.trainings) - len(missing)
    inform(f"{count(len(plan.trainings), 'run')}: {num_done:,} done already, {len(missing):,} to do.")
    for number, training in enumerate(missing, start=1):
        began = time.monotonic()
        with progress_bar(0, what=training.name, unit="step") as bar:

            def show(progress: Progress) -> None:
                if bar.n == 0:
                    bar.initial = bar.n = progress.step
                bar.total = progress.total_steps
                bar.update(progress.step - bar.n)

            result = run(context, training, on_progress=show)
        step_seconds.setdefault(training.task, []).append(result["seconds_per_step"])
        left = _seconds_left(missing[number:], step_seconds, result["steps"])
        inform(
            f"{number} of {len(missing)}: {training.name} in {_format_duration(time.monotonic() - began)}, "
            f"{result['validation']:.3f} on validation. {_format_duration(left)} left for all."
        )


def _seconds_left(missing: Sequence[Training], step_seconds: dict[str, list[float]], steps: int) -> float:
    """Estimate the time left from the seconds per step of finished runs of the same task, else of all."""
    everything = [seconds for task_seconds in step_seconds.values() for seconds in task_seconds]
    return sum(
        steps * sum(task_seconds) / len(task_seconds)
        for training in missing
        for task_seconds in [step_seconds.get(training.task) or everything]
    )


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
