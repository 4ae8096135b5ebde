"""Count the samples that the index of an mp4 or mov lists, before FFmpeg builds its own.

FFmpeg takes 24 bytes or more for each sample when it opens a file. An index with one size for all samples has
20 bytes, whatever their number. An index with a size for each sample is as long as they are many, and is not
counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from os import SEEK_END
from typing import BinaryIO

_CONTAINERS = frozenset(
    {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"edts", b"udta"}
)
_MAX_DEPTH = 10  # of boxes in boxes, as in FFmpeg
_MAX_FRAGMENTS = 1000  # looked at: a fragmented film has thousands all over the file
_HEAD_BYTES = 16  # of the content of a box
_LISTS_EACH = 0xF00  # flags of a fragment's run that says something about each sample


def samples_of_one_size(file: BinaryIO) -> int:
    """The most samples that a track of an mp4, or all its fragments, have without listing each.

    0 for other files. Tracks of sound are not counted if FFmpeg indexes their chunks, not their samples.
    """
    tracks: list[dict[bytes, bytes]] = []
    fragments = in_fragments = 0
    for name, head in _boxes(file, 0, file.seek(0, SEEK_END)):
        if name == b"trak":
            tracks.append({})
        elif name == b"moof":
            fragments += 1
            if fragments > _MAX_FRAGMENTS:
                break
        elif name == b"trun":
            flags, count = struct.unpack_from(">II", head)
            in_fragments += 0 if flags & _LISTS_EACH else count
        elif tracks and (
            name in (b"stsz", b"stts") or (name == b"hdlr" and head[8:12] in (b"vide", b"soun"))
        ):
            tracks[-1][name] = head
    return max([in_fragments, *map(_track_samples, tracks)])


def _track_samples(heads: dict[bytes, bytes]) -> int:
    size, count = struct.unpack_from(">II", heads.get(b"stsz", bytes(_HEAD_BYTES)), 4)
    runs, _, duration = struct.unpack_from(">III", heads.get(b"stts", bytes(_HEAD_BYTES)), 4)
    is_sound = heads.get(b"hdlr", b"")[8:12] == b"soun"
    is_indexed_by_chunk = is_sound and runs == duration == 1
    return count if size and not is_indexed_by_chunk else 0


def _boxes(file: BinaryIO, start: int, end: int, depth: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Name and first bytes of every box, those in others after them."""
    while start + 8 <= end:
        file.seek(start)
        head = file.read(16 + _HEAD_BYTES).ljust(16 + _HEAD_BYTES, b"\0")
        size, name = struct.unpack_from(">I4s", head)
        body = 8
        if size == 1:  # a size of 64 bits follows
            (size,), body = struct.unpack_from(">Q", head, 8), 16
        elif size == 0:  # up to the end
            size = end - start
        if size < body:
            return
        yield name, head[body : body + _HEAD_BYTES]
        stop = min(start + size, end)
        if name in _CONTAINERS and depth < _MAX_DEPTH:
            yield from _boxes(file, start + body, stop, depth + 1)
        start = stop
