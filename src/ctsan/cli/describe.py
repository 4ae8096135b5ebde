"""`ctsan describe` and `ctsan concepts`: caption video files and list their concept words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
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
    clip_files,
    effect_lines,
    errors_in_json,
    listed_attention,
    listed_concepts,
    listed_effects,
    print_replies,
    words_with_confidences,
)
from ctsan.errors import UsageError, VideoError
from ctsan.io.messages import warn

if TYPE_CHECKING:
    from ctsan.inference.results import Description

_LONG_SECONDS = 60.0  # one caption does not cover a longer video

_CLIPS = click.argument("clips", nargs=-1, required=True, type=PATH)


@click.command("describe")
@_CLIPS
@MODELS
@WEIGHTS
@click.option("--beam", type=click.IntRange(min=1), help="1 is greedy [default: as the run was set].")
@click.option(
    "--n-best",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Sentences a clip, the best first, with the score that orders them.",
)
@EFFECTS
@click.option("--scenes", is_flag=True, help="Cut one long video into shots, and describe each.")
@click.option("-o", "--out", type=PATH, help="With --scenes: .vtt, .srt or .json [default: lines of text].")
@click.option("--timing", is_flag=True, help="Print on stderr where the time goes.")
@JSON
def command(
    clips: tuple[Path, ...],
    models: tuple[Path, ...],
    weights: Path | None,
    beam: int | None,
    n_best: int,
    attention: bool,
    scenes: bool,
    out: Path | None,
    timing: bool,
    as_json: bool,
) -> None:
    """Say what happens in each of CLIPS: video files, pictures, or folders of them.

    A clip that cannot be read gets its error in place of an answer, and the exit code is then 1.

    With --scenes, CLIPS is one video of any length. Its shots are described one by one: on stdout, or in a
    file that players show as subtitles (.srt) or read out as descriptions (.vtt).

    \b
    Examples:
      ctsan describe holiday.mp4
      ctsan describe holidays/ --model runs/mine --json
      ctsan describe film.mp4 --scenes -o film.vtt
    """
    if scenes:
        from ctsan.cli.scenes import check_scenes

        check_scenes(clips, out, n_best=n_best, attention=attention)
    elif out is not None:
        raise UsageError("-o goes with --scenes: other descriptions are printed. Add --scenes, or leave it.")
    files = clip_files(clips)
    start = time.perf_counter()
    from ctsan.inference.predictor import Predictor

    imported = time.perf_counter() - start
    predictor = Predictor.load(*models, weights=weights)
    try:
        if scenes:
            from ctsan.cli.scenes import describe_scenes

            with errors_in_json(as_json):
                describe_scenes(predictor, files[0], out, beam=beam, as_json=as_json)
        else:
            found = predictor.describe_all(files, beam=beam, n_best=n_best, attention=attention)
            print_replies(_replies(found, n_best, attention), as_json)
    finally:
        if timing:
            _print_timing({"import": imported, **predictor.seconds, "in all": time.perf_counter() - start})


def _replies(
    descriptions: Iterable[Description | VideoError], n_best: int, attention: bool
) -> Iterator[Reply | VideoError]:
    has_hinted = False
    for found in descriptions:
        if isinstance(found, VideoError):
            yield found
            continue
        best = found.captions[0]
        line: dict[str, object] = {
            "clip": found.clip,
            "caption": best.text,
            "score": best.score,
            "log_probability": best.log_probability,
        }
        if n_best > 1:
            line["captions"] = [
                {"caption": each.text, "score": each.score, "log_probability": each.log_probability}
                for each in found.captions
            ]
        text = [
            f"{found.clip}: {caption.text}" + (f"  (score {caption.score:.2f})" if n_best > 1 else "")
            for caption in found.captions
        ]
        text.append(f"    {words_with_confidences(found.concepts)}")
        line["concepts"] = listed_concepts(found.concepts)
        if attention:
            line["attention"] = listed_attention(found.attention)
            line["effects"] = listed_effects(found.effects)
            text += [*effect_lines(found.effects), *attention_lines(found.attention)]
        yield Reply(line, text)
        if found.seconds > _LONG_SECONDS and not has_hinted:
            warn(f"{found.clip} is {found.seconds / 60:.1f} minutes long. To describe each shot: --scenes")
            has_hinted = True


def _print_timing(seconds: Mapping[str, float]) -> None:
    """Print seconds by stage. Decoding runs in parallel, so the stages may add up to more than the total."""
    for part, spent in seconds.items():
        warn(f"{part:<9} {spent:7.2f} s")


@click.command("concepts")
@_CLIPS
@MODELS
@WEIGHTS
@JSON
def concepts(clips: tuple[Path, ...], models: tuple[Path, ...], weights: Path | None, as_json: bool) -> None:
    """List the concept words that the model sees in each of CLIPS, with its confidence.

    \b
    Example:
      ctsan concepts holiday.mp4
    """
    from ctsan.inference.predictor import Predictor

    def replies() -> Iterator[Reply | VideoError]:
        for found in Predictor.load(*models, weights=weights).concepts_all(clip_files(clips)):
            if isinstance(found, VideoError):
                yield found
            else:
                clip, words = found
                line: dict[str, object] = {"clip": clip, "concepts": listed_concepts(words)}
                yield Reply(line, [f"{clip}: {words_with_confidences(words)}"])

    print_replies(replies(), as_json)
