"""How many joins of clips are found as cuts, and how many other cuts there are?

    python bench/shots.py CORPUS [--videos 6] [--pieces 20] [--seed 0] [--sheets FOLDER]

Five-second pieces of the corpus' clips are joined at random into videos. A join is found if a shot begins
within 0.2 s of it. Web videos have cuts of their own within a piece, so other cuts are not all wrong: of
these, the last column counts those that another detector finds too. `--sheets` writes the frames before and
after each, four pairs a row, to be judged by eye. PySceneDetect (`pip install scenedetect opencv-python-
headless`) is measured on the same videos if it is installed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from tabulate import tabulate

from ctsan.data.reading import read_corpus
from ctsan.errors import VideoError
from ctsan.video.frames import every_picture
from ctsan.video.shots import frames_of_shots

_RATE, _SECONDS, _WIDTH, _HEIGHT = 25, 5, 320, 240
_TOLERANCE = 0.2  # seconds
_PAIR_BOX = (160, 120)
_PAIRS_PER_SHEET = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--videos", type=int, default=6)
    parser.add_argument("--pieces", type=int, default=20, help="in each video")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sheets", type=Path, help="folder for pictures of the other cuts")
    options = parser.parse_args()
    clips = [clip.path for clip in read_corpus(options.corpus)]
    random.Random(options.seed).shuffle(clips)
    pieces = _pieces(clips)
    totals: dict[str, list[int]] = {}
    pairs: dict[str, list[Image.Image]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.videos):
            video = Path(folder) / f"{number}.mp4"
            joins = _join(video, [next(pieces) for _ in range(options.pieces)])
            cuts_by_name = {name: detect(video) for name, detect in _detectors().items()}
            for name, cuts in cuts_by_name.items():
                others = [cut for cut in cuts if not _is_near(cut, joins)]
                rest = [cut for other, found in cuts_by_name.items() if other != name for cut in found]
                counts = totals.setdefault(name, [0, 0, 0, 0])
                counts[0] += sum(_is_near(join, cuts) for join in joins)
                counts[1] += len(joins)
                counts[2] += len(others)
                counts[3] += sum(_is_near(cut, rest) for cut in others)
                if options.sheets:
                    pairs.setdefault(name, []).extend(_pairs(video, others))
    rows = [
        [name, f"{found} of {joins}", others, agreed]
        for name, (found, joins, others, agreed) in totals.items()
    ]
    print(tabulate(rows, ["detector", "joins found", "other cuts", "found by another"]))
    for name, found in pairs.items():
        _write_sheets(options.sheets, name, found)


def _is_near(time: float, times: Sequence[float]) -> bool:
    return any(abs(time - other) <= _TOLERANCE for other in times)


def _pairs(video: Path, cuts: Sequence[float]) -> list[Image.Image]:
    """The frame before and the first frame of each shot, side by side, with the time below."""
    pictures = list(every_picture(video, box=_PAIR_BOX))
    times = np.array([time for _, time in pictures])
    pairs = []
    for cut in cuts:
        after = int(np.abs(times - cut).argmin())
        pixels = np.hstack([pictures[max(after - 1, 0)][0], pictures[after][0]])
        pair = Image.new("RGB", (pixels.shape[1], pixels.shape[0] + 12), "white")
        pair.paste(Image.fromarray(pixels))
        ImageDraw.Draw(pair).text((2, pixels.shape[0]), f"{video.stem} {cut:.2f} s", fill="black")
        pairs.append(pair)
    return pairs


def _write_sheets(folder: Path, name: str, pairs: Sequence[Image.Image]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(pairs), _PAIRS_PER_SHEET)):
        shown = pairs[start : start + _PAIRS_PER_SHEET]
        width, height = shown[0].width + 8, shown[0].height + 4
        sheet = Image.new("RGB", (4 * width, height * -(-len(shown) // 4)), "grey")
        for place, pair in enumerate(shown):
            sheet.paste(pair, (place % 4 * width, place // 4 * height))
        sheet.save(folder / f"{name.rpartition(' ')[2]}-{number}.png")


def _pieces(clips: Sequence[Path]) -> Iterator[list[NDArray[np.uint8]]]:
    """The first seconds of each clip at `_RATE`; shorter clips are left out."""
    for clip in clips:
        piece: list[NDArray[np.uint8]] = []
        start: float | None = None
        try:
            for pixels, time in every_picture(clip, box=(_WIDTH, _HEIGHT)):
                start = time if start is None else start
                while len(piece) <= (time - start) * _RATE and len(piece) < _SECONDS * _RATE:
                    piece.append(pixels)
                if len(piece) == _SECONDS * _RATE:
                    break
        except VideoError:
            continue
        if len(piece) == _SECONDS * _RATE:
            yield piece


def _join(path: Path, pieces: Sequence[Sequence[NDArray[np.uint8]]]) -> list[float]:
    """Write a video of the pieces; the times of the joins."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=_RATE, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = _WIDTH, _HEIGHT, "yuv420p"
        for piece in pieces:
            for pixels in piece:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return [float(_SECONDS * number) for number in range(1, len(pieces))]


def _detectors() -> dict[str, Callable[[Path], list[float]]]:
    detectors: dict[str, Callable[[Path], list[float]]] = {
        "ctsan": lambda path: [shot.start for shot, _ in frames_of_shots(path, size=16)][1:]
    }
    try:
        import scenedetect
    except ImportError:
        return detectors
    for name in ("AdaptiveDetector", "ContentDetector"):
        kind = getattr(scenedetect, name)
        detectors[f"PySceneDetect, {name}"] = (
            lambda path, kind=kind: [  # type: ignore[misc]  # bound now
                scene[0].seconds for scene in scenedetect.detect(str(path), kind())
            ][1:]
        )
    return detectors


if __name__ == "__main__":
    main()
