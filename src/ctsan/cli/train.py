"""`ctsan train`: learn from a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.output import count, print_json, progress_bar, warn

if TYPE_CHECKING:
    from ctsan.data.corpus import Corpus
    from ctsan.video.store import FeatureStore


@click.group("train")
def command() -> None:
    """Train a model on a corpus; stopped at any moment, the same command goes on."""


@command.command("describe")
@click.option("--corpus", type=click.Path(path_type=Path), required=True, help="Captioned clips.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--profile", default="laptop", show_default=True, help="laptop, or paper for its own sizes.")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.SETTING=VALUE", help="May be repeated.")
@click.option(
    "--features",
    type=click.Path(path_type=Path),
    help="Folder that 'ctsan features' filled [default: the corpus' own in the cache, made if need be].",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def describe(
    corpus: Path, out: Path, profile: str, overrides: tuple[str, ...], features: Path | None, as_json: bool
) -> None:
    """Learn to describe clips.

    \b
    Examples:
      ctsan train describe --corpus my-clips/ --out runs/mine
      ctsan train describe --corpus my-clips/ --out runs/k20 --set detector.num_concepts=20
      ctsan train describe --corpus LSMDC16/ --out runs/paper --profile paper --features features/
    """
    from ctsan.config import load_settings
    from ctsan.data.corpus import Split
    from ctsan.data.reading import read_corpus
    from ctsan.errors import UsageError
    from ctsan.predictor import WORDS_FOLDER, write_recipe
    from ctsan.tasks.building import build_description_model
    from ctsan.tasks.description import DescriptionTask
    from ctsan.text.words import Words, prepare_words
    from ctsan.training.curves import draw_curves
    from ctsan.training.loop import Progress, train
    from ctsan.training.metrics import METRICS_FILE
    from ctsan.training.run_folder import create_run
    from ctsan.video.store import FeatureStore

    settings = load_settings(profile, overrides)
    clips = read_corpus(corpus)
    purposes: dict[Split, str] = {"train": "learn from", "val": "choose the best weights by"}
    for split, purpose in purposes.items():
        if not any(clip.captions for clip in clips.split(split)):
            raise UsageError(
                f"{corpus}: no clip of the split '{split}' has captions, and some are needed to {purpose}. "
                "'ctsan corpus check' shows the splits; without any, three sources or more are split for you."
            )
    store = (
        FeatureStore(features)
        if features
        else _made_features(corpus, clips, mirrored=settings.training.mirror)
    )
    for split in purposes:
        if not any(clip.id in store for clip in clips.split(split)):
            raise UsageError(
                f"{store.folder}: holds features of no clip of the split '{split}'. "
                f"Make them: ctsan features {corpus} --out FOLDER"
            )
    create_run(out, task="describe", profile=profile, settings=settings)
    write_recipe(out, store.manifest.recipe)
    if not (out / WORDS_FOLDER / "embedding.safetensors").exists():
        warn("Preparing the words of the training captions.")
        prepare_words(
            clips.captions("train"),
            num_concepts=settings.detector.num_candidates,
            embedding_dim=settings.model.embedding_dim,
            seed=settings.training.seed,
        ).save(out / WORDS_FOLDER)
    words = Words.load(out / WORDS_FOLDER)
    task = DescriptionTask(
        model=build_description_model(
            settings, words, grid=store.grid, channels=store.channels, seed=settings.training.seed
        ),
        train=clips.split("train"),
        validation=clips.split("val"),
        store=store,
        words=words,
        attention_weight=settings.loss.attention_weight,
        concept_weight=settings.loss.concept_weight,
        max_frames=settings.model.max_frames,
        beam=settings.decoding.beam,
        max_words=settings.decoding.max_words,
        length_penalty=settings.decoding.length_penalty,
    )
    with progress_bar(0, what="training", unit="step") as bar:

        def show(progress: Progress) -> None:
            bar.total = progress.total_steps
            losses = ", ".join(f"{name} {value:.2f}" for name, value in progress.losses.items())
            bar.set_postfix_str(f"{losses}, {progress.words_per_second:,.0f} words/s", refresh=False)
            bar.update(progress.step - bar.n)

        result = train(task, out, optimiser=settings.optimiser, training=settings.training, on_progress=show)
    draw_curves(out / METRICS_FILE, out / "curves.svg")
    if as_json:
        print_json(
            {
                "run": str(out),
                "steps": result.steps,
                "best_step": result.best_step,
                task.primary_metric: round(result.best_score, 4),
            }
        )
        return
    if result.stopped_early:
        click.echo(f"Stopped early: {settings.training.patience} evaluations in a row were no better.")
    click.echo(
        f"{count(result.steps, 'step')}; the best weights are those of step {result.best_step:,} "
        f"({task.primary_metric} {result.best_score:.3f} on validation).\n"
        f"The curves are in {out / 'curves.svg'}. Try it: ctsan describe CLIP --model {out}"
    )


def _made_features(corpus: Path, clips: Corpus, *, mirrored: bool) -> FeatureStore:
    """The features of a corpus in the cache; made, or brought up to date, if need be."""
    from ctsan.folders import default_folder
    from ctsan.video.backbone import DEFAULT_BACKBONE, find_backbone
    from ctsan.video.extraction import extract_features
    from ctsan.video.store import FeatureStore

    name = f"{DEFAULT_BACKBONE}-mirrored" if mirrored else DEFAULT_BACKBONE
    folder = default_folder("features", corpus) / name
    with progress_bar(len(clips), what="features") as bar:
        report = extract_features(
            [(clip.id, clip.path) for clip in clips],
            folder,
            backbone=find_backbone(DEFAULT_BACKBONE),
            mirrored=mirrored,
            on_clip=lambda _: bar.update(),
        )
    for error in report.unreadable.values():
        warn(f"unreadable: {error}")
    return FeatureStore(folder)
