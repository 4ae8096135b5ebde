"""`ctsan train`: learn from a corpus."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctsan.cli.features import features_folder, make_features
from ctsan.cli.output import count, print_json, progress_bar, warn

if TYPE_CHECKING:
    from ctsan.config import Settings
    from ctsan.data.corpus import Corpus, Split
    from ctsan.tasks.building import TaskName
    from ctsan.tasks.task import Task
    from ctsan.training.loop import Progress, Result
    from ctsan.video.store import FeatureStore

_FEW_CLIPS = 5  # of the validation split: with fewer, CIDEr says little
_FEW_STEPS = 500  # in fewer, nothing much is learnt
_PARTED = 0.15  # from this difference on, a detector is said to know its training clips by heart


@click.group("train")
def command() -> None:
    """Train a model on a corpus; stopped at any moment, the same command goes on."""


_HELP: dict[TaskName, str] = {
    "describe": "Learn to describe clips in a sentence.",
    "fill": "Learn to fill in the blank of a sentence about a clip.",
    "choose": "Learn to choose the sentence that was written for a clip.",
    "rank": "Learn to rank clips for a sentence.",
}
_EXAMPLES = """

\b
Examples:
  ctsan train {task} --corpus my-clips/ --out runs/mine
  ctsan train {task} --corpus my-clips/ --out runs/k20 --set detector.num_concepts=20
  ctsan train {task} --corpus LSMDC16/ --out runs/paper --profile paper --features features/
  torchrun --nproc-per-node 2 -m ctsan train {task} --corpus my-clips/ --out runs/mine
