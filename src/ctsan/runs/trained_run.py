"""Load trained runs from their folders, and select the runs that answer a task."""

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
    """Skip random initialisation of models built inside this context.

    Their weights are loaded from a file anyway, and drawing random ones takes time.
    """

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
    recipe: Recipe  # how the features it was trained on were made

    @cached_property
    def loaded(self) -> LoadedModel[Any]:
        """The run's model, loaded on first access: of many runs, a query may use only a few.

        Raises:
            RunError: the weights are damaged or do not fit the model.
            WordsError: the words are missing or damaged.
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
            device_encoder=deepcopy(model.clip_encoder).to(device) if device == "cuda" else None,
            standardise=self.settings.ensemble.standardise,
        )

    def load(self) -> None:
        """Load the model now, so that the first query does not pay for it."""
        _ = self.loaded


def words_folder(run: Path) -> Path:
    """Locate the words of a run: in its folder, or in the pack's, which runs without their own share."""
    beside = not (run / WORDS_FOLDER).exists() and (run.parent / PACK_FILE).exists()
    return (run.parent if beside else run) / WORDS_FOLDER


def learnt_vectors(weights: Mapping[str, Tensor]) -> Embedding:
    """Extract the trained word vectors from a model's weights.

    Raises:
        RunError: the weights hold no word vectors.
    """
    if (found := weights.get("clip_encoder.embedding.weight")) is None:
        raise RunError("These weights hold no word vectors, so they are of no model of ctsan. Name a run.")
    vectors: Embedding = found.float().numpy()
    return vectors


def load_runs(folders: Sequence[Path]) -> list[TrainedRun]:
    """Load runs. A folder may hold one run, an ensemble or a pack; `default` is the packaged model.

    Raises:
        RunError: a folder holds no usable run.
    """
    return [_load_run(run) for folder in folders for run in run_folders(folder)]


def run_folders(folder: Path) -> list[Path]:
    """Expand a folder, or the name `default`, to its run folders."""
    return runs_of_pack(folder) or members_of(folder) or [folder]


def run_to_start_from(folder: Path, task: str) -> Path:
    """Choose the run to initialise from. Of a pack: the run of the same task, else its first.

    Raises:
        RunError: the pack is damaged, or `default` is named and this ctsan carries no model.
    """
    packed = runs_of_pack(folder)
    same = [run for run in packed if open_run(run).task == task]
    return next(iter(same or packed), folder)


def answering(runs: Sequence[TrainedRun], task: str) -> list[TrainedRun]:
    """Select the runs that answer a task as an ensemble.

    If the task of some run `decides` this one, only such runs answer: joint embeddings, for `choose` and
    `rank`.

    Raises:
        UsageError: no run can answer the task.
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
    """Whether at least one of the runs answers a task without the help of others."""
    return any(run.task == task or task in TASKS[run.task].decides for run in runs)


def naming_concepts(runs: Sequence[TrainedRun]) -> list[TrainedRun]:
    """Select the runs that detect concept words: `describe` runs if any has a detector, else all that do."""
    detecting = [run for run in runs if run.task != "embed" and run.settings.detector.enabled]
    return [run for run in detecting if run.task == "describe"] or detecting


def common_task(runs: Sequence[TrainedRun]) -> str:
    """Find the task that all runs answer as an ensemble.

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
    """Read how the features of a run were made.

    Raises:
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
