"""HTTP connections of the server: their number is bounded, and each request has to come in time."""

from __future__ import annotations

import asyncio
import json
from time import monotonic
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ctsan.web.errors import BusyError, MalformedError, RequestError, TooSlowError
from ctsan.web.limits import Limits
from ctsan.web.security import SECURITY_HEADERS, error_body, is_upload


class LimitedConnection(H11Protocol):
    """A connection that is closed if the headers of a request take too long.

    When all places are taken, a new connection takes the place of the one that has been idle for longest. A
    client that has only opened connections, or that sends its requests slowly, thus keeps nobody out.
    """

    limits: ClassVar[Limits]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._idle_since = monotonic()
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no complete request is being answered, and no file is being uploaded."""
        is_slow_body = self.conn.their_state is h11.SEND_BODY and not is_upload(
            self.scope["method"], self.scope["path"]
        )
        return self._is_between_requests or is_slow_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections and not self._take_place_of_idle():
            self.connections.discard(self)
            self._reject(BusyError("Too many connections are open. Try again in a few seconds."))
            return
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_between_requests:
            self._set_deadline()
        else:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = monotonic()
        if self.conn.their_state is h11.SEND_BODY:  # it was answered before all of it came
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._reject(MalformedError(f"{msg} Send a request of HTTP/1.1."))

    @property
    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _take_place_of_idle(self) -> bool:
        """Close the connection that has been idle for longest. False if none is idle."""
        others = (other for other in self.connections if isinstance(other, LimitedConnection))
        idle = [other for other in others if other.is_idle and other is not self]
        if not idle:
            return False
        longest = min(idle, key=lambda other: other._idle_since)
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def _set_deadline(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.limits.header_seconds, self._end_slow_request)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_slow_request(self) -> None:
        self._reject(TooSlowError("The headers of the request came too slowly. Try again."))

    def _reject(self, error: RequestError) -> None:
        """Close the connection, after the error if no other response has begun."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error_body(error)).encode()
            headers = {
                **SECURITY_HEADERS,
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "Connection": "close",
                "Cache-Control": "no-store",
            }
            if isinstance(error, BusyError):
                headers["Retry-After"] = "2"
            response = h11.Response(status_code=error.status, headers=list(headers.items()))
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def limited_connections(limits: Limits) -> type[LimitedConnection]:
    """The protocol class of a server with these limits, for `uvicorn.Config(http=...)`."""
    return type("LimitedConnection", (LimitedConnection,), {"limits": limits})
