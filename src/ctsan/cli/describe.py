"""`ctsan describe` and `ctsan concepts`: ask a trained model about video files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.output import print_json, warn

if TYPE_CHECKING:
    from ctsan.predictor import Concept, Predictor

_CLIPS = click.argument("clips", nargs=-1, required=True, type=click.Path(path_type=Path))
MODEL = click.option("--model", type=click.Path(path_type=Path), required=True, help="Folder of a run.")
WEIGHTS = click.option("--weights", type=click.Path(path_type=Path), help="Of the backbone, for a ResNet.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a clip.")


@click.command("describe")
@_CLIPS
@MODEL
@WEIGHTS
@click.option("--beam", type=click.IntRange(min=1), default=5, show_default=True, help="1 is greedy.")
@click.option("--n-best", type=click.IntRange(min=1), default=1, show_default=True, help="Sentences a clip.")
@_JSON
def command(
    clips: tuple[Path, ...], model: Path, weights: Path | None, beam: int, n_best: int, as_json: bool
) -> None:
    """Say what happens in each of CLIPS: video files, pictures, or folders of them.

    A clip that cannot be read gets its error in place of an answer, and the exit code is then 1.
    """

    def answer(predictor: Predictor, clip: Path) -> dict[str, object]:
        found = predictor.describe(clip, beam=beam, n_best=n_best)
        if not as_json:
            for caption in found.captions:
                click.echo(f"{clip}: {caption.text}" + (f"  ({caption.score:.2f})" if n_best > 1 else ""))
            click.echo(f"    {words_with_confidences(found.concepts)}")
        best = found.captions[0]
        line: dict[str, object] = {"clip": str(clip), "caption": best.text, "score": best.score}
        if n_best > 1:
            line["captions"] = [{"caption": each.text, "score": each.score} for each in found.captions]
        return line | {"concepts": listed_concepts(found.concepts)}

    _ask(answer, clips, model, weights, as_json)


@click.command("concepts")
@_CLIPS
@MODEL
@WEIGHTS
@_JSON
def concepts(clips: tuple[Path, ...], model: Path, weights: Path | None, as_json: bool) -> None:
    """List the concept words that the model sees in each of CLIPS, with its confidence."""

    def answer(predictor: Predictor, clip: Path) -> dict[str, object]:
        found = predictor.concepts(clip)
        if not as_json:
            click.echo(f"{clip}: {words_with_confidences(found)}")
        return {"clip": str(clip), "concepts": listed_concepts(found)}

    _ask(answer, clips, model, weights, as_json)


def _ask(
    answer: Callable[[Predictor, Path], dict[str, object]],
    clips: tuple[Path, ...],
    model: Path,
    weights: Path | None,
    as_json: bool,
) -> None:
    from ctsan.errors import VideoError
    from ctsan.predictor import Predictor

    predictor = Predictor.load(model, weights=weights)
    failed = 0
    for clip in _files(clips):
        try:
            line = answer(predictor, clip)
        except VideoError as error:
            failed += 1
            line = {"clip": str(clip), "error": str(error)}
            if not as_json:
                warn(str(error))
        if as_json:
            print_json(line)
    if failed:
        raise SystemExit(1)


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Files as they are; of a folder, all its clips."""
    from ctsan.data.reading import read_corpus

    for path in paths:
        if path.is_dir():
            yield from (clip.path for clip in read_corpus(path))
        else:
            yield path


def listed_concepts(found: tuple[Concept, ...]) -> list[dict[str, object]]:
    return [{"word": each.word, "confidence": round(each.confidence, 4)} for each in found]


def words_with_confidences(found: tuple[Concept, ...]) -> str:
    return ", ".join(f"{each.word} {each.confidence:.2f}" for each in found)
