"""`ctsan describe` and `ctsan concepts`: ask a trained model about video files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.asking import (
    JSON,
    MODELS,
    PATH,
    WEIGHTS,
    Reply,
    ask,
    clip_files,
    listed_concepts,
    words_with_confidences,
)

if TYPE_CHECKING:
    from ctsan.predictor import Predictor

_CLIPS = click.argument("clips", nargs=-1, required=True, type=PATH)


@click.command("describe")
@_CLIPS
@MODELS
@WEIGHTS
@click.option("--beam", type=click.IntRange(min=1), default=5, show_default=True, help="1 is greedy.")
@click.option("--n-best", type=click.IntRange(min=1), default=1, show_default=True, help="Sentences a clip.")
@JSON
def command(
    clips: tuple[Path, ...],
    models: tuple[Path, ...],
    weights: Path | None,
    beam: int,
    n_best: int,
    as_json: bool,
) -> None:
    """Say what happens in each of CLIPS: video files, pictures, or folders of them.

    A clip that cannot be read gets its error in place of an answer, and the exit code is then 1.

    \b
    Examples:
      ctsan describe holiday.mp4 --model runs/mine
      ctsan describe holidays/ --model runs/mine --json
    """

    def answer(predictor: Predictor, clip: Path) -> Reply:
        found = predictor.describe(clip, beam=beam, n_best=n_best)
        best = found.captions[0]
        line: dict[str, object] = {"clip": str(clip), "caption": best.text, "score": best.score}
        if n_best > 1:
            line["captions"] = [{"caption": each.text, "score": each.score} for each in found.captions]
        text = [
            f"{clip}: {caption.text}" + (f"  ({caption.score:.2f})" if n_best > 1 else "")
            for caption in found.captions
        ]
        text.append(f"    {words_with_confidences(found.concepts)}")
        return Reply(line | {"concepts": listed_concepts(found.concepts)}, text)

    ask(answer, clip_files(clips), models, weights, as_json)


@click.command("concepts")
@_CLIPS
@MODELS
@WEIGHTS
@JSON
def concepts(clips: tuple[Path, ...], models: tuple[Path, ...], weights: Path | None, as_json: bool) -> None:
    """List the concept words that the model sees in each of CLIPS, with its confidence.

    \b
    Example:
      ctsan concepts holiday.mp4 --model runs/mine
    """

    def answer(predictor: Predictor, clip: Path) -> Reply:
        found = predictor.concepts(clip)
        line: dict[str, object] = {"clip": str(clip), "concepts": listed_concepts(found)}
        return Reply(line, [f"{clip}: {words_with_confidences(found)}"])

    ask(answer, clip_files(clips), models, weights, as_json)
