"""`ctsan export`: a trained run in a form that other programs can run."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.asking import PATH, WEIGHTS
from ctsan.cli.output import print_json, print_table


@click.command("export")
@click.argument("run", type=PATH)
@click.option("--onnx", "out", type=PATH, required=True, help="Folder for the ONNX files.")
@WEIGHTS
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(run: Path, out: Path, weights: Path | None, as_json: bool) -> None:
    """Write RUN, which describes, as ONNX: backbone, detector, description step, and their words.

    Each network is compared with PyTorch, and one that differs by more than 1e-4 is not written.
    examples/onnx_captions.py captions a clip with them, and needs nothing of ctsan.

    \b
    Examples:
      ctsan export runs/mine --onnx onnx/
      ctsan export default --onnx onnx/
    """
    from ctsan.errors import UsageError
    from ctsan.export.onnx import export_onnx
    from ctsan.trained_run import answering, load_runs

    first, *others = answering(load_runs([run]), "describe")
    if others:
        raise UsageError(f"{run}: several runs that describe are there. Name one: {first.folder}")
    differences = export_onnx(first, out, weights=weights)
    if as_json:
        print_json({"run": str(first.folder), "onnx": str(out), "differences": differences})
    else:
        print_table(
            [
                (file, f"{(out / file).stat().st_size / 1e6:.1f} MB", f"{difference:.1e}")
                for file, difference in differences.items()
            ],
            headers=("file", "size", "difference from PyTorch"),
        )
        click.echo(f"With their words, in {out}. Try it: python examples/onnx_captions.py CLIP {out}")
