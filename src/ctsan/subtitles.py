"""Write the descriptions of shots as subtitle tracks: WebVTT and SubRip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ctsan.inference.results import Scene

_MIN_SECONDS = 0.001  # players reject cues of zero length, such as those of pictures


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
        yield f"{number}\n{_span(scene, ',')}\n{scene.caption.text}\n\n"


def clock(seconds: float, point: str = ".") -> str:
    """Format a time as `01:02:03.456`.

    Args:
        point: decimal separator.
    """
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


def _span(scene: Scene, point: str) -> str:
    end = max(scene.end, scene.start + _MIN_SECONDS)
    return f"{clock(scene.start, point)} --> {clock(end, point)}"


def _escape(text: str) -> str:
    """Escape the characters that WebVTT interprets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
