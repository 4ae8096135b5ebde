"""`ctsan cache`: show what is in the cache folder, and clear it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from ctsan.cli.output import print_json, print_line
from ctsan.io.messages import count

if TYPE_CHECKING:
    from ctsan.io.cache import CacheEntry

_SMALL = 1000  # bytes: checksums, locks and paths, which are listed together

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("cache", invoke_without_command=True)
@_JSON
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show what ctsan keeps between commands, where, and how large it is.

    All of it can be made again. The folder is for its owner only; CTSAN_CACHE names another one. Libraries of
    'ctsan index' are not in it.

    \b
    Examples:
      ctsan cache
      ctsan cache clear
      ctsan cache clear onnx
    """
    if context.invoked_subcommand is not None:
        return
    from ctsan.io.cache import KINDS, cache_entries
    from ctsan.io.paths import cache_folder

    entries = cache_entries()
    if as_json:
        print_json(_to_json(entries))
        return
    print_line(f"{cache_folder()}: {_size(sum(entry.bytes for entry in entries))}")
    for kind, group in groupby(entries, key=lambda entry: entry.kind):
        print_line(f"\n{kind}: {KINDS[kind]}")
        small = []
        for entry in group:
            if entry.bytes < _SMALL:
                small.append(entry)
            else:
                print_line(f"  {_size(entry.bytes):>9}  {entry.path.name}")
        if small:
            print_line(
                f"  {_size(sum(entry.bytes for entry in small)):>9}  in {count(len(small), 'small file')}"
            )


@command.command("clear", short_help="Delete it, or parts of it.")
@click.argument("kinds", metavar="[PART]...", nargs=-1)
@_JSON
def clear(kinds: tuple[str, ...], as_json: bool) -> None:
    """Delete PARTs of the cache: onnx, features, words or backbones; without a name, all of them.

    Do not run it while another command makes features.
    """
    from ctsan.io.cache import clear_cache
    from ctsan.io.paths import cache_folder

    entries = clear_cache(kinds)
    if as_json:
        print_json(_to_json(entries))
    else:
        number, size = (
            count(sum(entry.files for entry in entries), "file"),
            _size(sum(e.bytes for e in entries)),
        )
        print_line(f"Deleted {number} ({size}) in {cache_folder()}")


def _to_json(entries: Sequence[CacheEntry]) -> dict[str, object]:
    from ctsan.io.paths import cache_folder

    return {
        "folder": str(cache_folder()),
        "bytes": sum(entry.bytes for entry in entries),
        "entries": [
            {"part": entry.kind, "path": str(entry.path), "files": entry.files, "bytes": entry.bytes}
            for entry in entries
        ],
    }


def _size(number: int) -> str:
    """`1.2 GB`, in powers of 1000."""
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
