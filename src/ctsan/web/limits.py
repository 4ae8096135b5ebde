"""Limits of one server. Everything that could grow without bound is bounded here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Exceeding one of the first three rejects the file, and one of the second part answers 429.

    Exceeding one of the third part closes the connection, after a 408 if the client has begun a request.
    """

    upload_bytes: int = 512 * 2**20
    seconds: float = 2 * 3600.0  # duration of a video
    pixels: int = 4096 * 2304  # of one frame

    spool_bytes: int = 2 * 2**30  # of all uploads on disk
    clips: int = 100  # kept in memory; the least recently used are removed first
    uploads: int = 16  # at a time
    unread_clips: int = 16  # waiting for a worker, beyond which no upload begins
    shots: int = 500  # described per video
    requests: int = 64  # in flight
    model_queue: int = 32  # requests waiting for the models
    model_batch: int = 8  # requests of one kind that the models answer together
    body_bytes: int = 64 * 2**10  # of a request that is not an upload
    idle_seconds: float = 3600.0  # after which an unused clip is removed

    connections: int = 256  # beyond which the one that has been idle for longest is closed
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 10.0  # for a body that is not an upload
    rate_seconds: float = 10.0  # period over which the rate of an upload is measured; the first is free
    upload_rate: int = 8 * 2**10  # bytes a second, below which an upload is aborted
    fair_upload_rate: int = 64 * 2**10  # bytes a second, below which an upload gives way to another

    workers: int = 2
    worker_bytes: int = 2 * 2**30  # memory, in addition to that of an idle worker
    worker_seconds: float = 120.0  # per file, plus the duration of the video, or of its shots that were read
