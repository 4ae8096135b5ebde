"""Read AVIF and HEIC pictures by Pillow and pillow-heif.

FFmpeg reads such a file too, but of a picture that is stored as a grid of tiles, as phones do, it would show
one tile.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ctsan.errors import VideoError

_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"mif1"})


def still_format(head: bytes) -> Literal["avif", "heic"] | None:
    """The format of a still picture by the first 64 bytes of its file; None for all other files."""
    if head[4:8] != b"ftyp":
        return None
    size = min(int.from_bytes(head[:4], "big"), len(head))
    brands = [head[place : place + 4] for place in (8, *range(16, size - 3, 4))]
    if brands[0] not in _HEIC_BRANDS | {b"avif"}:  # 'avis', 'hevc' and others have a track of frames
        return None
    return "avif" if b"avif" in brands else "heic"


def is_sequence(head: bytes) -> bool:
    """Whether a file has its frames in a track beside a still picture, as an animated AVIF."""
    return head[4:8] == b"ftyp" and head[8:12] in (b"avis", b"hevc", b"hevx", b"msf1")


def to_bitmap(
    path: Path, kind: Literal["avif", "heic"], check_pixels: Callable[[Path, int, int], None]
) -> io.BytesIO:
    """The upright picture as a BMP file in memory, which FFmpeg reads.

    Args:
        check_pixels: called with the path, width and height before anything is decoded.

    Raises:
        VideoError: the package that reads HEIC is not installed.
        Exception: whatever the decoders raise for a damaged file.
    """
    from PIL import Image, ImageOps

    picture: Image.Image
    if kind == "avif":
        from PIL.AvifImagePlugin import AvifImageFile

        with AvifImageFile(path) as file:  # `Image.open` would warn of large ones before they can be refused
            check_pixels(path, *file.size)
            picture = ImageOps.exif_transpose(file)
    else:
        try:
            import pillow_heif
        except ImportError as error:
            what = "a HEIC picture, and the package that reads it is not installed (pillow-heif)"
            raise VideoError(path, what, "Get it with: pip install 'ctsan[heic]'") from error
        found = pillow_heif.open_heif(path)
        check_pixels(path, *found.size)
        picture = found.to_pillow()
    bitmap = io.BytesIO()
    picture.convert("RGB").save(bitmap, "BMP")
    bitmap.seek(0)
    return bitmap
