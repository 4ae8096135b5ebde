"""Trained runs, read from their folders: models with their best weights, that answer alone or together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from ctsan.atomic import write_json
from ctsan.config import Settings
from ctsan.errors import RunError, UsageError
from ctsan.tasks.building import TaskName, build_model
from ctsan.tasks.member import Member
from ctsan.text.words import Words
from ctsan.training.checkpoint import WEIGHTS_FILE, load_weights
from ctsan.training.run_folder import members_of, open_run
from ctsan.video.store import Recipe

WORDS_FOLDER = "words"
FEATURES_FILE = "features.json"

TASKS: tuple[TaskName, ...] = get_args(TaskName)
_HELPERS: Mapping[TaskName, tuple[TaskName, ...]] = {"rank": ("choose",)}  # whose scores say the same


@dataclass(frozen=True, slots=True, eq=False)
class TrainedRun:
    folder: Path
    task: TaskName
    settings: Settings
    recipe: Recipe  # of the features that it was trained on
    member: Member[Any]  # its model is that of the task


def load_runs(folders: Sequence[Path]) -> list[TrainedRun]:
    """Run folders; one of an ensemble stands for its members.

    Raises:
        RunError: there is no usable run in one of them.
    """
    return [_load_run(run) for folder in folders for run in members_of(folder) or [folder]]


def answering(runs: Sequence[TrainedRun], task: TaskName) -> list[TrainedRun]:
    """The runs that do a task as one: at least one was trained for it.

    Raises:
        UsageError: none was.
    """
    if all(run.task != task for run in runs):
        found = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
        raise UsageError(
            f"A run of {task!r} is needed, and {found}. Name one, or train it: "
            f"ctsan train {task} --corpus CORPUS --out RUN"
        )
    return [run for run in runs if run.task in (task, *_HELPERS.get(task, ()))]


def common_task(runs: Sequence[TrainedRun]) -> TaskName:
    """The task that all runs do as one.

    Raises:
        UsageError: there is none.
    """
    for task in TASKS:
        if any(run.task == task for run in runs) and len(answering(runs, task)) == len(runs):
            return task
    found = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
    raise UsageError(
        f"The runs do not answer the same questions: {found}. Name runs of one task; only those of 'choose' "
        "may stand beside runs of 'rank'."
    )


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
    opened, recipe, words = open_run(folder), read_recipe(folder), Words.load(folder / WORDS_FOLDER)
    if opened.task not in TASKS:
        raise RunError(f"{folder}: a run of {opened.task!r}, which this ctsan does not know. Name another.")
    task, settings = opened.task, opened.settings
    model = build_model(task, settings, words, grid=recipe.grid, channels=recipe.channels, seed=0)
    load_weights(folder / WEIGHTS_FILE, model)
    member = Member(model.eval(), words, settings.model.max_frames, settings.decoding.max_words)
    return TrainedRun(folder, task, settings, recipe, member)
