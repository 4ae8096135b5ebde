"""`ctsan.evaluate`: evaluate trained runs on held-out clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ctsan.config import Settings
from ctsan.data.corpus import Corpus, Item, Split
from ctsan.data.items import read_items, task_of
from ctsan.data.reading import read_corpora
from ctsan.data.union import parts_without_items
from ctsan.errors import UsageError
from ctsan.evaluation.bootstrap import Interval
from ctsan.evaluation.clip_statistics import ClipStatistic, mean_of
from ctsan.evaluation.coco_metrics import NO_JAVA, Tokeniser
from ctsan.evaluation.java import find_java
from ctsan.experiments.ensemble_answers import measure_ensemble
from ctsan.io.messages import count, listed, warn
from ctsan.model.clip_encoder import reads_concepts
from ctsan.runs.trained_run import TrainedRun, answering, can_answer, common_task, load_runs
from ctsan.tasks.building import build_task
from ctsan.tasks.concepts import measure_concepts
from ctsan.tasks.registry import TASKS, task_spec
from ctsan.tasks.reliance import Reliance, measure_reliance
from ctsan.tasks.report import report
from ctsan.tasks.roles import roles_of
from ctsan.training.features import features_command, features_of
from ctsan.video.backbones import Backbone, backbone_of, network_key
from ctsan.video.store import FeatureStore
from ctsan.video.store_union import folders_of

AnySplit = Split | Literal["all"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answers of runs, and their metrics.

    Attributes:
        runs: the runs that answered as an ensemble.
        metrics: by name. Those that are sums over clips have 95 % bootstrap intervals over the clips.
        tokeniser, notes: for captions; notes list differences from the official metrics.
        answers: by clip.
    """

    task: str
    split: AnySplit
    runs: tuple[Path, ...]
    metrics: dict[str, float]
    intervals: dict[str, Interval]
    tokeniser: Tokeniser | None
    notes: tuple[str, ...]
    answers: dict[str, object]

    def to_json(self) -> dict[str, Any]:
        captions = {"tokeniser": self.tokeniser, "notes": self.notes} if self.tokeniser else {}
        return {
            "task": self.task,
            "split": self.split,
            "clips": len(self.answers),
            "runs": list(map(str, self.runs)),
            "metrics": self.metrics,
            "intervals": self.intervals,
            **captions,
            "answers": self.answers,
        }


def evaluate(
    runs: Path | str | Sequence[Path | str],
    corpus: Path | str | Sequence[Path | str],
    *,
    task: str | None = None,
    split: AnySplit | None = None,
    items: Path | str | None = None,
    features: Sequence[Path | str] = (),
    weights: Path | str | None = None,
    beam: int | None = None,
) -> Evaluation:
    """Evaluate runs and their concept words; several runs of a task form an ensemble. Changes no run.

    Args:
        runs: run folders, ensembles, packs, or `default`.
        corpus: one corpus, or several to join.
        task: the task to evaluate; by default that of the items, else the one that all runs share.
        split: clips to evaluate on; by default those of the items, else the test split, or all clips of a
            corpus without splits.
        items: a file of test items to use instead of the corpus' own.
        features: folders written by `ctsan features`, one per corpus; by default made in the cache.
        weights: file of the backbone's weights, if they are not installed.
        beam: beam width for captions; by default the run's setting.

    Raises:
        UsageError: an argument names something that does not exist, or arguments contradict each other.
        CorpusError: a corpus has problems.
        RunError: a folder holds no usable run.
    """
    inputs = _open_inputs(runs, corpus, task, split, items, features, weights, needs_concepts=False)
    first = next((run for run in inputs.runs if run.task == inputs.task), inputs.runs[0])
    built = _test_task(first, inputs, beam, task=inputs.task)
    measured = measure_ensemble(built, inputs.runs)
    if not measured.answers:
        raise _no_items_error(inputs)
    training = inputs.corpus.captions("train") if inputs.split != "all" else ()
    full_report = report(
        inputs.task, measured, _concepts(inputs), inputs.clips.clips, java=inputs.java, training=training
    )
    return Evaluation(
        task=inputs.task,
        split=inputs.split,
        runs=tuple(run.folder for run in inputs.runs),
        metrics=full_report.metrics,
        intervals=full_report.intervals,
        tokeniser=full_report.tokeniser,
        notes=full_report.notes,
        answers=measured.answers,
    )


