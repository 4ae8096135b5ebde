"""A pool of worker processes that read clips. A worker that dies or is killed is replaced."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ctsan.errors import CtsanError
from ctsan.inference.featurizer import NeededNetwork
from ctsan.io.messages import printable_lines
from ctsan.web.limits import Limits
from ctsan.web.messages import Message, pack, receive

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0  # between two looks at whether a reading has to end
_START_SECONDS = 180.0  # the first start may have to convert a network for ONNX Runtime

# Environment variables that a worker gets. All others stay in the server: its token, and any other secret.
_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV"),
        *("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"),
        *("CTSAN_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"),
    }
)
_PASSED_ON_PREFIXES = ("LC_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ORT_", "MALLOC_")


class ReadingError(CtsanError):
    """A file cannot be read."""


class LostWorkerError(ReadingError):
    """The worker died while reading a file. The file is not necessarily the cause."""


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    input: asyncio.StreamWriter
    is_idle: bool = False  # it has sent the last message about a file, or that it has started


class WorkerPool:
    """Runs up to `limits.workers` processes of `ctsan.web.worker`, including those that start or end.

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
        self._workers: list[_Worker] = []
        self._waiting = 0  # requests without a worker
        self._ending: set[asyncio.Task[None]] = set()  # each frees a place
        for _ in range(limits.workers):
            self._idle.put_nowait(None)

    async def start(self) -> None:
        """Start one worker, so that an error in its setup appears when the server starts.

        Raises:
            CtsanError: the worker ended before it was ready.
        """
        async with self._worker() as worker:
            worker.is_idle = True

    async def read_clip(
        self, file: Path, *, max_shots: int, span: tuple[float, float] | None = None
    ) -> AsyncGenerator[Message, None]:
        """Messages of `worker.read_clip`, as they arrive. Closing the generator early kills the worker.

        Args:
            span: start and end in seconds, to read a part of the file as a clip.

        Raises:
            ReadingError: the file cannot be read, or the worker was lost.
        """
        request = {
            "what": "clip",
            "shots": max_shots,
            "span": span,
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

    async def read_strip(self, file: Path, seconds: Sequence[float]) -> AsyncGenerator[Message, None]:
        """One message with the frames at the given times side by side; otherwise as `read_clip`."""
        async with aclosing(self._request(file, {"what": "strip", "seconds": [*seconds]})) as messages:
            async for message in messages:
                yield message

    async def _request(self, file: Path, request: Mapping[str, object]) -> AsyncGenerator[Message, None]:
        async with self._worker() as worker:
            worker.input.write(pack(Message({**request, "file": str(file)})))
            fair = deadline = asyncio.get_running_loop().time() + self._limits.worker_seconds
            while True:
                try:
                    message = await self._receive(worker, fair, deadline)
                except (EOFError, ValueError, OSError) as error:
                    logger.warning("A worker died while reading a file (%s). It is replaced.", error)
                    raise LostWorkerError(
                        "It could not be read: the decoder crashed. Convert it to mp4."
                    ) from None
                match message.head.get("kind"):
                    case "done":
                        worker.is_idle = True
                        return
                    case "error":
                        worker.is_idle = True
                        if "log" in message.head:
                            logger.error(
                                "A worker failed on a file.\n%s", printable_lines(str(message.head["log"]))
                            )
                        raise ReadingError(str(message.head.get("text")))
                    case "info":
                        deadline += min(self._limits.seconds, float(message.head["duration"]))
                    case "shot":
                        read = float(message.head["end"]) - float(message.head["start"])
                        fair = min(fair + read, deadline)
                yield message

    async def _receive(self, worker: _Worker, fair: float, deadline: float) -> Message:
        """The next message of a worker.

        Args:
            fair: the time from which on it ends if another request waits for a worker.
            deadline: the time at which it ends anyway.

        Raises:
            ReadingError: it has ended for one of these reasons.
        """
        time = asyncio.get_running_loop().time
        receiving = asyncio.create_task(receive(worker.output))
        try:
            while True:
                if time() >= deadline:
                    raise ReadingError(
                        "Reading it took too long, and was stopped. Cut it, or reduce its resolution."
                    )
                if time() >= fair and self._waiting > len(self._ending):
                    raise ReadingError(
                        "Reading it takes too long while others wait, and was stopped. Try again later, cut "
                        "it, or reduce its resolution."
                    )
                await asyncio.wait({receiving}, timeout=min(_CHECK_SECONDS, max(0.0, deadline - time())))
                if receiving.done():
                    return receiving.result()
        finally:
            receiving.cancel()

    async def stop(self) -> None:
        """End all workers. Requests that still run fail."""
        for worker in self._workers:
            _kill(worker)
        for _ in range(self._limits.workers):
            idle = await self._idle.get()
            if idle is not None:
                _kill(idle)
                await _reap(idle)

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[_Worker]:
        """A worker for one request. On exit it is ended unless it `is_idle`, however it was left.

        Its place in the pool is freed when its process has been reaped: there are never more processes than
        places.

        Raises:
            CtsanError: the worker ended before it was ready.
        """
        self._waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            if worker is None or worker.process.returncode is not None:
                worker = None  # until there is a process
                worker = await self._spawn()
                await _wait_until_ready(worker)
            worker.is_idle = False
            yield worker
        finally:
            if worker is None or worker.is_idle:
                self._idle.put_nowait(worker)
            else:
                _kill(worker)
                task = asyncio.create_task(self._free_place(worker))
                self._ending.add(task)  # the event loop holds only a weak reference
                task.add_done_callback(self._ending.discard)

    async def _free_place(self, worker: _Worker) -> None:
        await _reap(worker)
        self._idle.put_nowait(None)

    async def _spawn(self) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # no module is imported from the working folder
            "-m",
            "ctsan.web.worker",
            self._settings,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, which then stops its workers
            env=_environment(),
        )
        assert process.stdout is not None  # both are pipes
        assert process.stdin is not None
        worker = _Worker(process, process.stdout, process.stdin)
        self._workers = [other for other in self._workers if other.process.returncode is None] + [worker]
        return worker


async def _wait_until_ready(worker: _Worker) -> None:
    """Await the first message of a worker, which says that it is ready.

    Raises:
        CtsanError: the worker ended before it was ready.
    """
    try:
        async with asyncio.timeout(_START_SECONDS):
            await receive(worker.output)
    except (EOFError, ValueError, TimeoutError) as error:
        raise CtsanError(
            "A worker process could not be started; its error output is above. Check with "
            "'ctsan backbone check NETWORK' that the network runs."
        ) from error


def _kill(worker: _Worker) -> None:
    with suppress(ProcessLookupError):
        worker.process.kill()


async def _reap(worker: _Worker) -> None:
    """Wait for a killed process. What it has written is read first: a full pipe would stay open."""
    with suppress(OSError):
        while await worker.output.read(2**20):
            pass
    await worker.process.wait()


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
