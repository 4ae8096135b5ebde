"""`ctsan corpus`: check, make, items, human-agreement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ctsan.cli.output import print_json, print_line, print_metrics, print_table
from ctsan.data.corpus import ITEM_TASKS, SPLITS, ItemTask, Split
from ctsan.errors import CorpusError, Problem, UsageError, warn_renamed
from ctsan.io.messages import count, warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctsan.data.corpus import Corpus, Item


class _Commands(click.Group):
    """The group of commands; accepts the old name of one of them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "people":
            warn_renamed("corpus people", "corpus human-agreement")
            cmd_name = "human-agreement"
        return super().get_command(ctx, cmd_name)


@click.group("corpus", cls=_Commands)
def command() -> None:
    """Check and make corpora, build their test items, and measure how far people agree."""


@command.command("check", short_help="Say what a corpus holds, and all that is wrong with it.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--features",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Folder that 'ctsan features' filled, one a corpus: a clip with features needs no file.",
)
@click.option(
    "--items", type=click.Path(path_type=Path), multiple=True, help="Check this file of test items too."
)
@click.option("--no-video", is_flag=True, help="Read the captions only; do not open the clips.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def check(
    paths: tuple[Path, ...],
    features: tuple[Path, ...],
    items: tuple[Path, ...],
    no_video: bool,
    as_json: bool,
) -> None:
    """Read the corpus at PATH, summarise it, and list all its problems.

    The format is recognised: a folder with clips.jsonl or clips.csv, a folder of clips, LSMDC16, MSR-VTT or
    MSVD. Several corpora are checked as their union, as in training: a source that two of them put in
    different splits is a problem. The exit code is 2 if there is any problem.

    \b
    Examples:
      ctsan corpus check my-clips/
      ctsan corpus check my-clips/ MSR-VTT/
      ctsan corpus check MSVD/ --features features/msvd
    """
    from ctsan.cli.features import check_one_per_corpus
    from ctsan.data.items import read_items
    from ctsan.data.reading import clips_without_files, inspect_corpora, missing_clips
    from ctsan.data.summary import check_clips, summarise
    from ctsan.io.device import usable_cores
    from ctsan.training.features import open_features

    check_one_per_corpus("--features", features, paths)
    corpus, problems = inspect_corpora(paths)
    for file in items:
        try:
            read_items(file, corpus=corpus)
        except CorpusError as error:
            problems += error.problems
    store = open_features(corpus, features) if features else ()
    problems += corpus.unlisted
    missing = missing_clips(corpus, store)
    features_only = clips_without_files(corpus, store)
    hours: float | None = None
    unreadable: list[Problem] = []
    if not no_video:
        with progress_bar(len(corpus), what="opening clips") as bar:
            hours, unreadable = check_clips(corpus, workers=usable_cores(), progress=bar.update)
    summary = summarise(
        corpus,
        problems=problems,
        missing=missing,
        unreadable=unreadable,
        hours=hours,
        features_only=features_only,
    )
    all_problems = [*problems, *missing, *unreadable]
    if as_json:
        print_json(summary)
    else:
        if corpus.clips:
            _print_summary(corpus, hours, summary)
        for note in corpus.notes:
            print_line(note)
        for problem in all_problems:
            warn(str(problem))
        if all_problems:
            warn(f"{count(len(all_problems), 'problem')}. Fix them before training.")
    if all_problems:
        raise SystemExit(2)


def _print_summary(corpus: Corpus, hours: float | None, summary: dict[str, object]) -> None:
    rows: list[tuple[str, object]] = [("corpus", f"{corpus.name} ({corpus.format})")]
    rows += [(key.replace("_", " "), summary[key]) for key in ("clips", "sources", "captions")]
    rows += [(key.replace("_", " "), summary[key]) for key in ("words", "distinct_words")]
    if hours is not None:
        rows.append(("hours", f"{hours:.2f}"))
    for split in SPLITS:
        if clips := corpus.split(split):
            captions = sum(len(clip.captions) for clip in clips)
            rows.append((split, f"{count(len(clips), 'clip')}, {count(captions, 'caption')}"))
    if num_external := sum(clip.external for clip in corpus):
        rows.append(("external", count(num_external, "clip")))
    rows += [(f"items: {task} {split}", len(items)) for (task, split), items in corpus.items.items()]
    if summary["features_only"]:
        rows.append(("features, no file", summary["features_only"]))
    rows += [(key, summary[key]) for key in ("missing", "unreadable")]
    print_table(rows)


