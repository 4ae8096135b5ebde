"""Trained runs, read from their folders: models with their best weights, that answer alone or together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from ctsan.config import Settings
from ctsan.errors import RunError, UsageError
from ctsan.io.atomic import write_json
from ctsan.io.device import best_device
from ctsan.runs.checkpoint import WEIGHTS_FILE, check_weights, fill_with, read_weights
from ctsan.runs.pack_folder import PACK_FILE, runs_of_pack
from ctsan.runs.run_folder import members_of, open_run
from ctsan.tasks.building import build_model
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.registry import TASKS
from ctsan.text.embedding import Embedding
from ctsan.text.words import Words
from ctsan.video.store import Recipe

WORDS_FOLDER = "words"
FEATURES_FILE = "features.json"


class SkipInit(TorchFunctionMode):
    """Models built here are left without weights: a file's take their place, and to draw takes time."""

    _DRAWING = frozenset(
        {init.kaiming_uniform_, init.normal_, init.uniform_, Tensor.normal_, Tensor.uniform_}
    )

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func in self._DRAWING:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    folder: Path
    task: str
    settings: Settings
    recipe: Recipe  # of the features that it was trained on

    @cached_property
    def loaded(self) -> LoadedModel[Any]:
        """Its model, that of the task, read when it is first asked for: of many runs few may be.

        Raises:
            RunError: weights are damaged or do not fit.
            WordsError: words are missing or damaged.
        """
        file = self.folder / WEIGHTS_FILE
        weights = read_weights(file)
        words = Words.load(words_folder(self.folder), embedding=learnt_vectors(weights))
        with SkipInit():
            model = build_model(
                self.task, self.settings, words, grid=self.recipe.grid, channels=self.recipe.channels, seed=0
            )
        fill_with(file, model, weights)
        device = best_device()
        return LoadedModel(
            model.eval(),
            words,
            self.settings.model.max_frames,
            self.settings.decoding.max_words,
            eyes=deepcopy(model.clip_encoder).to(device) if device == "cuda" else None,
            standardise=self.settings.ensemble.standardise,
        )

    def load(self) -> None:
        """Read the model now, where the time that it takes should not count for the first answer."""
        _ = self.loaded


def words_folder(run: Path) -> Path:
    """Where the words of a run are: in its folder, or beside it in a pack, for all runs without their own."""
    beside = not (run / WORDS_FOLDER).exists() and (run.parent / PACK_FILE).exists()
    return (run.parent if beside else run) / WORDS_FOLDER


def learnt_vectors(weights: Mapping[str, Tensor]) -> Embedding:
    """The word vectors of a model, among its weights.

    Raises:
        RunError: there are none.
    """
    if (found := weights.get("clip_encoder.embedding.weight")) is None:
        raise RunError("These weights hold no word vectors, so they are of no model of ctsan. Name a run.")
    vectors: Embedding = found.float().numpy()
    return vectors


def load_runs(folders: Sequence[Path]) -> list[TrainedRun]:
    """Run folders; one of an ensemble or of a pack stands for all in it, and `default` for the package's.

    Raises:
        RunError: there is no usable run in one of them.
    """
    return [_load_run(run) for folder in folders for run in run_folders(folder)]


def run_folders(folder: Path) -> list[Path]:
    """The folders of the runs that a folder, or the name `default`, stands for."""
    return runs_of_pack(folder) or members_of(folder) or [folder]


def run_to_start_from(folder: Path, task: str) -> Path:
    """The one run that a training starts from: of a pack the one of the same task, or its first.

    Raises:
        RunError: the pack is damaged, or `default` is named and there is none.
    """
    packed = runs_of_pack(folder)
    same = [run for run in packed if open_run(run).task == task]
    return next(iter(same or packed), folder)


def answering(runs: Sequence[TrainedRun], task: str) -> list[TrainedRun]:
    """The runs that answer questions of a task together.

    Runs of a task that `decides` it answer alone: joint embeddings, for `choose` and `rank`.

    Raises:
        UsageError: none can.
    """
    deciding = [run for run in runs if task in TASKS[run.task].decides]
    if deciding:
        return deciding
    if not can_answer(runs, task):
        found = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
        raise UsageError(
            f"A run of {task!r} is needed, and {found}. Name one, or train it: "
            f"ctsan train {task} --corpus CORPUS --out RUN"
        )
    return [run for run in runs if _is_able(run, task)]


def can_answer(runs: Sequence[TrainedRun], task: str) -> bool:
    """Whether any of the runs answers questions of a task by itself."""
    return any(run.task == task or task in TASKS[run.task].decides for run in runs)


def naming_concepts(runs: Sequence[TrainedRun]) -> list[TrainedRun]:
    """The runs whose detectors say which concept words a clip shows: those that describe, if any has one."""
    detecting = [run for run in runs if run.task != "embed" and run.settings.detector.enabled]
    return [run for run in detecting if run.task == "describe"] or detecting


def common_task(runs: Sequence[TrainedRun]) -> str:
    """The task that all runs do as one.

    Raises:
        UsageError: there is none.
    """
    for task in TASKS:
        if any(run.task == task for run in runs) and all(_is_able(run, task) for run in runs):
            return task
    found = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
    raise UsageError(
        f"The runs do not answer the same questions: {found}. Say which to ask with --task, or name runs of "
        "one task; those of 'embed' may stand beside runs of 'describe', 'choose' and 'rank', and those of "
        "'choose' beside runs of 'rank'."
    )


def _is_able(run: TrainedRun, task: str) -> bool:
    return run.task in (task, *TASKS[task].helpers)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    write_json(folder / FEATURES_FILE, asdict(recipe))


def read_recipe(folder: Path) -> Recipe:
    """Raises:
    RunError: the file is missing or damaged.
    """
    file = folder / FEATURES_FILE
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        height, width = value["grid"]
        return Recipe(**{**value, "grid": (int(height), int(width))})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{file}: missing or damaged ({error}). Put it back from a copy, or train again."
        ) from error


def _load_run(folder: Path) -> TrainedRun:
    opened, recipe = open_run(folder), read_recipe(folder)
    if opened.task not in TASKS:
        raise RunError(f"{folder}: a run of {opened.task!r}, which this ctsan does not know. Name another.")
    check_weights(folder / WEIGHTS_FILE)
    return TrainedRun(folder, opened.task, opened.settings, recipe)
