"""The clips that clients have given the server: from upload to oblivion."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ctsan.inference.results import Scene
from ctsan.web.errors import BusyError, TooLargeError, TooSlowError, UnknownError
from ctsan.web.limits import Limits

State = Literal["waiting", "reading", "ready", "failed", "cancelled"]


class DescribedShot(NamedTuple):
    scene: Scene
    picture: bytes  # JPEG


@dataclass(slots=True, eq=False)
class Clip:
    """What is known of a clip so far. `state` is of the whole; a long one's shots come afterwards."""

    id: str
    file: Path | None  # while it is needed
    is_upload: bool = True  # then the file is ours to remove
    state: State = "waiting"
    progress: float = 0.0
    error: str | None = None
    duration: float | None = None
    width: int | None = None
    height: int | None = None
    poster: bytes | None = None
    pictures: list[bytes] = field(default_factory=list)  # JPEG, of the sampled frames, squashed
    times: list[float] = field(default_factory=list)
    shots_state: State | None = None  # None where there are none to come
    shots_progress: float = 0.0
    shots: list[DescribedShot] = field(default_factory=list)
    is_settled: asyncio.Event = field(default_factory=asyncio.Event)  # ready, failed or cancelled
    task: asyncio.Task[None] | None = None
    used: float = field(default_factory=time.monotonic)

    def settle(self, state: State, error: str | None = None) -> None:
        self.state, self.error = state, error
        self.is_settled.set()


class Shelf:
    """Clips by their ids, which nobody can guess. Uploads lie in a private folder until they are read."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="ctsan-serve-"))  # only its owner may enter
        self._clips: dict[str, Clip] = {}
        self._spooled = 0
        self._uploads = 0

    def find(self, clip_id: str) -> Clip:
        clip = self._clips.get(clip_id)
        if clip is None:
            raise UnknownError("There is no such clip, or it was forgotten meanwhile. Upload it again.")
        clip.used = time.monotonic()
        return clip

    def add(self, file: Path) -> Clip:
        """A file that is not ours, and stays where it is.

        Raises:
            BusyError: too many wait to be read.
        """
        self._check_room()
        return self._shelve(file, is_upload=False)

    async def upload(self, body: AsyncIterator[bytes]) -> Clip:
        """A file, written as it comes.

        Raises:
            BusyError: too many are under way, or too much is on the disk.
            TooLargeError, TooSlowError: this one is at fault.
        """
        self._check_room()
        file = self._folder / secrets.token_urlsafe(16)
        written = 0
        self._uploads += 1
        try:
            with file.open("xb") as out:
                async for chunk in self._chunks(body):
                    written += len(chunk)
                    self._spooled += len(chunk)
                    if written > self._limits.upload_bytes:
                        raise too_large(self._limits)
                    if self._spooled > self._limits.spool_bytes:
                        raise BusyError("Too many large files are being read. Try again in a minute.")
                    await asyncio.to_thread(out.write, chunk)
            return self._shelve(file, is_upload=True)
        except BaseException:
            file.unlink(missing_ok=True)
            self._spooled -= written
            raise
        finally:
            self._uploads -= 1

    def release(self, clip: Clip) -> None:
        """Its file is not needed any more."""
        file, clip.file = clip.file, None
        if file is not None and clip.is_upload:
            self._spooled -= file.stat().st_size
            file.unlink()

    def superfluous(self) -> list[Clip]:
        """Those that nobody asked about for long, and the oldest ones beyond what is remembered."""
        settled = [clip for clip in self._clips.values() if clip.file is None]
        settled.sort(key=lambda clip: clip.used)
        too_many = max(0, len(self._clips) - self._limits.clips)
        longest_ago = time.monotonic() - self._limits.idle_seconds
        return [clip for place, clip in enumerate(settled) if place < too_many or clip.used < longest_ago]

    def remove(self, clip: Clip) -> None:
        self._clips.pop(clip.id, None)
        with suppress(FileNotFoundError):
            self.release(clip)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def clips(self) -> list[Clip]:
        return list(self._clips.values())

    def _check_room(self) -> None:
        unread = sum(clip.file is not None for clip in self._clips.values()) + self._uploads
        if unread >= self._limits.unread_clips:
            raise BusyError("Many clips are being read just now. Try again in a few seconds.")

    def _shelve(self, file: Path, *, is_upload: bool) -> Clip:
        clip = Clip(secrets.token_urlsafe(16), file, is_upload=is_upload)
        self._clips[clip.id] = clip
        return clip

    async def _chunks(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._limits.stalled_seconds):
                    chunk = await anext(body, None)
            except TimeoutError:
                raise TooSlowError("The upload has stopped half-way. Try again.") from None
            if chunk is None:
                return
            yield chunk


def too_large(limits: Limits) -> TooLargeError:
    most = limits.upload_bytes / 2**20
    return TooLargeError(f"The file is larger than {most:,.0f} MB. Cut it, or make its pictures smaller.")
