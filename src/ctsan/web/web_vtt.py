"""Descriptions of shots as WebVTT."""

from __future__ import annotations

from collections.abc import Iterable

from ctsan.answers import Scene

_LEAST = 0.001  # seconds: players refuse a cue of no length


def web_vtt(scenes: Iterable[Scene]) -> str:
    """One cue a shot, in turn; `<track kind="descriptions">` lets a browser show it or read it out."""
    cues = [
        f"{_clock(scene.start)} --> {_clock(max(scene.end, scene.start + _LEAST))}\n"
        f"{_plain(scene.caption.text)}\n"
        for scene in scenes
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _clock(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{thousandths:03}"


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
