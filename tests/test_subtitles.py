"""Tracks of descriptions, as players read them."""

from __future__ import annotations

from ctsan.inference.results import Caption, Scene
from ctsan.subtitles import clock, subrip, web_vtt

SCENES = [
    Scene(0.0, 4.9996, Caption("a man <talks> & walks", -1.0, -1.0), ()),
    Scene(3725.5, 3725.5, Caption("a dog", -1.0, -1.0), ()),  # a picture has no length
]


def test_web_vtt_numbers_its_cues_and_escapes_what_it_would_read_as_tags() -> None:
    assert "".join(web_vtt(SCENES, video="you & me.mp4")) == (
        "WEBVTT\nKind: descriptions\nLanguage: en\n"
        "\nNOTE\nWhat happens in you &amp; me.mp4\n"
        "\n1\n00:00:00.000 --> 00:00:05.000\na man &lt;talks&gt; &amp; walks\n"
        "\n2\n01:02:05.500 --> 01:02:05.501\na dog\n"
    )


def test_without_a_name_there_is_no_note() -> None:
    assert "NOTE" not in "".join(web_vtt(SCENES))


def test_subrip_has_commas() -> None:
    assert "".join(subrip(SCENES[1:])) == "1\n01:02:05,500 --> 01:02:05,501\na dog\n\n"


def test_a_clock_carries_over() -> None:
    assert clock(59.9999) == "00:01:00.000"
