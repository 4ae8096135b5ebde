"""`ctsan serve`: a page and an API on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.common import MODELS, WEIGHTS
from ctsan.cli.index import STORE
from ctsan.cli.output import print_line
from ctsan.web.limits import Limits

_DEFAULT = Limits()


@click.command("serve")
@MODELS
@WEIGHTS
@click.option("--library", help="Name of a library of 'ctsan index', to search it in the page.")
@STORE
@click.option("--port", type=click.IntRange(0, 65535), default=8484, show_default=True, help="0 takes any.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Another address lets other machines in; they then need the token that is printed.",
)
@click.option(
    "--max-mb",
    type=click.IntRange(min=1),
    default=_DEFAULT.upload_bytes // 2**20,
    show_default=True,
    help="Largest upload, in MB.",
)
@click.option(
    "--max-minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=_DEFAULT.seconds / 60,
    show_default=True,
    help="Longest video, in minutes.",
)
def command(
    models: tuple[Path, ...],
    weights: Path | None,
    library: str | None,
    store: str | None,
    port: int,
    host: str,
    max_mb: int,
    max_minutes: float,
) -> None:
    """Serve a page that describes clips and answers questions about them, and the same as a JSON API.

    Give runs of several tasks: the page offers only tasks that a run can answer. Uploads are decoded in
    processes with limits of time and memory, and are then deleted. Ctrl-C stops the server.

    \b
    Examples:
      ctsan serve --model runs/mine
      ctsan serve --library main
      ctsan serve --model runs/describe --model runs/fill --model runs/choose --port 9000
      CTSAN_TOKEN=secret ctsan serve --model runs/mine --host 0.0.0.0
    """
    from ctsan.search.opening import library_address
    from ctsan.web.server import limits_of, serve

    serve(
        models,
        host=host,
        port=port,
        library=library_address(library, store) if library else None,
        weights=weights,
        limits=limits_of(megabytes=max_mb, minutes=max_minutes),
        on_start=lambda address: print_line(f"Open {address}"),
    )
