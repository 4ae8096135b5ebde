"""The single thread that runs the models. Waiting requests of the same kind are answered as one batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ctsan.web.errors import BusyError

A = TypeVar("A")
Q = TypeVar("Q")
W = TypeVar("W")


@dataclass(frozen=True, slots=True, eq=False)
class _PendingRequest:
    target: Any
    function: Callable[[Any, Sequence[Any]], Sequence[Any]]
    request: Any
    future: asyncio.Future[Any]

    def can_batch_with(self, other: _PendingRequest) -> bool:
        return self.target is other.target and self.function == other.function


class ModelThread:
    """Requests are never delayed to fill a batch: they accumulate while the thread is busy.

    Args:
        max_pending: unanswered requests beyond which new ones are rejected.
        max_batch: requests answered by one call.
    """

    def __init__(self, *, max_pending: int, max_batch: int) -> None:
        self._max_pending, self._max_batch = max_pending, max_batch
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._queue: deque[_PendingRequest] = deque()
        self._num_unanswered = 0
        self._consumer: asyncio.Task[None] | None = None

    def run_blocking(self, work: Callable[[], A]) -> A:
        """Run `work` in the thread and block until it is done, before the event loop runs.

        A SQLite connection has to be opened in the thread that uses it.
        """
        return self._executor.submit(work).result()

    async def run(self, work: Callable[[], A]) -> A:
        """Run `work` in the thread, outside the queue and its limits."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def submit(self, target: W, function: Callable[[W, Sequence[Q]], Sequence[A]], request: Q) -> A:
        """Queue a request, and return its element of `function(target, batch)`.

        Raises:
            BusyError: too many requests are unanswered.
        """
        if self._num_unanswered >= self._max_pending:
            raise BusyError("Many questions are waiting just now. Try again in a few seconds.")
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingRequest(target, function, request, future))
        self._num_unanswered += 1
        if self._consumer is None or self._consumer.done():
            self._consumer = asyncio.create_task(self._consume_queue())
        try:
            return await future
        finally:
            self._num_unanswered -= 1

    def stop(self) -> None:
        if self._consumer:
            self._consumer.cancel()
        self._executor.shutdown(cancel_futures=True)

    async def _consume_queue(self) -> None:
        while self._queue:
            first = self._queue[0]
            batch = [pending for pending in self._queue if pending.can_batch_with(first)][: self._max_batch]
            for pending in batch:
                self._queue.remove(pending)
            await self._answer(batch)

    async def _answer(self, batch: Sequence[_PendingRequest]) -> None:
        first = batch[0]
        try:
            requests = [pending.request for pending in batch]
            answers = await self.run(partial(first.function, first.target, requests))
        except Exception as error:
            if len(batch) > 1:  # answer one by one, so that only the faulty request fails
                for pending in batch:
                    await self._answer([pending])
            elif not first.future.done():
                first.future.set_exception(error)
            return
        for pending, answer in zip(batch, answers, strict=True):
            if not pending.future.done():  # otherwise the client has disconnected
                pending.future.set_result(answer)
