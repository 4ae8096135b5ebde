"""Load trained runs from their folders, and select the runs that answer a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ctsan.config import Settings
from ctsan.errors import RunError, UsageError, abridged
from ctsan.io.atomic import write_json
from ctsan.io.extras import extra
from ctsan.io.fields import typed_field, whole_field
from ctsan.io.reading import DamagedFileError, read_json_object
from ctsan.runs.pack_folder import PACK_FILE, runs_of_pack
from ctsan.runs.run_folder import members_of, open_run
from ctsan.runs.weights import WEIGHTS_FILE, Array, check_weights, read_weights
from ctsan.tasks.roles import ROLES, known_tasks, roles_of
from ctsan.text.embedding import Embedding
from ctsan.text.words import Words
from ctsan.video.store import Recipe

WORDS_FOLDER = "words"
FEATURES_FILE = "features.json"
MAX_GRID, MAX_CHANNELS = 1_000, 1_000_000  # of any network


@dataclass(frozen=True, eq=False)
class TrainedRun:
    folder: Path
    task: str
    settings: Settings
    recipe: Recipe  # how the features it was trained on were made

    @cached_property
    def model(self) -> Any:
        """The trained model as a PyTorch module, in evaluation mode, built on first access.

        Raises:
            RunError: the weights are damaged or do not fit the model.
            WordsError: the words are missing or damaged.
            UsageError: PyTorch is not installed.
        """
        with extra("train", f"The PyTorch model of {self.folder}"):
            from ctsan.runs.torch_building import build_trained
        return build_trained(self)

    @cached_property
    def words(self) -> Words:
        """Its words, with the trained vectors. Reads the weights.

        Raises:
            RunError: the weights are damaged.
            WordsError: the words are missing or damaged.
        """
        embedding = trained_embedding(self.folder / WEIGHTS_FILE, self.weights)
        return Words.load(words_folder(self.folder), embedding=embedding)

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The trained weights by name, as single precision, read on first access.

        Raises:
            RunError: the file is damaged.
        """
        return read_weights(self.folder / WEIGHTS_FILE)


def words_folder(run: Path) -> Path:
    """Locate the words of a run: in its folder, or in the pack's, which runs without their own share."""
    beside = not (run / WORDS_FOLDER).exists() and (run.parent / PACK_FILE).exists()
    return (run.parent if beside else run) / WORDS_FOLDER


def trained_embedding(file: Path, weights: Mapping[str, Array]) -> Embedding:
    """Extract the trained word vectors from a model's weights, which were read from `file`.

    Raises:
        RunError: the weights hold no word vectors.
    """
    embedding = weights.get("clip_encoder.embedding.weight")
    if embedding is None or embedding.ndim != 2 or 0 in embedding.shape or embedding.dtype.kind != "f":
        raise RunError(f"{file}: it holds no word vectors, so it is of no model of ctsan. Name a run.")
    return embedding.astype(np.float32, copy=False)


def load_runs(folders: Sequence[Path]) -> list[TrainedRun]:
    """Load runs. A folder may hold one run, an ensemble or a pack; `default` is the packaged model.

    Raises:
        RunError: a folder holds no usable run.
    """
    return [load_run(run) for folder in folders for run in run_folders(folder)]


def load_run(folder: Path) -> TrainedRun:
    """Load the run of a folder that holds one run.

    Raises:
        RunError: it holds no usable run.
    """
    opened, recipe = open_run(folder), read_recipe(folder)
    if opened.task not in known_tasks(opened.task):
        task = abridged(opened.task)
        raise RunError(f"{folder}: a run of {task}, which this ctsan does not know. Name another.")
    check_weights(folder / WEIGHTS_FILE)
    return TrainedRun(folder, opened.task, opened.settings, recipe)


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


class _OfTask(Protocol):
    """A trained run, or its model."""

    @property
    def folder(self) -> Path: ...
    @property
    def task(self) -> str: ...
    @property
    def settings(self) -> Settings: ...


RunT = TypeVar("RunT", bound=_OfTask)


def answering(runs: Sequence[RunT], task: str) -> list[RunT]:
    """Select the runs that answer a task as an ensemble.

    If the task of some run `decides` this one, only such runs answer: joint embeddings, for `choose` and
    `rank`.

    Raises:
        UsageError: no run can answer the task.
    """
    deciding = [run for run in runs if task in roles_of(run.task).decides]
    if deciding:
        return deciding
    if not can_answer(runs, task):
        tasks = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
        raise UsageError(
            f"A run of {task!r} is needed, and {tasks}. Name one, or train it: "
            f"ctsan train {task} --corpus CORPUS --out RUN"
        )
    return [run for run in runs if _is_able(run, task)]


def can_answer(runs: Sequence[_OfTask], task: str) -> bool:
    """Whether at least one of the runs answers a task without the help of others."""
    return any(run.task == task or task in roles_of(run.task).decides for run in runs)


def has_detector(run: _OfTask) -> bool:
    return roles_of(run.task).reads_concepts and run.settings.detector.enabled


def detecting_concepts(runs: Sequence[RunT]) -> list[RunT]:
    """Select the runs that detect concept words: `describe` runs if any has a detector, else all that do."""
    detecting = [run for run in runs if has_detector(run)]
    return [run for run in detecting if run.task == "describe"] or detecting


def common_task(runs: Sequence[_OfTask]) -> str:
    """Find the task that all runs answer as an ensemble.

    Raises:
        UsageError: there is none.
    """
    for task in dict.fromkeys((*ROLES, *(run.task for run in runs))):
        if any(run.task == task for run in runs) and all(_is_able(run, task) for run in runs):
            return task
    tasks = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
    raise UsageError(
        f"The runs do not answer the same questions: {tasks}. Say which to ask with --task, or name runs of "
        "one task; those of 'embed' may stand beside runs of 'describe', 'choose' and 'rank', and those of "
        "'choose' beside runs of 'rank'."
    )


def _is_able(run: _OfTask, task: str) -> bool:
    return run.task in (task, *roles_of(task).helpers)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    write_json(folder / FEATURES_FILE, asdict(recipe))


def read_recipe(folder: Path) -> Recipe:
    """Read how the features of a run were made.

    Raises:
        RunError: the file is missing or damaged.
    """
    file = folder / FEATURES_FILE
    try:
        value = read_json_object(file)
        grid = typed_field(value, "grid", list)
        if len(grid) != 2 or not all(type(size) is int and 1 <= size <= MAX_GRID for size in grid):
            raise DamagedFileError(f"its 'grid' is not two whole numbers from 1 to {MAX_GRID}")
        return Recipe(
            backbone=typed_field(value, "backbone", str),
            grid=(grid[0], grid[1]),
            channels=whole_field(value, "channels", least=1, most=MAX_CHANNELS),
            mirrored=typed_field(value, "mirrored", bool),
            details=typed_field(value, "details", dict),
        )
    except DamagedFileError as error:
        raise RunError(
            f"{file}: missing or damaged ({error}). Put it back from a copy, or train again."
        ) from None
