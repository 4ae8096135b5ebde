"""Frames of a corpus' first clips as one picture, a row a clip: docs/shapes.png is made with it.

python tools/contact_sheet.py CORPUS OUT.png --clips 6
"""

from __future__ import annotations

import argparse
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from ctsan.data.reading import read_corpus
from ctsan.video.frames import sample_frames

WIDTH, HEIGHT, GAP = 128, 96, 2


def row(clip: Path, columns: int) -> NDArray[np.uint8]:
    """Evenly chosen frames of one clip, side by side, dark where there are too few."""
    pixels = sample_frames(clip, size=WIDTH).pixels
    cells = np.full((columns, HEIGHT + GAP, WIDTH + GAP, 3), 24, dtype=np.uint8)
    chosen = pixels[np.linspace(0, len(pixels) - 1, min(columns, len(pixels))).round().astype(int)]
    lines = np.arange(HEIGHT) * WIDTH // HEIGHT  # frames come as squares
    cells[: len(chosen), :HEIGHT, :WIDTH] = chosen[:, lines]
    return np.concatenate(list(cells), axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--clips", type=int, default=6)
    parser.add_argument("--columns", type=int, default=8)
    arguments = parser.parse_args()
    clips = read_corpus(arguments.corpus).clips[: arguments.clips]
    sheet = np.concatenate([row(clip.path, arguments.columns) for clip in clips])
    with av.open(str(arguments.out), "w", format="image2") as container:
        stream = container.add_stream("png")
        stream.height, stream.width, stream.pix_fmt = *sheet.shape[:2], "rgb24"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(sheet, format="rgb24")))
        container.mux(stream.encode())
    for clip in clips:
        print(clip.id, "-", clip.captions[0] if clip.captions else "")


if __name__ == "__main__":
    main()
