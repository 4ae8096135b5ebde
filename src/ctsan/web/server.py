"""Start the server."""

from __future__ import annotations

import errno
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from ctsan.errors import UsageError
from ctsan.web.limits import Limits

TOKEN_VARIABLE = "CTSAN_TOKEN"

_UNREAD_SECONDS = 20  # after which the connection of a client that does not read is closed
_GRACE_SECONDS = 120  # for running requests to finish after SIGTERM


def serve(
    models: Sequence[Path],
    *,
    host: str,
    port: int,
    library: Path | None = None,
    weights: Path | None = None,
    limits: Limits | None = None,
    on_start: Callable[[str], object],
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish the running requests.

    Args:
        port: 0 selects a free port.
        library: folder of a library to search.
        weights: the backbone's weights, if they are not installed with ctsan.
        on_start: called with the URL to open.

    Raises:
        UsageError: required packages are not installed, or the address cannot be used.
        RunError: a model cannot be used.
        StoreError: the library cannot be used.
    """
    try:
        import uvicorn

        from ctsan.web.app import create_app
    except ImportError as error:
        raise UsageError(
            f"The page needs packages that are not installed ({error.name}). Get them with: "
            "pip install 'ctsan[serve]'"
        ) from error

    from ctsan.runs.trained_run import load_runs
    from ctsan.web.feature_cache import ClipPredictor

    listener = _listen(host, port)
    token = None if _is_loopback(host) else os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    app = create_app(
        ClipPredictor(load_runs(models), weights=weights),
        limits=limits,
        library=library,
        weights=weights,
        token=token,
        host=host,
    )
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=30,
    )
    on_start(_url(host, listener.getsockname()[1], token))
    uvicorn.Server(config).run(sockets=[listener])


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


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=128)
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
