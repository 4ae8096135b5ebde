"""Shared code of the commands that query trained models about clips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ctsan.cli.output import print_json
from ctsan.errors import VideoError
from ctsan.io.messages import warn
from ctsan.runs.pack_folder import DEFAULT

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor
    from ctsan.inference.results import Attention, Concept, Effects

PATH = click.Path(path_type=Path)
MODEL = click.option(
    "--model", type=PATH, default=DEFAULT, show_default=True, help="Folder of a run or pack."
)
MODELS = click.option(
    "--model",
    "models",
    type=PATH,
    multiple=True,
    default=[DEFAULT],
    show_default=DEFAULT,
    help="Folder of a run or pack; may be repeated: those that can answer do so together.",
)
WEIGHTS = click.option(
    "--weights", type=PATH, help="Of the backbone, where ctsan neither carries nor finds it."
)
ATTENTION = click.option(
    "--attention", is_flag=True, help="Add which concept words each word attended to, and how much."
)
EFFECTS = click.option(
    "--attention",
    is_flag=True,
    help="Add which concept words each said word attended to, and which it owes most to: x2.2 means 2.2 "
    "times as likely as without that concept word.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a clip.")

_STRONGEST = 3  # concept words shown per word in text output
_LEAST_SHARE = 0.005  # smaller attention weights would print as 0.00


class Reply(NamedTuple):
    """An answer about a clip, as JSON and as text."""

    line: dict[str, object]
    text: Iterable[str]


def ask(
    answer: Callable[[Predictor, Path], Reply],
    clip: Path,
    models: Sequence[Path],
    weights: Path | None,
    as_json: bool,
) -> None:
    """Print the answer about one clip, or its error if it cannot be read."""
    from ctsan.inference.predictor import Predictor

    predictor = Predictor.load(*models, weights=weights)
    try:
        reply: Reply | VideoError = answer(predictor, clip)
    except VideoError as error:
        reply = error
    print_replies([reply], as_json)


def print_replies(replies: Iterable[Reply | VideoError], as_json: bool) -> None:
    """Print answers as they arrive; a clip that cannot be read prints its error and sets exit code 1."""
    failed = False
    for reply in replies:
        if isinstance(reply, VideoError):
            failed = True
            if as_json:
                print_json({"clip": str(reply.path), "error": str(reply)})
            else:
                warn(str(reply))
        elif as_json:
            print_json(reply.line)
        else:
            for line in reply.text:
                click.echo(line)
    if failed:
        raise SystemExit(1)


@contextmanager
def errors_in_json(as_json: bool) -> Iterator[None]:
    """With JSON output, print the error of an unreadable clip on stdout; otherwise let it propagate."""
    try:
        yield
    except VideoError as error:
        if not as_json:
            raise
        print_replies([error], as_json)  # and exit code 1


def clip_files(paths: Sequence[Path]) -> list[Path]:
    """Expand folders to the clips in them; files stay as they are. Duplicates are removed.

    Raises:
        CorpusError: a folder holds no clips.
    """
    from ctsan.data.reading import read_corpus

    found: dict[Path, None] = {}
    for path in paths:
        found |= dict.fromkeys([clip.path for clip in read_corpus(path)] if path.is_dir() else [path])
    return list(found)


def warn_of_unknown(words: Sequence[str]) -> None:
    if words:
        warn(f"Not known to the model, and read as if they were any word: {', '.join(words)}.")


def listed_concepts(found: Sequence[Concept]) -> list[dict[str, object]]:
    return [{"word": each.word, "confidence": round(each.confidence, 4)} for each in found]


def words_with_confidences(found: Sequence[Concept]) -> str:
    return ", ".join(f"{each.word} {each.confidence:.2f}" for each in found)


def concept_words(found: Sequence[Concept]) -> str:
    """Format the concept words, as `concept words: man 0.85, dog 0.31`; empty if there are none."""
    return f"concept words: {words_with_confidences(found)}" if found else ""


def concept_line(found: Sequence[Concept]) -> list[str]:
    """Format the line of concept words under an answer; no line if no answering run has a detector."""
    return [f"    {concept_words(found)}"] if found else []


def listed_attention(found: Sequence[Attention], **where: int) -> list[dict[str, object]]:
    """Convert attention to JSON: one object per run, with the number of its sentence or blank."""
    listed = []
    for each in found:
        read, said = each.input_weights, each.output_weights
        listed.append(
            {
                "run": each.run,
                **where,
                "concepts": each.concepts,
                "words": each.words,
                "input": None if read is None else read.astype(float).round(4).tolist(),
                "output": None if said is None else said.astype(float).round(4).tolist(),
            }
        )
    return listed


def attention_lines(found: Sequence[Attention]) -> Iterable[str]:
    """Format each word with its most attended concept words; one line for a run without attention.

    Generated words show output attention, given words show input attention.
    """
    for each in found:
        read, said = each.input_weights, each.output_weights
        is_caption = said is not None and said.ndim == 2
        by_word = said if is_caption else read
        rows = [] if by_word is None else list(zip(each.words, by_word, strict=True))
        if said is not None and not is_caption:
            rows.append(("to answer", said))
        if not rows:
            yield f"    no attention: {each.run} reads no concept words"
            continue
        yield f"    attended to by {each.run}"
        width = max(len(word) for word, _ in rows)
        for word, weights in rows:
            strongest = [
                place
                for place in (-weights).argsort(kind="stable")[:_STRONGEST]
                if weights[place] >= _LEAST_SHARE
            ]
            listed = ", ".join(f"{each.concepts[place]} {weights[place]:.2f}" for place in strongest)
            yield f"      {word:{width}}  {listed}".rstrip()


def listed_effects(found: Effects | None) -> dict[str, object] | None:
    """Convert effects to JSON, in nats; null if no run reads concept words."""
    if found is None:
        return None
    return {
        "concepts": found.concepts,
        "words": found.words,
        "each": found.each.astype(float).round(4).tolist(),
        "together": found.together.astype(float).round(4).tolist(),
    }


def effect_lines(found: Effects | None) -> Iterable[str]:
    """Format each word with its largest effects of concept words, and with the effect of all together."""
    from ctsan.inference.results import times_likelier

    if found is None:
        return
    yield "    likelier by each concept word, and by all of them (x1.0: no effect)"
    width = max(len(word) for word in found.words)
    for place, word in enumerate(found.words):
        owed = [*map(str, found.owed(place)), f"all {times_likelier(float(found.together[place]))}"]
        yield f"      {word:{width}}  {', '.join(owed)}"
