"""A pool of worker processes that read clips. A worker that dies or is killed is replaced."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ctsan.errors import CtsanError
from ctsan.inference.featurizer import NeededNetwork
from ctsan.web.limits import Limits
from ctsan.web.messages import Message, pack, receive

logger = logging.getLogger(__name__)

_START_SECONDS = 180.0  # the first start may have to convert a network for ONNX Runtime


class ReadingError(CtsanError):
    """A file cannot be read."""


class LostWorkerError(ReadingError):
    """The worker died while reading a file. The file is not necessarily the cause."""


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    input: asyncio.StreamWriter


class WorkerPool:
    """Runs up to `limits.workers` processes of `ctsan.web.worker`.

    Args:
        networks: the networks that the runs need, by `network_key`.
        weights: the backbone's weights, if they are not installed with ctsan.
    """

    def __init__(
        self, networks: Mapping[str, NeededNetwork], limits: Limits, *, weights: Path | None
    ) -> None:
        self._settings = json.dumps(
            {
                "networks": [
                    [key, asdict(recipe), max_frames] for key, (recipe, max_frames) in networks.items()
                ],
                "weights": str(weights) if weights else None,
                "memory": limits.worker_bytes,
            }
        )
        self._limits = limits
        self._idle: asyncio.LifoQueue[_Worker | None] = asyncio.LifoQueue()  # None: not started
        self._processes: set[asyncio.subprocess.Process] = set()
        for _ in range(limits.workers):
            self._idle.put_nowait(None)

    async def start(self) -> None:
        """Start one worker, so that an error in its setup appears when the server starts."""
        self._idle.put_nowait(await self._start() if self._idle.get_nowait() is None else None)

    async def read_clip(self, file: Path, *, max_shots: int) -> AsyncGenerator[Message, None]:
        """Messages of `worker.read_clip`, as they arrive. Closing the generator early kills the worker.

        Raises:
            ReadingError: the file cannot be read, or the worker was lost.
        """
        request = {
            "what": "clip",
            "shots": max_shots,
            "seconds": self._limits.seconds,
            "pixels": self._limits.pixels,
        }
        async with aclosing(self._request(file, request)) as messages:
            async for message in messages:
                yield message

    async def read_picture(self, file: Path, seconds: float) -> AsyncGenerator[Message, None]:
        """One message with the frame at the given time; otherwise as `read_clip`."""
        async with aclosing(self._request(file, {"what": "picture", "second": seconds})) as messages:
            async for message in messages:
                yield message

    async def _request(self, file: Path, request: Mapping[str, object]) -> AsyncGenerator[Message, None]:
        worker = await self._idle.get()
        is_reusable = False  # only once it has sent its last message
        try:
            if worker is None or worker.process.returncode is not None:
                worker = await self._start()
            worker.input.write(pack(Message({**request, "file": str(file)})))
            deadline = asyncio.get_running_loop().time() + self._limits.worker_seconds
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await receive(worker.output)
                except TimeoutError:
                    raise ReadingError(
                        "Reading it took too long, and was stopped. Cut it, or reduce its resolution."
                    ) from None
                except (EOFError, ValueError, OSError) as error:
                    logger.warning("A worker died while reading a file (%s). It is replaced.", error)
                    raise LostWorkerError(
                        "It could not be read: the decoder crashed. Convert it to mp4."
                    ) from None
                match message.head.get("kind"):
                    case "done":
                        is_reusable = True
                        return
                    case "error":
                        is_reusable = True
                        raise ReadingError(str(message.head.get("text")))
                    case "info":
                        deadline += min(self._limits.seconds, float(message.head["duration"]))
                yield message
        finally:
            if worker is not None and not is_reusable:
                self._kill(worker)
            self._idle.put_nowait(worker if is_reusable else None)

    async def stop(self) -> None:
        processes = list(self._processes)
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in processes))

    def _kill(self, worker: _Worker) -> None:
        with suppress(ProcessLookupError):
            worker.process.kill()

    async def _start(self) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ctsan.web.worker",
            self._settings,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, which then stops its workers
        )
        assert process.stdout is not None  # both are pipes
        assert process.stdin is not None
        self._processes = {other for other in self._processes if other.returncode is None} | {process}
        worker = _Worker(process, process.stdout, process.stdin)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await receive(worker.output)
        except (EOFError, ValueError, TimeoutError) as error:
            self._kill(worker)
            raise CtsanError(
                "A worker process could not be started; its error output is above. Check with "
                "'ctsan backbone check NETWORK' that the network runs."
            ) from error
        return worker
