"""The middle frame of a clip or shot, which thumbnails are made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from clip_making import encode
from ctsan.video.frames import sample_frames
from ctsan.video.shots import frames_of_shots, frames_of_shots_by_size

BOX = (320, 320)
RATE = 24


def brightening(width: int, height: int, seconds: float, base: int = 0) -> Iterator[NDArray[np.uint8]]:
    """Grey frames, whose brightness grows by 5 a second, too little for a cut."""
    for number in range(round(seconds * RATE)):
        yield np.full((height, width, 3), base + round(5 * number / RATE), np.uint8)


def brightness(pixels: NDArray[np.uint8] | None) -> float:
    assert pixels is not None
    return float(pixels.mean())


@pytest.mark.parametrize(
    ("size", "expected"),
    [((640, 360), (320, 180)), ((360, 640), (180, 320)), ((64, 48), (64, 48)), ((320, 240), (320, 240))],
)
def test_it_keeps_its_aspect_and_is_never_enlarged(
    tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    path = encode(tmp_path / "clip.mp4", brightening(*size, 1), rate=RATE)
    middle = sample_frames(path, size=32, middle_box=BOX).middle
    ((_, frames),) = frames_of_shots(path, size=32, middle_box=BOX)
    for pixels in (middle, frames.middle):
        assert pixels is not None
        assert pixels.shape == (expected[1], expected[0], 3)


def test_it_is_of_the_middle(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", brightening(64, 48, 10), rate=RATE)
    asked = sample_frames(path, size=32, middle_box=BOX)
    assert brightness(asked.middle) == pytest.approx(25, abs=4)
    ((_, frames),) = frames_of_shots(path, size=32, middle_box=BOX)
    assert brightness(frames.middle) == pytest.approx(25, abs=4)
    unasked = sample_frames(path, size=32)
    assert unasked.middle is None
    np.testing.assert_array_equal(asked.pixels, unasked.pixels)  # what models see does not depend on it


def test_every_shot_has_its_own(tmp_path: Path) -> None:
    scenes = [*brightening(64, 48, 3), *brightening(64, 48, 3, base=130)]
    path = encode(tmp_path / "film.mp4", iter(scenes), rate=RATE)
    (_, first), (_, second) = frames_of_shots_by_size(path, (16, 32), middle_box=BOX)
    assert brightness(first[16].middle) == pytest.approx(8, abs=4)
    assert brightness(second[16].middle) == pytest.approx(138, abs=4)
    assert first[32].middle is None  # one is enough


def test_that_of_a_picture_is_the_picture(tmp_path: Path) -> None:
    Image.new("RGB", (640, 480), (200, 30, 30)).save(tmp_path / "red.png")
    middle = sample_frames(tmp_path / "red.png", size=16, middle_box=BOX).middle
    assert middle is not None
    assert middle.shape == (240, 320, 3)
    np.testing.assert_allclose(middle.mean(axis=(0, 1)), (200, 30, 30), atol=3)
