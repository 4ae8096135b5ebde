"""The clips of all clients, from upload to removal."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ctsan.inference.encoded_clip import EncodedClip
from ctsan.inference.results import Description, Scene
from ctsan.web.errors import (
    BusyError,
    EmptyUploadError,
    GoneError,
    NotFoundError,
    SpoolError,
    TooLargeError,
)
from ctsan.web.limits import Limits
from ctsan.web.spool import Spool
from ctsan.web.uploads import Uploads

logger = logging.getLogger(__name__)

State = Literal["waiting", "reading", "ready", "failed", "cancelled"]


class Source(NamedTuple):
    """A file of the library, or a part of it, as it was when it was opened."""

    file: Path
    span: tuple[float, float] | None  # start and end in seconds; None is the whole file
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: Path, span: tuple[float, float] | None) -> Source:
        """Remember size and date of a file, so that a change of it is noticed.

        Raises:
            GoneError: the file is gone, or cannot be read.
        """
        try:
            status = file.stat()
        except OSError:
            raise GoneError("The file of this moment is gone. Index its folder again.") from None
        return cls(file, span, status.st_size, status.st_mtime_ns)


class DescribedShot(NamedTuple):
    scene: Scene
    picture: bytes  # JPEG


@dataclass(slots=True, eq=False)
class Clip:
    """State of a clip. The shots of a long clip are read after the clip itself, with a state of their own."""

    id: str
    file: Path | None  # None once it has been read
    spooled_bytes: int = 0  # size of the file on disk if it was uploaded
    is_upload: bool = True  # False: a file of the library, which must not be deleted
    source: Source | None = None  # of a file of the library
    state: State = "waiting"
    progress: float = 0.0
    error: str | None = None
    start: float = 0.0  # seconds from the start of the file
    duration: float | None = None  # of what can be read
    declared_duration: float | None = None  # by the header of the file; longer if the file is cut off
    width: int | None = None
    height: int | None = None
    poster: bytes | None = None
    pictures: list[bytes] = field(default_factory=list)  # sampled frames as JPEG, scaled to a square
    times: list[float] = field(default_factory=list)
    encoded: EncodedClip | None = None  # set once the clip is ready; its encodings are reused
    description: Description | None = None  # set by the first request that needs it
    shots_state: State | None = None  # None if the clip is not cut into shots
    shots_progress: float = 0.0
    shots: list[DescribedShot] = field(default_factory=list)
    is_settled: asyncio.Event = field(default_factory=asyncio.Event)  # ready, failed or cancelled
    task: asyncio.Task[None] | None = None
    last_used: float = field(default_factory=time.monotonic)

    @property
    def span(self) -> tuple[float, float] | None:
        return self.source.span if self.source else None

    def settle(self, state: State, error: str | None = None) -> None:
        self.state, self.error = state, error
        self.is_settled.set()


class ClipStore:
    """Clips by unguessable id. Uploads are spooled to a private folder until they have been read."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spool = Spool()
        self._uploads = Uploads(limits)
        self._clips: dict[str, Clip] = {}
        self._spooled_bytes = 0

    def get(self, clip_id: str) -> Clip:
        """Look up a clip, and postpone its expiry.

        Raises:
            NotFoundError: the id is unknown, or the clip has been removed.
        """
        clip = self._clips.get(clip_id)
        if clip is None:
            raise NotFoundError("There is no such clip, or it was forgotten meanwhile. Upload it again.")
        clip.last_used = time.monotonic()
        return clip

    def find(self, file: Path, span: tuple[float, float] | None) -> Clip | None:
        """A clip that was read from this file of the library, or from this span of it.

        Raises:
            GoneError: the file is gone.
        """
        source = Source.of(file, span)
        for clip in self._clips.values():
            if clip.source == source and clip.state == "ready" and clip.file is None:
                clip.last_used = time.monotonic()
                return clip
        return None

    def add(self, file: Path, span: tuple[float, float] | None = None) -> Clip:
        """Register a file of the library, or a span of it; the file stays where it is.

        Raises:
            BusyError: too many clips are waiting to be read.
            GoneError: the file is gone.
        """
        self._check_capacity()
        return self._register(file, source=Source.of(file, span))

    async def upload(self, body: AsyncIterator[bytes]) -> Clip:
        """Stream a request body to a file and register it.

        Raises:
            BusyError: too many clips are waiting to be read or uploaded, or too many bytes are spooled.
            EmptyUploadError: the body is empty.
            TooLargeError: the file exceeds the limit.
            TooSlowError: the client sends too slowly.
            SpoolError: the file cannot be written.
        """
        self._check_capacity()
        written = 0
        with self._uploads.place() as upload:
            with _disk_errors():
                file = self._spool.new_file()
            try:
                with _disk_errors(), file.open("xb") as out:
                    async for chunk in upload.chunks(body):
                        written += len(chunk)
                        self._spooled_bytes += len(chunk)
                        if written > self._limits.upload_bytes:
                            raise too_large(self._limits)
                        if self._spooled_bytes > self._limits.spool_bytes:
                            raise BusyError("Too many large files are being read. Try again in a minute.")
                        await asyncio.to_thread(out.write, chunk)
                if not written:
                    raise EmptyUploadError("The file is empty (0 bytes). Copy or download it again.")
            except BaseException:
                self._spooled_bytes -= written
                _unlink(file)
                raise
        return self._register(file, spooled_bytes=written)

    def release_file(self, clip: Clip) -> None:
        """Mark the file as no longer needed; delete it if it was uploaded."""
        file, clip.file = clip.file, None
        if file is not None and clip.is_upload:
            self._spooled_bytes -= clip.spooled_bytes
            _unlink(file)

    def expired(self) -> list[Clip]:
        """Clips unused for `idle_seconds`, and the least recently used beyond the maximum number."""
        clips = [clip for clip in self._clips.values() if clip.file is None]
        clips.sort(key=lambda clip: clip.last_used)
        excess = max(0, len(self._clips) - self._limits.clips)
        oldest = time.monotonic() - self._limits.idle_seconds
        return [clip for place, clip in enumerate(clips) if place < excess or clip.last_used < oldest]

    def remove(self, clip: Clip) -> None:
        self._clips.pop(clip.id, None)
        self.release_file(clip)

    def close(self) -> None:
        self._spool.close()

    def __iter__(self) -> Iterator[Clip]:
        return iter(list(self._clips.values()))

    def _check_capacity(self) -> None:
        unread = sum(clip.file is not None for clip in self._clips.values())
        if unread >= self._limits.unread_clips:
            raise BusyError("Many clips are being read just now. Try again in a few seconds.")

    def _register(self, file: Path, *, source: Source | None = None, spooled_bytes: int = 0) -> Clip:
        clip = Clip(
            secrets.token_urlsafe(16),
            file,
            is_upload=source is None,
            source=source,
            spooled_bytes=spooled_bytes,
        )
        self._clips[clip.id] = clip
        return clip


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Log the cause of a disk error for the host, and raise one for the client that names no file.

    Raises:
        SpoolError: in place of an `OSError`, which is logged.
    """
    try:
        yield
    except OSError as error:
        logger.error(
            "An upload cannot be stored: %s. Free space in the folder for temporary files, or set TMPDIR to "
            "another and start again.",
            error.strerror or error,
        )
        raise SpoolError(
            "The server cannot store the file: its disk is full, or cannot be written to. Try again later."
        ) from None


def _unlink(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        logger.error("%s: cannot be deleted (%s). Delete it by hand.", file, error.strerror or error)


def too_large(limits: Limits) -> TooLargeError:
    megabytes = limits.upload_bytes / 2**20
    return TooLargeError(f"The file is larger than {megabytes:,.0f} MB. Cut it, or reduce its resolution.")
