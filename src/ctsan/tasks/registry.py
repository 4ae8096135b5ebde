"""The tasks, one line each. A new task is a module with a `TaskSpec` and a line here: see CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Sequence

from ctsan.config import Settings, load_settings
from ctsan.errors import UsageError, did_you_mean
from ctsan.tasks import blank, choice, description, embedding, retrieval
from ctsan.tasks.spec import TaskSpec

TASKS: dict[str, TaskSpec] = {
    "describe": description.SPEC,
    "fill": blank.SPEC,
    "choose": choice.SPEC,
    "rank": retrieval.SPEC,
    "embed": embedding.SPEC,
}


def task_spec(name: str) -> TaskSpec:
    """The record of a task in `TASKS`. The error for an unknown name suggests the nearest one.

    Raises:
        UsageError: there is no such task.
    """
    if name not in TASKS:
        hint = did_you_mean(name, TASKS) or f"There are {', '.join(TASKS)}. "
        raise UsageError(f"Unknown task {name!r}. {hint}".strip())
    return TASKS[name]


def task_settings(task: str, profile: str, overrides: Sequence[str] = ()) -> Settings:
    """Settings of a profile, with the defaults of a task and then `overrides` applied: see `load_settings`.

    Raises:
        UsageError: there is no such task or profile, or an override is invalid.
    """
    return load_settings(profile, (*task_spec(task).defaults, *overrides))
