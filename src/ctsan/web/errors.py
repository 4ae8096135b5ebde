"""Errors of a request, each with an HTTP status and a code for programs."""

from __future__ import annotations

from ctsan.errors import CtsanError


class RequestError(CtsanError):
    """The message is sent to the client, so it must not name files of the server."""

    status = 422
    code = "invalid"


class MalformedError(RequestError):
    status, code = 400, "http"


class EmptyUploadError(RequestError):
    pass


class NotFoundError(RequestError):
    status, code = 404, "not_found"


class GoneError(RequestError):
    """It was there, and its file or record has been removed since."""

    status, code = 410, "gone"


class TooLargeError(RequestError):
    status, code = 413, "too_large"


class TooSlowError(RequestError):
    status, code = 408, "too_slow"


class BusyError(RequestError):
    """A limit is reached; the client should try again later."""

    status, code = 429, "busy"


class SpoolError(RequestError):
    """The file system takes no more uploads."""

    status, code = 507, "storage"


class UnreadableError(RequestError):
    code = "unreadable"


class CancelledClipError(RequestError):
    status, code = 409, "cancelled"


class NoModelError(RequestError):
    status, code = 409, "no_model"


class UnexpectedError(RequestError):
    """A bug in the server."""

    status, code = 500, "server"

    def __init__(self) -> None:
        super().__init__("Something went wrong in the server, not with your question. Try again.")
