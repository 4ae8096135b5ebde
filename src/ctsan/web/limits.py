"""Limits of one server. Everything that could grow without bound is bounded here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Exceeding one of the first three rejects the file; exceeding one of the others answers 429."""

    upload_bytes: int = 512 * 2**20
    seconds: float = 2 * 3600.0  # duration of a video
    pixels: int = 4096 * 2304  # of one frame

    spool_bytes: int = 2 * 2**30  # of all uploads on disk
    clips: int = 100  # kept in memory; the least recently used are removed first
    unread_clips: int = 16  # uploading or waiting for a worker
    shots: int = 500  # described per video
    requests: int = 64  # in flight
    model_queue: int = 32  # requests waiting for the models
    model_batch: int = 8  # requests of one kind that the models answer together
    body_bytes: int = 64 * 2**10  # of a request that is not an upload
    idle_seconds: float = 3600.0  # after which an unused clip is removed
    stalled_seconds: float = 30.0  # without data, after which an upload is aborted

    workers: int = 2
    worker_bytes: int = 2 * 2**30  # memory, in addition to that of an idle worker
    worker_seconds: float = 120.0  # per file, plus the duration of the video
