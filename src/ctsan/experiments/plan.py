"""List the runs that the requested tables need, each after the runs it is initialised from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ctsan.config import Settings, load_settings
from ctsan.errors import UsageError, did_you_mean
from ctsan.experiments.layout import TABLES, Table
from ctsan.experiments.systems import ALL, ENSEMBLES, SYSTEMS, MeasuredTask
from ctsan.tasks.registry import task_settings

TrainedTask = str  # 'detect' is a detector trained alone


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
    systems: tuple[str, ...]  # to train
    trainings: tuple[Training, ...]
    seeds: int
    ensemble_sizes: Mapping[MeasuredTask, int]  # excludes the multiple-choice run that joins `rank`

    def members(self, ensemble: str, task: MeasuredTask) -> list[Training]:
        """List the runs of an ensemble. As in the paper, one multiple-choice run joins the retrieval runs."""
        of = ENSEMBLES[ensemble].of
        joining = [Training("choose", of, 0)] if task == "rank" else []
        return [*(Training(task, of, seed) for seed in range(self.ensemble_sizes[task])), *joining]

    def has(self, ensemble: str) -> bool:
        """Whether some table shows an ensemble and its system is trained."""
        is_in_tables = any(ensemble in table.rows for table in self.tables)
        return is_in_tables and ENSEMBLES[ensemble].of in self.systems


def make_plan(
    only: Sequence[str], *, seeds: int, ensemble_sizes: Mapping[MeasuredTask, int] | None = None
) -> Plan:
    """Plan the runs for the named tables, systems and tasks. Naming none of a kind selects all of it.

    Tables select what is printed; systems and tasks select what is trained for it.

    Args:
        only: names of tables, systems and tasks.
        ensemble_sizes: members by task; by default the number of seeds. Members beyond the seeds are trained
            too.

    Raises:
        UsageError: a name is unknown, or nothing is left to train.
    """
    names = (*TABLES, *SYSTEMS, *ALL)
    for name in only:
        if name not in names:
            hint = did_you_mean(name, names) or f"There are {', '.join(names)}."
            raise UsageError(f"Unknown table, system or task {name!r}. {hint}".strip())
    tables = tuple(TABLES[name] for name in TABLES if name in only) or tuple(TABLES.values())
    selected_tasks = [task for task in ALL if task in only] or list(ALL)
    needed = {ENSEMBLES[row].of if row in ENSEMBLES else row for table in tables for row in table.rows}
    systems = tuple(
        name for name in SYSTEMS if (name in only if any(n in SYSTEMS for n in only) else name in needed)
    )
    sizes = ensemble_sizes or dict.fromkeys(ALL, seeds)
    plan = Plan(tables=tables, systems=systems, trainings=(), seeds=seeds, ensemble_sizes=sizes)
    trainings: list[Training] = []
    for seed in range(seeds):  # seed by seed, so that a first complete table is ready early
        for task in selected_tasks:
            for name in systems:
                if task in SYSTEMS[name].measured and _tables_show(name, task, tables):
                    trainings += _with_dependencies(Training(SYSTEMS[name].training(task), name, seed))
    for name, ensemble in ENSEMBLES.items():
        for task in selected_tasks:
            is_needed = task in ensemble.measured and plan.has(name) and _tables_show(name, task, tables)
            if is_needed and sizes[task] > 1:
                trainings += chain(*map(_with_dependencies, plan.members(name, task)))
    if not trainings:
        raise UsageError(
            f"{', '.join(only)} have nothing in common: no table that is asked for shows such a system in "
            "such a task. Leave one of them out."
        )
    return replace(plan, trainings=tuple(dict.fromkeys(trainings)))


def _tables_show(system: str, task: MeasuredTask, tables: Sequence[Table]) -> bool:
    """Whether any of the tables shows a system in a task, by itself or as an ensemble."""
    return any(
        (row == system or (row in ENSEMBLES and ENSEMBLES[row].of == system)) and column.task == task
        for table in tables
        for row in table.rows
        for column in table.columns
    )


def _with_dependencies(training: Training) -> list[Training]:
    needed = [Training("detect", training.system, training.seed)] if is_decoupled(training.system) else []
    if source := description_of(training):
        needed.append(source)
    return [*needed, training]


def is_decoupled(system: str) -> bool:
    """Whether a system's detector is trained first, as a run of its own."""
    return "detector.kind=decoupled" in SYSTEMS[system].overrides


