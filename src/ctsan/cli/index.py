"""`ctsan index`: create or update a library of videos and pictures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import PATH, WEIGHTS
from ctsan.cli.output import print_json
from ctsan.io.messages import count, warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.search.indexing import Outcome, Report

LIBRARY = click.option(
    "--library", "name", default="main", show_default=True, help="Name of the library; there may be several."
)
STORE = click.option(
    "--store", type=PATH, help="Folder of the libraries [default: in the user's data folder]."
)


def _address(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Reject a folder right after --ray, which click would take for the address."""
    if value is None or value in ("local", "auto") or re.fullmatch(r"[^/\s]+:\d+", value):
        return value
    raise click.BadParameter(
        f"{value!r} is no address, which is HOST:PORT, 'auto' or 'local'. Put folders before --ray."
    )


@click.command("index")
@click.argument("folders", nargs=-1, required=True, type=PATH)
@LIBRARY
@STORE
@click.option(
    "--model",
    "models",
    type=PATH,
    multiple=True,
    help="Run of 'ctsan train embed', and one with a concept detector, such as of describe; may be repeated "
    "[default: those of the library, or those that ctsan carries].",
)
@WEIGHTS
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value="local",
    callback=_address,
    help="Decode and make features on a Ray cluster: HOST:PORT, or 'auto' for one that this machine is part "
    "of; without an address, on a Ray of its own here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    folders: tuple[Path, ...],
    name: str,
    store: Path | None,
    models: tuple[Path, ...],
    weights: Path | None,
    ray: str | None,
    as_json: bool,
) -> None:
    """Look at all videos and pictures in FOLDERS, so that 'ctsan search' finds them.

    Videos of more than half a minute are cut into shots. Run again, it looks only at what is new or changed,
    follows files that were renamed, and forgets those that are gone. Stopped at any moment, the same command
    goes on. Files that cannot be read and folders that are not there are listed, and the exit code is then 1;
    it is 2 where none of the folders is there.

    \b
    Examples:
      ctsan index holidays/ films/
      ctsan index work/ --library work --model runs/embed --model runs/mine
      ctsan index /shared/films --store /shared/libraries --ray 10.0.0.1:6379
    """
    from ctsan.io.paths import library_folder
    from ctsan.runs.pack_folder import DEFAULT
    from ctsan.search.indexing import index_folders
    from ctsan.search.library import is_library

    library = library_folder(name, store)
    if not models and not is_library(library):
        models = (Path(DEFAULT),)
    with progress_bar(0, what="looking", unit="file") as bar:

        def begin(files: int) -> None:
            bar.total = files
            bar.refresh()

        def show(outcome: Outcome) -> None:
            if outcome.error:
                bar.write(outcome.error, file=sys.stderr)
            bar.update()

        report = index_folders(
            folders, library, models=models, weights=weights, ray=ray, on_start=begin, on_file=show
        )
    if as_json:
        print_json(_listed(report, library))
    else:
        _print(report, library, name, store)
    if report.errors:
        raise SystemExit(1)


def _listed(report: Report, library: Path) -> dict[str, object]:
    return {
        "library": str(library),
        "files": report.files,
        "shots": report.shots,
        "new": report.new,
        "known": report.known,
        "dropped": report.dropped,
        "seconds": round(report.seconds, 2),
        "errors": {str(path): error for path, error in report.errors.items()},
    }


def _print(report: Report, library: Path, name: str, store: Path | None) -> None:
    click.echo(
        f"{count(report.files, 'file')} with {count(report.shots, 'shot')} in {library}: {report.new:,} "
        f"looked at now, {report.known:,} known, {report.dropped:,} gone ({report.seconds:.1f} s)"
    )
    if report.errors:
        warn(f"{count(len(report.errors), 'path')} cannot be searched:")
        for error in report.errors.values():
            warn(f"  {error}")
    if report.files:
        options = "" if name == "main" else f" --library {name}"
        options += "" if store is None else f" --store {store}"
        click.echo(f'Ask it: ctsan search "a dog runs on grass"{options}')
