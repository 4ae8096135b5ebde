"""ASGI middleware around the application: access control, request limits and security headers."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctsan.web.errors import BusyError, RequestError, TooLargeError, TooSlowError, UnexpectedError
from ctsan.web.limits import Limits

UPLOADS = "/api/clips"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

SECURITY_HEADERS = {
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


class SecurityMiddleware:
    """Rejects requests without access, limits requests and adds security headers to every response.

    Args:
        token: required from clients. None if the server listens on the loopback interface only; then the
            Host header must be a loopback name, as a defence against DNS rebinding.
        host: the address that the server listens on, which is also allowed as Host header.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, token: str | None, host: str = "localhost") -> None:
        self._app, self._limits, self._token = app, limits, token
        self._allowed_hosts = LOOPBACK | {f"[{host}]" if ":" in host else host}
        self._num_in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            has_started = True
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    response_headers[name] = value
                response_headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._answer(scope, headers, receive, send_with_headers)
        except RequestError as error:
            await _send_error(send_with_headers, error)
        except ClientDisconnect:
            return
        except Exception:
            if not has_started:
                await _send_error(send_with_headers, UnexpectedError())
            raise  # uvicorn logs it

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Pass a request on once its body has been read, except for uploads.

        Raises:
            RequestError: the request has no access, exceeds a limit, or comes too slowly.
        """
        if self._token and (cookie := self._token_cookie(scope, self._token)):
            await _redirect(send, cookie)
            return
        self._check_request(scope, headers)
        if is_upload(scope["method"], scope["path"]):  # `uploads` limits these
            await self._app(scope, receive, send)
            return
        body = await self._read_body(receive)
        if body is None:
            return
        if self._num_in_flight >= self._limits.requests:
            raise BusyError("Many requests are being answered just now. Try again in a few seconds.")
        self._num_in_flight += 1
        try:
            await self._app(scope, _Replayed(body, receive), send)
        finally:
            self._num_in_flight -= 1

    async def _read_body(self, receive: Receive) -> bytes | None:
        """The whole body; None if the client has gone. The request takes no place until then.

        Raises:
            TooLargeError: the body exceeds the limit.
            TooSlowError: the client sends too slowly.
        """
        body, is_complete = bytearray(), False
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not is_complete:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes:
                        raise _too_large(self._limits.body_bytes)
                    is_complete = not message.get("more_body", False)
        except TimeoutError:
            raise TooSlowError("The request came too slowly. Try again.") from None
        return bytes(body)

    def _check_request(self, scope: Scope, headers: Headers) -> None:
        """Check host, origin and token of a request, and its size as announced.

        Raises:
            RequestError: the request has no access, or exceeds a limit.
        """
        host = headers.get("host", "")
        if self._token is None and _without_port(host) not in self._allowed_hosts:
            raise ForbiddenError(f"This server answers only as {', '.join(sorted(self._allowed_hosts))}.")
        origin = headers.get("origin")
        is_cross_site = headers.get("sec-fetch-site") in ("cross-site", "same-site") or (
            origin is not None and _host_of(origin) != host
        )
        is_navigation = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if is_cross_site and not is_navigation:
            raise ForbiddenError("Other sites may not send requests to this server.")
        if self._token and not _has_token(headers, _cookie_name(scope), self._token):
            raise TokenError(
                "A token is needed: open the address that 'ctsan serve' printed, or send it as "
                "'Authorization: Bearer TOKEN'."
            )
        length = headers.get("content-length", "0")
        may_be_long = is_upload(scope["method"], scope["path"])
        max_bytes = self._limits.upload_bytes if may_be_long else self._limits.body_bytes
        if not length.isdecimal() or int(length) > max_bytes:
            raise _too_large(max_bytes)

    def _token_cookie(self, scope: Scope, token: str) -> str | None:
        """The Set-Cookie value for a browser that opens `/?token=TOKEN`; None for other requests."""
        if scope["method"] != "GET" or scope["path"] != "/":
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _is_equal(given, token):
            return None
        return f"{_cookie_name(scope)}={quote(token, safe='')}; Path=/; HttpOnly; SameSite=Lax"


class _Replayed:
    """An ASGI `receive` that returns a body that was read before, and then only the disconnect."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def is_upload(method: str, path: str) -> bool:
    return method == "POST" and path == UPLOADS


def _too_large(max_bytes: int) -> TooLargeError:
    return TooLargeError(f"The request is larger than {max_bytes / 2**20:,.4g} MB.")


async def _send_error(send: Send, error: RequestError) -> None:
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


def _has_token(headers: Headers, cookie_name: str, token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _is_equal(given.strip(), token):
        return True
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    return cookie_name in cookies and _is_equal(unquote(cookies[cookie_name].value), token)


def _is_equal(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


def _cookie_name(scope: Scope) -> str:
    """Contains the port, because browsers share cookies between the ports of a host."""
    port = scope["server"][1] if scope.get("server") else 0
    return f"ctsan-{port}"


def _host_of(origin: str) -> str | None:
    """The host and port of an Origin header; None if there is none in it."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
