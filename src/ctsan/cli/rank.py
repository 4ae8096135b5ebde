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
    attention_lines,
    attention_to_json,
    clip_files,
    concept_line,
    concept_words,
    concepts_to_json,
    correction_line,
    print_answer,
    warn_of_unknown,
)
from ctsan.cli.output import print_json, print_line
from ctsan.errors import printable
from ctsan.io.messages import inform, warn
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

    Clips that cannot be read and subfolders that cannot be listed are named, and the exit code is then 1.
    With --clip and --sentences it ranks the sentences of a file for one clip.

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
    if Path(query).exists() and not any(clip.exists() for clip in clips):
        raise click.UsageError(f"{query} is a file or folder: the sentence comes first, then the clips.")
    files, all_listed = clip_files(clips)
    _rank_clips(query, files, models, weights, n_best, attention, as_json)
    if not all_listed:
        raise SystemExit(1)


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
    with progress_bar(len(clips), what="encoding") as bar:
        ranking = predictor.rank(query, clips, n_best=n_best, attention=attention, on_clip=bar.update)
    for line in correction_line(ranking.searched_for, ranking.corrections):
        inform(line)
    warn_of_unknown(ranking.unknown)
    if as_json:
        listed = [
            {
                "clip": ranked.clip,
                "score": ranked.score,
                "concepts": concepts_to_json(ranked.concepts),
                **({"attention": attention_to_json(ranked.attention)} if attention else {}),
            }
            for ranked in ranking.clips
        ]
        errors = [{"clip": str(error.path), "error": str(error)} for error in ranking.errors]
        print_json(
            {
                "query": query,
                "searched_for": ranking.searched_for,
                "clips": listed,
                **({"errors": errors} if errors else {}),
            }
        )
    else:
        for ranked in ranking.clips:
            words = f"  ({concept_words(ranked.concepts[:_SHOWN])})" if ranked.concepts else ""
            print_line(f"{ranked.score:6.2f}  {printable(ranked.clip)}{words}")
            for line in attention_lines(ranked.attention):
                print_line(line)
        for error in ranking.errors:
            warn(str(error))
    if ranking.errors:
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
        ranking = predictor.rank_sentences(clip, sentences, attention=attention)
        warn_of_unknown(ranking.unknown)
        best = ranking.sentences[:n_best]
        line: dict[str, object] = {
            "clip": str(clip),
            "sentences": [
                {
                    "sentence": ranked.sentence,
                    "score": ranked.score,
                    **({"attention": attention_to_json(ranked.attention)} if attention else {}),
                }
                for ranked in best
            ],
            "concepts": concepts_to_json(ranking.concepts),
        }
        text = [f"{clip}:"]
        for ranked in best:
            text += [f"    {ranked.score:6.2f}  {ranked.sentence}", *attention_lines(ranked.attention)]
        return Reply(line, [*text, *concept_line(ranking.concepts)])

    print_answer(answer, clip, models, weights, as_json)


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
