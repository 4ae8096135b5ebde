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
    attention_to_json,
    clip_files,
    concepts_to_json,
    effect_lines,
    effects_to_json,
    errors_in_json,
    print_replies,
    words_with_confidences,
)
from ctsan.cli.scenes import FORMATS, check_scenes, describe_scenes
from ctsan.errors import UsageError, VideoError
from ctsan.io.messages import inform, warn

if TYPE_CHECKING:
    from ctsan.inference.results import Description

_LONG_SECONDS = 60.0  # one caption does not cover a longer video

_CLIPS = click.argument("clips", nargs=-1, required=True, type=PATH)


@click.command("describe")
@_CLIPS
@MODELS
@WEIGHTS
@click.option("--beam", type=click.IntRange(1, 1_000), help="1 is greedy [default: as the run was set].")
@click.option(
    "--n-best",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Sentences a clip, the best first, with the score that orders them; the beam is at least as wide.",
)
@EFFECTS
@click.option("--scenes", is_flag=True, help="Cut long videos into shots, and describe each.")
@click.option(
    "-o",
    "--out",
    type=PATH,
    help="With --scenes: a file (.vtt, .srt, .csv, .edl or .json), or a folder with one for each of several "
    "videos [default: lines of text].",
)
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Of the files in the folder of -o [default: vtt]."
)
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
    kind: str | None,
    timing: bool,
    as_json: bool,
) -> None:
    """Say what happens in each of CLIPS: video files, pictures, or folders of them.

    A clip that cannot be read gets its error in place of an answer, and the exit code is then 1, as where a
    subfolder cannot be listed.

    With --scenes, CLIPS may be of any length. Their shots are described one by one: on stdout, or in a file
    that players show as subtitles (.srt) or read out as descriptions (.vtt), that spreadsheets open (.csv) or
    video editors (.edl: CMX 3600, with the sentences as comments).

    \b
    Examples:
      ctsan describe holiday.mp4
      ctsan describe holidays/ --model runs/mine --json
      ctsan describe film.mp4 --scenes -o film.vtt
      ctsan describe films/ --scenes -o tracks/ --format edl
    """
    if not scenes and (out is not None or kind is not None):
        option = "--format" if out is None else "-o"
        raise UsageError(
            f"{option} goes with --scenes: other descriptions are printed. Add --scenes, or leave it."
        )
    files, all_listed = clip_files(clips)
    if scenes:
        tracks = check_scenes(files, out, kind, n_best=n_best, attention=attention)
    start = time.perf_counter()
    from ctsan.inference.predictor import Predictor

    imported = time.perf_counter() - start
    predictor = Predictor.load(*models, weights=weights)
    try:
        if scenes:
            with errors_in_json(as_json):
                describe_scenes(predictor, files, tracks, beam=beam, as_json=as_json)
        else:
            descriptions = predictor.describe_all(files, beam=beam, n_best=n_best, attention=attention)
            print_replies(_replies(descriptions, n_best, attention), as_json)
    finally:
        if timing:
            _print_timing({"import": imported, **predictor.seconds, "in all": time.perf_counter() - start})
            inform(f"{'engine':<9} {'; '.join(predictor.engines) or 'none'}")
    if not all_listed:
        raise SystemExit(1)


def _replies(
    descriptions: Iterable[Description | VideoError], n_best: int, attention: bool
) -> Iterator[Reply | VideoError]:
    has_hinted = False
    for description in descriptions:
        if isinstance(description, VideoError):
            yield description
            continue
        best = description.captions[0]
        line: dict[str, object] = {
            "clip": description.clip,
            "caption": best.text,
            "score": best.score,
            "log_probability": best.log_probability,
        }
        if n_best > 1:
            line["captions"] = [
                {
                    "caption": caption.text,
                    "score": caption.score,
                    "log_probability": caption.log_probability,
                }
                for caption in description.captions
            ]
        text = [
            f"{description.clip}: {caption.text}" + (f"  (score {caption.score:.2f})" if n_best > 1 else "")
            for caption in description.captions
        ]
        text.append(f"    {words_with_confidences(description.concepts)}")
        line["concepts"] = concepts_to_json(description.concepts)
        if attention:
            line["attention"] = attention_to_json(description.attention)
            line["effects"] = effects_to_json(description.effects)
            text += [*effect_lines(description.effects), *attention_lines(description.attention)]
        yield Reply(line, text)
        if description.seconds > _LONG_SECONDS and not has_hinted:
            warn(
                f"{description.clip} is {description.seconds / 60:.1f} minutes long. To describe each shot: "
                "--scenes"
            )
            has_hinted = True


def _print_timing(seconds: Mapping[str, float]) -> None:
    """Print seconds by stage. Decoding runs in parallel, so the stages may add up to more than the total."""
    for part, spent in seconds.items():
        inform(f"{part:<9} {spent:7.2f} s")


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

    files, all_listed = clip_files(clips)

    def replies() -> Iterator[Reply | VideoError]:
        for reply in Predictor.load(*models, weights=weights).concepts_all(files):
            if isinstance(reply, VideoError):
                yield reply
            else:
                clip, words = reply
                line: dict[str, object] = {"clip": clip, "concepts": concepts_to_json(words)}
                yield Reply(line, [f"{clip}: {words_with_confidences(words)}"])

    print_replies(replies(), as_json)
    if not all_listed:
        raise SystemExit(1)
