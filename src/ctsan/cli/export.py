"""`ctsan export`: a trained run in a form that other programs can run."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.common import PATH, WEIGHTS
from ctsan.cli.output import print_json, print_line, print_table
from ctsan.io.messages import warn


@click.command("export")
@click.argument("run", type=PATH)
@click.option("--onnx", "out", type=PATH, required=True, help="Folder for the ONNX files.")
@WEIGHTS
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(run: Path, out: Path, weights: Path | None, as_json: bool) -> None:
    """Export RUN, a run of 'describe', as ONNX: backbone, detector, description step, and their words.

    If a pack has several runs of 'describe', the one with a concept detector is exported.

    Each network is compared with PyTorch; if one differs by more than 1e-3, nothing is written.
    examples/onnx_captions.py captions a clip with the networks, without ctsan.

    \b
    Examples:
      ctsan export runs/mine --onnx onnx/
      ctsan export default --onnx onnx/
    """
    from ctsan.export.onnx import export_onnx
    from ctsan.inference.loading import load_model
    from ctsan.runs.trained_run import answering, load_runs

    able = answering(load_runs([run]), "describe")
    exported = next((run for run in able if load_model(run).has_traces), able[0])
    if len(able) > 1:
        warn(
            f"{run}: {len(able)} runs caption there as an ensemble, and one is exported, {exported.folder}. "
            "Alone, it may caption differently."
        )
    differences = export_onnx(exported, out, weights=weights)
    if as_json:
        print_json({"run": str(exported.folder), "onnx": str(out), "differences": differences})
    else:
        print_table(
            [
                (file, f"{(out / file).stat().st_size / 1e6:.1f} MB", f"{difference:.1e}")
                for file, difference in differences.items()
            ],
            headers=("file", "size", "difference from PyTorch"),
        )
        print_line(f"With their words, in {out}. Try it: python examples/onnx_captions.py CLIP {out}")
