"""A file of every ending that is looked for in a folder is read: real ones, encoded here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import av
import numpy as np
import pillow_heif
import pytest
from numpy.typing import NDArray
from PIL import Image

from clip_making import counting, numbers
from ctsan.errors import VideoError
from ctsan.video.frames import probe, sample_frames
from ctsan.video.heif import still_format
from ctsan.video.suffixes import (
    CLIP_SUFFIXES,
    COMPANION_SUFFIXES,
    HEIC_SUFFIXES,
    PICTURE_SUFFIXES,
    VIDEO_SUFFIXES,
)
from ctsan.video.video_file import pixel_limit

# Codec and container; None: the container that FFmpeg takes for the ending.
ENCODERS: dict[str, tuple[str, str | None]] = {
    ".mp4": ("libx264", None),
    ".m4v": ("libx264", None),
    ".mov": ("libx264", None),
    ".qt": ("libx264", "mov"),
    ".3gp": ("mpeg4", None),
    ".3g2": ("mpeg4", None),
    ".f4v": ("libx264", "mp4"),
    ".mkv": ("libx264", None),
    ".webm": ("libvpx-vp9", None),
    ".avi": ("mpeg4", None),
    ".divx": ("mpeg4", "avi"),
    ".wmv": ("wmv2", None),
    ".asf": ("msmpeg4", None),
    ".flv": ("flv", None),
    ".ogm": ("libvpx", "ogg"),
    ".rm": ("rv10", None),
    ".rmvb": ("rv20", "rm"),
    ".mxf": ("mpeg2video", None),
    ".mpg": ("mpeg1video", None),
    ".mpeg": ("mpeg1video", None),
    ".mpe": ("mpeg1video", "mpeg"),
    ".m2v": ("mpeg2video", None),
    ".vob": ("mpeg2video", None),
    ".ts": ("libx264", None),
    ".mts": ("libx264", "mpegts"),
    ".m2ts": ("libx264", None),
    ".gif": ("gif", None),
    ".apng": ("apng", None),
}
PIXELS = {"gif": "rgb8", "apng": "rgb24"}
COLOUR = (200, 30, 30)


def make_video(path: Path) -> None:
    if path.suffix == ".ogv":  # PyAV has no encoder of Theora
        shutil.copy(Path(__file__).with_name("counting.ogv"), path)
        return
    size = (48, 64)
    codec, container = ENCODERS.get(path.suffix, ("dvvideo", None))
    if codec == "dvvideo":
        size = (576, 720)  # has no other
    with av.open(str(path), "w", format=container) as output:
        stream = output.add_stream(codec, rate=25)
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = size
        stream.pix_fmt = PIXELS.get(codec, "yuv420p")
        for number, picture in enumerate(counting(50, size=size)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=stream.pix_fmt)
            frame.pts = number
            output.mux(stream.encode(frame))
        output.mux(stream.encode())


def half_red(width: int = 60, height: int = 40) -> Image.Image:
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    picture[:, width // 2 :] = COLOUR
    return Image.fromarray(picture)


def save_picture(picture: Image.Image, path: Path) -> None:
    if path.suffix in HEIC_SUFFIXES:
        pillow_heif.from_pillow(picture).save(path, quality=-1)
    else:
        picture.save(path, {".jpe": "JPEG", ".jfif": "JPEG"}.get(path.suffix))


@pytest.mark.parametrize("suffix", sorted(VIDEO_SUFFIXES))
def test_a_video_of_every_ending_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"clip{suffix}"
    make_video(path)
    frames = sample_frames(path, size=64)
    found = numbers(frames)
    assert len(found) >= 4  # program streams declare a little less than their length
    assert found == [0, 10, 20, 31, 41][: len(found)]
    assert probe(path).duration == pytest.approx(2, abs=0.7)


@pytest.mark.parametrize("suffix", sorted(PICTURE_SUFFIXES))
def test_a_picture_of_every_ending_is_one_frame(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"100%03d picture{suffix}"  # a name that FFmpeg would take for a pattern
    save_picture(half_red(), path)
    frames = sample_frames(path, size=32)
    assert frames.pixels.shape == (1, 32, 32, 3)
    np.testing.assert_allclose(frames.pixels[0, 16, 8], (0, 0, 0), atol=12)
    np.testing.assert_allclose(frames.pixels[0, 16, 24], COLOUR, atol=12)
    info = probe(path)
    assert (info.duration, info.width, info.height) == (0, 60, 40)


def test_endings_are_in_lower_case_and_in_one_list() -> None:
    assert all(suffix == suffix.lower() for suffix in CLIP_SUFFIXES | COMPANION_SUFFIXES)
    assert not CLIP_SUFFIXES & COMPANION_SUFFIXES
    assert not VIDEO_SUFFIXES & PICTURE_SUFFIXES


@pytest.mark.parametrize("suffix", [".avif", ".heic", ".bmp", ".tiff"])
def test_large_pictures_are_refused_before_they_are_decoded(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"picture{suffix}"
    save_picture(half_red(128, 96), path)
    with pixel_limit(128 * 96):
        assert probe(path).width == 128
    with pixel_limit(128 * 96 - 1), pytest.raises(VideoError, match=r"128 × 96 pixels are larger"):
        probe(path)


def test_an_avif_is_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: what is stored on the right is shown below
    half_red().save(tmp_path / "turned.avif", exif=exif)
    pixels: NDArray[np.uint8] = sample_frames(tmp_path / "turned.avif", size=32).pixels[0]
    np.testing.assert_allclose(pixels[24, 16], COLOUR, atol=12)
    np.testing.assert_allclose(pixels[8, 16], (0, 0, 0), atol=12)
    assert (probe(tmp_path / "turned.avif").width, probe(tmp_path / "turned.avif").height) == (40, 60)


def test_an_animated_avif_has_all_its_frames(tmp_path: Path) -> None:
    first, *rest = [Image.fromarray(picture) for picture in counting(4)]
    path = tmp_path / "moving.avif"
    first.save(path, save_all=True, append_images=rest, duration=500, quality=90)
    assert numbers(sample_frames(path, size=64)) == [0, 1, 2, 3]


def test_a_heic_by_another_name_is_read_as_what_it_is(tmp_path: Path) -> None:
    """Phones and mail programs rename them."""
    save_picture(half_red(), tmp_path / "a.heic")
    renamed = (tmp_path / "a.heic").rename(tmp_path / "a.jpg")
    np.testing.assert_allclose(sample_frames(renamed, size=32).pixels[0, 16, 24], COLOUR, atol=12)


@pytest.mark.parametrize("suffix", [".avif", ".heic"])
def test_a_picture_that_is_cut_off_is_said_so(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cut{suffix}"
    save_picture(half_red(), path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(VideoError, match=r"cut\.\w+: .*Copy or download it again"):
        sample_frames(path, size=32)


def test_without_its_package_a_heic_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "phone.heic"
    save_picture(half_red(), path)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(VideoError, match=r"phone\.heic: a HEIC picture.*pip install 'ctsan\[heic\]'$"):
        probe(path)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "heic"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "avif"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "heic"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isomavif", None),
        (b"\0\0\0\x18ftypavis\0\0\0\0avifavis", None),
        (b"\xff\xff\xff\xffftypheic", "heic"),
        (b"\xff\xd8\xff\xe0", None),
        (b"", None),
    ],
)
def test_still_pictures_are_known_by_their_brands(head: bytes, kind: str | None) -> None:
    assert still_format(head) == kind
