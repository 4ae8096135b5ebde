"""Train one run of the tables and evaluate it on the test split. Stored results are reused."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ctsan.config import Settings, load_settings, settings_from_json
from ctsan.data.corpus import Corpus
from ctsan.errors import RunError, UsageError
from ctsan.experiments.plan import Training, description_of, is_decoupled, set_names, settings_of
from ctsan.experiments.stored_results import read_result
from ctsan.experiments.systems import SYSTEMS
from ctsan.io.atomic import write_json
from ctsan.model.clip_encoder import ClipEncoder, reads_concepts
from ctsan.runs.checkpoint import load_weights
from ctsan.runs.run_folder import (
    CHECKPOINT_FILE,
    Origin,
    check_folder,
    create_run,
    training_alone,
    weights_digest,
)
from ctsan.runs.trained_run import WORDS_FOLDER, load_runs, read_recipe, write_recipe
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.building import Model, build_task, init_from_clips
from ctsan.tasks.clip_encoders import build_clip_encoder
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.concepts import measure_concepts
from ctsan.tasks.detection import DetectionTask, DetectorModel
from ctsan.tasks.reliance import QUICK_SOURCES, answers_by_source
from ctsan.tasks.task import Task
from ctsan.tasks.transfer import parts_taken
from ctsan.text.vocabulary import SPECIALS
from ctsan.text.words import Words
from ctsan.training.initialisation import set_up_task
from ctsan.training.loop import Progress, train_loop
from ctsan.video.store import FeatureStore

RESULT_FILE = "test.json"  # in the run folder, once the run is trained and evaluated
_BEAM = 5  # default; decoding.beam overrides it


@dataclass(frozen=True, kw_only=True, eq=False)
class ExperimentContext:
    """What all runs of an experiment share."""

    out: Path
    profile: str
    overrides: tuple[str, ...]
    corpus: Corpus
    store: FeatureStore
    words: Words

    def settings(self, training: Training) -> Settings:
        return settings_of(training, profile=self.profile, overrides=self.overrides)

    @property
    def beam(self) -> int:
        """The beam width of the captions that are evaluated."""
        settings = load_settings(self.profile, self.overrides)
        return settings.decoding.beam if "decoding.beam" in set_names(self.overrides) else _BEAM

    @cached_property
    def test_clips(self) -> frozenset[str]:
        """The ids of the clips of the test split."""
        return frozenset(clip.id for clip in self.corpus.split("test"))

    @cached_property
    def measured_on(self) -> str:
        """A digest of the feature recipe and of the clips, captions and items of the test split."""
        items = [
            [*place, *part_items] for place, part_items in self.corpus.items.items() if place[1] == "test"
        ]
        clips = [(clip.id, clip.captions) for clip in self.corpus.split("test")]
        content = repr((self.store.manifest.recipe, clips, items))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def test_task(self, task: str, settings: Settings, model: Any) -> Task[Any]:
        """Build a task that evaluates on the test clips and contains no others."""
        test_items = {place: items for place, items in self.corpus.items.items() if place[1] == "test"}
        clips = replace(self.corpus, clips=self.corpus.split("test"), items=test_items)
        searching = replace(settings, decoding=replace(settings.decoding, beam=self.beam))
        return build_task(task, searching, self.words, self.store, clips, model=model, split="test")


def stored_result(context: ExperimentContext, training: Training) -> dict[str, Any] | None:
    """Read the stored result of a run.

    None if there is none, or if settings, features or test split have changed since.

    Raises:
        RunError: it is damaged.
    """
    file = training.folder(context.out) / RESULT_FILE
    if not file.exists():
        return None
    result = read_result(file, context.test_clips)
    try:
        settings = settings_from_json(result["settings"])
    except UsageError as error:
        raise RunError(f"{file}: {error} Delete it, and it is made again.") from None
    is_same = (
        settings == context.settings(training)
        and result.get("measured_on", context.measured_on) == context.measured_on  # older results lack it
    )
    return result if is_same else None


def run(
    context: ExperimentContext, training: Training, on_progress: Callable[[Progress], None] | None = None
) -> dict[str, Any]:
    """Train or resume a run and evaluate it; return the stored result if it is up to date."""
    if (done := stored_result(context, training)) is not None:
        return done
    folder, settings = training.folder(context.out), context.settings(training)
    check_folder(folder)
    with training_alone(folder):
        began = time.monotonic()
        task, first_step = prepared(context, training, settings), _steps_done(folder)
        outcome = train_loop(
            task,
            folder,
            optimiser=settings.optimiser,
            training=settings.training,
            on_progress=on_progress,
        )
        seconds = time.monotonic() - began
        load_weights(folder / WEIGHTS_FILE, task.model)
        result: dict[str, Any] = {
            "settings": settings.to_json(),
            "measured_on": context.measured_on,
            "steps": outcome.steps,
            "best_step": outcome.best_step,
            "validation": outcome.best_score,
            "seconds_per_step": seconds / max(outcome.steps - first_step, 1),
            "parameters": sum(weights.numel() for weights in task.model.parameters()),
        }
        if training.task != "detect":
            result |= _measured(context, training, settings, task.model)
        write_json(folder / RESULT_FILE, result)
        (folder / CHECKPOINT_FILE).unlink(missing_ok=True)  # four times the size of the weights
    return result


def _steps_done(folder: Path) -> int:
    """Estimate the steps done so far from the last row of the metrics."""
    from ctsan.training.metrics import METRICS_FILE, read_metrics

    if not (folder / CHECKPOINT_FILE).exists():
        return 0
    rows = read_metrics(folder / METRICS_FILE)
    return int(rows[-1]["step"]) if rows else 0


def prepared(context: ExperimentContext, training: Training, settings: Settings) -> Task[Any]:
    """Create the run's folder, and build its task with the initial model."""
    folder, words, store = training.folder(context.out), context.words, context.store
    source = description_of(training)
    trained = load_runs([source.folder(context.out)])[0].model if source else None
    recipe = store.manifest.recipe
    if (folder / CHECKPOINT_FILE).exists() and read_recipe(folder) != recipe:
        raise UsageError(
            f"{folder}: this run was begun with other features ({read_recipe(folder).backbone}, and now "
            f"{recipe.backbone}). Give the tables those, or name another folder: --out FOLDER"
        )
    create_run(
        folder,
        task=training.task,
        profile=context.profile,
        settings=settings,
        origin=_origin(context, settings, source, trained) if source and trained else None,
    )
    write_recipe(folder, recipe)
    words.save(folder / WORDS_FOLDER)
    if training.task == "detect":
        return _detection(context, settings)
    alone = Training("detect", training.system, training.seed)
    return set_up_task(
        training.task,
        settings,
        words,
        store,
        context.corpus,
        init_from=trained,
        detector=_trained_detector(context, alone) if is_decoupled(training.system) else None,
        is_resumed=(folder / CHECKPOINT_FILE).exists(),
    )


