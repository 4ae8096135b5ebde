"""What every request passes: who may ask, how much at once, and what browsers are told about the answers."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctsan.web.errors import BusyError, RequestError, TooLargeError
from ctsan.web.limits import Limits

UPLOADS = "/api/clips"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class ForbiddenError(RequestError):
    status, code = 403, "forbidden"


class TokenError(RequestError):
    status, code = 401, "token"


class Guard:
    """Around the whole application.

    Args:
        token: that clients must show; None for a server that only this machine reaches, where instead the
            name that it is called by must be this machine's: else pages of strangers, by names of their own
            that lead here, could read along.
        host: where the server listens; that name is this machine's too.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, token: str | None, host: str = "localhost") -> None:
        self._app, self._limits, self._token = app, limits, token
        self._names = LOOPBACK | {f"[{host}]" if ":" in host else host}
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    answer[name] = value
                answer.setdefault("Cache-Control", "no-store")
            await send(message)

        if self._token and (cookie := self._welcome(scope, self._token)):
            await _redirect(send_guarded, cookie)
            return
        try:
            self._check(scope, headers)
        except RequestError as error:
            await refuse(send_guarded, error)
            return
        is_upload = scope["method"] == "POST" and scope["path"] == UPLOADS
        self._in_flight += 1
        try:
            if is_upload:
                await self._app(scope, receive, send_guarded)
            else:
                body = _Bounded(receive, self._limits.body_bytes)
                await self._app(scope, body, send_guarded)
        finally:
            self._in_flight -= 1

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raises: RequestError: the request is not for us."""
        host = headers.get("host", "")
        if self._token is None and _without_port(host) not in self._names:
            raise ForbiddenError(f"This server answers only as {', '.join(sorted(self._names))}.")
        origin = headers.get("origin")
        is_foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site") or (
            origin is not None and urlsplit(origin).netloc != host
        )
        is_visit = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if is_foreign and not is_visit:
            raise ForbiddenError("Other sites may not ask this server.")
        if self._token and not _shows(headers, _cookie_name(scope), self._token):
            raise TokenError(
                "A token is needed: open the address that 'ctsan serve' printed, or send it as "
                "'Authorization: Bearer TOKEN'."
            )
        if self._in_flight >= self._limits.requests:
            raise BusyError("Many requests are being answered just now. Try again in a few seconds.")
        length = headers.get("content-length", "0")
        is_upload = scope["method"] == "POST" and scope["path"] == UPLOADS
        most = self._limits.upload_bytes if is_upload else self._limits.body_bytes
        if not length.isdecimal() or int(length) > most:
            raise TooLargeError(f"The request is larger than {most / 2**20:,.4g} MB.")

    def _welcome(self, scope: Scope, token: str) -> str | None:
        """The cookie for a browser that comes with the printed address, so that it keeps the token."""
        if scope["method"] != "GET" or scope["path"] != "/":
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _same(given, token):
            return None
        return f"{_cookie_name(scope)}={quote(token, safe='')}; Path=/; HttpOnly; SameSite=Lax"


class _Bounded:
    """The body of a request, which ends as if the client had gone when it grows too large."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._left = receive, most

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        return message if self._left >= 0 else {"type": "http.disconnect"}


async def refuse(send: Send, error: RequestError) -> None:
    body = json.dumps(error_body(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == BusyError.status:
        headers.append((b"retry-after", b"2"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_body(error: RequestError) -> dict[str, dict[str, str]]:
    return {"error": {"code": error.code, "message": str(error)}}


async def _redirect(send: Send, cookie: str) -> None:
    headers: Iterable[tuple[bytes, bytes]] = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
    await send({"type": "http.response.start", "status": 303, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})


def _shows(headers: Headers, cookie_name: str, token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _same(given.strip(), token):
        return True
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    return cookie_name in cookies and _same(unquote(cookies[cookie_name].value), token)


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _cookie_name(scope: Scope) -> str:
    """Browsers share cookies between the ports of a machine."""
    port = scope["server"][1] if scope.get("server") else 0
    return f"ctsan-{port}"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
