"""Build a run's task with its initialised model, for `ctsan train` and `ctsan tables`."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from ctsan.baselines.decoupled_detector import DecoupledDetector
from ctsan.baselines.random_words import RandomWords
from ctsan.config import Settings
from ctsan.data.corpus import Corpus
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector, LearntConceptSource
from ctsan.tasks.building import (
    Model,
    build_model,
    build_task,
    fit_probes,
    init_from_clips,
    out_of_fold_scores,
)
from ctsan.tasks.detection import DetectorModel
from ctsan.tasks.task import Task
from ctsan.tasks.transfer import init_from_model
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore


def set_up_task(
    task: str,
    settings: Settings,
    words: Words,
    store: FeatureStore,
    corpus: Corpus,
    *,
    init_from: Model | None = None,
    detector: DetectorModel | None = None,
    is_resumed: bool = False,
) -> Task[Any]:
    """Build a run's model, initialise it, and build the task that trains it.

    The order matters: channel statistics and word frequencies come from the training clips, a trained model
    overwrites them with its own, and probes are fitted to the result.

    Args:
        init_from: a trained model to copy weights from; `words` begins with its words.
        detector: a detector trained alone, for detector.kind=decoupled.
        is_resumed: a checkpoint with all weights is loaded next, so no probe is fitted.

    Raises:
        UsageError: the task does not support the settings, or `init_from` does not fit them.
    """
    model = build_model(
        task,
        settings,
        words,
        grid=store.grid,
        channels=store.channels,
        seed=settings.training.seed,
    )
    train = corpus.split("train")
    init_from_clips(model, train, store, words, settings.init)
    if detector is not None:
        _take_detector(model, detector)
    if init_from is not None:
        init_from_model(
            model,
            init_from,
            transfer=settings.training.transfer,
            keep_frequencies=settings.training.freeze_clip_encoder,
        )
    if not is_resumed:
        # A frozen clip encoder keeps its trained weights, including its concept probe.
        keep_probe = settings.training.freeze_clip_encoder and init_from is not None
        ridge_init = settings.retrieval.ridge_init and not isinstance(init_from, type(model))
        fit_probes(model, train, store, words, keep_concept_probe=keep_probe, ridge_init=ridge_init)
    if settings.training.freeze_clip_encoder:
        model.clip_encoder.requires_grad_(requires_grad=False)
    out_of_fold = None
    encoder = model.clip_encoder
    if settings.training.out_of_fold and isinstance(encoder, ClipEncoder) and _detects(encoder):
        out_of_fold = partial(out_of_fold_scores, encoder, train, store, words)
    built = build_task(task, settings, words, store, corpus, model=model, out_of_fold=out_of_fold)
    is_mirrored = settings.training.hflip and store.manifest.recipe.mirrored
    if settings.training.freeze_clip_encoder and _is_constant(encoder) and not is_mirrored:
        assert isinstance(encoder, ClipEncoder)
        built.clips.freeze(encoder)
    return built


def _is_constant(encoder: nn.Module) -> bool:
    """Whether a frozen encoder gives the same encoding of a clip at every step, so that it can be cached.

    Not so for redrawn random words, nor for temporal attention, whose encoding holds frames, not a state.
    """
    if type(encoder) is not ClipEncoder:
        return False
    return not (isinstance(encoder.detector, RandomWords) and encoder.detector.redrawn)


def _detects(encoder: ClipEncoder) -> bool:
    """Whether its concept words come from a trained detector; those of NN-SAN and random words do not."""
    return isinstance(encoder.detector, LearntConceptSource | DecoupledDetector)


def _take_detector(model: Model, alone: DetectorModel) -> None:
    """Copy the separately trained detector into a decoupled model."""
    detector = model.clip_encoder.detector
    assert isinstance(detector, DecoupledDetector)
    encoder = alone.clip_encoder
    assert isinstance(encoder.detector, ConceptDetector)
    detector.init_from(
        reduce=encoder.reduce,
        detector=encoder.detector,
        means=encoder.channel_means,
        scales=encoder.channel_scales,
    )
