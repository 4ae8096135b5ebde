"""`ctsan rank`: rank clips for a sentence, or sentences for a clip."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import (
    ATTENTION,
    MODELS,
    PATH,
    WEIGHTS,
    Reply,
    ask,
    attention_lines,
    clip_files,
    concept_line,
    concept_words,
    listed_attention,
    listed_concepts,
    warn_of_unknown,
)
from ctsan.cli.output import print_json
from ctsan.io.messages import warn
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor

_SHOWN = 5  # concept words shown per clip


@click.command("rank")
@click.argument("query", required=False)
@click.argument("clips", nargs=-1, type=PATH)
@MODELS
@WEIGHTS
@click.option(
    "-n", "n_best", type=click.IntRange(min=1), default=10, show_default=True, help="Only the best."
)
@click.option("--clip", type=PATH, help="Rank sentences for this clip instead.")
@click.option("--sentences", type=PATH, help="With --clip: a text file, one sentence a line.")
@ATTENTION
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    query: str | None,
    clips: tuple[Path, ...],
    models: tuple[Path, ...],
    weights: Path | None,
    n_best: int,
    clip: Path | None,
    sentences: Path | None,
    attention: bool,
    as_json: bool,
) -> None:
    """Rank CLIPS, video files, pictures or folders of them, by how well they suit QUERY.

    Clips that cannot be read are listed apart, and the exit code is then 1. With --clip and --sentences it
    ranks the sentences of a file for one clip.

    The model that ctsan carries answers. To ask one of your own, name a run of 'ctsan train embed' or 'ctsan
    train rank' by --model. Runs of 'embed' decide alone; without one, runs of 'choose' may help those of
    'rank'.

    \b
    Examples:
      ctsan rank "a dog runs on grass" holidays/
      ctsan rank "a dog" holidays/ -n 3 --json
      ctsan rank --clip holiday.mp4 --sentences sentences.txt
      ctsan rank "a dog" holidays/ --model runs/embed
      ctsan rank "a dog" holidays/ --model runs/rank --model runs/choose
    """
    if clip is not None or sentences is not None:
        if clip is None or sentences is None or query is not None:
            raise click.UsageError(
                "To rank sentences for a clip, give --clip CLIP and --sentences FILE alone."
            )
        _rank_sentences(clip, sentences, models, weights, n_best, attention, as_json)
        return
    if query is None or not clips:
        raise click.UsageError(
            'Give a sentence and the clips to rank for it: ctsan rank "a dog runs" holidays/'
        )
    _rank_clips(query, clip_files(clips), models, weights, n_best, attention, as_json)


def _rank_clips(
    query: str,
    clips: Sequence[Path],
    models: Sequence[Path],
    weights: Path | None,
    n_best: int,
    attention: bool,
    as_json: bool,
) -> None:
    from ctsan.inference.predictor import Predictor

    predictor = Predictor.load(*models, weights=weights)
    with progress_bar(len(clips), what="looking") as bar:
        found = predictor.rank(query, clips, n_best=n_best, attention=attention, on_clip=bar.update)
    warn_of_unknown(found.unknown)
    if as_json:
        listed = [
            {
                "clip": each.clip,
                "score": each.score,
                "concepts": listed_concepts(each.concepts),
                **({"attention": listed_attention(each.attention)} if attention else {}),
            }
            for each in found.clips
        ]
        errors = [{"clip": str(error.path), "error": str(error)} for error in found.errors]
        print_json({"query": query, "clips": listed, **({"errors": errors} if errors else {})})
    else:
        for each in found.clips:
            shown = f"  ({concept_words(each.concepts[:_SHOWN])})" if each.concepts else ""
            click.echo(f"{each.score:6.2f}  {each.clip}{shown}")
            for line in attention_lines(each.attention):
                click.echo(line)
        for error in found.errors:
            warn(str(error))
    if found.errors:
        raise SystemExit(1)


def _rank_sentences(
    clip: Path,
    file: Path,
    models: Sequence[Path],
    weights: Path | None,
    n_best: int,
    attention: bool,
    as_json: bool,
) -> None:
    sentences = _sentences(file)

    def answer(predictor: Predictor, clip: Path) -> Reply:
        found = predictor.rank_sentences(clip, sentences, attention=attention)
        warn_of_unknown(found.unknown)
        best = found.sentences[:n_best]
        line: dict[str, object] = {
            "clip": str(clip),
            "sentences": [
                {
                    "sentence": each.sentence,
                    "score": each.score,
                    **({"attention": listed_attention(each.attention)} if attention else {}),
                }
                for each in best
            ],
            "concepts": listed_concepts(found.concepts),
        }
        text = [f"{clip}:"]
        for each in best:
            text += [f"    {each.score:6.2f}  {each.sentence}", *attention_lines(each.attention)]
        return Reply(line, [*text, *concept_line(found.concepts)])

    ask(answer, clip, models, weights, as_json)


def _sentences(file: Path) -> list[str]:
    """Read sentences from a text file, one per line.

    Raises:
        ProblemsError: the file cannot be read, or holds no sentences.
    """
    from ctsan.data.readers.files import lines_of
    from ctsan.errors import Problem, ProblemsError

    problems: list[Problem] = []
    sentences = [text.strip() for _, text in lines_of(file, problems) if text.strip()]
    if not sentences and not problems:
        problems.append(Problem(file, None, "it holds no sentences", "Write some, one a line."))
    if problems:
        raise ProblemsError(problems)
    return sentences
