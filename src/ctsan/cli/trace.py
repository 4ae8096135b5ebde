"""`ctsan trace`: draw the spatial attention of a model over a clip, as a figure or a video."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    MODEL,
    WEIGHTS,
    effect_lines,
    errors_in_json,
    listed_concepts,
    listed_effects,
    words_with_confidences,
)
from ctsan.cli.output import print_json
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.inference.results import Tracing


@click.command("trace")
@click.argument("clip", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help=".mp4, .gif or .png.")
@MODEL
@WEIGHTS
@click.option("--traces", default="best", show_default=True, help="Their numbers, from 1: 1,6,11.")
@click.option("--concept", help="Show the traces that raise this concept word most.")
@click.option("--json", "as_json", is_flag=True, help="Print what was drawn as a JSON object.")
def command(
    clip: Path,
    out: Path,
    model: Path,
    weights: Path | None,
    traces: str,
    concept: str | None,
    as_json: bool,
) -> None:
    """Draw CLIP, a video file or a picture, with the attention of some traces over it.

    Beside it stand the concept words with their confidences, and in brackets those of the probe alone, where
    there is one; below it the caption. Under each of its words are the concept words that it owes most to
    (x2.2: it is 2.2 times as likely as without that concept word), and what one of the models that
    said the caption attended to. By default the traces are those that raise the surest concept words most.
    Where no trace raises a word, the clip is shown without attention, and the figure says so.
    """
    from ctsan.figures.traces import check_suffix, choose_traces, draw_traces
    from ctsan.video.frames import probe

    numbers = None if traces == "best" else _numbers(traces)
    ending = check_suffix(out)
    _check_place(out, clip)
    with errors_in_json(as_json):
        frames = probe(clip)

        from ctsan.inference.predictor import Predictor  # slow import: after the checks above

        tracing = Predictor.load(model, weights=weights).trace(clip, concept=concept)
        shown = choose_traces(tracing, numbers, concept=concept)
        if ending == ".png":
            draw_traces(clip, tracing, shown, out)
        else:
            total = frames.frames or round(frames.duration * frames.frame_rate)
            with progress_bar(total, what="Drawing", unit="frame") as bar:
                draw_traces(clip, tracing, shown, out, on_frame=bar.update)
    if as_json:
        drawn = [
            {
                "trace": trace.number,
                "concept": trace.concept.word if trace.concept else None,
                "share": round(trace.share, 4),
            }
            for trace in shown
        ]
        concepts = [
            {**listed, "probe_confidence": round(float(own), 4) if tracing.has_probe else None}
            for listed, own in zip(listed_concepts(tracing.raised), tracing.probe_confidences, strict=True)
        ]
        line = {"clip": str(clip), "out": str(out), "caption": tracing.caption.text, "run": tracing.run}
        print_json(line | {"concepts": concepts, "traces": drawn, "effects": listed_effects(tracing.effects)})
    else:
        click.echo(f"{clip}: {tracing.caption.text}")
        click.echo(f"    {_confidences(tracing)}")
        for told in effect_lines(tracing.effects):
            click.echo(told)
        click.echo(f"    traces: {', '.join(map(str, shown))}")
        click.echo(f"{out}")


def _confidences(tracing: Tracing) -> str:
    """Format the confidences of the concept words, with those of the probe alone in brackets."""
    if not tracing.has_probe:
        return words_with_confidences(tracing.raised)
    pairs = zip(tracing.raised, tracing.probe_confidences, strict=True)
    return ", ".join(f"{each.word} {each.confidence:.2f} (probe {own:.2f})" for each, own in pairs)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--traces {text!r}: give 'best', or numbers such as 1,6,11.") from None


def _check_place(out: Path, clip: Path) -> None:
    """Check that the output file can be written, before the model runs."""
    from ctsan.errors import UsageError

    if out.is_dir():
        raise UsageError(f"{out}: this is a folder. Name a file in it.")
    if out.exists() and clip.exists() and out.samefile(clip):
        raise UsageError(f"{out}: this is the clip itself. Name another file.")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"{out.parent}: no permission to write there. Name another place.")
