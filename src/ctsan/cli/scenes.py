"""`ctsan describe --scenes`: a long video as a track of descriptions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from ctsan.cli.asking import listed_concepts
from ctsan.cli.output import count, print_json, progress_bar
from ctsan.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from ctsan.answers import Scene
    from ctsan.predictor import Predictor

_LEAST = 0.001  # seconds: players refuse a cue of no length, such as a picture's


def check_scenes(clips: tuple[Path, ...], out: Path | None, *, n_best: int) -> None:
    """Tell at once, and not after hours, what cannot be done.

    Raises:
        UsageError: there is not one video, or its track cannot be written.
    """
    if len(clips) != 1 or clips[0].is_dir():
        raise UsageError("--scenes describes one video at a time. Name one file.")
    if n_best > 1:
        raise UsageError("--n-best does not go with --scenes: a shot has one sentence.")
    if out is None:
        return
    if out.suffix.lower() not in _TRACKS:
        hint = did_you_mean(out.suffix, _TRACKS)
        raise UsageError(f"{out}: an ending that is not known. {hint}Use one of {', '.join(_TRACKS)}.")
    if out.is_dir():
        raise UsageError(f"{out}: this is a folder. Name a file in it.")


def describe_scenes(predictor: Predictor, video: Path, out: Path | None, *, beam: int, as_json: bool) -> None:
    """Describe the shots of a video, and write them as they come."""
    from ctsan.atomic import replacing
    from ctsan.video.frames import probe

    seconds = max(1, round(probe(video).duration))

    def scenes() -> Iterator[Scene]:
        with progress_bar(seconds, what="describing", unit="s") as bar:
            for scene in predictor.describe_scenes(video, beam=beam):
                bar.update(min(round(scene.end), seconds) - bar.n)
                yield scene

    if out is None:
        for scene in scenes():
            if as_json:
                print_json(_line(scene))
            else:
                click.echo(f"{_clock(scene.start)}  {scene.caption.text}")
        return
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        written = _TRACKS[out.suffix.lower()](video, scenes(), file)
    if as_json:
        print_json({"clip": str(video), "out": str(out), "scenes": written})
    else:
        click.echo(f"{count(written, 'scene')} of {video} in {out}")


def _write_vtt(video: Path, scenes: Iterable[Scene], file: TextIO) -> int:
    """WebVTT: `<track kind="descriptions">` lets a browser show it or read it out."""
    file.write(f"WEBVTT\nKind: descriptions\nLanguage: en\n\nNOTE\nWhat happens in {_plain(video.name)}\n")
    number = 0
    for number, scene in enumerate(scenes, start=1):
        file.write(f"\n{number}\n{_span(scene, '.')}\n{_plain(scene.caption.text)}\n")
    return number


def _write_srt(_: Path, scenes: Iterable[Scene], file: TextIO) -> int:
    number = 0
    for number, scene in enumerate(scenes, start=1):
        file.write(f"{number}\n{_span(scene, ',')}\n{scene.caption.text}\n\n")
    return number


def _write_json(video: Path, scenes: Iterable[Scene], file: TextIO) -> int:
    file.write(f'{{"clip": {json.dumps(str(video))}, "scenes": [')
    number = 0
    for number, scene in enumerate(scenes, start=1):
        file.write(",\n" if number > 1 else "\n")
        json.dump(_line(scene), file, ensure_ascii=False)
    file.write("\n]}\n")
    return number


_TRACKS: dict[str, Callable[[Path, Iterable[Scene], TextIO], int]] = {
    ".vtt": _write_vtt,
    ".srt": _write_srt,
    ".json": _write_json,
}


def _line(scene: Scene) -> dict[str, object]:
    return {
        "start": round(scene.start, 3),
        "end": round(scene.end, 3),
        "caption": scene.caption.text,
        "score": scene.caption.score,
        "concepts": listed_concepts(scene.concepts),
    }


def _span(scene: Scene, point: str) -> str:
    end = max(scene.end, scene.start + _LEAST)
    return f"{_clock(scene.start, point)} --> {_clock(end, point)}"


def _clock(seconds: float, point: str = ".") -> str:
    """`01:02:03.456`."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


def _plain(text: str) -> str:
    """Text that WebVTT reads as it stands."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
