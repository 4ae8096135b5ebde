"""State of the server: workers read clips, and one thread runs the models on them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from ctsan.inference.encoded_clip import EncodedClip
from ctsan.inference.featurizer import ClipFeatures, networks_needed
from ctsan.inference.predictor import Predictor
from ctsan.inference.results import Scene
from ctsan.search.opening import LibraryAddress
from ctsan.search.search import Hit
from ctsan.video.clip_maps import ClipMaps
from ctsan.web.catalogue import Catalogue, Pictures
from ctsan.web.clips import Clip, ClipStore, DescribedShot
from ctsan.web.errors import CancelledClipError, NoModelError, UnreadableError
from ctsan.web.examples import Examples
from ctsan.web.limits import Limits
from ctsan.web.messages import Message
from ctsan.web.model_thread import ModelThread
from ctsan.web.worker_pool import LostWorkerError, ReadingError, WorkerPool

logger = logging.getLogger(__name__)

A = TypeVar("A")
Q = TypeVar("Q")

_SWEEP_SECONDS = 30.0


class Service:
    """Owns the predictor and its thread, the library, the worker processes and the clips of all clients."""

    def __init__(
        self,
        predictor: Predictor,
        limits: Limits,
        *,
        library: LibraryAddress | None = None,
        weights: Path | None = None,
    ) -> None:
        self.predictor, self.limits = predictor, limits
        self.catalogue: Catalogue | None = None
        self.examples, self.pictures = Examples(), Pictures()
        self._model_thread = ModelThread(max_pending=limits.model_queue, max_batch=limits.model_batch)
        models = list(predictor.models)
        if library is not None:
            open_library = partial(
                Catalogue.open, library, loaded=predictor.models, weights=weights, pictures=self.pictures
            )
            self.catalogue = self._model_thread.run_blocking(open_library)
            models += self.catalogue.searcher.models
        self.workers = WorkerPool(networks_needed(models), limits, weights=weights)
        self.clips = ClipStore(limits)
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.workers.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Cancel reading, stop the workers and delete all uploads."""
        tasks = [clip.task for clip in self.clips if clip.task] + [self._sweeper]
        for task in tasks:
            if task:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        await self.workers.stop()
        self._model_thread.stop()
        self.clips.close()

    # Clips

    async def upload(self, body: AsyncIterator[bytes]) -> Clip:
        clip = await self.clips.upload(body)
        self._start_reading(clip)
        return clip

    def open(self, file: Path, span: tuple[float, float] | None = None) -> Clip:
        """Read a file of the library, or a span of it, like an upload; the file stays where it is.

        A clip that has been read before is not read again, unless the file has changed.
        """
        known = self.clips.find(file, span)
        if known is not None:
            return known
        clip = self.clips.add(file, span)
        self._start_reading(clip)
        return clip

    async def cancel(self, clip: Clip) -> None:
        """Stop reading a clip. What has been read so far stays."""
        if clip.task and not clip.task.done():
            clip.task.cancel()
            with suppress(asyncio.CancelledError):
                await clip.task

    async def remove(self, clip: Clip) -> None:
        await self.cancel(clip)
        self.clips.remove(clip)

    # Requests to the models

    async def ask(
        self,
        clip: Clip,
        task: str | None,
        function: Callable[[Predictor, Sequence[tuple[Clip, Q]]], Sequence[A]],
        request: Q,
    ) -> A:
        """Answer a request about a clip, once the clip has been read.

        Args:
            task: required from one of the runs; None if any run will do.
            function: answers a batch of such requests; see `answering`.
            request: parameters of the request.

        Raises:
            NoModelError: no run can do the task.
            UnreadableError: the clip cannot be read.
            CancelledClipError: reading the clip was cancelled.
            BusyError: too many requests are waiting.
        """
        if task is not None and task not in self.predictor.tasks:
            raise NoModelError(
                f"No model of this server can do that. Start it with one that can: "
                f"ctsan train {task} --corpus CORPUS --out RUN, then ctsan serve --model RUN"
            )
        await self.wait_settled(clip)
        return await self._model_thread.submit(self.predictor, function, (clip, request))

    async def wait_settled(self, clip: Clip) -> None:
        """Wait until a clip has been read.

        Raises:
            UnreadableError: the clip cannot be read.
            CancelledClipError: reading the clip was cancelled.
        """
        await clip.is_settled.wait()
        if clip.state == "failed":
            raise UnreadableError(clip.error or "The clip cannot be read.")
        if clip.state == "cancelled":
            raise CancelledClipError("Reading the clip was cancelled. Upload it again.")

    async def run_queued(self, work: Callable[[], A]) -> A:
        """Run `work` in the model thread, in turn with the other requests but never in a batch.

        Raises:
            BusyError: too many requests are waiting.
        """
        return await self._model_thread.submit(None, lambda _, __: [work()], None)

    async def stored_thumbnail(self, hit: Hit) -> bytes | None:
        """The thumbnail that the library has of a moment. It is read outside of the queue for questions."""
        catalogue = self.catalogue
        return await self._model_thread.run(lambda: catalogue.thumbnail(hit)) if catalogue else None

    async def thumbnail(self, file: Path, seconds: float) -> bytes:
        """A small JPEG of the frame at the given time of a file of the library.

        Raises:
            UnreadableError: the file cannot be read.
        """
        return await _only_picture(self.workers.read_picture(file, seconds))

    async def strip(self, file: Path, seconds: Sequence[float]) -> bytes:
        """A JPEG of the frames at the given times side by side; otherwise as `thumbnail`."""
        return await _only_picture(self.workers.read_strip(file, seconds))

    # Reading

    def _start_reading(self, clip: Clip) -> None:
        for expired in self.clips.expired():
            self.clips.remove(expired)
        clip.task = asyncio.create_task(self._read(clip))

    async def _read(self, clip: Clip) -> None:
        try:
            try:
                await self._read_once(clip)
            except LostWorkerError:
                if clip.is_settled.is_set():
                    raise
                clip.pictures.clear()  # retry once: the file may not be what killed the worker
                clip.times.clear()
                await self._read_once(clip)
            if clip.shots_state:
                clip.shots_state = "ready"
        except asyncio.CancelledError:
            _abort(clip, "cancelled", None)
            raise
        except ReadingError as error:
            _abort(clip, "failed", str(error))
        except Exception:
            logger.exception("Reading a clip failed.")
            _abort(clip, "failed", "Something went wrong in the server, not with the file. Try again.")
        finally:
            self.clips.release_file(clip)

    async def _read_once(self, clip: Clip) -> None:
        assert clip.file is not None  # it has not been read yet
        shots = self.limits.shots if "describe" in self.predictor.tasks else 0
        reading = self.workers.read_clip(clip.file, max_shots=shots, span=clip.span)
        async with aclosing(reading) as messages:
            await self._process_messages(clip, messages)

    async def _process_messages(self, clip: Clip, messages: AsyncIterator[Message]) -> None:
        maps, times = dict[str, ClipMaps](), np.zeros(0)
        picture, start, end = b"", 0.0, 0.0
        async for head, body in messages:
            match head["kind"]:
                case "info":
                    clip.state, clip.poster = "reading", body
                    clip.start, clip.duration = float(head["start"]), float(head["duration"])
                    clip.declared_duration = float(head["declared"])
                    clip.width, clip.height = int(head["width"]), int(head["height"])
                case "picture":
                    clip.pictures.append(body)
                    clip.times.append(float(head["time"]))
                case "progress":
                    clip.progress = float(head["share"])
                case "maps":
                    array = np.frombuffer(bytearray(body), dtype=np.float16).reshape(head["shape"])
                    times, places = np.array(head["times"]), np.array(head["places"], dtype=np.int64)
                    maps[str(head["network"])] = ClipMaps(len(times), places, array)
                case "read":
                    clip.encoded = EncodedClip(ClipFeatures(clip.id, times, maps))
                    maps = {}
                    clip.shots_state = "reading" if head["shots"] else None
                    clip.settle("ready")
                case "shot":
                    picture, start, end = body, float(head["start"]), float(head["end"])
                case "shot read":
                    shot = EncodedClip(ClipFeatures(clip.id, times, maps))
                    description = await self._model_thread.run(partial(self.predictor.describe, shot))
                    maps = {}
                    scene = Scene(start, end, description.captions[0], description.concepts)
                    clip.shots.append(DescribedShot(scene, picture))
                    clip.shots_progress = min(1.0, end / (clip.duration or end))
                    clip.last_used = time.monotonic()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for clip in self.clips.expired():
                self.clips.remove(clip)


async def _only_picture(reading: AsyncGenerator[Message, None]) -> bytes:
    """Await the only picture that a worker sends.

    Raises:
        UnreadableError: the file cannot be read.
    """
    try:
        async with aclosing(reading) as messages:
            pictures = [message.body async for message in messages]
    except ReadingError as error:
        raise UnreadableError(str(error)) from error
    return pictures[0]


def _abort(clip: Clip, state: Literal["cancelled", "failed"], error: str | None) -> None:
    """Record that reading ended early. If the clip itself has been read, only its shots are affected."""
    if clip.is_settled.is_set():
        clip.shots_state, clip.error = state, error
    else:
        clip.settle(state, error)
