"""The clips of all clients, from upload to removal."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ctsan.inference.results import Scene
from ctsan.web.errors import BusyError, NotFoundError, TooLargeError, TooSlowError
from ctsan.web.limits import Limits

State = Literal["waiting", "reading", "ready", "failed", "cancelled"]


class DescribedShot(NamedTuple):
    scene: Scene
    picture: bytes  # JPEG


@dataclass(slots=True, eq=False)
class Clip:
    """State of a clip. The shots of a long clip are read after the clip itself, with a state of their own."""

    id: str
    file: Path | None  # None once it has been read
    is_upload: bool = True  # False: a file of the library, which must not be deleted
    state: State = "waiting"
    progress: float = 0.0
    error: str | None = None
    duration: float | None = None
    width: int | None = None
    height: int | None = None
    poster: bytes | None = None
    pictures: list[bytes] = field(default_factory=list)  # sampled frames as JPEG, scaled to a square
    times: list[float] = field(default_factory=list)
    shots_state: State | None = None  # None if the clip is not cut into shots
    shots_progress: float = 0.0
    shots: list[DescribedShot] = field(default_factory=list)
    is_settled: asyncio.Event = field(default_factory=asyncio.Event)  # ready, failed or cancelled
    task: asyncio.Task[None] | None = None
    last_used: float = field(default_factory=time.monotonic)

    def settle(self, state: State, error: str | None = None) -> None:
        self.state, self.error = state, error
        self.is_settled.set()


class ClipStore:
    """Clips by unguessable id. Uploads are spooled to a private folder until they have been read."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="ctsan-serve-"))  # mode 0700
        self._clips: dict[str, Clip] = {}
        self._spooled_bytes = 0
        self._num_uploading = 0

    def get(self, clip_id: str) -> Clip:
        """Raises:
        NotFoundError: the id is unknown, or the clip has been removed.
        """
        clip = self._clips.get(clip_id)
        if clip is None:
            raise NotFoundError("There is no such clip, or it was forgotten meanwhile. Upload it again.")
        clip.last_used = time.monotonic()
        return clip

    def add(self, file: Path) -> Clip:
        """Register a file of the library, which stays where it is.

        Raises:
            BusyError: too many clips are waiting to be read.
        """
        self._check_capacity()
        return self._register(file, is_upload=False)

    async def upload(self, body: AsyncIterator[bytes]) -> Clip:
        """Stream a request body to a file and register it.

        Raises:
            BusyError: too many clips are waiting to be read, or too many bytes are spooled.
            TooLargeError: the file exceeds the limit.
            TooSlowError: the client stopped sending.
        """
        self._check_capacity()
        file = self._folder / secrets.token_urlsafe(16)
        written = 0
        self._num_uploading += 1
        try:
            with file.open("xb") as out:
                async for chunk in self._chunks(body):
                    written += len(chunk)
                    self._spooled_bytes += len(chunk)
                    if written > self._limits.upload_bytes:
                        raise too_large(self._limits)
                    if self._spooled_bytes > self._limits.spool_bytes:
                        raise BusyError("Too many large files are being read. Try again in a minute.")
                    await asyncio.to_thread(out.write, chunk)
            return self._register(file, is_upload=True)
        except BaseException:
            file.unlink(missing_ok=True)
            self._spooled_bytes -= written
            raise
        finally:
            self._num_uploading -= 1

    def release_file(self, clip: Clip) -> None:
        """Mark the file as no longer needed; delete it if it was uploaded."""
        file, clip.file = clip.file, None
        if file is not None and clip.is_upload:
            self._spooled_bytes -= file.stat().st_size
            file.unlink()

    def expired(self) -> list[Clip]:
        """Clips unused for `idle_seconds`, and the least recently used beyond the maximum number."""
        clips = [clip for clip in self._clips.values() if clip.file is None]
        clips.sort(key=lambda clip: clip.last_used)
        excess = max(0, len(self._clips) - self._limits.clips)
        oldest = time.monotonic() - self._limits.idle_seconds
        return [clip for place, clip in enumerate(clips) if place < excess or clip.last_used < oldest]

    def remove(self, clip: Clip) -> None:
        self._clips.pop(clip.id, None)
        with suppress(FileNotFoundError):
            self.release_file(clip)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def __iter__(self) -> Iterator[Clip]:
        return iter(list(self._clips.values()))

    def _check_capacity(self) -> None:
        unread = sum(clip.file is not None for clip in self._clips.values()) + self._num_uploading
        if unread >= self._limits.unread_clips:
            raise BusyError("Many clips are being read just now. Try again in a few seconds.")

    def _register(self, file: Path, *, is_upload: bool) -> Clip:
        clip = Clip(secrets.token_urlsafe(16), file, is_upload=is_upload)
        self._clips[clip.id] = clip
        return clip

    async def _chunks(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._limits.stalled_seconds):
                    chunk = await anext(body, None)
            except TimeoutError:
                raise TooSlowError("The upload stalled. Try again.") from None
            if chunk is None:
                return
            yield chunk


def too_large(limits: Limits) -> TooLargeError:
    megabytes = limits.upload_bytes / 2**20
    return TooLargeError(f"The file is larger than {megabytes:,.0f} MB. Cut it, or reduce its resolution.")
