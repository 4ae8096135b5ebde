"""What one server takes on at a time. Everything that could grow without end is bounded here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond the first three a client's file is refused; beyond the rest it is told to wait."""

    upload_bytes: int = 512 * 2**20
    seconds: float = 2 * 3600.0  # of a video
    pixels: int = 4096 * 2304  # of a picture of it

    spool_bytes: int = 2 * 2**30  # of all uploads that are on the disk
    clips: int = 100  # that are remembered; those asked about longest ago are forgotten first
    unread_clips: int = 16  # that are uploaded or wait for a worker
    shots: int = 500  # of one video that are described
    requests: int = 64  # in flight
    questions: int = 32  # that wait for the models
    questions_together: int = 8  # that they answer at once, if all ask for the same
    body_bytes: int = 64 * 2**10  # of a request that is no upload
    idle_seconds: float = 3600.0  # after which a clip is forgotten
    stalled_seconds: float = 30.0  # that an upload may say nothing

    workers: int = 2
    worker_bytes: int = 2 * 2**30  # of memory, beyond what a worker holds when it has started
    worker_seconds: float = 120.0  # to read one file, and as long again as it plays
