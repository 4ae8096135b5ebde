"""Files in pieces: an answer that nobody reads must hold up neither other requests nor a server that ends."""

from __future__ import annotations

import os
import re
from email.utils import formatdate
from pathlib import Path

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from ctsan.web.errors import RequestError, UnknownError
from ctsan.web.security import error_body

PIECE_BYTES = 2**20  # bytes; the system holds that much for a client on this machine that does not read


class RangeError(RequestError):
    status, code = 416, "range"


def piece_of(file: Path, request: Request, *, media_type: str, most: int) -> Response:
    """So much of a file as was asked for by Range, and at most one piece, in one go.

    Differs from HTTP: without Range, too, no more than the first piece of a large file is sent, as 206.

    Args:
        most: bytes of a piece.

    Raises:
        UnknownError: the file is gone.
    """
    if not file.is_file():
        raise UnknownError("The file is gone. Index the folder again.")
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            size, tag = status.st_size, f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
            headers = {
                "Accept-Ranges": "bytes",
                "Cache-Control": "private, max-age=3600",
                "ETag": tag,
                "Last-Modified": formatdate(status.st_mtime, usegmt=True),
            }
            if request.method == "HEAD":
                return Response(headers=headers | {"Content-Length": str(size)}, media_type=media_type)
            is_same = request.headers.get("if-range", tag) in (tag, headers["Last-Modified"])
            asked = _bytes_asked_for(request.headers.get("range", "") if is_same else "", size)
            if asked is not None and asked[0] >= asked[1]:
                error = RangeError(f"The file has only {size:,} bytes.")
                return JSONResponse(error_body(error), error.status, {"Content-Range": f"bytes */{size}"})
            start, end = asked or (0, size)
            stream.seek(start)
            content = stream.read(min(end - start, most))
    except OSError:
        raise UnknownError("The file cannot be read. Index the folder again.") from None
    if asked is None and len(content) == size:
        return Response(content, headers=headers, media_type=media_type)
    headers["Content-Range"] = f"bytes {start}-{start + len(content) - 1}/{size}"
    return Response(content, 206, headers, media_type)


def _bytes_asked_for(asked: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; none of them where a file ends before.

    None stands for all: without Range, or with one that is of another kind, broken or of several parts.
    """
    found = re.fullmatch(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", asked)
    first, last = found.groups() if found else ("", "")
    if first and last and int(last) < int(first):
        return None
    if first:
        return int(first), min(int(last) + 1, size) if last else size
    return (max(0, size - int(last)), size) if last else None
