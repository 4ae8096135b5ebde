"""Thumbnails of search hits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ctsan.errors import VideoError
from ctsan.io.atomic import replacing
from ctsan.search.search import Hit
from ctsan.video.frames import pictures_at

_BOX = (320, 320)


def write_thumbnail(hit: Hit, file: Path) -> Path:
    """Write the frame in the middle of a hit as a JPEG.

    Raises:
        VideoError: the file can no longer be read.
    """
    pictures = pictures_at(hit.file, np.array([(hit.start + hit.end) / 2]), box=_BOX)
    if not pictures:
        raise VideoError(hit.file, "no frame could be decoded", "Index the folder again.")
    with replacing(file) as temporary:
        Image.fromarray(pictures[0][0]).save(temporary, "JPEG", quality=85)
    return file
