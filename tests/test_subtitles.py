"""Tracks of descriptions, as players read them."""

from __future__ import annotations

import csv
import io

import opentimelineio
import pytest

from ctsan.inference.results import Caption, Concept, Scene
from ctsan.subtitles import CSV_COLUMNS, clock, csv_table, edit_decision_list, subrip, web_vtt

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


def test_control_characters_of_captions_and_concept_words_are_escaped() -> None:
    odd, escaped = "a \x1b[31mred\x07\ncat", r"a \x1b[31mred\x07\ncat"
    scenes = [Scene(0.0, 1.0, Caption(odd, -1.0, -1.0), (Concept("c\x1bat", 0.9),))]
    assert f"\n{escaped}\n" in "".join(web_vtt(scenes))
    assert f"\n{escaped}\n" in "".join(subrip(scenes))
    assert f"* COMMENT: {escaped}\n" in "".join(edit_decision_list(scenes, video="a.mp4", frame_rate=24))
    _, row = csv.reader(io.StringIO("".join(csv_table(scenes, video="a.mp4")), newline=""))
    assert (row[4], row[6]) == (escaped, r"c\x1bat")


def test_a_clock_carries_over() -> None:
    assert clock(59.9999) == "00:01:00.000"


def test_a_table_quotes_what_csv_would_take_apart() -> None:
    scene = Scene(1.0, 2.5, Caption('a "dog", wet', -0.5, -0.5), (Concept("dog", 0.9), Concept("sea", 0.4)))
    header, row = csv.reader(io.StringIO("".join(csv_table([scene], video="a,b.mp4")), newline=""))
    assert header == [*CSV_COLUMNS]
    assert row == ["a,b.mp4", "1", "1.000", "2.500", 'a "dog", wet', "-0.5000", "dog sea"]


@pytest.mark.parametrize("rate", [24.0, 25.0, 60.0])
def test_an_editor_reads_the_shots_of_an_edit_decision_list(rate: float) -> None:
    scenes = [
        Scene(0.0, 62.0, Caption("a man walks", -1.0, -1.0), ()),
        Scene(62.0, 63.0, Caption("a dog", -1.0, -1.0), ()),
        Scene(63.0, 63.0, Caption("a picture", -1.0, -1.0), ()),
    ]
    text = "".join(edit_decision_list(scenes, video="film.mp4", frame_rate=rate))
    timeline = opentimelineio.adapters.read_from_string(text, "cmx_3600", rate=rate)
    clips = list(timeline.tracks[0])
    assert [clip.name for clip in clips] == ["film.mp4"] * 3
    starts = [clip.source_range.start_time.to_seconds() for clip in clips]
    assert starts == pytest.approx([0, 62, 63])
    durations = [clip.source_range.duration.value for clip in clips]
    assert durations == [62 * rate, rate, 1]  # an event has at least a frame
    assert "a man walks" in str(clips[0].metadata["cmx_3600"]["comments"])


def test_time_codes_of_broadcasts_count_frames() -> None:
    """At 29.97 frames per second, an hour has 107,892 frames, and a code without drops is 3.6 s behind."""
    scenes = [Scene(3600.0, 3601.0, Caption("a man", -1.0, -1.0), ())]
    text = "".join(edit_decision_list(scenes, video="a\nb.mp4", frame_rate=30000 / 1001))
    assert "FCM: NON-DROP FRAME" in text
    assert "001  AX       V     C        00:59:56:12 00:59:57:12 00:59:56:12 00:59:57:12\n" in text
    assert "TITLE: a\\nb.mp4\n" in text  # a name does not make lines of its own


@pytest.mark.parametrize("rate", [0.0, 1000.0])
def test_without_a_frame_rate_time_codes_count_25_a_second(rate: float) -> None:
    text = "".join(edit_decision_list(SCENES[1:], video="a.png", frame_rate=rate))
    assert "01:02:05:13 01:02:05:14 " in text