def _detection(context: ExperimentContext, settings: Settings) -> DetectionTask:
    model = _detector_model(context, settings)
    init_from_clips(model, context.corpus.split("train"), context.store, context.words, settings.init)
    clips = TaskClips(
        store=context.store,
        words=context.words,
        train=context.corpus.split("train"),
        validation=context.corpus.split("val"),
        max_frames=settings.model.max_frames,
    )
    return DetectionTask(model=model, clips=clips, concept_weight=settings.loss.concept_weight)


def _detector_model(context: ExperimentContext, settings: Settings) -> DetectorModel:
    store = context.store
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.training.seed)
        encoder = build_clip_encoder(settings, context.words, grid=store.grid, channels=store.channels)
        assert isinstance(encoder, ClipEncoder)
        return DetectorModel(encoder)


def _trained_detector(context: ExperimentContext, training: Training) -> DetectorModel:
    model = _detector_model(context, context.settings(training))
    load_weights(training.folder(context.out) / WEIGHTS_FILE, model)
    return model


def _origin(context: ExperimentContext, settings: Settings, source: Training, trained: Model) -> Origin:
    words, folder = context.words, source.folder(context.out)
    return Origin(
        run=str(folder),
        task=source.task,
        weights=weights_digest(folder),
        parts=parts_taken(trained, same_task=False, transfer=settings.training.transfer),
        kept_words=len(words.vocabulary) - len(SPECIALS),
        new_words=0,
        kept_candidates=len(words.concepts),
        new_candidates=0,
    )


def _measured(
    context: ExperimentContext, training: Training, settings: Settings, model: nn.Module
) -> dict[str, Any]:
    """Evaluate a trained model on the test clips: its answers by task, and its concept words.

    For a model that reads concept words, also its answers with another clip's words and with none.
    """
    model.eval()
    system = SYSTEMS[training.system]
    answers: dict[str, object] = {}
    reliance: dict[str, object] = {}
    for task in system.measured:
        if system.training(task) == training.task:
            test_task: str = "embed" if (training.task, task) == ("embed", "rank") else task
            test = context.test_task(test_task, settings, model)
            if reads_concepts(model):
                unchanged, *replaced = answers_by_source(test, QUICK_SOURCES).items()
                answers[task], reliance[task] = unchanged[1], dict(replaced)
            else:
                answers[task] = test.measure().answers
    concepts = measure_concepts(
        cast("Model", model).clip_encoder,
        context.words.concepts,
        context.corpus.split("test"),
        context.store,
        max_frames=settings.model.max_frames,
    )
    return {
        "answers": answers,
        "reliance": reliance,
        "concepts": {name: statistic.rows.tolist() for name, statistic in concepts.items()},
    }
