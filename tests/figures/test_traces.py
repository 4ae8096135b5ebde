"""A trace's attention is drawn where and when it was, and the film is the clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

from clip_making import encode, set_rotation
from ctsan.errors import UsageError
from ctsan.figures.heat import HeatMap, attention_at, overlay
from ctsan.figures.lettering import typeface_for
from ctsan.figures.panels import ShownTrace, draw_caption, draw_concepts
from ctsan.figures.traces import choose_traces, draw_traces
from ctsan.inference.predictor import Caption, Concept, Effects, Tracing
from ctsan.inference.results import times_likelier
from ctsan.video.frames import every_picture, pictures_at

BORDERS = np.array([0, 2, 4, 6, 7]) / 7  # as of 7x7 maps pooled to 4x4
ORANGE = (213, 94, 0)


def tracing(times: Sequence[float] = (0.0, 0.5, 1.0), *, caption: str = "a man rides") -> Tracing:
    """Trace l looks at cell l in even frames and at the cell opposite in odd ones."""
    one_hot = np.eye(16, dtype=np.float32).reshape(16, 4, 4)
    attention = np.stack([one_hot[:: (-1) ** number] for number in range(len(times))])
    random = np.random.default_rng(0)
    words = ("man", "horse", "rides", "field")
    said = caption.split()
    weights = random.dirichlet(np.ones(len(words)), len(said)).astype(np.float32)
    each = np.linspace(-0.2, 2.0, len(said) * len(words)).reshape(len(said), -1).astype(np.float32)
    concepts = tuple(Concept(word, 0.9 - 0.2 * place) for place, word in enumerate(words))
    return Tracing(
        run="runs/mine",
        captioned_by=("runs/mine",),
        times=np.array(times),
        attention=attention,
        rows=BORDERS,
        columns=BORDERS,
        concepts=concepts,
        raised=concepts,
        probe_confidences=np.array([each.confidence for each in concepts], dtype=np.float32),
        has_probe=False,
        shares=random.normal(0.2, size=(len(words), 16)).astype(np.float32),
        caption=Caption(caption, -1.0, -1.0),
        output_weights=weights,
        input_weights=weights[:, ::-1],
        effects=Effects(words, tuple(said), each, each.sum(axis=1)),
    )


@pytest.mark.parametrize("cell", range(16))
def test_a_cell_lights_its_part_of_the_picture_and_nothing_else(cell: int) -> None:
    found = tracing()
    levels = HeatMap(found, width=140, height=70)(attention_at(found, cell, 0.0))
    row, column = divmod(cell, 4)
    inside = np.zeros((70, 140), dtype=bool)
    inside[
        round(70 * BORDERS[row]) : round(70 * BORDERS[row + 1]),
        round(140 * BORDERS[column]) : round(140 * BORDERS[column + 1]),
    ] = True
    assert levels.max() > 0.99
    # A cubic from one to nought is at 9/16 half-way, and a tenth higher along the edges of the picture.
    assert levels[~inside].max() < 0.62
    assert (levels[inside] > 0.5).mean() > 0.75  # all but the corners, where it fades in both directions


def test_even_attention_is_an_even_tint() -> None:
    levels = HeatMap(tracing(), width=30, height=50)(np.full((4, 4), 1 / 16, dtype=np.float32))
    np.testing.assert_allclose(levels, 0.25, atol=1e-5)


def test_attention_goes_straight_from_one_sampled_frame_to_the_next() -> None:
    found = tracing(times=(10.0, 10.4, 11.0))
    for number, time in enumerate(found.times):
        np.testing.assert_array_equal(attention_at(found, 5, time), found.attention[number, 5])
    between = attention_at(found, 5, 10.1)
    np.testing.assert_allclose(
        between, 0.75 * found.attention[0, 5] + 0.25 * found.attention[1, 5], atol=1e-6
    )
    assert between.sum() == pytest.approx(1)
    np.testing.assert_array_equal(attention_at(found, 5, 9.0), found.attention[0, 5])
    np.testing.assert_array_equal(attention_at(found, 5, 99.0), found.attention[2, 5])


@pytest.mark.parametrize("clockwise", [0, 90, 180, 270])
def test_the_colour_lies_on_what_the_network_saw_there(tmp_path: Path, clockwise: int) -> None:
    """White fills the cell that is first in the upright, squashed frame; only white can turn so orange."""
    stored = np.zeros((112, 224, 3), dtype=np.uint8)
    turns = clockwise // 90
    upright: NDArray[np.uint8] = np.rot90(stored, -turns)  # a view
    height, width = upright.shape[:2]
    upright[: 2 * height // 7, : 2 * width // 7] = 255
    path = encode(tmp_path / "clip.mp4", [stored] * 3)
    set_rotation(path, clockwise)
    [(picture, _)] = pictures_at(path, np.zeros(1), box=(448, 448))
    assert picture.shape == (2 * height, 2 * width, 3)
    found = tracing()
    heat = HeatMap(found, width=picture.shape[1], height=picture.shape[0])
    drawn = overlay(picture, heat(attention_at(found, 0, 0.0)), ORANGE).astype(int)
    is_white, is_orange = picture.min(axis=2) > 128, drawn[..., 0] - drawn[..., 2] > 60
    assert is_orange.any()
    assert (is_orange & is_white).sum() / is_orange.sum() > 0.97
    assert (is_orange & is_white).sum() / is_white.sum() > 0.85


def test_the_surest_words_get_the_traces_that_raise_them_most() -> None:
    found = tracing()
    shares = np.zeros((4, 16), dtype=np.float32)
    shares[0, [3, 7]] = 2.0, 1.0
    shares[1, [3, 8]] = 5.0, 1.0  # 3 is taken
    shares[2, 9] = 1.0
    shares[3, 3] = 9.0
    found = replace(found, shares=shares)
    chosen = choose_traces(found)
    assert [(trace.number, *_words([trace])) for trace in chosen] == [
        (4, "man"),  # numbers are from 1
        (9, "horse"),
        (10, "rides"),
    ]
    assert [trace.index for trace in chosen] == [3, 8, 9]
    assert [trace.share for trace in chosen] == [2.0, 1.0, 1.0]
    assert len({trace.colour for trace in chosen}) == 3
    assert _words(choose_traces(found, [4, 10])) == ["field", "rides"]
    assert [trace.number for trace in choose_traces(found, concept="man")] == [4, 8]
    with pytest.raises(UsageError, match="no trace 17, 0: the model's traces are 1 to 16"):
        choose_traces(found, [1, 17, 0])


def test_a_word_that_no_free_trace_raises_is_left_out() -> None:
    shares = np.zeros((4, 16), dtype=np.float32)
    shares[0, 5] = shares[1, 5] = shares[2, 7] = shares[3, 8] = 1
    chosen = choose_traces(replace(tracing(), shares=shares))
    assert [(trace.number, *_words([trace])) for trace in chosen] == [(6, "man"), (8, "rides"), (9, "field")]


def test_no_trace_stands_for_a_word_that_it_lowers() -> None:
    """As of the carried model and a rabbit: 'man', the surest word, whose shares add up to -1.49."""
    shares = np.full((4, 16), -0.1, dtype=np.float32)
    shares[0] = -1.49 / 16
    shares[1, 5] = 0.9  # raised by one trace, and lowered by all of them together
    shares[2] = 0.1
    shares[2, 3] = -0.2
    found = replace(tracing(), shares=shares)
    chosen = choose_traces(found)
    assert _words(chosen) == ["rides"]
    assert all(trace.share > 0 for trace in chosen)
    assert _words(choose_traces(found, [4, 6])) == [None, "rides"]  # trace 4 raises no word
    assert [str(trace) for trace in choose_traces(found, [4, 6])] == [
        "trace 4 raises no word that the traces together raise",
        "6 (rides +0.1)",
    ]
    assert [(trace.number, trace.share > 0) for trace in choose_traces(found, concept="horse")] == [(6, True)]
    [named] = choose_traces(found, [4], concept="horse")
    assert (named.concept, str(named)) == (None, "trace 4 does not raise the score of 'horse'")
    [none] = choose_traces(found, concept="man")
    assert (none.number, none.concept, none.share) == (None, None, 0)
    assert str(none) == "no trace raises 'man'"
    by_probe = replace(found, has_probe=True, probe_confidences=np.full(4, 0.3, dtype=np.float32))
    assert [str(trace) for trace in choose_traces(by_probe, concept="man")] == [
        "no trace raises 'man'; the probe names it"
    ]
    [nothing] = choose_traces(replace(found, shares=-np.abs(shares)))
    assert str(nothing) == "the traces together raise no concept word"


@pytest.mark.parametrize("ending", ["png", "gif", "mp4"])
def test_where_no_trace_raises_the_word_the_clip_has_no_heat_map_and_the_figure_says_why(
    tmp_path: Path, ending: str
) -> None:
    """Orange over black is a heat map; letters above the picture are the reason."""
    clip = encode(tmp_path / "clip.mp4", [np.zeros((64, 64, 3), dtype=np.uint8)] * 5, rate=5)
    found = replace(tracing(), effects=None, output_weights=None, input_weights=None)
    raising, lowering = np.ones((4, 16), dtype=np.float32), -np.ones((4, 16), dtype=np.float32)
    drawn = {}
    for name, shares in (("raised", raising), ("lowered", lowering)):
        own = replace(found, shares=shares)
        out = tmp_path / f"{name}.{ending}"
        draw_traces(clip, own, choose_traces(own, [1]), out)
        with av.open(str(out)) as container:
            pixels = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
        drawn[name] = pixels[:, : pixels.shape[1] // 3]  # without the bars, which may be orange too
    orange = {
        name: ((own[75:, :, 0] - own[75:, :, 2] > 60) & (own[75:, :, 2] < 120)).sum()  # a marked word is pale
        for name, own in drawn.items()
    }
    assert orange["raised"] > 200
    assert orange["lowered"] < 20  # letters on a marked word, compressed
    assert (drawn["lowered"][36:70, 36:] < 200).any()


def test_a_word_without_effect_is_not_listed() -> None:
    effects = np.array([[0.05, 0.09, -3.0, 0.0], [0.1, 5.0, 0.3, 0.2]], dtype=np.float32)
    found = Effects(("man", "horse", "rides", "field"), ("a", "horse"), effects, effects.sum(axis=1))
    assert found.largest(0) == ()
    assert [str(each) for each in found.largest(1)] == ["horse x148", "rides x1.3", "field x1.2"]
    assert [times_likelier(effect) for effect in (0.0, 0.8, -0.7, -4.0)] == ["x1.0", "x2.2", "x0.5", "x0.018"]


def test_what_words_owe_stands_under_them() -> None:
    """Three lines under the word with three effects, none under the others, and a legend where any does."""
    face, found = typeface_for("a"), replace(tracing(), output_weights=None, input_weights=None)
    words = ("man", "horse", "rides", "field")
    effects = np.zeros((3, 4), dtype=np.float32)
    heights = []
    for count in range(4):
        effects[1, :count] = 1.0
        own = replace(found, effects=Effects(words, found.words, effects.copy(), effects.sum(axis=1)))
        heights.append(draw_caption(own, face, max_width=900).height)
    assert heights[1] - heights[0] == heights[2] - heights[1] == heights[3] - heights[2] > 15
    bare = draw_caption(replace(found, effects=None), face, max_width=900)
    assert bare.height == heights[0] - 28  # without the legend
    pixels = np.asarray(draw_caption(own, face, max_width=900)).min(axis=2)
    below = pixels[28 + 28 + 16 :]  # legend, word, gap
    columns = np.flatnonzero((below < 128).any(axis=0))
    assert columns.min() > face(28).getlength("a")  # nothing stands under the first word


def test_the_traces_own_confidence_stands_beside_the_whole() -> None:
    found = tracing()
    face = typeface_for("a")
    alone = draw_concepts(found, {}, face)
    both = draw_concepts(
        replace(found, probe_confidences=np.array([0.2, 0.9, 0.1, 0.4]), has_probe=True), {}, face
    )
    assert both.width > alone.width
    # In the bar of the first word, 150 pixels wide and ending in numbers, a dark line is at a fifth.
    row = np.asarray(both)[28 + 5, :, :].max(axis=1)
    dark = np.flatnonzero(row < 60)
    bar = np.flatnonzero(np.asarray(alone)[28 + 5].min(axis=1) < 250)
    assert abs(dark - (bar[bar > 40].min() + 0.2 * 150)).min() < 4


def _words(traces: Sequence[ShownTrace]) -> list[str | None]:
    return [trace.concept.word if trace.concept else None for trace in traces]


def _clip(tmp_path: Path, frames: int = 15, rate: int = 25) -> Path:
    pictures = [np.full((74, 118, 3), 10 * number, dtype=np.uint8) for number in range(frames)]
    return encode(tmp_path / "clip.mp4", pictures, rate=rate)


def _film(path: Path) -> tuple[list[float], float, tuple[int, int], str]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        times = [frame.time for frame in container.decode(stream)]
        assert stream.duration is not None
        assert stream.time_base is not None
        size = (stream.width, stream.height)
        return times, float(stream.duration * stream.time_base), size, stream.codec_context.pix_fmt or ""


def test_an_mp4_has_the_frames_and_the_length_of_the_clip(tmp_path: Path) -> None:
    clip, found, seen = _clip(tmp_path), tracing(), []
    draw_traces(clip, found, choose_traces(found), tmp_path / "new/a.MP4", on_frame=lambda: seen.append(1))
    times, duration, size, pixels = _film(tmp_path / "new/a.MP4")
    np.testing.assert_allclose(times, np.arange(15) / 25, atol=1e-4)
    assert duration == pytest.approx(15 / 25, abs=1e-3)
    assert (size[0] % 2, size[1] % 2, pixels) == (0, 0, "yuv420p")
    assert len(seen) == 15
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.MP4"]


def test_an_uneven_rate_is_kept(tmp_path: Path) -> None:
    seconds = [0.0, 0.04, 0.1, 0.5, 0.7, 1.3, 1.35, 2.0]
    gray = [np.full((48, 64, 3), 30 * number, dtype=np.uint8) for number in range(8)]
    clip, found = encode(tmp_path / "clip.mkv", gray, seconds=seconds), tracing()
    draw_traces(clip, found, choose_traces(found), tmp_path / "a.mp4")
    times, duration, _, _ = _film(tmp_path / "a.mp4")
    np.testing.assert_allclose(times, seconds, atol=1e-3)
    assert 2.0 < duration < 2.1


def test_the_same_clip_gives_the_same_bytes(tmp_path: Path) -> None:
    clip, found = _clip(tmp_path, frames=3), tracing()
    for name in ("a", "b"):
        for ending in ("mp4", "gif", "png"):
            draw_traces(clip, found, choose_traces(found), tmp_path / f"{name}.{ending}")
    for ending in ("mp4", "gif", "png"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_the_attention_moves_and_words_are_marked_in_turn(tmp_path: Path) -> None:
    black = [np.zeros((64, 64, 3), dtype=np.uint8)] * 20
    clip, found = encode(tmp_path / "clip.mp4", black, rate=20), tracing()
    draw_traces(clip, found, choose_traces(found, [1]), tmp_path / "a.mp4")
    frames = [pixels.astype(int) for pixels, _ in every_picture(tmp_path / "a.mp4", box=(4000, 720))]
    orange = [pixels[..., 0] - pixels[..., 2] > 60 for pixels in frames]
    y_first, _ = np.nonzero(orange[0][36:])
    moved = np.nonzero(orange[10] & ~orange[0])[0]  # to the opposite corner after half a second
    assert moved.mean() > y_first.mean() + 100
    yellow = [
        np.nonzero((pixels[..., 0] > 245) & (pixels[..., 2] > 170) & (pixels[..., 2] < 210))[1].mean()
        for pixels in (frames[0], frames[10], frames[19])
    ]
    assert yellow[0] < yellow[1] < yellow[2]


def test_a_gif_is_smaller_and_slower(tmp_path: Path) -> None:
    clip, found = _clip(tmp_path), tracing()
    draw_traces(clip, found, choose_traces(found), tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as image:
        assert isinstance(image, GifImageFile)
        assert image.n_frames == 6  # 0.6 seconds at ten frames a second
        assert image.width <= 1200
        assert image.convert("RGB").getpixel((3, 3)) == (255, 255, 255)
    times, duration, _, _ = _film(tmp_path / "a.gif")
    assert np.diff(times).min() >= 0.079
    assert duration == pytest.approx(0.6, abs=0.011)


@pytest.mark.parametrize(("size", "shape"), [((40, 64), "wide"), ((64, 22), "upright"), ((14, 18), "tiny")])
def test_a_figure_of_any_shape(tmp_path: Path, size: tuple[int, int], shape: str) -> None:
    red = [np.broadcast_to(np.array([200, 20, 20], dtype=np.uint8), (*size, 3)).copy()] * 13
    clip, found = encode(tmp_path / f"{shape}.mp4", red, rate=12), tracing()
    draw_traces(clip, found, choose_traces(found), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image).astype(int)
    assert image.format == "PNG"
    reddish = (pixels[..., 0] - pixels[..., 1] > 40) & (pixels[..., 0] - pixels[..., 2] > 40)
    assert reddish.mean() > 0.05  # the pictures are there
    for border in (pixels[:30], pixels[-30:], pixels[:, :30], pixels[:, -30:]):
        assert (border == 255).all()  # and nothing is cut off


@pytest.mark.parametrize("attentions", [("output_weights",), ("output_weights", "input_weights")])
def test_a_picture_and_a_model_with_less_attention(tmp_path: Path, attentions: tuple[str, ...]) -> None:
    Image.new("RGB", (61, 43), (90, 120, 200)).save(tmp_path / "photo.png")
    without: dict[str, Any] = dict.fromkeys((*attentions, "effects"))
    found = replace(tracing(times=(0.0,)), **without)
    for ending in ("png", "gif", "mp4"):
        draw_traces(tmp_path / "photo.png", found, choose_traces(found), tmp_path / f"a.{ending}")
    assert _film(tmp_path / "a.mp4")[1] == pytest.approx(3)
    assert _film(tmp_path / "a.gif")[1] == pytest.approx(3)


def test_a_long_caption_goes_on_below(tmp_path: Path) -> None:
    Image.new("RGB", (60, 40)).save(tmp_path / "photo.png")
    sizes = []
    for count in (5, 40):
        found = tracing(times=(0.0,), caption=" ".join(["somebody"] * count))
        draw_traces(tmp_path / "photo.png", found, choose_traces(found), tmp_path / "a.png")
        with Image.open(tmp_path / "a.png") as image:
            sizes.append(image.size)
    assert sizes[0][0] == sizes[1][0]
    assert sizes[1][1] > sizes[0][1] + 150


def test_a_typeface_is_chosen_by_the_letters() -> None:
    assert typeface_for("a man rides")(20).getname() == ("Aileron", "Regular")
    assert typeface_for("a man rides")(20).getlength("man") > typeface_for("a")(10).getlength("man")
    typeface_for("\U000f0000")(20)  # that no font has: drawn as a box


def test_another_ending_is_refused(tmp_path: Path) -> None:
    found = tracing()
    with pytest.raises(UsageError, match=r"End it in .mp4, .gif or .png"):
        draw_traces(tmp_path / "clip.mp4", found, choose_traces(found), tmp_path / "a.avi")


def test_only_traces_that_lift_a_word_above_the_probe_are_shown() -> None:
    shares = np.zeros((4, 16), dtype=np.float32)
    shares[0, 3], shares[1, 5] = 0.4, 0.3
    own = replace(tracing(), shares=shares, has_probe=True)
    probed = np.array([word.confidence for word in own.raised], dtype=np.float32)
    lifted = replace(own, probe_confidences=probed - np.float32(0.1))
    assert [trace.number for trace in choose_traces(lifted)] == [4, 6]
    lowered = replace(
        lifted, probe_confidences=lifted.probe_confidences + np.array([0.2, 0, 0, 0], np.float32)
    )
    assert [trace.number for trace in choose_traces(lowered)] == [6]
