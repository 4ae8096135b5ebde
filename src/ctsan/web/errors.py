"""Errors of a request, each with an HTTP status and a code for programs."""

from __future__ import annotations

from ctsan.errors import CtsanError


class RequestError(CtsanError):
    """The message is sent to the client, so it must not name files of the server."""

    status = 422
    code = "invalid"


class NotFoundError(RequestError):
    status, code = 404, "not_found"


class TooLargeError(RequestError):
    status, code = 413, "too_large"


class TooSlowError(RequestError):
    status, code = 408, "too_slow"


class BusyError(RequestError):
    """A limit is reached; the client should try again later."""

    status, code = 429, "busy"


class UnreadableError(RequestError):
    code = "unreadable"


class CancelledClipError(RequestError):
    status, code = 409, "cancelled"


class NoModelError(RequestError):
    status, code = 409, "no_model"