def description_of(training: Training) -> Training | None:
    """Return the description run that a run is initialised from, as in the paper; None if there is none."""
    can = "describe" in SYSTEMS[training.system].measured
    return (
        Training("describe", training.system, training.seed)
        if can and training.task in ("fill", "choose", "rank")
        else None
    )


def settings_of(training: Training, *, profile: str, overrides: Sequence[str]) -> Settings:
    """Compute the settings of a run. In rising priority: profile, task defaults, `overrides`, system, seed.

    - A detector trained alone has the settings of CT-SAN.
    - All runs train for the same number of steps, whatever their task's default.
    - training.freeze_clip_encoder holds only for runs initialised from another run.
    """
    is_detector = training.task == "detect"
    fixed = [*SYSTEMS["ct-san" if is_detector else training.system].overrides]
    if is_detector:
        fixed += ["model.use_video=false", "detector.probe=none"]  # the detector alone predicts the words
    if description_of(training) is None:
        fixed.append("training.freeze_clip_encoder=false")
    steps = load_settings(profile, overrides).training.steps
    fixed += [f"training.steps={steps}", f"training.seed={training.seed}"]
    all_overrides = (*overrides, *fixed)
    return (
        load_settings(profile, all_overrides)
        if is_detector
        else task_settings(training.task, profile, all_overrides)
    )


_NO_JOINT_EMBEDDING = "it counts where a joint embedding stands beside the describing model: here none does"
_REFUSED = {
    "training.seed": "every system has the seeds 0, 1, … here. Say how many: --seeds N",
    "retrieval.extra_vocabulary": "it takes words of --vectors, which the tables do not have. Leave it out",
    "retrieval.phrases": "it reorders captions, and the dual encoder of the tables makes none. Leave it out",
    "rerank.embedding_weight": f"{_NO_JOINT_EMBEDDING}. Leave it out",
    "rerank.cider_weight": f"{_NO_JOINT_EMBEDDING}. Leave it out",
}


def check_overrides(plan: Plan, *, profile: str, overrides: Sequence[str]) -> None:
    """Reject settings that would change no run of a plan.

    Raises:
        UsageError: a setting has no effect. The message lists every such setting with the reason.
    """
    requested = load_settings(profile, overrides).to_json()
    runs = [settings_of(one, profile=profile, overrides=overrides).to_json() for one in plan.trainings]
    problems = []
    for name in dict.fromkeys(set_names(overrides)):
        section, _, setting = name.partition(".")
        value = requested[section][setting]
        if name in _REFUSED:
            why = _REFUSED[name]
        elif (name, value) == ("detector.kind", "decoupled"):
            why = "a decoupled detector is trained first, alone. Ask for that system: --only decoupled"
        elif (name, value) == ("training.freeze_clip_encoder", True) and requested["training"][
            "transfer"
        ] == "detector":
            why = (
                "a run that takes over the detector alone has no clip encoder to keep. Add --set "
                "training.transfer=shared"
            )
        elif any(run[section][setting] == value for run in runs):
            continue
        elif name == "training.freeze_clip_encoder":
            why = "no run that is asked for starts from another. Ask for one that does: --only ct-san"
        else:
            why = "every system that is asked for has another value, which makes it that system. Leave it out"
        problems.append(f"--set {name}: {why}.")
    if problems:
        raise UsageError("\n".join(problems))


def set_names(overrides: Sequence[str]) -> list[str]:
    """Extract the names of overridden settings, such as `model.dropout` from `model.dropout=0.1`."""
    return [override.partition("=")[0].strip() for override in overrides]
