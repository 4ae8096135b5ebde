"""Descriptions of shots as tracks that players show or read out: WebVTT and SubRip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ctsan.inference.results import Scene

_LEAST = 0.001  # seconds: players refuse a cue of no length, such as a picture's


def web_vtt(scenes: Iterable[Scene], *, video: str | None = None) -> Iterator[str]:
    """The pieces of a WebVTT file, a cue a shot, as the shots come; for `<track kind="descriptions">`.

    Args:
        video: its name, to stand in a note.
    """
    yield "WEBVTT\nKind: descriptions\nLanguage: en\n"
    if video is not None:
        yield f"\nNOTE\nWhat happens in {_plain(video)}\n"
    for number, scene in enumerate(scenes, start=1):
        yield f"\n{number}\n{_span(scene, '.')}\n{_plain(scene.caption.text)}\n"


def subrip(scenes: Iterable[Scene]) -> Iterator[str]:
    """The pieces of an srt file, as the shots come."""
    for number, scene in enumerate(scenes, start=1):
        yield f"{number}\n{_span(scene, ',')}\n{scene.caption.text}\n\n"


def clock(seconds: float, point: str = ".") -> str:
    """`01:02:03.456`."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


def _span(scene: Scene, point: str) -> str:
    end = max(scene.end, scene.start + _LEAST)
    return f"{clock(scene.start, point)} --> {clock(end, point)}"


def _plain(text: str) -> str:
    """Text that WebVTT reads as it stands."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
