"""`ctsan.train`: train a run on corpora, as `ctsan train` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctsan.config import Settings
from ctsan.data.reading import read_corpora
from ctsan.errors import RunError, UsageError
from ctsan.io.atomic import write_json
from ctsan.io.messages import inform, warn
from ctsan.io.progress import progress_bar
from ctsan.model.clip_encoder import reads_concepts
from ctsan.runs.checkpoint import load_weights
from ctsan.runs.run_folder import (
    CHECKPOINT_FILE,
    check_ensemble_folder,
    check_folder,
    has_begun,
    training_alone,
)
from ctsan.runs.trained_run import FEATURES_FILE, read_recipe, run_to_start_from
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.registry import task_spec
from ctsan.tasks.reliance import QUICK_SOURCES, RELIANCE_FILE, Reliance, measure_reliance
from ctsan.tasks.task import Task
from ctsan.training.curves import draw_curves
from ctsan.training.examples_page import write_examples_page
from ctsan.training.features import named_backbone
from ctsan.training.loop import Progress, Result, train_loop
from ctsan.training.metrics import METRICS_FILE, read_metrics
from ctsan.training.processes import Processes, joined_processes
from ctsan.training.setup import TrainRequest, check_splits, load_task, prepare, settings_for
from ctsan.video.backbones import DEFAULT_BACKBONE, Backbone, backbone_of

_OVERFIT = 0.15  # gap between training and validation precision at which we warn of overfitting


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a training run.

    Attributes:
        run: the run folder.
        best_step: the step whose weights are kept.
        metrics: validation metrics of these weights.
        reliance: reliance on concept words, on validation clips; None for a model without any.
    """

    run: Path
    task: str
    steps: int
    best_step: int
    primary_metric: str
    stopped_early: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    reliance: Reliance | None = None

    def to_json(self) -> dict[str, object]:
        metrics = {name: None if value is None else round(value, 4) for name, value in self.metrics.items()}
        reliance = {} if self.reliance is None else {"reliance": self.reliance.to_json()}
        return {"run": str(self.run), "steps": self.steps, "best_step": self.best_step} | metrics | reliance


def train(
    task: str,
    corpus: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    profile: str = "laptop",
    overrides: Sequence[str] = (),
    external: Sequence[Path | str] = (),
    features: Sequence[Path | str] = (),
    backbone: str | None = None,
    weights: Path | str | None = None,
    init_from: Path | str | None = None,
    vectors: Path | str | None = None,
    ensemble: int | None = None,
) -> list[TrainResult]:
    """Train a task on corpora in a run folder. After an interruption, the same call resumes.

    Args:
        task: a name in `ctsan.tasks.registry.TASKS`, such as `describe`.
        corpus: one corpus, or several to join.
        overrides: settings, such as `detector.num_concepts=20`.
        external: corpora captioned by others, for training only.
        features: folders written by `ctsan features`, one per corpus, then one per external corpus; by
            default made in the cache.
        backbone: the network that computes features; by default the one that ships with ctsan.
        weights: file of the backbone's weights, if they are not installed.
        init_from: a run, a pack, or `default`, to initialise from.
        vectors: a file of pretrained word vectors.
        ensemble: number of models to train, in folders 1, 2, … of `out`.

    Returns:
        One result per run; under `torchrun`, an empty list in every process but the first.

    Raises:
        UsageError: an argument names something that does not exist, or arguments contradict each other.
        CorpusError: a corpus has problems.
        RunError: the run in the folder cannot be resumed.
    """
    task_spec(task)  # fail early on an unknown task
    corpora = (corpus,) if isinstance(corpus, Path | str) else tuple(corpus)
    source = None if init_from is None else run_to_start_from(Path(init_from), task)
    first_run = Path(out) / "1" if ensemble else Path(out)
    network = (
        None
        if features
        else _backbone(backbone, None if weights is None else Path(weights), first_run, source)
    )
    request = TrainRequest(
        task=task,
        corpora=tuple(map(Path, corpora)),
        external=tuple(map(Path, external)),
        profile=profile,
        overrides=tuple(overrides),
        features=tuple(map(Path, features)),
        source=source,
        vectors=None if vectors is None else Path(vectors),
        backbone=network,
    )
    return _train(request, Path(out), ensemble)


def _backbone(name: str | None, weights: Path | None, run: Path, source: Path | None) -> Backbone:
    """Choose the backbone: as named, else of the run to resume or initialise from, else the default.

    Raises:
        UsageError: the backbone is not found, or that run was trained on imported features.
    """
    earlier = run if has_begun(run) else source
    if name or earlier is None or not (earlier / FEATURES_FILE).is_file():
        return named_backbone(name or DEFAULT_BACKBONE, weights)
    recipe = read_recipe(earlier)
    if recipe.details.get("imported"):
        raise UsageError(
            f"{earlier}: it was trained on imported features of {recipe.backbone}, which ctsan cannot "
            "compute. Give a folder of such: --features FOLDER"
        )
    return backbone_of(recipe, weights)


