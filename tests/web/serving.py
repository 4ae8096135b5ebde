"""Servers to be tested, and what is done with them again and again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from httpx import Client
from starlette.types import ASGIApp

from ctsan.inference.predictor import Predictor
from ctsan.web.limits import Limits
from ctsan.web.server import server_config

_PATIENCE = 120  # seconds


def load_predictor(models: Sequence[Path]) -> Predictor:
    """All that a server loads before it listens."""
    predictor = Predictor.load(*models)
    predictor.load_all()
    return predictor


@contextmanager
def served(app: ASGIApp, limits: Limits | None = None) -> Iterator[Client]:
    """A client of a server in a thread of this process."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, limits or Limits()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        with Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=_PATIENCE) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def running(
    models: list[Path], *options: object, max_files: int | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and process of the real command.

    Args:
        max_files: that it may have open.
    """
    named = [option for folder in models for option in ("--model", str(folder))]
    prefix = [] if max_files is None else ["prlimit", f"--nofile={max_files}:{max_files}"]
    command = [*prefix, sys.executable, "-m", "ctsan", "serve", "--port", "0", *named, *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Open http://"), line
        yield line.removeprefix("Open ").strip().rstrip("/"), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def found_in(client: Client, name: str) -> dict[str, Any]:
    """A moment of a file of the library."""
    hits = client.get("/api/search", params={"query": "a square", "n": 100}).json()["hits"]
    found: dict[str, Any] = next(hit for hit in hits if hit["name"] == name)
    return found


def ask_and_not_read(client: Client, path: str) -> socket.socket:
    """A connection with a request whose answer has begun to come."""
    address = (client.base_url.host, client.base_url.port or 80)
    connection = socket.create_connection(address)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
    assert connection.recv(9, socket.MSG_PEEK) == b"HTTP/1.1 "
    return connection


def upload(client: Client, file: Path) -> str:
    answer = client.post("/api/clips", content=file.read_bytes())
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def until(client: Client, clip: str, *states: str, seconds: float = _PATIENCE) -> dict[str, Any]:
    """What is known of a clip once it is in one of some states."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        known: dict[str, Any] = client.get(f"/api/clips/{clip}").json()
        if known["state"] in states:
            return known
        time.sleep(0.05)
    raise AssertionError(f"still {known}")


def workers_of(process: int) -> list[int]:
    """Processes that read clips for another."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            command = (status.parent / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if parent == process and b"ctsan.web.worker" in command:
            found.append(int(status.parent.name))
    return found


def children_of(process: int) -> list[int]:
    """Processes that were started by another and have not been waited for, including zombies."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if int(status.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(status.parent.name))
    return found


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
