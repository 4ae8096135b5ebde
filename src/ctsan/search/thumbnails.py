"""Thumbnails of shots, and pictures of search hits."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ctsan.errors import VideoError
from ctsan.io.atomic import replacing
from ctsan.video.frames import pictures_at

if TYPE_CHECKING:
    from ctsan.search.search import Hit

THUMBNAIL_BOX = (320, 320)  # width and height, in pixels

_QUALITY = 80  # of stored thumbnails


def encode_thumbnail(pixels: NDArray[np.uint8]) -> bytes:
    """RGB pixels (h, w, 3) as a JPEG."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=_QUALITY, optimize=True)
    return stream.getvalue()


def write_thumbnail(hit: Hit, file: Path) -> Path:
    """Write the frame in the middle of a hit as a JPEG.

    Raises:
        VideoError: the file can no longer be read.
    """
    pictures = pictures_at(hit.file, np.array([(hit.start + hit.end) / 2]), box=THUMBNAIL_BOX)
    if not pictures:
        raise VideoError(hit.file, "no frame could be decoded", "Index the folder again.")
    with replacing(file) as temporary:
        Image.fromarray(pictures[0][0]).save(temporary, "JPEG", quality=85)
    return file