def _train(request: TrainRequest, out: Path, ensemble: int | None) -> list[TrainResult]:
    runs = [out / str(number + 1) for number in range(ensemble)] if ensemble else [out]
    results = []
    with joined_processes() as processes, ExitStack() as stack:
        with processes.together():
            clips = read_corpora(request.corpora, external=request.external)
            settings = settings_for(request, runs)
            if processes.is_first:  # the others wait
                check_splits(request, clips)
                if ensemble:
                    check_ensemble_folder(out)
                for run in runs:
                    check_folder(run)
                    stack.enter_context(training_alone(run))
                prepare(request, clips, runs, settings)
        for number, (run, run_settings) in enumerate(zip(runs, settings, strict=True), start=1):
            if processes.is_first and ensemble:
                inform(f"Member {number} of {ensemble}, in {run}:")
            if processes.is_first and not (run / CHECKPOINT_FILE).exists():
                inform("Initialising the model from the training clips.")
            with processes.together():
                task = load_task(request, clips, run, run_settings)
            result = _train_with_progress(task, run, run_settings, processes)
            with processes.together():
                if processes.is_first:
                    results.append(_finish(request.task, task, result, run, run_settings))
    return results


def _train_with_progress(task: Task[Any], out: Path, settings: Settings, processes: Processes) -> Result:
    """Train with a progress bar, one line per evaluation, and one warning if the detector overfits."""
    if not processes.is_first:
        return train_loop(task, out, optimiser=settings.optimiser, training=settings.training)
    with progress_bar(0, what="training", unit="step") as bar:
        warned = False

        def show(progress: Progress) -> None:
            if bar.n == 0:  # exclude the steps before resuming from the speed
                bar.initial = bar.n = progress.step
            bar.total = progress.total_steps
            losses = ", ".join(f"{name} {value:.2f}" for name, value in progress.losses.items())
            bar.set_postfix_str(f"{losses}, {progress.words_per_second:,.0f} words/s", refresh=False)
            bar.update(progress.step - bar.n)

        def tell(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal warned
            values = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
            bar.write(f"step {step:,}: {values}", file=sys.stderr)
            if not warned and (warning := _overfitting(metrics, settings)):
                bar.write(warning, file=sys.stderr)
                warned = True

        return train_loop(
            task,
            out,
            optimiser=settings.optimiser,
            training=settings.training,
            on_progress=show,
            on_evaluation=tell,
        )


def _finish(name: str, task: Task[Any], result: Result, out: Path, settings: Settings) -> TrainResult:
    """Draw the curves, write examples for the best weights, and measure reliance on concept words."""
    draw_curves(out / METRICS_FILE, out / "curves.svg")
    load_weights(out / WEIGHTS_FILE, task.model)
    title = f"Examples of {out.name}"
    write_examples_page(out / "examples.html", task.examples(), title=title, metric=task.primary_metric)
    reliance = _measure_reliance(name, task, result, out)
    best = _metrics_of(out / METRICS_FILE, result.best_step)
    if task.primary_metric not in best:
        warn(
            "The validation clips' captions give no questions, so the last weights are kept, good or bad. "
            "Caption more clips of other sources, or give the split 'val' items of your own."
        )
    if warning := _overfitting(best, settings):
        warn(warning)
    return TrainResult(
        run=out,
        task=name,
        steps=result.steps,
        best_step=result.best_step,
        primary_metric=task.primary_metric,
        stopped_early=result.stopped_early,
        metrics=best,
        reliance=reliance,
    )


def _metrics_of(file: Path, step: int) -> dict[str, float]:
    """Read the metrics of the evaluation after a step.

    Raises:
        RunError: the metrics file lacks it.
    """
    for row in read_metrics(file):
        if row["step"] == step and "metrics" in row:
            metrics: dict[str, float] = row["metrics"]
            return metrics
    raise RunError(
        f"{file}: it lacks the evaluation of step {step:,}. Put it back from a copy, or train again in "
        "another folder."
    )


def _measure_reliance(name: str, task: Task[Any], result: Result, out: Path) -> Reliance | None:
    """Measure how much the best weights rely on concept words, and write it into the run folder.

    None for a model without concept words, or if there are no validation items.
    """
    if not reads_concepts(task.model):
        return None
    reliance = measure_reliance(name, task, sources=QUICK_SOURCES)
    if reliance is not None:
        measured = {"task": name, "split": "val", "step": result.best_step, **reliance.to_json()}
        write_json(out / RELIANCE_FILE, measured)
    return reliance


def _overfitting(metrics: Mapping[str, float], settings: Settings) -> str | None:
    """Return a warning if concept words are much more precise on training clips than on validation clips."""
    on_train, on_validation = metrics.get("precision on train"), metrics.get("precision")
    if on_train is None or on_validation is None or on_train - on_validation <= _OVERFIT:
        return None
    if settings.training.out_of_fold:
        done = "So that captions do not trust its words too much, they learn with words chosen out of fold"
    else:
        done = (
            "Captions learn to trust its words too much; --set training.out_of_fold=true gives them words "
            "that were chosen without the clip's captions"
        )
    return (
        f"The detector knows its training clips by heart: {on_train:.0%} of its words are right there, and "
        f"{on_validation:.0%} on validation clips. {done} ('Words that deserve trust' in "
        "docs/training.md). More captioned clips help."
    )
