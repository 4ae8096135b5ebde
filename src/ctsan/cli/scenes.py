"""`ctsan describe --scenes`: caption the shots of long videos."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ctsan.cli.common import concepts_to_json, print_replies
from ctsan.cli.output import print_json, print_line
from ctsan.errors import UsageError, VideoError, did_you_mean, printable
from ctsan.io.messages import count
from ctsan.io.progress import progress_bar

if TYPE_CHECKING:
    from ctsan.inference.predictor import Predictor
    from ctsan.inference.results import Scene

FORMATS = ("vtt", "srt", "csv", "edl", "json")


def check_scenes(
    videos: Sequence[Path], out: Path | None, kind: str | None, *, n_best: int, attention: bool
) -> dict[Path, Path]:
    """Check the arguments before the work, which may take hours.

    Args:
        out: a file, or a folder for several videos or where `kind` is given.
        kind: one of `FORMATS`, of the files in that folder.

    Returns:
        The file to write for each video; empty if none is.

    Raises:
        UsageError: options exclude each other, or the output cannot be written.
    """
    if n_best > 1:
        raise UsageError("--n-best does not go with --scenes: a shot has one sentence.")
    if attention:
        raise UsageError("--attention does not go with --scenes. Cut out the shot, and describe it alone.")
    if out is None:
        if kind is not None:
            raise UsageError("--format goes with -o FOLDER. Name the folder, or use --json.")
        return {}
    ending = out.suffix.lower()
    if len(videos) == 1 and kind is None and not out.is_dir():
        if ending not in _TRACKS:
            hint = did_you_mean(out.suffix, _TRACKS)
            raise UsageError(f"{out}: an ending that is not known. {hint}Use one of {', '.join(_TRACKS)}.")
        return {videos[0]: out}
    if out.is_file() or (ending in _TRACKS and not out.is_dir()):
        more = f"there are {len(videos)} videos" if len(videos) > 1 else "--format names a kind of file"
        folder = out.with_suffix("")
        raise UsageError(
            f"{out}: this is one file, and {more}. Name a folder: -o {folder}/ --format {kind or ending[1:]}"
        )
    return _track_files(videos, out, f".{kind or FORMATS[0]}")


def describe_scenes(
    predictor: Predictor,
    videos: Sequence[Path],
    tracks: dict[Path, Path],
    *,
    beam: int | None,
    as_json: bool,
) -> None:
    """Caption the shots of videos. Unreadable ones of several are listed, and the exit code is 1.

    Args:
        tracks: the file to write for each video; without one, each shot is printed as soon as it is ready.

    Raises:
        VideoError: the only video cannot be read.
    """
    errors: list[VideoError] = []
    for video in videos:
        try:
            if track := tracks.get(video):
                _write_track(predictor, video, track, beam=beam, as_json=as_json)
            else:
                _print_scenes(predictor, video, beam=beam, as_json=as_json, with_name=len(videos) > 1)
        except VideoError as error:
            if len(videos) == 1:
                raise
            errors.append(error)
    print_replies(errors, as_json)


def _track_files(videos: Sequence[Path], folder: Path, ending: str) -> dict[Path, Path]:
    """A file for each video, in the subfolders that the videos are in.

    It is named as the video, which keeps its own ending if two in a folder would else have the same name.
    """
    absolute = {video: video.parent.resolve() / video.name for video in videos}
    common = os.path.commonpath([path.parent for path in absolute.values()])
    stems: dict[Path, list[str]] = {}
    for path in absolute.values():
        stems.setdefault(path.parent, []).append(path.stem.lower())
    return {
        video: folder
        / path.parent.relative_to(common)
        / ((path.stem if len(set(stems[path.parent])) == len(stems[path.parent]) else path.name) + ending)
        for video, path in absolute.items()
    }


def _print_scenes(
    predictor: Predictor, video: Path, *, beam: int | None, as_json: bool, with_name: bool
) -> None:
    from ctsan.subtitles import clock

    place = f"{printable(video)}: " if with_name else ""
    for scene in _scenes(predictor, video, _seconds(video), beam=beam):
        if as_json:
            print_json({"clip": str(video), **_line(scene)})
        else:
            print_line(f"{place}{clock(scene.start)}  {scene.caption.text}")


def _write_track(predictor: Predictor, video: Path, out: Path, *, beam: int | None, as_json: bool) -> None:
    from ctsan.io.atomic import replacing

    described = 0
    seconds = _seconds(video)  # before a folder is made for a video that cannot be read

    def counted() -> Iterator[Scene]:
        nonlocal described
        for scene in _scenes(predictor, video, seconds, beam=beam):
            described += 1
            yield scene

    with (
        replacing(out) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        file.writelines(_TRACKS[out.suffix.lower()](video, counted()))
    if as_json:
        print_json({"clip": str(video), "out": str(out), "scenes": described})
    else:
        print_line(f"{count(described, 'scene')} of {printable(video)} in {printable(out)}")


def _seconds(video: Path) -> int:
    from ctsan.video.frames import probe

    return max(1, round(probe(video).duration))


def _scenes(predictor: Predictor, video: Path, seconds: int, *, beam: int | None) -> Iterator[Scene]:
    with progress_bar(seconds, what="describing", unit="s") as bar:
        for scene in predictor.describe_scenes(video, beam=beam):
            bar.update(min(round(scene.end), seconds) - bar.n)
            yield scene


def _vtt(video: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    from ctsan.subtitles import web_vtt

    return web_vtt(scenes, video=video.name)


def _srt(_: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    from ctsan.subtitles import subrip

    return subrip(scenes)


def _csv(video: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    from ctsan.subtitles import csv_table

    return csv_table(scenes, video=str(video))


def _edl(video: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    from ctsan.subtitles import edit_decision_list
    from ctsan.video.frames import probe

    return edit_decision_list(scenes, video=video.name, frame_rate=probe(video).frame_rate)


def _json(video: Path, scenes: Iterable[Scene]) -> Iterator[str]:
    yield f'{{"clip": {json.dumps(str(video))}, "scenes": ['
    for number, scene in enumerate(scenes):
        yield (",\n" if number else "\n") + json.dumps(_line(scene), ensure_ascii=False)
    yield "\n]}\n"


_TRACKS: dict[str, Callable[[Path, Iterable[Scene]], Iterator[str]]] = {
    ".vtt": _vtt,
    ".srt": _srt,
    ".csv": _csv,
    ".edl": _edl,
    ".json": _json,
}


def _line(scene: Scene) -> dict[str, object]:
    return {
        "start": round(scene.start, 3),
        "end": round(scene.end, 3),
        "caption": scene.caption.text,
        "score": scene.caption.score,
        "log_probability": scene.caption.log_probability,
        "concepts": concepts_to_json(scene.concepts),
    }
