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
    ask,
    attention_lines,
    concept_line,
    effect_lines,
    listed_attention,
    listed_concepts,
    listed_effects,
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

    The blank is a line of two underscores or more, or <blank>. Of several blanks each is asked for with the
    others still blank.

    The model that ctsan carries answers. To ask one of your own, name a run of 'ctsan train fill' by --model.

    \b
    Examples:
      ctsan fill holiday.mp4 "a man is _____ a car"
      ctsan fill holiday.mp4 "a ___ runs on the ___" --n-best 3 --json
      ctsan fill holiday.mp4 "a man is _____ a car" --model runs/fill1 --model runs/fill2
    """

    def answer(predictor: Predictor, clip: Path) -> Reply:
        found = predictor.fill(clip, sentence, n_best=n_best, attention=attention)
        warn_of_unknown(found.unknown)
        line: dict[str, object] = {"clip": str(clip), "sentence": sentence, "answers": _listed(found.answers)}
        if len(found.blanks) > 1:
            line["blanks"] = [_listed(blank.answers) for blank in found.blanks]
        line["concepts"] = listed_concepts(found.concepts)
        if attention:
            line["attention"] = [
                each
                for number, blank in enumerate(found.blanks)
                for each in listed_attention(blank.attention, blank=number)
            ]
            line["effects"] = [listed_effects(blank.effects) for blank in found.blanks]
        text = [f"{clip}: {found.filled}"]
        for number, blank in enumerate(found.blanks, start=1):
            which = f"{number}: " if len(found.blanks) > 1 else ""
            words = ", ".join(f"{each.word} {each.probability:.2f}" for each in blank.answers)
            text += [f"    {which}{words}", *effect_lines(blank.effects), *attention_lines(blank.attention)]
        return Reply(line, [*text, *concept_line(found.concepts)])

    ask(answer, clip, models, weights, as_json)


def _listed(answers: Sequence[Answer]) -> list[dict[str, object]]:
    return [{"word": each.word, "probability": each.probability} for each in answers]
