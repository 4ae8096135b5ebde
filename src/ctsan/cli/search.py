"""`ctsan search`: find moments in a library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    PATH,
    WEIGHTS,
    concept_words,
    errors_in_json,
    listed_concepts,
    warn_of_unknown,
)
from ctsan.cli.index import LIBRARY, STORE
from ctsan.cli.output import print_json
from ctsan.io.messages import warn

if TYPE_CHECKING:
    from ctsan.search.search import Hit, SearchResult


@click.command("search")
@click.argument("query", required=False)
@LIBRARY
@STORE
@click.option(
    "-n", "n_best", type=click.IntRange(min=1), default=10, show_default=True, help="Only the best."
)
@click.option("--like", type=PATH, help="Find what is like this clip, instead of a sentence.")
@click.option(
    "--concept", "concepts", multiple=True, metavar="WORD", help="Only what shows this; repeatable."
)
@click.option("--not", "without", multiple=True, metavar="WORD", help="Nothing that shows this; repeatable.")
@click.option("--thumbnails", type=PATH, metavar="DIR", help="Write a picture of each hit into this folder.")
@click.option("--open", "open_first", is_flag=True, help="Open the first file that was found.")
@click.option("--model", "models", type=PATH, multiple=True, help="Runs of the library, if they were moved.")
@WEIGHTS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    query: str | None,
    name: str,
    store: Path | None,
    n_best: int,
    like: Path | None,
    concepts: tuple[str, ...],
    without: tuple[str, ...],
    thumbnails: Path | None,
    open_first: bool,
    models: tuple[Path, ...],
    weights: Path | None,
    as_json: bool,
) -> None:
    """Find the moments in a library that suit QUERY best, a sentence.

    'Nothing matches' is an answer too, with exit code 1: then the best of all clips score as clips do that
    have nothing to do with a query. What comes nearest is shown all the same.

    \b
    Examples:
      ctsan search "a dog runs on grass"
      ctsan search "a dog runs" -n 3 --not snow --thumbnails found/ --json
      ctsan search --like holiday.mp4 --concept beach
    """
    if (query is None) == (like is None):
        raise click.UsageError(
            'Give a sentence or a clip: ctsan search "a dog runs", or ctsan search --like clip.mp4'
        )
    from ctsan.io.paths import library_folder
    from ctsan.search.search import Searcher

    searcher = Searcher(library_folder(name, store), models=models, weights=weights)
    if query is not None:
        found = searcher.search(query, n_best=n_best, concepts=concepts, without=without)
    else:
        assert like is not None
        with errors_in_json(as_json):
            found = searcher.like(like, n_best=n_best, concepts=concepts, without=without)
    warn_of_unknown(found.unknown)
    pictures = _write_thumbnails(found, thumbnails) if thumbnails else {}
    if as_json:
        print_json(
            {
                **({"query": query} if query is not None else {"like": str(like)}),
                "match": found.has_match,
                "trust": None if found.trust is None else round(found.trust, 3),
                "hits": [_listed(hit, pictures.get(place)) for place, hit in enumerate(found.hits)],
            }
        )
    else:
        _print(found, pictures)
    if not found.has_match:
        raise SystemExit(1)
    if open_first:
        click.launch(str(found.hits[0].file))


def _listed(hit: Hit, picture: Path | None) -> dict[str, object]:
    return {
        "file": str(hit.file),
        "start": round(hit.start, 3),
        "end": round(hit.end, 3),
        "score": round(hit.score, 4),
        "matched": [each.word for each in hit.matched],
        "concepts": listed_concepts(hit.concepts),
        **({"thumbnail": str(picture)} if picture else {}),
    }


def _print(found: SearchResult, pictures: dict[int, Path]) -> None:
    if not found.hits:
        click.echo("Nothing matches: no clip of the library shows these concept words.")
        return
    if not found.has_match:
        trust = (
            f" (such an answer was right for {found.trust:.0%} of validation queries)" if found.trust else ""
        )
        click.echo(f"Nothing matches{trust}. What comes nearest:")
    for place, hit in enumerate(found.hits):
        words = f"  ({concept_words(hit.matched)})" if hit.matched else ""
        when = f"  {_clock(hit.start)}-{_clock(hit.end)}" if hit.end else ""
        click.echo(f"{hit.score:6.2f}  {hit.file}{when}{words}")
        if place in pictures:
            click.echo(f"        {pictures[place]}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"


def _write_thumbnails(found: SearchResult, folder: Path) -> dict[int, Path]:
    """Write the middle frame of each hit, keyed by its position; skips files that cannot be read."""
    from ctsan.errors import VideoError
    from ctsan.search.thumbnails import write_thumbnail

    written = {}
    for place, hit in enumerate(found.hits):
        try:
            written[place] = write_thumbnail(hit, folder / f"{place + 1:02}-{hit.file.stem}.jpg")
        except VideoError as error:
            warn(f"No picture of a hit: {error}")
    return written
