"""Where a long video is cut, and which frames of its shots are looked at."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from clip_making import encode
from ctsan.errors import VideoError
from ctsan.video.frames import MAX_FRAMES, sample_frames
from ctsan.video.shots import MAX_SECONDS, Shot, frames_of_shots


def scene(seed: int, seconds: float, *, rate: int = 24, pan: int = 1) -> Iterator[NDArray[np.uint8]]:
    """A camera that moves over a picture of many colours."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (6, 40, 3), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize((640, 48), Image.Resampling.BICUBIC))
    for number in range(round(seconds * rate)):
        at = pan * number % (640 - 64)
        yield np.ascontiguousarray(picture[:, at : at + 64])


def film(path: Path, *lengths: float, pan: int = 1) -> Path:
    return encode(
        path,
        itertools.chain.from_iterable(
            scene(number, seconds, pan=pan) for number, seconds in enumerate(lengths)
        ),
    )


def shots_of(path: Path) -> list[Shot]:
    return [shot for shot, _ in frames_of_shots(path, size=16)]


@pytest.mark.parametrize("pan", [0, 1, 5])
def test_cuts_are_found_and_motion_cuts_nothing(tmp_path: Path, pan: int) -> None:
    shots = shots_of(film(tmp_path / "film.mp4", 2, 3.5, 1.5, 4, pan=pan))
    assert [(shot.start, shot.end) for shot in shots] == [
        pytest.approx(pair, abs=0.05) for pair in ((0, 2), (2, 5.5), (5.5, 7), (7, 11))
    ]


def shade(level: int, seconds: float) -> Iterator[NDArray[np.uint8]]:
    """The left `level` of four quarters of the picture are white."""
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:, : 16 * level] = 255
    yield from [picture] * round(24 * seconds)


@pytest.mark.parametrize(
    ("levels", "starts"),
    [
        ((0, 3, 4), [0, 2]),  # the short shot is more like the next: the cut after it is dropped
        ((0, 1, 4), [0, 2.4]),  # more like the one before
        ((1, 4, 1), [0, 2.4]),  # alike: the one before
    ],
)
def test_a_tiny_shot_goes_to_the_neighbour_that_it_differs_from_less(
    tmp_path: Path, levels: tuple[int, ...], starts: list[float]
) -> None:
    lengths = (2, 0.4, 3)
    frames = itertools.chain.from_iterable(map(shade, levels, lengths))
    shots = shots_of(encode(tmp_path / "film.mp4", frames))
    assert [shot.start for shot in shots] == [pytest.approx(start, abs=0.05) for start in starts]


def test_a_tiny_shot_at_either_end_goes_to_its_only_neighbour(tmp_path: Path) -> None:
    shots = shots_of(film(tmp_path / "film.mp4", 0.3, 2, 2, 0.3))
    assert [(shot.start, shot.end) for shot in shots] == [
        pytest.approx(pair, abs=0.05) for pair in ((0, 2.3), (2.3, 4.6))
    ]


def test_long_shots_are_split_and_follow_each_other(tmp_path: Path) -> None:
    path = encode(tmp_path / "film.mp4", scene(0, 70, rate=8, pan=0), rate=8)
    shots = shots_of(path)
    assert [shot.end - shot.start for shot in shots] == [MAX_SECONDS, MAX_SECONDS, pytest.approx(10)]
    assert all(one.end == other.start for one, other in itertools.pairwise(shots))


@pytest.mark.parametrize("after", [1, 4, 48])
def test_a_jump_of_the_clock_ends_a_shot_at_once(tmp_path: Path, after: int) -> None:
    jump = 1e9
    times = [*(number / 24 for number in range(48)), *(jump + number / 24 for number in range(after))]
    pictures = itertools.islice(scene(0, 10, pan=0), len(times))
    path = encode(tmp_path / "film.mkv", pictures, codec="ffv1", seconds=times)
    began = time.perf_counter()
    (first, before), (second, behind) = frames_of_shots(path, size=16)
    assert time.perf_counter() - began < 10  # it took minutes
    assert (first.start, second.start) == (0, pytest.approx(jump, abs=1e-2))  # type: ignore[comparison-overlap]  # approx is as good as a number
    assert first.end == MAX_SECONDS  # the picture before stays, but no longer than a shot may be
    assert second.end - second.start <= MAX_SECONDS
    assert (before.times < 2).all()
    assert behind.times[0] == second.start
    assert len(before.times) == 6  # one each 10/24 s, and what was on the screen then


def test_pictures_that_stay_long_are_a_shot_each(tmp_path: Path) -> None:
    slides = (next(scene(number, 1)) for number in range(3))
    path = encode(tmp_path / "slides.mkv", slides, codec="ffv1", seconds=(0, 40, 80))
    assert [(shot.start, shot.end) for shot in shots_of(path)] == [(0, 30), (40, 70), (80, 110)]


def test_a_short_shot_is_sampled_as_a_clip(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", scene(0, 4))
    ((shot, frames),) = frames_of_shots(path, size=32)
    whole = sample_frames(path, size=32)
    assert (shot.start, shot.end) == (0, pytest.approx(4, abs=1e-3))  # type: ignore[comparison-overlap]  # approx is as good as a number
    np.testing.assert_array_equal(frames.pixels, whole.pixels)
    np.testing.assert_allclose(frames.times, whole.times)


def test_every_shot_has_its_own_frames_from_its_start_on(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", 2, 3.5, pan=0)
    (_, first), (shot, second) = frames_of_shots(path, size=16)
    assert second.times[0] == shot.start
    assert (len(first.times), len(second.times)) == (5, 9)  # one each 10/24 s
    for frames in (first, second):  # nothing of the other shot among them
        assert np.abs(frames.pixels.astype(int) - frames.pixels[0]).max() < 40


def test_at_most_forty_frames_of_a_shot(tmp_path: Path) -> None:
    path = encode(tmp_path / "film.mp4", scene(0, 29, rate=8, pan=0), rate=8)
    ((_, frames),) = frames_of_shots(path, size=16)
    assert len(frames.times) == MAX_FRAMES
    assert (np.diff(frames.times) > 0).all()
    assert frames.times[-1] > 27


def test_a_picture_is_one_shot(tmp_path: Path) -> None:
    Image.fromarray(next(scene(0, 1))).save(tmp_path / "picture.png")
    ((shot, frames),) = frames_of_shots(tmp_path / "picture.png", size=16)
    assert shot == Shot(0, 0)
    assert frames.pixels.shape == (1, 16, 16, 3)


def test_what_is_no_video_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video", encoding="utf-8")
    with pytest.raises(VideoError, match="this is text"):
        shots_of(tmp_path / "text.mp4")
