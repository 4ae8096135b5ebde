"""Start the server."""

from __future__ import annotations

import errno
import ipaddress
import os
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ctsan.errors import UsageError
from ctsan.io.extras import extra
from ctsan.search.opening import LibraryAddress
from ctsan.web.limits import Limits
from ctsan.web.log_limit import limit_repeats

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

TOKEN_VARIABLE = "CTSAN_TOKEN"

_UNREAD_SECONDS = 20  # after which the connection of a client that does not read is closed
_GRACE_SECONDS = 120  # for running requests to finish after SIGTERM
_OTHER_FILES = 128  # open files besides connections: uploads, workers, the library
_LEAST_CONNECTIONS = 16


def serve(
    models: Sequence[Path],
    *,
    host: str,
    port: int,
    library: LibraryAddress | None = None,
    weights: Path | None = None,
    limits: Limits | None = None,
    on_start: Callable[[str], object],
) -> None:
    """Serve until SIGTERM, Ctrl-C or the end of the terminal, then finish the running requests.

    Args:
        port: 0 selects a free port.
        library: to search, in a folder or in PostgreSQL.
        weights: the backbone's weights, if they are not installed with ctsan.
        on_start: called with the URL to open.

    Raises:
        UsageError: required packages are not installed, or the address cannot be used.
        RunError: a model cannot be used.
        StoreError: the library cannot be used.
    """
    with extra("serve", "The page"):
        import uvicorn

        from ctsan.web.app import create_app
    from ctsan.inference.predictor import Predictor

    limits = _fit_open_files(limits or Limits())
    listener = _listen(host, port)
    token = None if _is_loopback(host) else os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    predictor = Predictor.load(*models, weights=weights)
    predictor.load_all()
    app = create_app(
        predictor,
        limits=limits,
        library=library,
        weights=weights,
        token=token,
        host=host,
    )
    server = uvicorn.Server(server_config(app, limits))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # `nohup` ignores it
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    on_start(_url(host, listener.getsockname()[1], token))
    server.run(sockets=[listener])


def server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """The configuration of the HTTP server. Repeated messages of its log are counted, not printed."""
    import uvicorn

    from ctsan.web.connections import limited_connections

    config = uvicorn.Config(
        app,
        http=limited_connections(limits),
        ws="none",
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=30,
    )
    limit_repeats()  # after uvicorn has configured its loggers
    return config


def limits_of(*, megabytes: int, minutes: float) -> Limits:
    """The default limits with another size and duration of an upload."""
    default = Limits()
    upload_bytes = megabytes * 2**20
    return replace(
        default,
        upload_bytes=upload_bytes,
        seconds=minutes * 60,
        spool_bytes=max(default.spool_bytes, 2 * upload_bytes),
    )


def _fit_open_files(limits: Limits) -> Limits:
    """Raise the limit of open files to what the connections need, or take fewer connections."""
    needed = limits.connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return replace(limits, connections=max(_LEAST_CONNECTIONS, hard - _OTHER_FILES))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=128)
    except UnicodeError:  # of the IDNA encoding
        raise UsageError(f"{host!r} cannot be the name of a host. Give another --host.") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"Port {port} is taken. Give another, such as --port {port + 1}; 0 takes any that is free."
            ) from error
        reason = error.strerror or error
        raise UsageError(
            f"Cannot listen on {host}, port {port} ({reason}). Give another --host or --port."
        ) from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it from the listener
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _UNREAD_SECONDS)
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(host: str, port: int, token: str | None) -> str:
    is_wildcard = host in ("0.0.0.0", "::")
    name = socket.gethostname() if is_wildcard else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
