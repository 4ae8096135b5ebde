"""Which runs answer which tasks, without the models: for use, which does without PyTorch."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Roles(NamedTuple):
    """What the runs of a task do besides their own task.

    Attributes:
        helpers: tasks whose runs may be named beside those of this task; unless they decide, they join its
            ensemble.
        decides: tasks whose questions its runs answer alone, in place of the tasks' own runs.
        reads_concepts: its models may have a concept detector, as the settings say.
    """

    helpers: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()
    reads_concepts: bool = True


# By task, in the order of `registry.TASKS`. A task without a line here answers only its own questions.
ROLES: dict[str, Roles] = {
    "describe": Roles(helpers=("embed",)),
    "fill": Roles(),
    "choose": Roles(helpers=("embed",)),
    "rank": Roles(helpers=("choose", "embed")),
    "embed": Roles(decides=("choose", "rank"), reads_concepts=False),
}


def roles_of(task: str) -> Roles:
    return ROLES.get(task, Roles())


def known_tasks(name: str) -> Collection[str]:
    """The tasks of this ctsan. Those that were added to it are known to `registry`, which loads PyTorch."""
    if name in ROLES:
        return ROLES
    try:
        from ctsan.tasks.registry import TASKS
    except ImportError:
        return ROLES
    return TASKS
