"""The thread that asks the models. Questions that wait for it are answered together where they are alike."""

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
class _Waiting:
    whom: Any
    verb: Callable[[Any, Sequence[Any]], Sequence[Any]]
    question: Any
    answer: asyncio.Future[Any]

    def goes_with(self, other: _Waiting) -> bool:
        return self.whom is other.whom and self.verb == other.verb


class ModelThread:
    """Nobody waits for company: while the thread is at some questions, the next ones gather.

    Args:
        questions: that may wait at a time.
        together: that are answered at once.
    """

    def __init__(self, *, questions: int, together: int) -> None:
        self._questions, self._together = questions, together
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._waiting: deque[_Waiting] = deque()
        self._unanswered = 0
        self._answering: asyncio.Task[None] | None = None

    def run_now(self, work: Callable[[], A]) -> A:
        """Do something in the thread before a server runs: whatever opens SQLite must also use it."""
        return self._thread.submit(work).result()

    async def run(self, work: Callable[[], A]) -> A:
        """Do something in the thread, on its own."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def ask(self, whom: W, verb: Callable[[W, Sequence[Q]], Sequence[A]], question: Q) -> A:
        """What `verb` answers to a question, alone or among others that wait for the same.

        Raises:
            BusyError: too many wait.
        """
        if self._unanswered >= self._questions:
            raise BusyError("Many questions are waiting just now. Try again in a few seconds.")
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(whom, verb, question, answer))
        self._unanswered += 1
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer_all())
        try:
            return await answer
        finally:
            self._unanswered -= 1

    def stop(self) -> None:
        if self._answering:
            self._answering.cancel()
        self._thread.shutdown(cancel_futures=True)

    async def _answer_all(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            alike = [each for each in self._waiting if each.goes_with(first)][: self._together]
            for each in alike:
                self._waiting.remove(each)
            await self._answer(alike)

    async def _answer(self, alike: Sequence[_Waiting]) -> None:
        first = alike[0]
        try:
            answers = await self.run(partial(first.verb, first.whom, [each.question for each in alike]))
        except Exception as error:
            if len(alike) > 1:  # one of them is at fault, and the others shall not suffer for it
                for each in alike:
                    await self._answer([each])
            elif not first.answer.done():
                first.answer.set_exception(error)
            return
        for each, answer in zip(alike, answers, strict=True):
            if not each.answer.done():  # then nobody waits for it any more
                each.answer.set_result(answer)
