"""Range responses of bounded size: a client that stops reading blocks neither requests nor shutdown."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from email.utils import formatdate
from pathlib import Path

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from ctsan.search.library_format import FileRecord
from ctsan.web.errors import NotFoundError, RequestError
from ctsan.web.security import error_body

_LATEST = 253402300799.0  # the last second of the year 9999, the last one that an HTTP date can have
MAX_RANGE_BYTES = 2**20  # fits into the socket buffers of a local client that does not read


class RangeError(RequestError):
    status, code = 416, "range"


def range_response(
    file: Path,
    request: Request,
    *,
    versions: Collection[tuple[int, int]],
    media_type: str,
    max_bytes: int,
) -> Response:
    """The requested range of a file, truncated to `max_bytes`.

    Only a file that was indexed is sent: what has replaced it may be a link to something else.

    Differs from HTTP: a request without Range for a larger file is also answered with 206 and its beginning.

    Args:
        versions: sizes and dates (ns) of the file when it was indexed, and of its copies.

    Raises:
        NotFoundError: the file is gone, has changed since it was indexed, or cannot be read.
    """
    if not file.is_file():
        raise NotFoundError("The file is gone. Index the folder again.")
    try:
        with open(file, "rb", opener=_open_at_once) as stream:
            status = os.fstat(stream.fileno())
            found = FileRecord.of(file, status)
            if not stat.S_ISREG(status.st_mode) or (found.size, found.mtime_ns) not in versions:
                raise NotFoundError("The file has changed since it was indexed. Index the folder again.")
            size, etag = status.st_size, f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
            headers = {
                "Accept-Ranges": "bytes",
                "Cache-Control": "private, max-age=3600",
                "ETag": etag,
                "Last-Modified": formatdate(min(status.st_mtime, _LATEST), usegmt=True),
            }
            if request.method == "HEAD":
                return Response(headers=headers | {"Content-Length": str(size)}, media_type=media_type)
            is_unchanged = request.headers.get("if-range", etag) in (etag, headers["Last-Modified"])
            requested = _parse_range(request.headers.get("range", "") if is_unchanged else "", size)
            if requested is not None and requested[0] >= requested[1]:
                error = RangeError(f"The file has only {size:,} bytes.")
                return JSONResponse(error_body(error), error.status, {"Content-Range": f"bytes */{size}"})
            start, end = requested or (0, size)
            stream.seek(start)
            content = stream.read(min(end - start, max_bytes))
    except OSError:
        raise NotFoundError("The file cannot be read. Index the folder again.") from None
    if requested is None and len(content) == size:
        return Response(content, headers=headers, media_type=media_type)
    headers["Content-Range"] = f"bytes {start}-{start + len(content) - 1}/{size}"
    return Response(content, 206, headers, media_type)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, as for the other end of a pipe that has replaced it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end of the range, as of a slice; it is empty if the range starts beyond the file.

    None means the whole file: the header is missing, malformed, of another unit, or has several ranges.
    """
    match = re.fullmatch(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", header)
    first, last = match.groups() if match else ("", "")
    if first and last and int(last) < int(first):
        return None
    if first:
        return int(first), min(int(last) + 1, size) if last else size
    return (max(0, size - int(last)), size) if last else None