def evaluate_reliance(
    runs: Path | str | Sequence[Path | str],
    corpus: Path | str | Sequence[Path | str],
    *,
    task: str | None = None,
    split: AnySplit | None = None,
    items: Path | str | None = None,
    features: Sequence[Path | str] = (),
    weights: Path | str | None = None,
    beam: int | None = None,
) -> tuple[str, AnySplit, dict[Path, Reliance]]:
    """Measure how much each run of a task relies on its concept words. Arguments are those of `evaluate`.

    Returns:
        The task, the split, and the reliance of each run.
    """
    inputs = _open_inputs(runs, corpus, task, split, items, features, weights, needs_concepts=True)
    measured = {}
    for run in inputs.runs:
        built = _test_task(run, inputs, beam, task=run.task)
        reliance = measure_reliance(run.task, built, java=inputs.java)
        if reliance is not None:
            measured[run.folder] = reliance
    if not measured:
        raise _no_items_error(inputs)
    return inputs.task, inputs.split, measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Inputs:
    """The runs, clips and features of one evaluation."""

    task: str
    split: AnySplit
    runs: list[TrainedRun]  # that answer
    corpora: tuple[Path, ...]
    corpus: Corpus
    clips: Corpus  # that are measured on, as a test split
    store: FeatureStore
    java: Path | None


def _open_inputs(
    runs: Path | str | Sequence[Path | str],
    corpus: Path | str | Sequence[Path | str],
    task: str | None,
    split: AnySplit | None,
    items: Path | str | None,
    features: Sequence[Path | str],
    weights: Path | str | None,
    *,
    needs_concepts: bool,
) -> _Inputs:
    if task is not None:
        task_spec(task)  # fail early on an unknown task
    folders, corpora = _paths(runs), _paths(corpus)
    item_file = None if items is None else Path(items)
    opened = load_runs(folders)
    corpus_union = read_corpora(corpora)
    questions = read_items(item_file, corpus=corpus_union) if item_file is not None else ()
    of_items = task_of(questions[0]) if questions else None
    name = task or (of_items if of_items and can_answer(opened, of_items) else common_task(opened))
    deciding = _reading_concepts(opened, name) if needs_concepts else answering(opened, name)
    for run in opened:
        if run.folder in folders and run not in deciding and not (needs_concepts and run.task == name):
            why = f"it is a run of {run.task!r}"
            if {name, run.task} <= set(roles_of(deciding[0].task).decides):
                why = f"the runs of {deciding[0].task!r} decide alone"
            warn(f"{run.folder}: not asked, for {why}.")
    backbone = None
    if not features:
        backbone = _backbone_of(deciding, corpora, None if weights is None else Path(weights))
    java = find_java() if TASKS[name].needs_java else None
    if TASKS[name].needs_java and java is None:
        warn(NO_JAVA)
    split = split or ("all" if item_file is not None or not corpus_union.has_own_splits else "test")
    clips = _measured_clips(corpus_union, name, split, item_file, questions)
    if item_file is None:
        own_items = [item for part_items in clips.items.values() for item in part_items]
        for part in parts_without_items(corpus_union, clips, own_items):
            warn(f"{part.root}: it has no items of {name!r} and another corpus does: left out.")
    store = features_of(corpora, corpus_union, _paths(features), backbone)
    _check_features(deciding, store, clips, corpora)
    return _Inputs(
        task=name,
        split=split,
        runs=deciding,
        corpora=corpora,
        corpus=corpus_union,
        clips=clips,
        store=store,
        java=java,
    )


def _paths(paths: Path | str | Sequence[Path | str]) -> tuple[Path, ...]:
    return (Path(paths),) if isinstance(paths, Path | str) else tuple(map(Path, paths))


def _no_items_error(inputs: _Inputs) -> UsageError:
    return UsageError(
        f"{listed(inputs.corpora)}: there is nothing to ask of the split '{inputs.split}', because its "
        "captions give no items. Choose another split, or write a file of them: --items FILE"
    )


def _test_task(run: TrainedRun, inputs: _Inputs, beam: int | None, *, task: str) -> Any:
    settings = _with_beam(run.settings, beam)
    return build_task(task, settings, run.words, inputs.store, inputs.clips, model=run.model, split="test")


def _concepts(inputs: _Inputs) -> dict[str, ClipStatistic]:
    """Metrics of the concept words, averaged over the runs with a detector."""
    by_run = [
        measured
        for run in inputs.runs
        if (
            measured := measure_concepts(
                run.model.clip_encoder,
                run.words.concepts,
                inputs.clips.clips,
                inputs.store,
                max_frames=run.settings.model.max_frames,
            )
        )
    ]
    return {
        name: mean_of([statistics[name] for statistics in by_run]) for name in (by_run[0] if by_run else ())
    }


def _with_beam(settings: Settings, beam: int | None) -> Settings:
    decoding = settings.decoding
    return replace(settings, decoding=replace(decoding, beam=beam or decoding.beam))


