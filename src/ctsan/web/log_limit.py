"""A bound on what a server logs: repeated messages are counted, not printed."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass

_SECONDS = 60.0  # in which a message is printed once
_MAX_KINDS = 100  # of messages that are told apart
_LOGGERS = (
    *("uvicorn.error", "asyncio"),
    *(f"ctsan.web.{module}" for module in ("app", "clips", "service", "spool", "worker_pool")),
)


def limit_repeats() -> None:
    """Let the loggers of a server print each message once a minute."""
    limit = RepeatFilter()
    for name in _LOGGERS:  # a filter of their parent would see none of their messages
        logger = logging.getLogger(name)
        logger.filters = [other for other in logger.filters if not isinstance(other, RepeatFilter)] + [limit]


@dataclass(slots=True)
class _Repeats:
    until: float  # on the monotonic clock
    num_suppressed: int = 0


class RepeatFilter(logging.Filter):
    """Passes the first of equal messages in each minute, with the number of those that were left out before.

    Messages are equal if they have the same first line, come from the same line of code, and so do their
    exceptions.
    """

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._kinds: OrderedDict[tuple[object, ...], _Repeats] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = _kind_of(record), time.monotonic()
        repeats = self._kinds.get(kind)
        if repeats is not None and now < repeats.until:
            repeats.num_suppressed += 1
            return False
        if repeats is not None and repeats.num_suppressed:
            text = record.getMessage().rstrip()
            record.msg, record.args = f"{text} (And {repeats.num_suppressed:,} times before this.)", ()
        self._kinds[kind] = _Repeats(now + self._seconds)
        self._kinds.move_to_end(kind)
        if len(self._kinds) > _MAX_KINDS:
            self._kinds.popitem(last=False)
        return True


def _kind_of(record: logging.LogRecord) -> tuple[object, ...]:
    error = record.exc_info[1] if record.exc_info else None
    trace = error.__traceback__ if error else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else None
    first_line = str(record.msg).partition("\n")[0]
    return record.name, record.pathname, record.lineno, first_line, type(error), place
