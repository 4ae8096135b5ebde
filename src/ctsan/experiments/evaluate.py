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
from ctsan.evaluation.coco_metrics import NO_JAVA, Tokeniser
from ctsan.evaluation.java import find_java
from ctsan.io.messages import count, listed, warn
from ctsan.runs.trained_run import TrainedRun, answering, can_answer, common_task, load_runs
from ctsan.tasks.building import build_task
from ctsan.tasks.loaded_model import reads_concepts
from ctsan.tasks.registry import TASKS, task_spec
from ctsan.tasks.reliance import Reliance, measure_reliance
from ctsan.tasks.report import report
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
    asked = _ask(runs, corpus, task, split, items, features, weights, needs_concepts=False)
    first = next((run for run in asked.runs if run.task == asked.task), asked.runs[0])
    built = _test_task(first, asked, beam, task=asked.task)
    loaded = [run.loaded for run in asked.runs]
    measured = built.measure(loaded)
    if not measured.answers:
        raise _nothing_to_ask(asked)
    training = asked.whole.captions("train") if asked.split != "all" else ()
    found = report(
        asked.task, measured, loaded, asked.clips.clips, asked.store, java=asked.java, training=training
    )
    return Evaluation(
        task=asked.task,
        split=asked.split,
        runs=tuple(run.folder for run in asked.runs),
        metrics=found.metrics,
        intervals=found.intervals,
        tokeniser=found.tokeniser,
        notes=found.notes,
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
    asked = _ask(runs, corpus, task, split, items, features, weights, needs_concepts=True)
    measured = {}
    for run in asked.runs:
        built = _test_task(run, asked, beam, task=run.task)
        reliance = measure_reliance(run.task, built, run.loaded, java=asked.java)
        if reliance is not None:
            measured[run.folder] = reliance
    if not measured:
        raise _nothing_to_ask(asked)
    return asked.task, asked.split, measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """The runs, clips and features of one evaluation."""

    task: str
    split: AnySplit
    runs: list[TrainedRun]  # that answer
    corpora: tuple[Path, ...]
    whole: Corpus
    clips: Corpus  # that are measured on, as a test split
    store: FeatureStore
    java: Path | None


def _ask(
    runs: Path | str | Sequence[Path | str],
    corpus: Path | str | Sequence[Path | str],
    task: str | None,
    split: AnySplit | None,
    items: Path | str | None,
    features: Sequence[Path | str],
    weights: Path | str | None,
    *,
    needs_concepts: bool,
) -> _Asked:
    if task is not None:
        task_spec(task)  # fail early on an unknown task
    folders, corpora = _paths(runs), _paths(corpus)
    item_file = None if items is None else Path(items)
    opened = load_runs(folders)
    whole = read_corpora(corpora)
    questions = read_items(item_file, corpus=whole) if item_file is not None else ()
    of_items = task_of(questions[0]) if questions else None
    name = task or (of_items if of_items and can_answer(opened, of_items) else common_task(opened))
    deciding = _reading_concepts(opened, name) if needs_concepts else answering(opened, name)
    for run in opened:
        if run.folder in folders and run not in deciding and not (needs_concepts and run.task == name):
            why = f"it is a run of {run.task!r}"
            if {name, run.task} <= set(TASKS[deciding[0].task].decides):
                why = f"the runs of {deciding[0].task!r} decide alone"
            warn(f"{run.folder}: not asked, for {why}.")
    backbone = None
    if not features:
        backbone = _backbone_of(deciding, corpora, None if weights is None else Path(weights))
    java = find_java() if TASKS[name].needs_java else None
    if TASKS[name].needs_java and java is None:
        warn(NO_JAVA)
    split = split or ("all" if item_file is not None or not whole.has_own_splits else "test")
    clips = _measured_clips(whole, name, split, item_file, questions)
    if item_file is None:
        own_items = [item for some in clips.items.values() for item in some]
        for part in parts_without_items(whole, clips, own_items):
            warn(f"{part.root}: it brings no items of {name!r} and another corpus does: left out.")
    store = features_of(corpora, whole, _paths(features), backbone)
    _check_features(deciding, store, clips, corpora)
    return _Asked(
        task=name,
        split=split,
        runs=deciding,
        corpora=corpora,
        whole=whole,
        clips=clips,
        store=store,
        java=java,
    )


def _paths(given: Path | str | Sequence[Path | str]) -> tuple[Path, ...]:
    return (Path(given),) if isinstance(given, Path | str) else tuple(map(Path, given))


def _nothing_to_ask(asked: _Asked) -> UsageError:
    return UsageError(
        f"{listed(asked.corpora)}: there is nothing to ask of the split '{asked.split}', for its captions "
        "give no items. Choose another split, or write a file of them: --items FILE"
    )


def _test_task(run: TrainedRun, asked: _Asked, beam: int | None, *, task: str) -> Any:
    settings, model = _with_beam(run.settings, beam), run.loaded
    return build_task(task, settings, model.words, asked.store, asked.clips, model=model.model, split="test")


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
        found = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
        raise UsageError(f"--reliance needs a run of {task!r}, and {found}. Name one.")
    reading = [run for run in of_task if reads_concepts(run.loaded.model)]
    silent = [f"{run.folder}: it reads no concept words" for run in of_task if run not in reading]
    if not reading:
        raise UsageError(f"{', '.join(silent)}: --reliance has nothing to measure. Name a run that does.")
    for each in silent:
        warn(f"{each}: left out.")
    return reading


def _measured_clips(
    whole: Corpus,
    task: str,
    split: Split | Literal["all"],
    file: Path | None,
    questions: Sequence[Item],
) -> Corpus:
    """Select the clips to evaluate on, as a test split, with their own items or those of a file.

    Raises:
        UsageError: the items are of another task or about clips of another split, or no clip has captions.
    """
    chosen = [clip for clip in whole if split in ("all", clip.split)]
    own = [
        item
        for (item_task, side), some in whole.items.items()
        if item_task == task and split in ("all", side)
        for item in some
    ]
    if file is not None:
        own = list(questions)
        item_task = task_of(own[0])
        if item_task != task:
            raise UsageError(
                f"{file}: items of {item_task!r}, and the runs are of {task!r}. Name runs of {item_task!r}, "
                "or other items."
            )
        asked, known = {item.clip for item in own}, {clip.id for clip in chosen}
        if strange := [item.clip for item in own if item.clip not in known]:
            raise UsageError(
                f"{file}: {count(len(strange), 'item')} about clips that are not of the split '{split}', "
                f"such as {strange[0]!r}. Name their split, or none."
            )
        chosen = [clip for clip in chosen if clip.id in asked]
    elif not any(clip.captions for clip in chosen):
        of = "" if split == "all" else f" of the split '{split}'"
        raise UsageError(
            f"{whole.place}: no clip{of} has captions. Choose another split, or name a file of items: "
            "--items FILE"
        )
    clips = tuple(replace(clip, split="test") for clip in chosen)
    return replace(whole, clips=clips, items={(task_of(own[0]), "test"): tuple(own)} if own else {})


def _backbone_of(runs: Sequence[TrainedRun], corpora: Sequence[Path], weights: Path | None) -> Backbone:
    """Find the backbone that computes the features of all runs.

    Raises:
        UsageError: a run was trained on imported features, or the runs need different backbones.
    """
    for run in runs:
        if run.recipe.details.get("imported"):
            raise UsageError(
                f"{run.folder}: it was trained on imported features of {run.recipe.backbone}. Give a folder "
                f"of such of {listed(corpora)} with --features FOLDER, or make it: "
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
        "was trained on. It needs such as 'features.json' of that run says."
        for run in runs
        if replace(recipe, mirrored=run.recipe.mirrored) != run.recipe
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    asked = {item.clip for items in clips.items.values() for item in items}
    needed = [clip.id for clip in clips if clip.id in asked or not asked]
    missing = sum(clip not in store for clip in needed)
    if missing == len(needed):
        raise UsageError(
            f"{folders_of(store)}: no features of any clip that is asked about. Make them: "
            f"{features_command(corpora)}"
        )
    if missing:
        warn(f"{count(missing, 'clip')} of {len(needed):,} without features: left out.")
