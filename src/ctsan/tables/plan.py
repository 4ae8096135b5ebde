"""Which runs the asked tables need, in an order in which each finds what it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ctsan.config import Settings, load_settings
from ctsan.errors import UsageError, did_you_mean
from ctsan.tables.layout import TABLES, Table
from ctsan.tables.systems import ENSEMBLES, SYSTEMS, MeasuredTask
from ctsan.tasks.building import TaskName

TrainedTask = Literal["detect"] | TaskName  # 'detect': of a detector alone


@dataclass(frozen=True, slots=True)
class Training:
    """One run: a system trained for a task with a seed."""

    task: TrainedTask
    system: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task}/{self.system}/{self.seed}"

    def folder(self, out: Path) -> Path:
        return out / "runs" / self.task / self.system / str(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    tables: tuple[Table, ...]
    systems: tuple[str, ...]  # that are trained
    trainings: tuple[Training, ...]
    seeds: int

    def has(self, ensemble: str) -> bool:
        """Whether an ensemble is wanted."""
        shown = any(ensemble in table.rows for table in self.tables)
        return shown and ENSEMBLES[ensemble].of in self.systems


def make_plan(only: Sequence[str], *, seeds: int) -> Plan:
    """What to train for tables, systems and tasks that are named; all of them where none is.

    Tables choose what is printed. Systems and tasks choose what is trained for it.

    Raises:
        UsageError: a name is of none, or nothing is left to train.
    """
    tasks: tuple[MeasuredTask, ...] = ("describe", "fill", "choose", "rank")
    known = (*TABLES, *SYSTEMS, *tasks)
    for name in only:
        if name not in known:
            hint = did_you_mean(name, known) or f"There are {', '.join(known)}."
            raise UsageError(f"Unknown table, system or task {name!r}. {hint}".strip())
    tables = tuple(TABLES[name] for name in TABLES if name in only) or tuple(TABLES.values())
    wanted_tasks = [task for task in tasks if task in only] or list(tasks)
    needed = {ENSEMBLES[row].of if row in ENSEMBLES else row for table in tables for row in table.rows}
    systems = tuple(
        name for name in SYSTEMS if (name in only if any(n in SYSTEMS for n in only) else name in needed)
    )
    trainings: list[Training] = []
    for seed in range(seeds):  # all systems with one seed first: a first whole table comes soon
        for task in wanted_tasks:
            for name in systems:
                if task in SYSTEMS[name].measured and _is_asked(name, task, tables):
                    trainings += _with_what_it_needs(name, task, seed)
                    if task == "rank" and seeds > 1 and _is_in_ensemble(name, tables):
                        trainings += _with_what_it_needs(name, "choose", 0)  # which helps the others there
    if not trainings:
        raise UsageError(
            f"{', '.join(only)} have nothing in common: no table that is asked for shows such a system in "
            "such a task. Leave one of them out."
        )
    return Plan(tables=tables, systems=systems, trainings=tuple(dict.fromkeys(trainings)), seeds=seeds)


def _is_asked(system: str, task: MeasuredTask, tables: Sequence[Table]) -> bool:
    """Whether any of the tables shows a system in a task, be it as a member of an ensemble."""
    return any(
        (row == system or (row in ENSEMBLES and ENSEMBLES[row].of == system)) and column.task == task
        for table in tables
        for row in table.rows
        for column in table.columns
    )


def _is_in_ensemble(system: str, tables: Sequence[Table]) -> bool:
    return any(row in ENSEMBLES and ENSEMBLES[row].of == system for table in tables for row in table.rows)


def _with_what_it_needs(name: str, task: MeasuredTask, seed: int) -> list[Training]:
    system = SYSTEMS[name]
    own = Training(system.training(task), name, seed)
    needed = [Training("detect", name, seed)] if is_decoupled(name) else []
    if source := description_of(own):
        needed.append(source)
    return [*needed, own]


def is_decoupled(system: str) -> bool:
    """Whether a detector is trained first."""
    return "detector.kind=decoupled" in SYSTEMS[system].overrides


def description_of(training: Training) -> Training | None:
    """The description run that a run of another task starts from, as in the paper; None if there is none."""
    can = "describe" in SYSTEMS[training.system].measured
    return (
        Training("describe", training.system, training.seed)
        if can and training.task in ("fill", "choose", "rank")
        else None
    )


def settings_of(training: Training, *, profile: str, overrides: Sequence[str]) -> Settings:
    """Of a run: the profile's, what was given for all systems, what the system is, and its seed.

    A detector alone is that of CT-SAN.
    """
    own = SYSTEMS["ct-san" if training.task == "detect" else training.system].overrides
    alone = ("model.sees_clip=false",) if training.task == "detect" else ()
    return load_settings(profile, (*overrides, *own, *alone, f"training.seed={training.seed}"))