def _reading_concepts(runs: Sequence[TrainedRun], task: str) -> list[TrainedRun]:
    """Select the runs of a task that read concept words, and warn about the others.

    Raises:
        UsageError: no run of the task reads concept words.
    """
    of_task = [run for run in runs if run.task == task]
    if not of_task:
        tasks = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
        raise UsageError(f"--reliance needs a run of {task!r}, and {tasks}. Name one.")
    reading = [run for run in of_task if reads_concepts(run.model)]
    silent = [f"{run.folder}: it reads no concept words" for run in of_task if run not in reading]
    if not reading:
        raise UsageError(f"{', '.join(silent)}: --reliance has nothing to measure. Name a run that does.")
    for message in silent:
        warn(f"{message}: left out.")
    return reading


def _measured_clips(
    corpus: Corpus,
    task: str,
    split: Split | Literal["all"],
    file: Path | None,
    questions: Sequence[Item],
) -> Corpus:
    """Select the clips to evaluate on, as a test split, with their own items or those of a file.

    Raises:
        UsageError: the items are of another task or about clips of another split, or no clip has captions.
    """
    selected = [clip for clip in corpus if split in ("all", clip.split)]
    items = [
        item
        for (item_task, side), part in corpus.items.items()
        if item_task == task and split in ("all", side)
        for item in part
    ]
    if file is not None:
        items = list(questions)
        item_task = task_of(items[0])
        if item_task != task:
            raise UsageError(
                f"{file}: items of {item_task!r}, and the runs are of {task!r}. Name runs of {item_task!r}, "
                "or other items."
            )
        item_clip_ids, split_clip_ids = {item.clip for item in items}, {clip.id for clip in selected}
        if outside := [item.clip for item in items if item.clip not in split_clip_ids]:
            raise UsageError(
                f"{file}: {count(len(outside), 'item')} about clips that are not of the split '{split}', "
                f"such as {outside[0]!r}. Name their split, or none."
            )
        selected = [clip for clip in selected if clip.id in item_clip_ids]
    elif not any(clip.captions for clip in selected):
        of = "" if split == "all" else f" of the split '{split}'"
        raise UsageError(
            f"{corpus.place}: no clip{of} has captions. Choose another split, or name a file of items: "
            "--items FILE"
        )
    clips = tuple(replace(clip, split="test") for clip in selected)
    return replace(corpus, clips=clips, items={(task_of(items[0]), "test"): tuple(items)} if items else {})


def _backbone_of(runs: Sequence[TrainedRun], corpora: Sequence[Path], weights: Path | None) -> Backbone:
    """Find the backbone that computes the features of all runs.

    Raises:
        UsageError: a run was trained on imported features, or the runs need different backbones.
    """
    for run in runs:
        if run.recipe.details.get("imported"):
            raise UsageError(
                f"{run.folder}: it was trained on imported features of {run.recipe.backbone}. Give such "
                f"features of {listed(corpora)} with --features FOLDER, or make them: "
                f"{features_command(corpora, run.recipe)}"
            )
        if network_key(run.recipe) != network_key(runs[0].recipe):
            raise UsageError(
                f"{run.folder}: it was trained on features of {run.recipe.backbone}, and {runs[0].folder} on "
                f"others, of {runs[0].recipe.backbone}. Evaluate runs of one network."
            )
    return backbone_of(runs[0].recipe, weights)


def _check_features(
    runs: Sequence[TrainedRun], store: FeatureStore, clips: Corpus, corpora: Sequence[Path]
) -> None:
    """Check that the features fit the runs and cover some of the clips.

    Raises:
        UsageError: the features' recipe differs from the runs', or no clip has features.
    """
    backbone = store.manifest.recipe.backbone
    wrong = [
        f"{folders_of(store)}: features of {backbone}, and {run.folder} was trained on those of "
        f"{run.recipe.backbone}. Make them: {features_command(corpora, run.recipe)}"
        for run in runs
        if run.recipe.backbone != backbone
    ]
    recipe = store.manifest.recipe
    wrong = wrong or [
        f"{folders_of(store)}: these features of {backbone} were made otherwise than those that {run.folder} "
        "was trained on. Make them as 'features.json' of that run describes."
        for run in runs
        if replace(recipe, mirrored=run.recipe.mirrored) != run.recipe
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    item_clips = {item.clip for items in clips.items.values() for item in items}
    needed = [clip.id for clip in clips if clip.id in item_clips or not item_clips]
    missing = sum(clip not in store for clip in needed)
    if missing == len(needed):
        raise UsageError(
            f"{folders_of(store)}: no features of any clip that is asked about. Make them: "
            f"{features_command(corpora)}"
        )
    if missing:
        warn(f"{count(missing, 'clip')} of {len(needed):,} without features: left out.")
