"""`ctsan choose`: choose the sentence that matches a clip best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    ATTENTION,
    JSON,
    MODELS,
    PATH,
    WEIGHTS,
    Reply,
    attention_lines,
    attention_to_json,
    concept_line,
    concepts_to_json,
    print_answer,
    warn_of_unknown,
)

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor


@click.command("choose")
@click.argument("clip", type=PATH)
@click.argument("sentences", nargs=-1, metavar="SENTENCE SENTENCE...")
@MODELS
@WEIGHTS
@ATTENTION
@JSON
def command(
    clip: Path,
    sentences: tuple[str, ...],
    models: tuple[Path, ...],
    weights: Path | None,
    attention: bool,
    as_json: bool,
) -> None:
    """Choose the one of two or more SENTENCEs that suits CLIP best, a video file or a picture.

    The model that ctsan carries answers. To ask one of your own, name a run of 'ctsan train embed' or
    'ctsan train choose' by --model. Runs of 'embed' decide alone.

    \b
    Examples:
      ctsan choose holiday.mp4 "a man drives a car" "a dog runs on grass"
      ctsan choose holiday.mp4 "a man" "a dog" "a cat" --json
      ctsan choose holiday.mp4 "a man" "a dog" --model runs/one --model runs/two
    """

    def answer(predictor: Predictor, clip: Path) -> Reply:
        result = predictor.choose(clip, sentences, attention=attention)
        warn_of_unknown(result.unknown)
        line: dict[str, object] = {
            "clip": str(clip),
            "choice": result.choice,
            "scores": [choice.score for choice in result.choices],
            "concepts": concepts_to_json(result.concepts),
        }
        if attention:
            line["attention"] = [
                weights
                for number, choice in enumerate(result.choices)
                for weights in attention_to_json(choice.attention, choice=number)
            ]
        text = [f"{clip}: {result.sentence}"]
        for choice in result.choices:
            text += [f"    {choice.score:6.2f}  {choice.sentence}", *attention_lines(choice.attention)]
        return Reply(line, [*text, *concept_line(result.concepts)])

    print_answer(answer, clip, models, weights, as_json)
