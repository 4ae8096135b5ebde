"""`ctsan search`: find moments in a library."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    PATH,
    WEIGHTS,
    concept_words,
    concepts_to_json,
    correction_line,
    print_error,
)
from ctsan.cli.index import LIBRARY, STORE
from ctsan.cli.output import print_json, print_line, print_path
from ctsan.errors import VideoError, printable
from ctsan.io.messages import count, inform, warn

if TYPE_CHECKING:
    from ctsan.search.search import Hit, SearchResult


_LONG_FILM = 60.0  # seconds, from which describing it shot by shot is worth a hint


@click.command("search")
@click.argument("query", required=False)
@LIBRARY
@STORE
@click.option(
    "-n", "n_best", type=click.IntRange(min=1), default=10, show_default=True, help="Only so many, the best."
)
@click.option("--skip", type=click.IntRange(min=0), default=0, help="Leave out so many of the best.")
@click.option(
    "--like",
    "likes",
    type=PATH,
    multiple=True,
    help="Find what is like this clip, instead of a sentence; repeatable. The clip itself is left out.",
)
@click.option(
    "--concept",
    "concepts",
    multiple=True,
    metavar="WORD",
    help="Only shots that show this (confidence of at least 0.5); repeatable. Needs no QUERY.",
)
@click.option(
    "--not",
    "without",
    multiple=True,
    metavar="WORD",
    help="No shots that may show this (0.1; people 0.3); repeatable.",
)
@click.option("--plus", multiple=True, metavar="QUERY", help="Add a sentence to QUERY; repeatable.")
@click.option("--minus", multiple=True, metavar="QUERY", help="Subtract a sentence from QUERY; repeatable.")
@click.option("--min-score", type=float, help="Only hits with at least this score.")
@click.option("--thumbnails", type=PATH, metavar="DIR", help="Write a picture of each hit into this folder.")
@click.option("--open", "open_first", is_flag=True, help="Open the first file that was found.")
@click.option("--model", "models", type=PATH, multiple=True, help="Runs of the library, if they were moved.")
@WEIGHTS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--paths-only",
    is_flag=True,
    help="Print the paths of the files alone, each once; none if nothing matches.",
)
def command(
    query: str | None,
    name: str,
    store: str | None,
    n_best: int,
    skip: int,
    likes: tuple[Path, ...],
    concepts: tuple[str, ...],
    without: tuple[str, ...],
    plus: tuple[str, ...],
    minus: tuple[str, ...],
    min_score: float | None,
    thumbnails: Path | None,
    open_first: bool,
    models: tuple[Path, ...],
    weights: Path | None,
    as_json: bool,
    paths_only: bool,
) -> None:
    """Find the moments in a library that suit QUERY best, a sentence.

    Misspelt words are corrected, and a line says so. If probably no clip matches, the answer is 'Nothing
    matches', with exit code 1. The nearest clips are still listed.

    Scores are standard deviations from the mean score on validation clips; for --like they are cosines, and
    for --concept without QUERY the confidences of the words.

    \b
    Examples:
      ctsan search "a dog runs on grass"
      ctsan search "a dog runs" -n 3 --not snow --thumbnails found/ --json
      ctsan search "a dog" --plus "a beach" --minus "snow"
      ctsan search "a dog" --skip 10                           the next ten
      ctsan search --concept dog --not person
      ctsan search --like holiday.mp4 --like party.mp4 --concept beach
      ctsan search "a dog" --min-score 2 --paths-only | xargs -d '\\n' cp -t dogs/
    """
    if (query is not None or plus or minus) and likes:
        raise click.UsageError("Give a sentence or --like, not both.")
    if query is None and not (plus or likes or concepts):
        raise click.UsageError(
            'Give a sentence, a clip or a concept word: ctsan search "a dog runs", ctsan search --like '
            "clip.mp4, or ctsan search --concept dog"
        )
    if as_json and paths_only:
        raise click.UsageError("Give --json or --paths-only, not both.")
    from ctsan.search.opening import library_address
    from ctsan.search.search import Searcher

    searcher = Searcher(library_address(name, store), models=models, weights=weights)
    if likes:
        try:
            result = searcher.like(
                likes[0],
                also=likes[1:],
                n_best=n_best,
                skip=skip,
                concepts=concepts,
                without=without,
                min_score=min_score,
                exclude_itself=True,
            )
        except VideoError as error:
            print_error(error, as_json)
            raise SystemExit(2) from None  # 1 is "nothing matches"
    else:
        result = searcher.search(
            query,
            n_best=n_best,
            skip=skip,
            concepts=concepts,
            without=without,
            plus=plus,
            minus=minus,
            min_score=min_score,
        )
    for line in _notes(result):
        inform(line)
    pictures = _write_thumbnails(result, thumbnails) if thumbnails else {}
    if as_json:
        print_json(_to_json(result, query, likes, pictures))
    elif paths_only:
        for file in dict.fromkeys(hit.file for hit in result.hits if result.has_match):
            print_path(file)
    else:
        _print(result, pictures)
    if not result.has_match:
        raise SystemExit(1)
    if open_first:
        click.launch(str(result.hits[0].file))


def _notes(result: SearchResult) -> Iterator[str]:
    """What was done with the query: on stderr, beside any kind of output."""
    if result.searched_for is not None:
        yield from correction_line(result.searched_for, result.corrections)
    if result.unknown:
        yield f"Not known to the model, and left out: {', '.join(result.unknown)}."
    if result.searched_for is not None and result.hits and not result.is_judged:
        yield "These are the nearest; whether they match was not judged."
    if result.negated:
        yield f"A sentence excludes nothing. To leave out what shows it: --not {result.negated}"
    for applied in result.filters:
        read_as = "" if applied.read_as == applied.word.lower() else f" (for {applied.word!r})"
        verb = "may show" if applied.is_excluded else "show"
        yield f"{applied.num_shots:,} of {count(result.num_shots, 'shot')} {verb} {applied.read_as}{read_as}"


def _to_json(
    result: SearchResult, query: str | None, likes: Sequence[Path], pictures: dict[int, Path]
) -> dict[str, object]:
    asked: dict[str, object] = {}
    if query is not None:
        asked["query"] = query
    if result.searched_for is not None:
        asked["searched_for"] = result.searched_for
    if likes:
        asked["like"] = str(likes[0]) if len(likes) == 1 else [str(like) for like in likes]
    return {
        **asked,
        "unknown": list(result.unknown),
        "filters": [
            {
                "word": applied.word,
                "read_as": applied.read_as,
                "excluded": applied.is_excluded,
                "shots": applied.num_shots,
            }
            for applied in result.filters
        ],
        "shots": result.num_shots,
        "allowed": result.num_allowed,
        "skipped": result.skipped,
        "match": result.has_match,
        "judged": result.is_judged,
        "match_accuracy": None if result.match_accuracy is None else round(result.match_accuracy, 3),
        "hits": [_hit_to_json(hit, pictures.get(place)) for place, hit in enumerate(result.hits)],
    }


def _hit_to_json(hit: Hit, picture: Path | None) -> dict[str, object]:
    return {
        "file": str(hit.file),
        **({"host": hit.host} if hit.host else {}),
        "start": round(hit.start, 3),
        "end": round(hit.end, 3),
        "score": round(hit.score, 4),
        "caption": hit.caption,
        "matched": [concept.word for concept in hit.matched],
        "concepts": concepts_to_json(hit.concepts),
        **({"thumbnail": str(picture)} if picture else {}),
    }


def _print(result: SearchResult, pictures: dict[int, Path]) -> None:
    if not result.hits:
        print_line(_why_none(result))
        return
    if not result.has_match:
        verdict = (
            f"Nothing matches (in tests this was right for {result.match_accuracy:.0%} of the sentences)."
            if result.match_accuracy
            else "Perhaps nothing matches: a single word is hard to judge, a sentence less so."
        )
        print_line(f"{verdict} What comes nearest:")
    for place, hit in enumerate(result.hits):
        words = f"  ({concept_words(hit.matched)})" if hit.matched else ""
        when = f"  {_clock(hit.start)}-{_clock(hit.end)}" if hit.end else ""
        host = f"{hit.host}:" if hit.host else ""
        print_line(f"{hit.score:6.2f}  {printable(f'{host}{hit.file}')}{when}{words}")
        if place in pictures:
            print_line(f"        {pictures[place]}")
    if result.has_match and result.hits[0].end > _LONG_FILM:
        inform(f"Shot by shot: ctsan describe --scenes {shlex.quote(printable(result.hits[0].file))}")


def _why_none(result: SearchResult) -> str:
    if result.num_allowed == 0:
        return "Nothing matches: no shot of the library passes the filters."
    if result.skipped:
        return f"There are no more than {count(result.skipped, 'hit')}."
    return "Nothing matches: no hit has such a score."


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"


def _write_thumbnails(result: SearchResult, folder: Path) -> dict[int, Path]:
    """Write the middle frame of each hit, keyed by its position; skips files that cannot be read."""
    from ctsan.search.thumbnails import write_thumbnail

    written = {}
    for place, hit in enumerate(result.hits):
        try:
            written[place] = write_thumbnail(hit, folder / f"{place + 1:02}-{hit.file.stem}.jpg")
        except VideoError as error:
            warn(f"No picture of a hit: {error}")
    return written