"""


def _command_for(task_name: TaskName) -> click.Command:
    @click.command(task_name, help=_HELP[task_name] + _EXAMPLES.format(task=task_name))
    @click.option("--corpus", type=click.Path(path_type=Path), required=True, help="Captioned clips.")
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
    @click.option(
        "--profile", default="laptop", show_default=True, help="laptop, or paper for its own sizes."
    )
    @click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.SETTING=VALUE",
        help="May be repeated; 'ctsan settings' lists them all.",
    )
    @click.option(
        "--features",
        type=click.Path(path_type=Path),
        help="Folder that 'ctsan features' filled [default: the corpus' own in the cache, made if need be].",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
    def train(
        corpus: Path,
        out: Path,
        profile: str,
        overrides: tuple[str, ...],
        features: Path | None,
        as_json: bool,
    ) -> None:
        _train(task_name, corpus, out, profile, overrides, features, as_json=as_json)

    return train


for _task in _HELP:
    command.add_command(_command_for(_task))


def _train(
    task_name: TaskName,
    corpus: Path,
    out: Path,
    profile: str,
    overrides: tuple[str, ...],
    features: Path | None,
    *,
    as_json: bool,
) -> None:
    from ctsan.config import load_settings
    from ctsan.data.reading import read_corpus
    from ctsan.training.processes import OtherProcessError, joined_processes

    try:
        with joined_processes() as processes:
            with processes.together():
                settings = load_settings(profile, overrides)
                clips = read_corpus(corpus)
                store = features or features_folder(corpus, mirrored=settings.training.mirror)
                if processes.is_first:  # the others wait
                    _prepare(
                        task_name, clips, corpus, out, profile, settings, store, made_here=features is None
                    )
            with processes.together():
                task = _load_task(task_name, clips, out, settings, store)
            result = _train_visibly(task, out, settings, is_first=processes.is_first)
    except OtherProcessError as error:
        raise SystemExit(error.exit_code) from None
    if processes.is_first:
        _conclude(task, result, out, settings, as_json=as_json)


def _prepare(
    task_name: TaskName,
    clips: Corpus,
    corpus: Path,
    out: Path,
    profile: str,
    settings: Settings,
    store: Path,
    *,
    made_here: bool,
) -> None:
    """All that training needs, into the run folder and the folder of features."""
    from ctsan.errors import UsageError
    from ctsan.predictor import WORDS_FOLDER, read_recipe, write_recipe
    from ctsan.text.words import prepare_words
    from ctsan.training.run_folder import check_folder, create_run, has_begun, training_alone
    from ctsan.video.store import FeatureStore

    _check_splits(clips, corpus)
    check_folder(out)
    with training_alone(out):
        create_run(out, task=task_name, profile=profile, settings=settings)
        if made_here:
            make_features(clips, store, mirrored=settings.training.mirror)
        features = FeatureStore(store)
        _check_features(clips, corpus, features)
        recipe = features.manifest.recipe
        if has_begun(out):
            if read_recipe(out) != recipe:
                raise UsageError(
                    f"{store}: not the kind of features that the run in {out} was begun with "
                    f"({recipe.backbone} now, {read_recipe(out).backbone} then). Give it those, or name "
                    "another folder for a new run."
                )
        else:  # words that are there may be of other settings
            write_recipe(out, recipe)
            warn("Preparing the words of the training captions.")
            prepare_words(
                clips.captions("train"),
                num_concepts=settings.detector.num_candidates,
                embedding_dim=settings.model.embedding_dim,
                seed=settings.training.seed,
            ).save(out / WORDS_FOLDER)


def _check_splits(clips: Corpus, corpus: Path) -> None:
    """Raises:
    UsageError: there is nothing to learn from, or too little to choose weights by.
    """
    from ctsan.errors import UsageError

    purposes: dict[Split, str] = {"train": "learn from", "val": "choose the best weights by"}
    for split, purpose in purposes.items():
        if not any(clip.captions for clip in clips.split(split)):
            raise UsageError(
                f"{corpus}: no clip of the split '{split}' has captions, and some are needed to {purpose}. "
                "'ctsan corpus check' shows the splits; without any, three sources or more are split for you."
            )
    if sum(bool(clip.captions) for clip in clips.split("val")) == 1:
        raise UsageError(
            f"{corpus}: one clip only of the split 'val' has captions, and CIDEr, by which the best weights "
            'are chosen, is always 0 with one. Write "split": "val" for two clips or more, or caption more '
            "clips: a tenth of them is set aside."
        )


def _check_features(clips: Corpus, corpus: Path, features: FeatureStore) -> None:
    """Raises:
    UsageError: there are no features to learn from, or too few to choose weights by.
    """
    from ctsan.errors import UsageError

    least: dict[Split, int] = {"train": 1, "val": 2}
    for split, needed in least.items():
        captioned = [clip for clip in clips.split(split) if clip.captions]
        usable = sum(clip.id in features for clip in captioned)
        if usable < needed:
            raise UsageError(
                f"{features.folder}: holds features of {count(usable, 'captioned clip')} of the split "
                f"'{split}', and {needed} are needed. Make them: ctsan features {corpus} --out FOLDER"
            )
        if split == "val" and usable < _FEW_CLIPS:
            warn(
                f"There are {usable} validation clips: CIDEr on so few says little, and the weights chosen "
                "by it may not be the best. Caption more clips, or give more of them to the split 'val'."
            )


def _load_task(task_name: TaskName, clips: Corpus, out: Path, settings: Settings, store: Path) -> Task[Any]:
    from ctsan.predictor import WORDS_FOLDER
    from ctsan.tasks.building import build_model, build_task, start_from_clips
    from ctsan.text.words import Words
    from ctsan.video.store import FeatureStore

    words, features = Words.load(out / WORDS_FOLDER), FeatureStore(store)
    model = build_model(
        task_name,
        settings,
        words,
        grid=features.grid,
        channels=features.channels,
        seed=settings.training.seed,
    )
    start_from_clips(model, clips.split("train"), features, words)
    return build_task(task_name, settings, words, features, clips, model=model)


def _train_visibly(task: Task[Any], out: Path, settings: Settings, *, is_first: bool) -> Result:
    """Train, with a bar, a line for each evaluation, and a warning once the detector's precisions part."""
    from ctsan.training.loop import train

    if not is_first:
        return train(task, out, optimiser=settings.optimiser, training=settings.training)
    training = settings.training
    steps = math.ceil(task.num_examples / training.batch_size) * training.epochs
    if steps < _FEW_STEPS:
        epochs = math.ceil(training.epochs * _FEW_STEPS / max(steps, 1))
        warn(
            f"These settings make {count(steps, 'step')}, and a few hundred are learnt from at least. For a "
            f"corpus of this size, in another folder: --set training.epochs={epochs} "
            f"--set training.evaluate_every={max(1, epochs // 10)}"
        )
    with progress_bar(0, what="training", unit="step") as bar:
        warned = False

        def show(progress: Progress) -> None:
            if bar.n == 0:  # steps of an earlier call say nothing of the pace of this one
                bar.initial = bar.n = progress.step
            bar.total = progress.total_steps
            losses = ", ".join(f"{name} {value:.2f}" for name, value in progress.losses.items())
            bar.set_postfix_str(f"{losses}, {progress.words_per_second:,.0f} words/s", refresh=False)
            bar.update(progress.step - bar.n)

        def tell(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal warned
            values = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
            bar.write(f"step {step:,}: {values}", file=sys.stderr)
            if not warned and (warning := _parting(metrics)):
                bar.write(warning, file=sys.stderr)
                warned = True

        return train(
            task,
            out,
            optimiser=settings.optimiser,
            training=settings.training,
            on_progress=show,
            on_evaluation=tell,
        )


def _conclude(task: Task[Any], result: Result, out: Path, settings: Settings, *, as_json: bool) -> None:
    """Draw the curves, show examples of the best weights, and say how it went."""
    from ctsan.training.checkpoint import WEIGHTS_FILE, load_weights
    from ctsan.training.curves import draw_curves
    from ctsan.training.examples_page import write_examples_page
    from ctsan.training.metrics import METRICS_FILE, read_metrics

    draw_curves(out / METRICS_FILE, out / "curves.svg")
    load_weights(out / WEIGHTS_FILE, task.model)
    title = f"Examples of {out.name}"
    write_examples_page(out / "examples.html", task.examples(), title=title, metric=task.primary_metric)
    best: dict[str, float] = next(
        row["metrics"]
        for row in read_metrics(out / METRICS_FILE)
        if row["step"] == result.best_step and "metrics" in row
    )
    if as_json:
        metrics = {name: None if value is None else round(value, 4) for name, value in best.items()}
        print_json({"run": str(out), "steps": result.steps, "best_step": result.best_step, **metrics})
    else:
        if result.stopped_early:
            click.echo(f"Stopped early: {settings.training.patience} evaluations in a row were no better.")
        click.echo(
            f"{count(result.steps, 'step')}; the best weights are those of step {result.best_step:,} "
            f"({task.primary_metric} {result.best_score:.3f} on validation)."
        )
        if "precision" in best:
            click.echo(
                f"Of their concept words, {best['precision on train']:.0%} are right on training clips and "
                f"{best['precision']:.0%} on validation clips."
            )
        click.echo(
            f"The curves are in {out / 'curves.svg'}, examples in {out / 'examples.html'}. "
            f"Measure it: ctsan evaluate {out} --corpus CORPUS --split test"
        )
    if warning := _parting(best):
        warn(warning)


def _parting(metrics: Mapping[str, float]) -> str | None:
    """What to say when the concept words are right much more often on clips that the detector has learnt."""
    known, new = metrics.get("precision on train"), metrics.get("precision")
    if known is None or new is None or known - new <= _PARTED:
        return None
    return (
        f"The detector knows its training clips by heart: {known:.0%} of its words are right there, and "
        f"{new:.0%} on validation clips. So that captions do not trust its words too much, as many of them "
        "are made wrong in training ('Words that deserve trust' in docs/training.md). More captioned clips "
        "help."
    )
