"""`ctsan index`: create or update a library of videos and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import PATH, WEIGHTS
from ctsan.cli.output import print_json, print_line
from ctsan.io.messages import count, warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.search.indexing import Report
    from ctsan.search.opening import LibraryAddress

LIBRARY = click.option(
    "--library", "name", default="main", show_default=True, help="Name of the library; there may be several."
)
STORE = click.option(
    "--store",
    envvar="CTSAN_STORE",
    metavar="FOLDER|URL",
    help="Folder of the libraries, or postgresql://USER@HOST/DATABASE for several machines; also as the "
    "variable CTSAN_STORE, to hide a password [default: in the user's data folder].",
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
@click.option("--drop-unmounted", is_flag=True, help="Also forget files of disks that are not mounted now.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    folders: tuple[Path, ...],
    name: str,
    store: str | None,
    models: tuple[Path, ...],
    weights: Path | None,
    ray: str | None,
    drop_unmounted: bool,
    as_json: bool,
) -> None:
    """Index all videos and pictures in FOLDERS for 'ctsan search'.

    Videos of more than half a minute are cut into shots. Run again, it looks only at what is new or changed,
    follows files that were renamed, and forgets those that are gone. Stopped at any moment, the same command
    goes on. Files that cannot be read and folders that are not there are listed, and the exit code is then 1;
    it is 2 where none of the folders is there. What cannot be reached, because a folder cannot be listed or a
    disk is not mounted, is listed too and stays in the library. Other files are counted by their endings, but
    not text, subtitles and such that go with videos.

    \b
    Examples:
      ctsan index holidays/ films/
      ctsan index work/ --library work --model runs/embed --model runs/mine
      ctsan index /shared/films --store /shared/libraries --ray 10.0.0.1:6379
      ctsan index films/ --store postgresql://me@10.0.0.1/videos
    """
    from ctsan.runs.pack_folder import DEFAULT
    from ctsan.search.indexing import index_folders
    from ctsan.search.opening import has_library, library_address

    library = library_address(name, store)
    if not models and not has_library(library):
        models = (Path(DEFAULT),)
    with progress_bar(0, what="indexing", unit="file") as bar:

        def begin(files: int) -> None:
            bar.total = files
            bar.refresh()

        report = index_folders(
            folders,
            library,
            models=models,
            weights=weights,
            ray=ray,
            drop_unmounted=drop_unmounted,
            on_start=begin,
            on_file=lambda _: bar.update(),
        )
    if as_json:
        print_json(_report_to_json(report, library))
    else:
        _print(report, library, name, store)
    if report.errors:
        raise SystemExit(1)


def _report_to_json(report: Report, library: LibraryAddress) -> dict[str, object]:
    return {
        "library": str(library),
        "files": report.files,
        "shots": report.shots,
        "new": report.new,
        "known": report.known,
        "dropped": report.dropped,
        "completed": report.completed,
        "incomplete": report.incomplete,
        "seconds": round(report.seconds, 2),
        "skipped": report.skipped,
        "errors": {str(path): error for path, error in report.errors.items()},
    }


def _print(report: Report, library: LibraryAddress, name: str, store: str | None) -> None:
    from ctsan.search.opening import store_option

    again = f" ({report.completed:,} again, for captions and thumbnails)" if report.completed else ""
    print_line(
        f"{count(report.files, 'file')} with {count(report.shots, 'shot')} in {library}: {report.new:,} "
        f"looked at now{again}, {report.known:,} known, {report.dropped:,} gone ({report.seconds:.1f} s)"
    )
    if report.incomplete:
        print_line(
            f"{count(report.incomplete, 'file')} without captions and thumbnails: index the other folders of "
            "the library again, and what could not be read when it is back."
        )
    if report.skipped:
        from ctsan.search.listing import skipped_line

        print_line(skipped_line(report.skipped))
    if report.errors:
        warn(f"{count(len(report.errors), 'path')} cannot be searched:")
        for error in report.errors.values():
            warn(f"  {error}")
    if report.files:
        options = "" if name == "main" else f" --library {name}"
        options += "" if store is None else f" {store_option(library)}"
        print_line(f'Ask it: ctsan search "a dog runs on grass"{options}')
