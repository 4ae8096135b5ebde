"""`ctsan describe --scenes`: caption the shots of a long video."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctsan.cli.common import listed_concepts
from ctsan.cli.output import print_json
from ctsan.errors import UsageError, did_you_mean
from ctsan.io.messages import count
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor
    from ctsan.inference.results import Scene


def check_scenes(clips: tuple[Path, ...], out: Path | None, *, n_best: int, attention: bool) -> None:
    """Check the arguments before the work, which may take hours.

    Raises:
        UsageError: the clips are not exactly one video, or the output cannot be written.
    """
    if len(clips) != 1 or clips[0].is_dir():
        raise UsageError("--scenes describes one video at a time. Name one file.")
    if n_best > 1:
        raise UsageError("--n-best does not go with --scenes: a shot has one sentence.")
    if attention:
        raise UsageError("--attention does not go with --scenes. Cut out the shot, and describe it alone.")
    if out is None:
        return
    if out.suffix.lower() not in _TRACKS:
        hint = did_you_mean(out.suffix, _TRACKS)
        raise UsageError(f"{out}: an ending that is not known. {hint}Use one of {', '.join(_TRACKS)}.")
    if out.is_dir():
        raise UsageError(f"{out}: this is a folder. Name a file in it.")


def describe_scenes(
    predictor: Predictor, video: Path, out: Path | None, *, beam: int | None, as_json: bool
) -> None:
    """Caption the shots of a video, and write each as soon as it is ready."""
    from ctsan.io.atomic import replacing
    from ctsan.subtitles import clock
    from ctsan.video.frames import probe

    seconds = max(1, round(probe(video).duration))
    described = 0

    def scenes() -> Iterator[Scene]:
        nonlocal described
        with progress_bar(seconds, what="describing", unit="s") as bar:
            for scene in predictor.describe_scenes(video, beam=beam):
                bar.update(min(round(scene.end), seconds) - bar.n)
                described += 1
                yield scene

    if out is None:
        for scene in scenes():
            if as_json:
                print_json(_line(scene))
            else:
                click.echo(f"{clock(scene.start)}  {scene.caption.text}")
        return
    with (
        replacing(out) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        file.writelines(_TRACKS[out.suffix.lower()](video, scenes()))
    if as_json:
        print_json({"clip": str(video), "out": str(out), "scenes": described})
    else:
        click.echo(f"{count(described, 'scene')} of {video} in {out}")


def _vtt(video: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    from ctsan.subtitles import web_vtt

    return web_vtt(scenes, video=video.name)


def _srt(_: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    from ctsan.subtitles import subrip

    return subrip(scenes)


def _json(video: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    yield f'{{"clip": {json.dumps(str(video))}, "scenes": ['
    for number, scene in enumerate(scenes):
        yield (",\n" if number else "\n") + json.dumps(_line(scene), ensure_ascii=False)
    yield "\n]}\n"


_TRACKS: dict[str, Callable[[Path, Iterable[Scene]], Iterator[str]]] = {
    ".vtt": _vtt,
    ".srt": _srt,
    ".json": _json,
}


def _line(scene: Scene) -> dict[str, object]:
    return {
        "start": round(scene.start, 3),
        "end": round(scene.end, 3),
        "caption": scene.caption.text,
        "score": scene.caption.score,
        "log_probability": scene.caption.log_probability,
        "concepts": listed_concepts(scene.concepts),
    }
