"""`ctsan evaluate`: how well trained models do on clips that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ctsan.cli.common import PATH
from ctsan.cli.features import WEIGHTS, check_one_each, features_command, features_of
from ctsan.cli.output import count, listed, print_json, print_metrics, print_table, warn

if TYPE_CHECKING:
    from ctsan.config import Settings
    from ctsan.data.corpus import Corpus, Item, Split
    from ctsan.runs.trained_run import TrainedRun
    from ctsan.tasks.reliance import Reliance
    from ctsan.video.backbones import Backbone
    from ctsan.video.store import FeatureStore


@click.command("evaluate")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option(
    "--corpus",
    "corpora",
    type=PATH,
    multiple=True,
    required=True,
    help="Clips, captioned or with --items. May be repeated: several are used as one.",
)
@click.option(
    "--task",
    "asked",
    type=click.Choice(["describe", "fill", "choose", "rank"]),
    help="What to ask the runs [default: as --items say; else what all runs do].",
)
@click.option(
    "--split",
    type=click.Choice(["train", "val", "test", "all"]),
    help="Clips to measure on [default: those of --items; test; all of a corpus that gives no splits].",
)
@click.option("--items", type=PATH, help="File of test items to answer instead of the corpus' own.")
@click.option(
    "--features",
    type=PATH,
    multiple=True,
    help="Folder that 'ctsan features' filled, one a corpus [default: in the cache, made with the runs' "
    "backbone if need be].",
)
@WEIGHTS
@click.option("--beam", type=click.IntRange(min=1), help="1 is greedy [default: as the run was set].")
@click.option(
    "--reliance",
    is_flag=True,
    help="Measure how much each run relies on its concept words: its answers with others in their place.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the answers.")
def command(
    runs: tuple[Path, ...],
    corpora: tuple[Path, ...],
    asked: str | None,
    split: Split | Literal["all"] | None,
    items: Path | None,
    features: tuple[Path, ...],
    weights: Path | None,
    beam: int | None,
    reliance: bool,
    as_json: bool,
) -> None:
    """Measure what RUNS answer, several of one task as one, and their concept words.

    Blanks, choices and queries are those of --items or of the corpus, or built from its captions, the same
    for every run. Runs of 'embed' answer choices and queries by themselves, rerank the captions of runs of
    'describe', and decide alone where runs of 'choose' or 'rank' stand beside them.
    Captions are measured as in publications, which needs Java. Intervals say how far the choice of clips may
    have moved a figure.

    --reliance measures each run of the task by itself, by the task's primary metric: with each clip's own
    concept words, with another clip's, with random ones, with none, and with the words of its captions (the
    oracle: what perfect words would bring).

    \b
    Examples:
      ctsan evaluate runs/mine --corpus my-clips/ --split test
      ctsan evaluate runs/fill1 runs/fill2 runs/fill3 --corpus my-clips/ --json
      ctsan evaluate runs/rank runs/choose --corpus my-clips/ --items queries.jsonl
      ctsan evaluate runs/embed --corpus my-clips/ --task choose
      ctsan evaluate default --task describe --corpus my-clips/
      ctsan evaluate runs/mine --corpus my-clips/ --split test --reliance
      ctsan evaluate runs/mine --corpus my-clips/ --corpus MSR-VTT/ --split test
    """
    from ctsan.data.items import read_items, task_of
    from ctsan.data.reading import read_corpora
    from ctsan.data.union import parts_without_items
    from ctsan.errors import UsageError
    from ctsan.evaluation.coco_metrics import NO_JAVA
    from ctsan.evaluation.java import find_java
    from ctsan.runs.trained_run import answering, can_answer, common_task, load_runs
    from ctsan.tasks.building import build_task
    from ctsan.tasks.report import report

    check_one_each("--features", features, corpora)
    opened = load_runs(runs)
    whole = read_corpora(corpora)
    questions = read_items(items, corpus=whole) if items is not None else ()
    of_items = task_of(questions[0]) if questions else None
    task_name = asked or (of_items if of_items and can_answer(opened, of_items) else common_task(opened))
    deciding = _reading_concepts(opened, task_name) if reliance else answering(opened, task_name)
    for run in opened:
        if run.folder in runs and run not in deciding and not (reliance and run.task == task_name):
            is_outvoted = run.task in ("choose", "rank") and deciding[0].task == "embed"
            why = "the runs of 'embed' decide alone" if is_outvoted else f"it is a run of {run.task!r}"
            warn(f"{run.folder}: not asked, for {why}.")
    opened = deciding
    backbone = None if features else _backbone_of(opened, corpora, weights)
    java = find_java() if task_name == "describe" else None
    if task_name == "describe" and java is None:
        warn(NO_JAVA)
    split = split or ("all" if items is not None or not whole.has_own_splits else "test")
    clips = _measured_clips(whole, task_name, split, items, questions)
    if items is None:
        own_items = [item for some in clips.items.values() for item in some]
        for part in parts_without_items(whole, clips, own_items):
            warn(f"{part.root}: it brings no items of {task_name!r} and another corpus does: left out.")
    store = features_of(corpora, whole, features, backbone)
    _check_features(opened, store, clips, corpora)
    nothing = UsageError(
        f"{listed(corpora)}: there is nothing to ask of the split '{split}', for its captions give no items. "
        "Choose another split, or write a file of them: --items FILE"
    )
    if reliance:
        found_of = {run.folder: _reliance(run, store, clips, beam, java) for run in opened}
        known = {folder: found for folder, found in found_of.items() if found is not None}
        if not known:
            raise nothing
        _print_reliance(known, task_name, split, as_json=as_json)
        return
    first = next((run for run in opened if run.task == task_name), opened[0])
    member = first.member
    settings = _with_beam(first.settings, beam)
    task = build_task(task_name, settings, member.words, store, clips, model=member.model, split="test")
    members = [run.member for run in opened]
    measured = task.measure(members)
    if not measured.answers:
        raise nothing
    training = whole.captions("train") if split != "all" else ()
    found = report(task_name, measured, members, clips.clips, store, java=java, training=training)
    intervals = found.intervals
    if as_json:
        print_json(
            {
                "task": task_name,
                "split": split,
                "clips": len(measured.answers),
                "runs": [str(run.folder) for run in opened],
                "metrics": found.metrics,
                "intervals": intervals,
                **({"tokeniser": found.tokeniser, "notes": found.notes} if found.tokeniser else {}),
                "answers": measured.answers,
            }
        )
        return
    print_metrics(found.metrics, intervals)
    of = "" if split == "all" else f" of the split '{split}'"
    click.echo(f"\nMeasured on {count(len(measured.answers), 'clip')}{of}.")
    for note in found.notes:
        if note != NO_JAVA:  # which was said at the start
            warn(note)


def _with_beam(settings: Settings, beam: int | None) -> Settings:
    from dataclasses import replace

    decoding = settings.decoding
    return replace(settings, decoding=replace(decoding, beam=beam or decoding.beam))


def _reading_concepts(runs: Sequence[TrainedRun], task: str) -> list[TrainedRun]:
    """The runs of a task that read concept words; of its other runs it is said that they do not.

    Raises:
        UsageError: there is none.
    """
    from ctsan.errors import UsageError
    from ctsan.tasks.loaded_model import reads_concepts

    of_task = [run for run in runs if run.task == task]
    if not of_task:
        found = ", ".join(f"{run.folder} is of {run.task!r}" for run in runs)
        raise UsageError(f"--reliance needs a run of {task!r}, and {found}. Name one.")
    reading = [run for run in of_task if reads_concepts(run.member.model)]
    silent = [f"{run.folder}: it reads no concept words" for run in of_task if run not in reading]
    if not reading:
        raise UsageError(f"{', '.join(silent)}: --reliance has nothing to measure. Name a run that does.")
    for each in silent:
        warn(f"{each}: left out.")
    return reading


def _reliance(
    run: TrainedRun, store: FeatureStore, clips: Corpus, beam: int | None, java: Path | None
) -> Reliance | None:
    from ctsan.tasks.building import build_task
    from ctsan.tasks.reliance import measure_reliance

    member, settings = run.member, _with_beam(run.settings, beam)
    task = build_task(run.task, settings, member.words, store, clips, model=member.model, split="test")
    return measure_reliance(run.task, task, member, java=java)


def _print_reliance(found: Mapping[Path, Reliance], task: str, split: str, *, as_json: bool) -> None:
    from ctsan.tasks.registry import TASKS
    from ctsan.tasks.reliance import SOURCE_LABELS

    if as_json:
        runs = {str(folder): each.to_json() for folder, each in found.items()}
        print_json({"task": task, "split": split, "reliance": runs})
        return
    of = "" if split == "all" else f" of the split '{split}'"
    for folder, each in found.items():
        rows = []
        for source, score in each.sources.items():
            row = [SOURCE_LABELS[source], f"{score.value:.3f}", "{:.3f} to {:.3f}".format(*score.interval)]
            if score.difference is not None:
                low, high = score.difference.interval
                row += [f"{score.difference.difference:+.3f}", f"{low:+.3f} to {high:+.3f}"]
                row.append(f"{score.changed:.1%}")
            rows.append(row + [""] * (6 - len(row)))
        click.echo(f"{folder} ({task}), measured alone: no other run votes or reranks.\n")
        headers = ("concept words", each.metric, "95 % interval", "difference", "95 % interval", "changed")
        print_table(rows, headers)
        click.echo(
            f"\nMeasured on {count(each.clips, 'clip')}{of}; 'changed' is the share of "
            f"{each.answers:,} {TASKS[task].answer_noun} that differ from those with the clip's own words.\n"
        )


def _measured_clips(
    whole: Corpus,
    task: str,
    split: Split | Literal["all"],
    file: Path | None,
    questions: Sequence[Item],
) -> Corpus:
    """The clips to measure on, as a test split, with their own items or those of a file.

    Raises:
        UsageError: its items are of another task, or about clips of another split; or no clip has captions.
    """
    from dataclasses import replace

    from ctsan.data.items import task_of
    from ctsan.errors import UsageError

    chosen = [clip for clip in whole if split in ("all", clip.split)]
    own = [
        item
        for (item_task, side), some in whole.items.items()
        if item_task == task and split in ("all", side)
        for item in some
    ]
    if file is not None:
        own = list(questions)
        item_task = task_of(own[0])
        if item_task != task:
            raise UsageError(
                f"{file}: items of {item_task!r}, and the runs are of {task!r}. Name runs of {item_task!r}, "
                "or other items."
            )
        asked, known = {item.clip for item in own}, {clip.id for clip in chosen}
        if strange := [item.clip for item in own if item.clip not in known]:
            raise UsageError(
                f"{file}: {count(len(strange), 'item')} about clips that are not of the split '{split}', "
                f"such as {strange[0]!r}. Name their split, or none."
            )
        chosen = [clip for clip in chosen if clip.id in asked]
    elif not any(clip.captions for clip in chosen):
        of = "" if split == "all" else f" of the split '{split}'"
        raise UsageError(
            f"{whole.place}: no clip{of} has captions. Choose another split, or name a file of items: "
            "--items FILE"
        )
    clips = tuple(replace(clip, split="test") for clip in chosen)
    return replace(whole, clips=clips, items={(task_of(own[0]), "test"): tuple(own)} if own else {})


def _backbone_of(runs: Sequence[TrainedRun], corpora: Sequence[Path], weights: Path | None) -> Backbone:
    """What makes the features that runs need, where no folder of them is given.

    Raises:
        UsageError: a run was trained on imported features, or runs on those of different networks.
    """
    from ctsan.errors import UsageError
    from ctsan.video.backbones import backbone_of, network_key

    for run in runs:
        if run.recipe.details.get("imported"):
            raise UsageError(
                f"{run.folder}: it was trained on imported features of {run.recipe.backbone}. Give a folder "
                f"of such of {listed(corpora)} with --features FOLDER, or make it: "
                f"{features_command(corpora, run.recipe)}"
            )
        if network_key(run.recipe) != network_key(runs[0].recipe):
            raise UsageError(
                f"{run.folder}: it was trained on features of {run.recipe.backbone}, and {runs[0].folder} on "
                f"others, of {runs[0].recipe.backbone}. Evaluate runs of one network."
            )
    return backbone_of(runs[0].recipe, weights)


def _check_features(
    runs: Sequence[TrainedRun], store: FeatureStore, clips: Corpus, corpora: Sequence[Path]
) -> None:
    """Raises:
    UsageError: features were made otherwise than the runs', or of none of the clips.
    """
    from dataclasses import replace

    from ctsan.errors import UsageError
    from ctsan.video.store_union import folders_of

    backbone = store.manifest.recipe.backbone
    wrong = [
        f"{folders_of(store)}: features of {backbone}, and {run.folder} was trained on those of "
        f"{run.recipe.backbone}. Make them: {features_command(corpora, run.recipe)}"
        for run in runs
        if run.recipe.backbone != backbone
    ]
    recipe = store.manifest.recipe
    wrong = wrong or [
        f"{folders_of(store)}: these features of {backbone} were made otherwise than those that {run.folder} "
        "was trained on. It needs such as 'features.json' of that run says."
        for run in runs
        if replace(recipe, mirrored=run.recipe.mirrored) != run.recipe
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    asked = {item.clip for items in clips.items.values() for item in items}
    needed = [clip.id for clip in clips if clip.id in asked or not asked]
    missing = sum(clip not in store for clip in needed)
    if missing == len(needed):
        raise UsageError(
            f"{folders_of(store)}: no features of any clip that is asked about. Make them: "
            f"{features_command(corpora)}"
        )
    if missing:
        warn(f"{count(missing, 'clip')} of {len(needed):,} without features: left out.")
