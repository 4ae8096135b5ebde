"""`ctsan trace`: draw the spatial attention of a model over a clip, as a figure or a video."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    MODEL,
    WEIGHTS,
    concepts_to_json,
    effect_lines,
    effects_to_json,
    errors_in_json,
    words_with_confidences,
)
from ctsan.cli.output import print_json, print_line
from ctsan.errors import printable
from ctsan.io.messages import warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.inference.results import Tracing

_LONG_GIF = 30.0  # seconds
_GIF_MB_PER_SECOND = 0.6


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

    The figure lists the concept words with their confidences, and in brackets those of the probe alone if
    there is one. Below is the caption. Under each of its words are the concept words with the largest effect
    (x2.2: 2.2 times as likely as without that concept word) and the attention of one of the models that
    generated the caption. By default, the traces that raise the most confident concept words most are drawn.
    If no trace raises a word, the clip is drawn without attention, and the figure says so.
    """
    from ctsan.figures.traces import check_suffix, choose_traces, draw_traces
    from ctsan.video.frames import probe

    numbers = None if traces == "best" else _numbers(traces)
    ending = check_suffix(out)
    _check_output_file(out, clip)
    with errors_in_json(as_json):
        frames = probe(clip)
        if ending == ".gif" and frames.duration > _LONG_GIF:
            size = frames.duration * _GIF_MB_PER_SECOND
            video = printable(out.with_suffix(".mp4"))
            warn(
                f"A GIF of {frames.duration:.0f} seconds takes {size:.0f} MB or so, a video less: -o {video}"
            )

        from ctsan.inference.predictor import Predictor  # slow import: after the checks above

        tracing = Predictor.load(model, weights=weights).trace(clip, concept=concept)
        chosen_traces = choose_traces(tracing, numbers, concept=concept)
        if ending == ".png":
            draw_traces(clip, tracing, chosen_traces, out)
        else:
            total = frames.frames or round(frames.duration * frames.frame_rate)
            with progress_bar(total, what="Drawing", unit="frame") as bar:
                draw_traces(clip, tracing, chosen_traces, out, on_frame=bar.update)
    if as_json:
        drawn = [
            {
                "trace": trace.number,
                "concept": trace.concept.word if trace.concept else None,
                "share": round(trace.share, 4),
            }
            for trace in chosen_traces
        ]
        concepts = [
            {**listed, "probe_confidence": round(float(probe_confidence), 4) if tracing.has_probe else None}
            for listed, probe_confidence in zip(
                concepts_to_json(tracing.raised), tracing.probe_confidences, strict=True
            )
        ]
        line = {"clip": str(clip), "out": str(out), "caption": tracing.caption.text, "run": tracing.run}
        print_json(
            line | {"concepts": concepts, "traces": drawn, "effects": effects_to_json(tracing.effects)}
        )
    else:
        print_line(f"{clip}: {tracing.caption.text}")
        print_line(f"    {_confidences(tracing)}")
        for effect_line in effect_lines(tracing.effects):
            print_line(effect_line)
        print_line(f"    traces: {', '.join(map(str, chosen_traces))}")
        print_line(f"{out}")


def _confidences(tracing: Tracing) -> str:
    """Format the confidences of the concept words, with those of the probe alone in brackets."""
    if not tracing.has_probe:
        return words_with_confidences(tracing.raised)
    pairs = zip(tracing.raised, tracing.probe_confidences, strict=True)
    return ", ".join(
        f"{concept.word} {concept.confidence:.2f} (probe {probe_confidence:.2f})"
        for concept, probe_confidence in pairs
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--traces {text!r}: give 'best', or numbers such as 1,6,11.") from None


def _check_output_file(out: Path, clip: Path) -> None:
    """Check that the output file can be written, before the model runs."""
    from ctsan.errors import UsageError

    if out.is_dir():
        raise UsageError(f"{out}: this is a folder. Name a file in it.")
    if out.exists() and clip.exists() and out.samefile(clip):
        raise UsageError(f"{out}: this is the clip itself. Name another file.")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"{out.parent}: no permission to write there. Name another place.")
