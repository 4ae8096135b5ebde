"""`ctsan pack`: pack trained runs into one small folder."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.common import PATH
from ctsan.cli.output import print_json, print_line
from ctsan.io.messages import count


@click.command("pack")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--out", type=PATH, required=True, help="New folder for the pack.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.SETTING=VALUE",
    help="A setting that counts when the pack is asked, of 'decoding', 'rerank' or 'ensemble' [default: as "
    "in the runs]; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(runs: tuple[Path, ...], out: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Pack RUNS, of one or several tasks, into one small folder that answers as they do.

    Weights are stored in half precision or less, tensors that runs share are stored once, and what only
    training needs is left out. The folder can be given as --model wherever a run can.

    \b
    Examples:
      ctsan pack runs/describe runs/fill runs/choose runs/rank --out my-model/ --set decoding.beam=5
      ctsan describe holiday.mp4 --model my-model/
    """
    from ctsan.runs.packing import write_pack
    from ctsan.runs.trained_run import run_folders

    members = [member for run in runs for member in run_folders(run)]
    size = write_pack(members, out, overrides=overrides)
    if as_json:
        print_json({"pack": str(out), "runs": len(members), "bytes": size})
    else:
        print_line(f"{count(len(members), 'run')} in {out}: {size / 1e6:.1f} MB")
