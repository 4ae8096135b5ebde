"""`ctsan evaluate`: how well a trained model does on clips that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.features import features_of
from ctsan.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ctsan.data.corpus import Split


@click.command("evaluate")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--corpus", type=click.Path(path_type=Path), required=True, help="Captioned clips.")
@click.option(
    "--split", type=click.Choice(["train", "val", "test"]), default="test", show_default=True, help="Of it."
)
@click.option(
    "--features",
    type=click.Path(path_type=Path),
    help="Folder that 'ctsan features' filled [default: the corpus' own in the cache, made if need be].",
)
@click.option("--beam", type=click.IntRange(min=1), default=5, show_default=True, help="1 is greedy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with an answer for each clip.")
def command(run: Path, corpus: Path, split: Split, features: Path | None, beam: int, as_json: bool) -> None:
    """Measure what RUN answers, and its concept words, on a split of a corpus.

    Blanks, choices and queries are those of the corpus, or built from its captions, the same for every run.

    \b
    Example:
      ctsan evaluate runs/mine --corpus my-clips/ --split test
    """
    from dataclasses import replace
    from typing import cast

    from ctsan.data.reading import read_corpus
    from ctsan.errors import UsageError
    from ctsan.predictor import WORDS_FOLDER, read_recipe
    from ctsan.tasks.building import TaskName, build_model, build_task
    from ctsan.text.words import Words
    from ctsan.training.checkpoint import WEIGHTS_FILE, load_weights
    from ctsan.training.run_folder import open_run

    opened, recipe, words = open_run(run), read_recipe(run), Words.load(run / WORDS_FOLDER)
    task_name = cast("TaskName", opened.task)
    settings = replace(opened.settings, decoding=replace(opened.settings.decoding, beam=beam))
    clips = read_corpus(corpus)
    if not any(clip.captions for clip in clips.split(split)):
        raise UsageError(f"{corpus}: no clip of the split '{split}' has captions. Choose another split.")
    store = features_of(corpus, clips, features)
    if store.manifest.recipe.backbone != recipe.backbone:
        raise UsageError(
            f"{store.folder}: features of {store.manifest.recipe.backbone}, and the run was trained on those "
            f"of {recipe.backbone}. Make them: ctsan features {corpus} --backbone {recipe.backbone} "
            "--out FOLDER"
        )
    model = build_model(task_name, settings, words, grid=recipe.grid, channels=recipe.channels, seed=0)
    load_weights(run / WEIGHTS_FILE, model)
    task = build_task(task_name, settings, words, store, clips, model=model, split=split)
    metrics = task.evaluate()
    if as_json:
        answers = {example.clip: example.caption for example in task.examples()}
        print_json({"task": task_name, "split": split, "metrics": metrics, "answers": answers})
        return
    print_table([(name, f"{value:.3f}") for name, value in metrics.items()])
