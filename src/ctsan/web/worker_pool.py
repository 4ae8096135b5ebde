"""The workers that read clips: as many as the limits say, each replaced when it dies or is killed."""

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

_START_SECONDS = 180.0  # the first one of all may have to prepare a network for ONNX Runtime


class ReadingError(CtsanError):
    """A file cannot be read, by its own fault."""


class LostWorkerError(ReadingError):
    """The worker died over it. That may have other reasons than the file."""


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    input: asyncio.StreamWriter


class Readers:
    """Workers that wait for files.

    Args:
        networks: whose maps runs want, by their keys.
        weights: the file of a network that is not installed with ctsan.
    """

    def __init__(
        self, networks: Mapping[str, NeededNetwork], limits: Limits, *, weights: Path | None
    ) -> None:
        listed = [[key, asdict(recipe), max_frames] for key, (recipe, max_frames) in networks.items()]
        self._settings = json.dumps(
            {
                "networks": listed,
                "weights": str(weights) if weights else None,
                "memory": limits.worker_bytes,
            }
        )
        self._limits = limits
        self._idle: asyncio.LifoQueue[_Worker | None] = asyncio.LifoQueue()  # None: one has to be started
        self._all: set[asyncio.subprocess.Process] = set()
        for _ in range(limits.workers):
            self._idle.put_nowait(None)

    async def start(self) -> None:
        """Have one ready before anybody asks, so that what is wrong with it is seen at once."""
        self._idle.put_nowait(await self._start() if self._idle.get_nowait() is None else None)

    async def read(self, file: Path, *, shots: int) -> AsyncGenerator[Message, None]:
        """What a worker says of a file, as it says it. Whoever stops listening has the worker killed.

        Args:
            shots: how many of a long video are wanted at most.

        Raises:
            ReadingError: it cannot be read, or did not survive it.
        """
        head = {
            "what": "clip",
            "shots": shots,
            "seconds": self._limits.seconds,
            "pixels": self._limits.pixels,
        }
        async with aclosing(self._answers(file, head)) as messages:
            async for message in messages:
                yield message

    async def picture(self, file: Path, seconds: float) -> AsyncGenerator[Message, None]:
        """One message with what is on the screen so long after the start; otherwise as `read`."""
        async with aclosing(self._answers(file, {"what": "picture", "second": seconds})) as messages:
            async for message in messages:
                yield message

    async def _answers(self, file: Path, question: Mapping[str, object]) -> AsyncGenerator[Message, None]:
        worker = await self._idle.get()
        is_whole = False
        try:
            if worker is None or worker.process.returncode is not None:
                worker = await self._start()
            worker.input.write(pack(Message({**question, "file": str(file)})))
            until = asyncio.get_running_loop().time() + self._limits.worker_seconds
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        message = await receive(worker.output)
                except TimeoutError:
                    raise ReadingError(
                        "Reading it took too long, and was stopped. Cut it, or make its pictures smaller."
                    ) from None
                except (EOFError, ValueError, OSError) as error:
                    logger.warning("A worker died over a file (%s). Another takes its place.", error)
                    raise LostWorkerError(
                        "It could not be read: the decoder did not survive it. Convert it to mp4."
                    ) from None
                match message.head.get("kind"):
                    case "done":
                        is_whole = True
                        return
                    case "error":
                        is_whole = True
                        raise ReadingError(str(message.head.get("text")))
                    case "info":
                        until += min(self._limits.seconds, float(message.head["duration"]))
                yield message
        finally:
            if worker is not None and not is_whole:
                self._kill(worker)
            self._idle.put_nowait(worker if is_whole else None)

    async def stop(self) -> None:
        processes = list(self._all)
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
        self._all = {each for each in self._all if each.returncode is None} | {process}
        worker = _Worker(process, process.stdout, process.stdin)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await receive(worker.output)
        except (EOFError, ValueError, TimeoutError) as error:
            self._kill(worker)
            raise CtsanError(
                "A worker that reads clips could not be started; what it said stands above. Check with "
                "'ctsan backbone check NETWORK' that it runs."
            ) from error
        return worker
