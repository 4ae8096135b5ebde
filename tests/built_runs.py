"""Runs without a folder: models that a test has built, for what loads the models of trained runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ctsan.config import Settings, load_settings
from ctsan.data.batches import pad_maps
from ctsan.inference.loaded_model import LoadedModel
from ctsan.inference.loading import load_model
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.runs.trained_run import TrainedRun
from ctsan.tasks.building import Model, build_model
from ctsan.text.words import Words
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore, Maps

SMALL = (
    "model.hidden_dim=12",
    "model.embedding_dim=8",
    "model.num_layers=2",
    "model.max_frames=10",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "retrieval.sketch_dim=32",
    "retrieval.joint_dim=8",
    "retrieval.phrases=0",
    "decoding.max_words=6",
)


@dataclass(frozen=True, eq=False)
class BuiltRun(TrainedRun):
    """A run whose model and words are in memory."""

    built_model: Any
    built_words: Words

    @property
    def model(self) -> Any:
        return self.built_model

    @property
    def words(self) -> Words:
        return self.built_words

    @property
    def weights(self) -> dict[str, Any]:
        return {name: tensor.numpy(force=True) for name, tensor in self.built_model.state_dict().items()}


def run_of(task: str, settings: Settings, words: Words, store: FeatureStore, model: Model) -> BuiltRun:
    """A run of a model that is there already."""
    return BuiltRun(Path(task), task, settings, store.manifest.recipe, model.eval(), words)


def built_run(task: str, settings: Settings, words: Words, store: FeatureStore, *, seed: int) -> BuiltRun:
    """A run of a model that is not trained."""
    model = build_model(task, settings, words, grid=store.grid, channels=store.channels, seed=seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith(
                "name.bias"
            ):  # else all candidates have the same confidence, and any may be first
                tensor += torch.linspace(0, 0.1, len(tensor))
    return run_of(task, settings, words, store, model)


def small_run(task: str, words: Words, store: FeatureStore, *overrides: str, seed: int = 0) -> BuiltRun:
    """A run of a small model that is not trained, of any task."""
    return built_run(task, load_settings("laptop", (*SMALL, *overrides)), words, store, seed=seed)


def loaded(runs: Sequence[TrainedRun]) -> list[Any]:
    """The models of runs, of whatever kind."""
    models: list[LoadedModel] = [load_model(run) for run in runs]
    return models


@torch.inference_mode()
def encode(run: TrainedRun, clips: Sequence[Maps]) -> ClipEncoding:
    """Maps of clips as the run's own encoder encodes them: tensors, one row each."""
    maps = [subsample_maps(clip, run.settings.model.max_frames) for clip in clips]
    encoding: ClipEncoding = run.model.clip_encoder(*pad_maps(maps))
    return encoding
