"""State of the server: workers read clips, and one thread runs the models on them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.inference.featurizer import networks_needed
from ctsan.inference.results import Description, Scene
from ctsan.video.clip_maps import ClipMaps
from ctsan.web.catalogue import Catalogue
from ctsan.web.clips import Clip, ClipStore, DescribedShot
from ctsan.web.errors import CancelledClipError, NoModelError, UnreadableError
from ctsan.web.feature_cache import ClipPredictor
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
        predictor: ClipPredictor,
        limits: Limits,
        *,
        library: Path | None = None,
        weights: Path | None = None,
    ) -> None:
        self.predictor, self.limits = predictor, limits
        self.catalogue: Catalogue | None = None
        self._model_thread = ModelThread(max_pending=limits.model_queue, max_batch=limits.model_batch)
        runs = list(predictor.runs)
        if library is not None:
            open_library = partial(
                Catalogue.open, library, predictor.cache, loaded=predictor.runs, weights=weights
            )
            self.catalogue = self._model_thread.run_blocking(open_library)
            runs += self.catalogue.searcher.runs
        self.workers = WorkerPool(networks_needed(runs), limits, weights=weights)
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

    def open(self, file: Path) -> Clip:
        """Read a file of the library like an upload; the file stays where it is."""
        clip = self.clips.add(file)
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
        self._remove(clip)

    # Requests to the models

    async def ask(
        self,
        clip: Clip,
        task: str | None,
        function: Callable[[ClipPredictor, Sequence[tuple[Path, Q]]], Sequence[A]],
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
        return await self._model_thread.submit(self.predictor, function, (Path(clip.id), request))

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

    async def thumbnail(self, file: Path, seconds: float) -> bytes:
        """A small JPEG of the frame at the given time of a file of the library.

        Raises:
            UnreadableError: the file cannot be read.
        """
        try:
            async with aclosing(self.workers.read_picture(file, seconds)) as messages:
                pictures = [message.body async for message in messages]
        except ReadingError as error:
            raise UnreadableError(str(error)) from error
        return pictures[0]

    # Reading

    def _start_reading(self, clip: Clip) -> None:
        for expired in self.clips.expired():
            self._remove(expired)
        clip.task = asyncio.create_task(self._read(clip))

    def _remove(self, clip: Clip) -> None:
        self.clips.remove(clip)
        self.predictor.cache.remove(clip.id)

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
        async with aclosing(self.workers.read_clip(clip.file, max_shots=shots)) as messages:
            await self._process_messages(clip, messages)

    async def _process_messages(self, clip: Clip, messages: AsyncIterator[Message]) -> None:
        maps, times = dict[str, ClipMaps](), np.zeros(0)
        picture, start, end = b"", 0.0, 0.0
        async for head, body in messages:
            match head["kind"]:
                case "info":
                    clip.state, clip.poster, clip.duration = "reading", body, float(head["duration"])
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
                    self.predictor.cache.add(clip.id, maps, times)
                    maps = {}
                    clip.shots_state = "reading" if head["shots"] else None
                    clip.settle("ready")
                case "shot":
                    picture, start, end = body, float(head["start"]), float(head["end"])
                case "shot read":
                    describe = partial(self._describe_shot, clip.id, maps, times)
                    description = await self._model_thread.run(describe)
                    maps = {}
                    scene = Scene(start, end, description.captions[0], description.concepts)
                    clip.shots.append(DescribedShot(scene, picture))
                    clip.shots_progress = min(1.0, end / (clip.duration or end))
                    clip.last_used = time.monotonic()

    def _describe_shot(
        self, clip_id: str, maps: dict[str, ClipMaps], times: NDArray[np.float64]
    ) -> Description:
        shot_id = f"{clip_id} shot"  # the space keeps it apart from the ids of clips
        self.predictor.cache.add(shot_id, maps, times)
        try:
            return self.predictor.describe(shot_id)
        finally:
            self.predictor.cache.remove(shot_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for clip in self.clips.expired():
                self._remove(clip)


def _abort(clip: Clip, state: Literal["cancelled", "failed"], error: str | None) -> None:
    """Record that reading ended early. If the clip itself has been read, only its shots are affected."""
    if clip.is_settled.is_set():
        clip.shots_state, clip.error = state, error
    else:
        clip.settle(state, error)
