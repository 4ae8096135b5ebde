"""Read the size of a picture from its header, without decoding it."""

from __future__ import annotations

import struct
from os import SEEK_CUR
from typing import BinaryIO

_HEAD_BYTES = 32
_MAX_SEGMENTS = 1000  # before the frame header of a JPEG
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the others of these are tables
_BARE_MARKERS = frozenset({0x01, 0xD8, *range(0xD0, 0xD8)})  # without a length


def picture_size(file: BinaryIO) -> tuple[int, int] | None:
    """Width and height of a PNG, JPEG, WebP or GIF; None for other files and for damaged headers."""
    head = file.read(_HEAD_BYTES).ljust(_HEAD_BYTES, b"\0")
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack_from(">II", head, 16)
        return width, height
    if head.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack_from("<HH", head, 6)
        return width, height
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    if head.startswith(b"\xff\xd8\xff"):
        file.seek(2)
        return _jpeg_size(file)
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8X":  # with alpha, animation or metadata: 24 bits each, less one
            return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
        case b"VP8L":  # lossless: 14 bits each, less one
            bits = int.from_bytes(head[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg_size(file: BinaryIO) -> tuple[int, int] | None:
    """The size in the first frame header of a JPEG, from its second marker on."""
    for _ in range(_MAX_SEGMENTS):
        if file.read(1) != b"\xff":
            return None
        while (code := file.read(1)) == b"\xff":  # fill bytes
            pass
        if not code:
            return None
        if code[0] in _BARE_MARKERS:
            continue
        segment = file.read(7)  # length; of a frame header: precision, height, width
        if len(segment) < 7:
            return None
        if code[0] in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", segment, 3)
            return width, height
        file.seek(max(0, int.from_bytes(segment[:2], "big") - 7), SEEK_CUR)
    return None
