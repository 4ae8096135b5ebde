"""`ctsan fill`: predict the missing word of a sentence about a clip."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    EFFECTS,
    JSON,
    MODELS,
    PATH,
    WEIGHTS,
    Reply,
    attention_lines,
    attention_to_json,
    concept_line,
    concepts_to_json,
    effect_lines,
    effects_to_json,
    print_answer,
    warn_of_unknown,
)

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor
    from ctsan.inference.results import Answer


@click.command("fill")
@click.argument("clip", type=PATH)
@click.argument("sentence")
@MODELS
@WEIGHTS
@click.option("--n-best", type=click.IntRange(min=1), default=5, show_default=True, help="Words a blank.")
@EFFECTS
@JSON
def command(
    clip: Path,
    sentence: str,
    models: tuple[Path, ...],
    weights: Path | None,
    n_best: int,
    attention: bool,
    as_json: bool,
) -> None:
    """Fill in the blank of SENTENCE about CLIP, a video file or a picture.

    The blank is two or more underscores, or <blank>. If there are several, each is predicted with the others
    left blank.

    The model that ctsan carries answers. To ask one of your own, name a run of 'ctsan train fill' by --model.

    \b
    Examples:
      ctsan fill holiday.mp4 "a man is _____ a car"
      ctsan fill holiday.mp4 "a ___ runs on the ___" --n-best 3 --json
      ctsan fill holiday.mp4 "a man is _____ a car" --model runs/fill1 --model runs/fill2
    """

    def answer(predictor: Predictor, clip: Path) -> Reply:
        result = predictor.fill(clip, sentence, n_best=n_best, attention=attention)
        warn_of_unknown(result.unknown)
        line: dict[str, object] = {
            "clip": str(clip),
            "sentence": sentence,
            "answers": _answers_to_json(result.answers),
        }
        if len(result.blanks) > 1:
            line["blanks"] = [_answers_to_json(blank.answers) for blank in result.blanks]
        line["concepts"] = concepts_to_json(result.concepts)
        if attention:
            line["attention"] = [
                weights
                for number, blank in enumerate(result.blanks)
                for weights in attention_to_json(blank.attention, blank=number)
            ]
            line["effects"] = [effects_to_json(blank.effects) for blank in result.blanks]
        text = [f"{clip}: {result.filled}"]
        for number, blank in enumerate(result.blanks, start=1):
            which = f"{number}: " if len(result.blanks) > 1 else ""
            words = ", ".join(f"{word.word} {word.probability:.2f}" for word in blank.answers)
            text += [f"    {which}{words}", *effect_lines(blank.effects), *attention_lines(blank.attention)]
        return Reply(line, [*text, *concept_line(result.concepts)])

    print_answer(answer, clip, models, weights, as_json)


def _answers_to_json(answers: Sequence[Answer]) -> list[dict[str, object]]:
    return [{"word": answer.word, "probability": answer.probability} for answer in answers]
