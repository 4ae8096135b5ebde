"""Shared code of the commands that query trained models about clips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ctsan.cli.output import print_json, print_line
from ctsan.errors import VideoError, printable
from ctsan.io.messages import warn
from ctsan.runs.pack_folder import DEFAULT

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor
    from ctsan.inference.results import Attention, Concept, Correction, Effects

PATH = click.Path(path_type=Path, readable=False)  # commands say themselves what cannot be read, and go on
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
    help="Add which concept words each word attended to, and which made it likelier: x2.2 means 2.2 times as "
    "likely as without that concept word.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a clip.")

_STRONGEST = 3  # concept words shown per word in text output
_LEAST_SHARE = 0.005  # smaller attention weights would print as 0.00


class Reply(NamedTuple):
    """An answer about a clip, as JSON and as text."""

    line: dict[str, object]
    text: Iterable[str]


def print_answer(
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
            print_error(reply, as_json)
        elif as_json:
            print_json(reply.line)
        else:
            for line in reply.text:
                print_line(printable(line))
    if failed:
        raise SystemExit(1)


def print_error(error: VideoError, as_json: bool) -> None:
    if as_json:
        print_json({"clip": str(error.path), "error": str(error)})
    else:
        warn(str(error))


@contextmanager
def errors_in_json(as_json: bool) -> Iterator[None]:
    """With JSON output, print the error of an unreadable clip on stdout; otherwise let it propagate."""
    try:
        yield
    except VideoError as error:
        if not as_json:
            raise
        print_error(error, as_json)
        raise SystemExit(1) from None


def clip_files(paths: Sequence[Path]) -> tuple[list[Path], bool]:
    """Expand folders to the clips in them; files stay as they are. Duplicates are removed.

    Returns:
        The files, and whether all subfolders could be listed. The others are reported.

    Raises:
        CorpusError: a folder holds no clips.
    """
    from ctsan.data.readers.files import is_folder
    from ctsan.data.reading import read_corpus

    files: dict[Path, None] = {}
    all_listed = True
    for path in paths:
        if is_folder(path):
            corpus = read_corpus(path)
            files |= dict.fromkeys(clip.path for clip in corpus)
            all_listed = all_listed and not corpus.unlisted
        else:
            files[path] = None
    return list(files), all_listed


def warn_of_unknown(words: Sequence[str]) -> None:
    if words:
        warn(f"Not known to the model, and read as the unknown word: {', '.join(words)}.")


def correction_line(searched_for: str, corrections: Sequence[Correction]) -> list[str]:
    """Format what a misspelt query was read as; no line if nothing was corrected."""
    typed = ", ".join(f"{each.typed} as {each.read_as}" for each in corrections)
    return [f"Searched for: {searched_for} (read {typed})"] if corrections else []


def concepts_to_json(concepts: Sequence[Concept]) -> list[dict[str, object]]:
    return [{"word": concept.word, "confidence": round(concept.confidence, 4)} for concept in concepts]


def words_with_confidences(concepts: Sequence[Concept]) -> str:
    return ", ".join(f"{concept.word} {concept.confidence:.2f}" for concept in concepts)


def concept_words(concepts: Sequence[Concept]) -> str:
    """Format the concept words, as `concept words: man 0.85, dog 0.31`; empty if there are none."""
    return f"concept words: {words_with_confidences(concepts)}" if concepts else ""


def concept_line(concepts: Sequence[Concept]) -> list[str]:
    """Format the line of concept words under an answer; no line if no answering run has a detector."""
    return [f"    {concept_words(concepts)}"] if concepts else []


def attention_to_json(attentions: Sequence[Attention], **where: int) -> list[dict[str, object]]:
    """Convert attention to JSON: one object per run, with the number of its sentence or blank."""
    listed = []
    for attention in attentions:
        input_weights, output_weights = attention.input_weights, attention.output_weights
        listed.append(
            {
                "run": attention.run,
                **where,
                "concepts": attention.concepts,
                "words": attention.words,
                "input": None if input_weights is None else input_weights.astype(float).round(4).tolist(),
                "output": None if output_weights is None else output_weights.astype(float).round(4).tolist(),
            }
        )
    return listed


def attention_lines(attentions: Sequence[Attention]) -> Iterable[str]:
    """Format each word with its most attended concept words; one line for a run without attention.

    Generated words show output attention, given words show input attention.
    """
    for attention in attentions:
        input_weights, output_weights = attention.input_weights, attention.output_weights
        is_caption = output_weights is not None and output_weights.ndim == 2
        by_word = output_weights if is_caption else input_weights
        rows = [] if by_word is None else list(zip(attention.words, by_word, strict=True))
        if output_weights is not None and not is_caption:
            rows.append(("to answer", output_weights))
        if not rows:
            yield f"    no attention: {attention.run} reads no concept words"
            continue
        yield f"    attended to by {attention.run}"
        width = max(len(word) for word, _ in rows)
        for word, weights in rows:
            strongest = [
                place
                for place in (-weights).argsort(kind="stable")[:_STRONGEST]
                if weights[place] >= _LEAST_SHARE
            ]
            listed = ", ".join(f"{attention.concepts[place]} {weights[place]:.2f}" for place in strongest)
            yield f"      {word:{width}}  {listed}".rstrip()


def effects_to_json(effects: Effects | None) -> dict[str, object] | None:
    """Convert effects to JSON, in nats; null if no run reads concept words."""
    if effects is None:
        return None
    return {
        "concepts": effects.concepts,
        "words": effects.words,
        "each": effects.each.astype(float).round(4).tolist(),
        "together": effects.together.astype(float).round(4).tolist(),
    }


def effect_lines(effects: Effects | None) -> Iterable[str]:
    """Format each word with its largest effects of concept words, and with the effect of all together."""
    from ctsan.inference.results import times_likelier

    if effects is None:
        return
    yield "    likelier by each concept word, and by all of them (x1.0: no effect)"
    width = max(len(word) for word in effects.words)
    for place, word in enumerate(effects.words):
        parts = [*map(str, effects.largest(place)), f"all {times_likelier(float(effects.together[place]))}"]
        yield f"      {word:{width}}  {', '.join(parts)}"
