"""What the API does: clips are read by workers, and one thread asks the model about them."""

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
from ctsan.web.clips import Clip, DescribedShot, Shelf
from ctsan.web.errors import CancelledClipError, NoModelError, UnreadableError
from ctsan.web.feature_cache import ClipPredictor
from ctsan.web.limits import Limits
from ctsan.web.messages import Message
from ctsan.web.model_thread import ModelThread
from ctsan.web.worker_pool import LostWorkerError, Readers, ReadingError

logger = logging.getLogger(__name__)

A = TypeVar("A")
Q = TypeVar("Q")

_SWEEP_SECONDS = 30.0


class Service:
    """One predictor, loaded once; one thread that uses it; some workers; the clips of all clients."""

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
        self._models = ModelThread(questions=limits.questions, together=limits.questions_together)
        runs = list(predictor.runs)
        if library is not None:
            open_library = partial(
                Catalogue.open, library, predictor.clips, loaded=predictor.runs, weights=weights
            )
            self.catalogue = self._models.run_now(open_library)
            runs += self.catalogue.searcher.runs
        self.readers = Readers(networks_needed(runs), limits, weights=weights)
        self.shelf = Shelf(limits)
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.readers.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Uploads that nobody waits for any more are given up, and nothing of them stays."""
        tasks = [clip.task for clip in self.shelf.clips if clip.task] + [self._sweeper]
        for task in tasks:
            if task:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        await self.readers.stop()
        self._models.stop()
        self.shelf.close()

    # Clips

    async def upload(self, body: AsyncIterator[bytes]) -> Clip:
        clip = await self.shelf.upload(body)
        self._begin(clip)
        return clip

    def open(self, file: Path) -> Clip:
        """A file of the library, read like an upload and left where it is."""
        clip = self.shelf.add(file)
        self._begin(clip)
        return clip

    async def cancel(self, clip: Clip) -> None:
        """Stop reading; what is known already stays."""
        if clip.task and not clip.task.done():
            clip.task.cancel()
            with suppress(asyncio.CancelledError):
                await clip.task

    async def forget(self, clip: Clip) -> None:
        await self.cancel(clip)
        self._drop(clip)

    # Questions

    async def ask(
        self,
        clip: Clip,
        task: str | None,
        verb: Callable[[ClipPredictor, Sequence[tuple[Path, Q]]], Sequence[A]],
        question: Q,
    ) -> A:
        """What the model answers about a clip, once that has been read.

        Args:
            task: that a run must be able to do; None where any will do.
            verb: answers it, together with those of others that wait.

        Raises:
            NoModelError: no run does that task.
            UnreadableError, CancelledClipError: there is nothing to ask about.
            BusyError: too many ask at once.
        """
        if task is not None and task not in self.predictor.tasks:
            raise NoModelError(
                f"No model here can do that. Start the server with one that can: "
                f"ctsan train {task} --corpus CORPUS --out RUN, then ctsan serve --model RUN"
            )
        await self.settled(clip)
        return await self._models.ask(self.predictor, verb, (Path(clip.id), question))

    async def settled(self, clip: Clip) -> None:
        """Wait until a clip has been read.

        Raises:
            UnreadableError, CancelledClipError: it will never be.
        """
        await clip.is_settled.wait()
        if clip.state == "failed":
            raise UnreadableError(clip.error or "The clip cannot be read.")
        if clip.state == "cancelled":
            raise CancelledClipError("Reading the clip was cancelled. Upload it again.")

    async def question(self, work: Callable[[], A]) -> A:
        """What work with the models gives that goes with no other.

        Raises:
            BusyError: too many ask at once.
        """
        return await self._models.ask(None, lambda _, __: [work()], None)

    async def picture(self, file: Path, seconds: float) -> bytes:
        """A small JPEG of a moment of a file of the library."""
        try:
            async with aclosing(self.readers.picture(file, seconds)) as messages:
                pictures = [message.body async for message in messages]
        except ReadingError as error:
            raise UnreadableError(str(error)) from error
        return pictures[0]

    # Reading

    def _begin(self, clip: Clip) -> None:
        for old in self.shelf.superfluous():
            self._drop(old)
        clip.task = asyncio.create_task(self._read(clip))

    def _drop(self, clip: Clip) -> None:
        self.shelf.remove(clip)
        self.predictor.clips.forget(clip.id)

    async def _read(self, clip: Clip) -> None:
        try:
            try:
                await self._read_once(clip)
            except LostWorkerError:
                if clip.is_settled.is_set():
                    raise
                clip.pictures.clear()  # once more, since the worker may have died for another reason
                clip.times.clear()
                await self._read_once(clip)
            if clip.shots_state:
                clip.shots_state = "ready"
        except asyncio.CancelledError:
            _end(clip, "cancelled", None)
            raise
        except ReadingError as error:
            _end(clip, "failed", str(error))
        except Exception:
            logger.exception("Reading a clip failed.")
            _end(clip, "failed", "Something went wrong in the server, not with the file. Try again.")
        finally:
            self.shelf.release(clip)

    async def _read_once(self, clip: Clip) -> None:
        assert clip.file is not None  # it has not been read yet
        shots = self.limits.shots if "describe" in self.predictor.tasks else 0
        async with aclosing(self.readers.read(clip.file, shots=shots)) as messages:
            await self._take_in(clip, messages)

    async def _take_in(self, clip: Clip, messages: AsyncIterator[Message]) -> None:
        seen, maps, times = self.predictor.clips, dict[str, ClipMaps](), np.zeros(0)
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
                    seen.add(clip.id, maps, times)
                    maps = {}
                    clip.shots_state = "reading" if head["shots"] else None
                    clip.settle("ready")
                case "shot":
                    picture, start, end = body, float(head["start"]), float(head["end"])
                case "shot read":
                    found = await self._models.run(partial(self._describe_shot, clip.id, maps, times))
                    maps = {}
                    scene = Scene(start, end, found.captions[0], found.concepts)
                    clip.shots.append(DescribedShot(scene, picture))
                    clip.shots_progress = min(1.0, end / (clip.duration or end))
                    clip.used = time.monotonic()

    def _describe_shot(
        self, clip_id: str, maps: dict[str, ClipMaps], times: NDArray[np.float64]
    ) -> Description:
        shot_id = f"{clip_id} shot"  # a space: it is no id that a client could name
        self.predictor.clips.add(shot_id, maps, times)
        try:
            return self.predictor.describe(shot_id)
        finally:
            self.predictor.clips.forget(shot_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for clip in self.shelf.superfluous():
                self._drop(clip)


def _end(clip: Clip, state: Literal["cancelled", "failed"], error: str | None) -> None:
    """Before all is read. What is known of a whole video is not lost with its shots."""
    if clip.is_settled.is_set():
        clip.shots_state, clip.error = state, error
    else:
        clip.settle(state, error)
