"""What can go wrong with a request, with its status and a word for programs."""

from __future__ import annotations

from ctsan.errors import CtsanError


class RequestError(CtsanError):
    """The message is for whoever asked: it names no file of the server."""

    status = 422
    code = "invalid"


class UnknownError(RequestError):
    status, code = 404, "not_found"


class TooLargeError(RequestError):
    status, code = 413, "too_large"


class TooSlowError(RequestError):
    status, code = 408, "too_slow"


class BusyError(RequestError):
    """Everybody is answered, or told to come again."""

    status, code = 429, "busy"


class UnreadableError(RequestError):
    code = "unreadable"


class CancelledClipError(RequestError):
    status, code = 409, "cancelled"


class NoModelError(RequestError):
    status, code = 409, "no_model"
