"""Write the descriptions of shots as subtitles (WebVTT, SubRip), as a table (CSV) and for editors (EDL).

Control characters of captions, concept words and names are written as escapes, as on the terminal; only the
path of a table stays as it is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from ctsan.errors import printable
from ctsan.inference.results import Scene

_MIN_SECONDS = 0.001  # players reject cues of zero length, such as those of pictures
_MAX_RATE = 99.4  # a time code has two digits for the frame
_DEFAULT_RATE = 25.0  # of an EDL of a video whose frame rate is not known

CSV_COLUMNS = ("clip", "shot", "start", "end", "caption", "score", "concepts")


def web_vtt(scenes: Iterable[Scene], *, video: str | None = None) -> Iterator[str]:
    """Yield a WebVTT file for `<track kind="descriptions">` in parts, one cue per shot.

    Args:
        video: name of the video, written into a note.
    """
    yield "WEBVTT\nKind: descriptions\nLanguage: en\n"
    if video is not None:
        yield f"\nNOTE\nWhat happens in {_escape(video)}\n"
    for number, scene in enumerate(scenes, start=1):
        yield f"\n{number}\n{_span(scene, '.')}\n{_escape(scene.caption.text)}\n"


def subrip(scenes: Iterable[Scene]) -> Iterator[str]:
    """Yield a SubRip (.srt) file in parts, one cue per shot."""
    for number, scene in enumerate(scenes, start=1):
        yield f"{number}\n{_span(scene, ',')}\n{printable(scene.caption.text)}\n\n"


def csv_table(scenes: Iterable[Scene], *, video: str) -> Iterator[str]:
    """Yield a CSV file (RFC 4180) in parts, one row per shot under a header; times in seconds."""
    yield _csv_row(CSV_COLUMNS)
    for number, scene in enumerate(scenes, start=1):
        words = printable(" ".join(concept.word for concept in scene.concepts))
        yield _csv_row(
            (
                video,
                number,
                f"{scene.start:.3f}",
                f"{scene.end:.3f}",
                printable(scene.caption.text),
                f"{scene.caption.score:.4f}",
                words,
            )
        )


def edit_decision_list(scenes: Iterable[Scene], *, video: str, frame_rate: float) -> Iterator[str]:
    """Yield an edit decision list (CMX 3600) in parts: one event per shot, its caption as a comment.

    Source and record times are those of the video itself, so that an editor cuts it at these places. Time
    codes count frames without dropping any, also at 29.97 frames per second.

    Args:
        video: name of the video's file.
        frame_rate: frames per second; 0 if unknown.
    """
    rate = frame_rate if 0 < frame_rate <= _MAX_RATE else _DEFAULT_RATE
    name = printable(video)
    yield f"TITLE: {name}\nFCM: NON-DROP FRAME\n"
    for number, scene in enumerate(scenes, start=1):
        first = round(scene.start * rate)
        span = " ".join(_time_code(frame, rate) for frame in (first, max(round(scene.end * rate), first + 1)))
        yield (
            f"\n{number:03}  AX       V     C        {span} {span}\n"
            f"* FROM CLIP NAME: {name}\n* COMMENT: {printable(scene.caption.text)}\n"
        )


def clock(seconds: float, point: str = ".") -> str:
    """Format a time as `01:02:03.456`.

    Args:
        point: decimal separator.
    """
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


def _csv_row(values: Iterable[object]) -> str:
    row = io.StringIO()
    csv.writer(row).writerow(values)
    return row.getvalue()


def _time_code(frame: int, rate: float) -> str:
    seconds, rest = divmod(frame, max(1, round(rate)))
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}:{rest:02}"


def _span(scene: Scene, point: str) -> str:
    end = max(scene.end, scene.start + _MIN_SECONDS)
    return f"{clock(scene.start, point)} --> {clock(end, point)}"


def _escape(text: str) -> str:
    """Escape the characters that WebVTT interprets, and control characters."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
