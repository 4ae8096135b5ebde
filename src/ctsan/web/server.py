"""A running server."""

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

_UNREAD_SECONDS = 20  # after which a client that does not read its answer is given up
_GRACE_SECONDS = 120  # that answers under way may still take after SIGTERM


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
    """Answer until SIGTERM or Ctrl-C, and then finish what runs.

    Args:
        port: 0 takes any that is free.
        library: folder of one to search, if any.
        on_start: is given the address to open.

    Raises:
        UsageError: the packages for it are missing, or the address is taken.
        RunError: a model cannot be used.
        StoreError: the library cannot be.
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

    listening = _listen(host, port)
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
    on_start(_address(host, listening.getsockname()[1], token))
    uvicorn.Server(config).run(sockets=[listening])


def limits_of(*, megabytes: int, minutes: float) -> Limits:
    usual = Limits()
    upload = megabytes * 2**20
    return replace(
        usual, upload_bytes=upload, seconds=minutes * 60, spool_bytes=max(usual.spool_bytes, 2 * upload)
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"Port {port} is taken. Give another, such as --port {port + 1}; 0 takes any that is free."
            ) from error
        reason = error.strerror or error
        raise UsageError(
            f"Cannot listen on {host}, port {port} ({reason}). Give another --host or --port."
        ) from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections have it from the socket
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _UNREAD_SECONDS)
    return listening


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(host: str, port: int, token: str | None) -> str:
    is_any = host in ("0.0.0.0", "::")
    name = socket.gethostname() if is_any else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
