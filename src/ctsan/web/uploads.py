"""Uploads in progress. A client that is too slow is cut off, sooner if others wait for its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import monotonic

from ctsan.web.errors import BusyError, TooSlowError
from ctsan.web.limits import Limits

_SETTLING_SECONDS = 2.0  # until the rate of an upload says anything


class Upload:
    """Receives one request body, and measures how fast it comes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began = monotonic()
        self._num_bytes = 0
        self._timeout: asyncio.Timeout | None = None  # while waiting for the client
        self._is_cut_off = False

    @property
    def bytes_per_second(self) -> float:
        return self._num_bytes / (monotonic() - self._began)

    @property
    def gives_way(self) -> bool:
        """Whether it is so slow that another upload may take its place."""
        is_settled = monotonic() - self._began > min(_SETTLING_SECONDS, self._limits.rate_seconds)
        return not self._is_cut_off and is_settled and self.bytes_per_second < self._limits.fair_upload_rate

    def cut_off(self) -> None:
        self._is_cut_off = True
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def chunks(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks of a body, as they arrive.

        The first `rate_seconds` of waiting for the client are free. In each later period of `rate_seconds`,
        `upload_rate` must be met. Time that the server needs to store a chunk does not count.

        Raises:
            TooSlowError: the client sends too slowly, or not at all.
        """
        period = self._limits.rate_seconds
        waited, num_bytes, needed = 0.0, 0, 0.0  # in this period
        while True:
            began = monotonic()
            chunk = await self._next_chunk(body, 2 * period if needed == 0 else period)
            if chunk is None:
                return
            waited += monotonic() - began
            num_bytes += len(chunk)
            self._num_bytes += len(chunk)
            if waited >= period:
                if num_bytes < needed:
                    raise self._too_slow()
                waited, num_bytes, needed = 0.0, 0, self._limits.upload_rate * period
            yield chunk

    async def _next_chunk(self, body: AsyncIterator[bytes], seconds: float) -> bytes | None:
        if self._is_cut_off:
            raise self._too_slow()
        try:
            async with asyncio.timeout(seconds) as self._timeout:
                return await anext(body, None)
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            self._timeout = None

    def _too_slow(self) -> TooSlowError:
        if self._is_cut_off:
            return TooSlowError(
                "The upload was stopped: it is slow, and others wait for its place. Try again in a minute."
            )
        kilobytes = self._limits.upload_rate / 2**10
        return TooSlowError(
            f"The upload is too slow: at least {kilobytes:,.3g} KB a second are needed. Try again with a "
            "faster connection."
        )


class Uploads:
    """The uploads in progress. When all places are taken, a new one takes the place of the slowest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._uploads: set[Upload] = set()

    @contextmanager
    def place(self) -> Iterator[Upload]:
        """Take one of the places for uploads; if all are taken, the slowest slow upload is cut off.

        Raises:
            BusyError: all places are taken, and no upload is slow.
        """
        if len(self._uploads) >= self._limits.uploads:
            slow = [upload for upload in self._uploads if upload.gives_way]
            if not slow:
                raise BusyError("Many files are being uploaded just now. Try again in a few seconds.")
            slowest = min(slow, key=lambda upload: upload.bytes_per_second)
            slowest.cut_off()
            self._uploads.discard(slowest)
        upload = Upload(self._limits)
        self._uploads.add(upload)
        try:
            yield upload
        finally:
            self._uploads.discard(upload)