@command.command("make", short_help="Render a corpus of moving shapes.")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--clips", type=click.IntRange(min=1), default=200, show_default=True, help="How many.")
@click.option("--seed", default=0, show_default=True, help="Another seed, another corpus.")
@click.option("--simple", is_flag=True, help="One large thing that does one thing: soon learnt.")
def make(out: Path, clips: int, seed: int, simple: bool) -> None:
    """Make a corpus of rendered clips in the folder OUT: moving shapes, captions, every frame's truth.

    The same seed gives the same clips; a larger number adds clips to those in the folder.

    \b
    Examples:
      ctsan corpus make shapes/ --clips 200 --seed 0
      ctsan corpus make simple/ --clips 300 --simple
    """
    from ctsan.synthetic import make_corpus

    with progress_bar(clips, what="rendering") as bar:
        make_corpus(out, clips=clips, seed=seed, simple=simple, progress=bar.update)
    print_line(f"{count(clips, 'clip')} in {out}. Look at them, or go on with: ctsan corpus check {out}")


@command.command("items", short_help="Build test items for three tasks.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(SPLITS), default="test", show_default=True)
@click.option(
    "--task", type=click.Choice(ITEM_TASKS), multiple=True, help="May be repeated [default: all three]."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the files [default: print them].")
@click.option("--seed", default=0, show_default=True, help="For the blanks, distractors and queries.")
@click.option(
    "--per-clip",
    type=click.IntRange(min=1),
    help="At most so many items a clip [default: one a caption; for rank one a clip].",
)
@click.option("--build", is_flag=True, help="Build items even where the corpus brings official ones.")
def items(
    path: Path,
    split: Split,
    task: tuple[ItemTask, ...],
    out: Path | None,
    seed: int,
    per_clip: int | None,
    build: bool,
) -> None:
    """Build test items (JSON lines) for fill-in-the-blank, multiple choice and retrieval from a corpus.

    Blanks replace nouns, verbs and adjectives that occur in the training captions. Distractors share no verb
    and no object with the answer. The same seed gives the same items. Official items are used unchanged.

    \b
    Example:
      ctsan corpus items my-clips/ --split test --out items/
    """
    from ctsan.data.items import item_line, write_items
    from ctsan.data.reading import read_corpus

    corpus = read_corpus(path)
    for item_task in task or ITEM_TASKS:
        official = corpus.items.get((item_task, split)) if not build else None
        task_items = official or _built(corpus, split, item_task, seed=seed, per_clip=per_clip)
        if out is None:
            for item in task_items:
                print_json(json.loads(item_line(item)))
        else:
            write_items(out / f"{item_task}.jsonl", task_items)
            origin = ", the official ones" if official else ""
            print_line(f"{out / f'{item_task}.jsonl'}: {count(len(task_items), 'item')}{origin}")


def _built(
    corpus: Corpus, split: Split, task: ItemTask, *, seed: int, per_clip: int | None
) -> Sequence[Item]:
    from ctsan.data.item_building import build_items

    built = build_items(corpus, split=split, task=task, seed=seed, per_clip=per_clip)
    for clip, reason in built.left_out.items():
        warn(f"{task}: no item for clip '{clip}': {reason}")
    return built.items


@command.command("human-agreement", short_help="Measure how far people agree in describing the clips.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--split",
    type=click.Choice([*SPLITS, "all"]),
    help="Clips to measure on [default: test; all of a corpus that gives no splits].",
)
@click.option(
    "--per-clip",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="At most so many captions of a clip are judged, each by all others of it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def human_agreement(path: Path, split: Split | Literal["all"] | None, per_clip: int, as_json: bool) -> None:
    """Score human captions against the other captions of the clip, as 'ctsan evaluate' scores a model's.

    Where people disagree, no model can agree with all of them: the scores bound what a model can reach.

    \b
    Examples:
      ctsan corpus human-agreement my-clips/ --split test
      ctsan corpus human-agreement MSR-VTT/ --per-clip 1 --json
    """
    from ctsan.data.reading import read_corpus
    from ctsan.evaluation.bootstrap import interval
    from ctsan.evaluation.human_agreement import score_human_captions
    from ctsan.evaluation.java import find_java

    corpus = read_corpus(path)
    split = split or ("test" if corpus.has_own_splits else "all")
    several = {
        clip.id: clip.captions for clip in corpus if split in ("all", clip.split) and len(clip.captions) > 1
    }
    of = "" if split == "all" else f" of the split '{split}'"
    if not several:
        raise UsageError(
            f"{path}: no clip{of} has two captions, so people's cannot be compared. Choose another split."
        )
    scores = score_human_captions(several, per_clip=per_clip, java=find_java())
    metrics = {name: statistic.value for name, statistic in scores.statistics.items()}
    intervals = {name: interval(statistic) for name, statistic in scores.statistics.items()}
    if as_json:
        print_json(
            {
                "split": split,
                "clips": len(several),
                "metrics": metrics,
                "intervals": intervals,
                "tokeniser": scores.tokeniser,
                "notes": scores.notes,
            }
        )
        return
    print_metrics(metrics, intervals)
    judged = sum(min(per_clip, len(captions)) for captions in several.values())
    print_line(f"\nMeasured on {count(judged, 'caption')} of {count(len(several), 'clip')}{of}.")
    for note in scores.notes:
        warn(note)
