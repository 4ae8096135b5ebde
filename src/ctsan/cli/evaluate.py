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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every clip's caption.")
def command(run: Path, corpus: Path, split: Split, features: Path | None, beam: int, as_json: bool) -> None:
    """Measure the captions and concept words of RUN on a split of a corpus.

    \b
    Example:
      ctsan evaluate runs/mine --corpus my-clips/ --split test
    """
    from dataclasses import replace

    from ctsan.data.reading import read_corpus
    from ctsan.errors import UsageError
    from ctsan.predictor import Predictor
    from ctsan.tasks.building import build_description_task

    predictor = Predictor.load(run)
    settings = replace(predictor.settings, decoding=replace(predictor.settings.decoding, beam=beam))
    clips = read_corpus(corpus)
    store = features_of(corpus, clips, features)
    if store.manifest.recipe.backbone != predictor.recipe.backbone:
        raise UsageError(
            f"{store.folder}: features of {store.manifest.recipe.backbone}, and the run was trained on those "
            f"of {predictor.recipe.backbone}. Make them: ctsan features {corpus} --backbone "
            f"{predictor.recipe.backbone} --out FOLDER"
        )
    task = build_description_task(
        settings,
        predictor.words,
        store,
        model=predictor.model,
        train=clips.split("train"),
        validation=clips.split(split),
    )
    if not task.clips.validation:
        raise UsageError(f"{corpus}: no clip of the split '{split}' has captions and features.")
    metrics = task.evaluate()
    if as_json:
        captions = {example.clip: example.caption for example in task.examples()}
        print_json({"task": "describe", "split": split, "metrics": metrics, "captions": captions})
        return
    print_table([(name, f"{value:.3f}") for name, value in metrics.items()])
