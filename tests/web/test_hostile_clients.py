"""Clients that are slow, send what is no HTTP, or leave: nobody else notices, and the log stays short."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from httpx import Client

from ctsan.web.log_limit import RepeatFilter
from web.conftest import Serve
from web.serving import files_in, found_in, running, until, upload

UPLOAD = "POST /api/clips HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"


@contextmanager
def connected(client: Client, text: str | bytes = b"") -> Iterator[socket.socket]:
    """A connection to the server, with so much sent."""
    with socket.create_connection(
        (client.base_url.host, client.base_url.port or 80), timeout=60
    ) as connection:
        connection.sendall(text.encode("latin-1") if isinstance(text, str) else text)
        yield connection


def received(connection: socket.socket) -> bytes:
    """All until the server closes the connection."""
    parts = []
    try:
        while part := connection.recv(2**16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def reset(connection: socket.socket) -> None:
    """Leave as a killed process does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def trickling(connections: list[socket.socket], *, each: bytes = b"x") -> Iterator[None]:
    """Meanwhile a byte is sent on each connection, ten times a second."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.wait(0.1):
            for connection in connections:
                try:
                    connection.send(each)
                except OSError:
                    continue

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# Connections


@pytest.mark.parametrize("begin", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: "])
def test_headers_have_a_deadline(serve: Serve, begin: bytes) -> None:
    with serve(header_seconds=0.5) as client, connected(client, begin) as connection:
        began = time.monotonic()
        with trickling([connection] if begin else []):
            answer = received(connection)
        assert time.monotonic() - began < 5
        assert b" 408 " in answer.splitlines()[0]
        assert b"content-security-policy" in answer.lower()


def test_the_next_request_of_a_connection_has_a_deadline_too(serve: Serve) -> None:
    request = b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n"
    with serve(header_seconds=0.5) as client, connected(client, request + b"\r\n") as connection:
        assert b" 200 " in connection.recv(2**16)
        time.sleep(1)  # a connection at rest may stay
        connection.sendall(request)
        assert b" 408 " in received(connection)


def test_many_half_sent_requests_keep_nobody_out(models: list[Path]) -> None:
    """The real command, with its own limits: more connections than it may have open files."""
    with (
        running(models[:1], max_files=400) as (address, process),
        Client(base_url=address, timeout=60) as client,
        ExitStack() as stack,
    ):
        assert client.get("/api/status").status_code == 200
        for _ in range(500):
            stack.enter_context(connected(client, "GET / HTTP/1.1\r\nHost: localhost\r\nX-"))
        for _ in range(5):
            assert httpx.get(f"{address}/api/status", timeout=5).status_code == 200
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 400


def test_a_full_server_drops_the_connection_that_is_idle_for_longest(serve: Serve) -> None:
    with serve(connections=4) as client, ExitStack() as stack:
        idle = [stack.enter_context(connected(client)) for _ in range(4)]
        assert httpx.get(client.base_url.join("/api/status"), timeout=60).status_code == 200
        assert received(idle[0]) == b""
        idle[-1].sendall(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in received(idle[-1])


def test_a_connection_that_is_answered_is_never_dropped(serve: Serve, clip: Path) -> None:
    with serve(connections=2, uploads=5) as client, ExitStack() as stack:
        busy = [stack.enter_context(connected(client, UPLOAD)) for _ in range(2)]
        time.sleep(0.2)
        with connected(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") as refused:
            answer = received(refused)
        assert b" 429 " in answer.splitlines()[0]
        assert b"retry-after" in answer.lower()
        busy[0].sendall(clip.read_bytes())
        busy[0].shutdown(socket.SHUT_WR)
        busy[1].close()


def test_an_early_answer_does_not_keep_a_slow_connection(serve: Serve) -> None:
    """The rest of a refused body is read for a while, so that the client gets to read the answer."""
    request = "POST /nowhere HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n"
    with serve(header_seconds=0.5) as client, connected(client, request) as connection:
        with trickling([connection]):
            answer = received(connection)
        assert b" 403 " in answer.splitlines()[0]
        assert answer.count(b"HTTP/1.1") == 1


# Bodies


def test_a_slow_body_is_cut_off_and_takes_no_place(serve: Serve) -> None:
    head = "POST /api/clips/none/fill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with serve(requests=2, body_seconds=2.0, header_seconds=1.0) as client, ExitStack() as stack:
        slow = [stack.enter_context(connected(client, head)) for _ in range(5)]
        with trickling(slow):
            assert client.get("/api/status").status_code == 200
            for connection in slow:
                assert b" 408 " in received(connection).splitlines()[0]


def test_a_trickling_upload_is_cut_off(serve: Serve, spool: Path) -> None:
    with serve(rate_seconds=0.5, header_seconds=1.0) as client, connected(client, UPLOAD) as connection:
        began = time.monotonic()
        with trickling([connection]):
            answer = received(connection)
        assert time.monotonic() - began < 10
        assert b" 408 " in answer.splitlines()[0]
        assert b"at least 8 KB a second" in answer
        assert files_in(spool) == []


def test_an_upload_that_stops_is_cut_off(serve: Serve, spool: Path) -> None:
    with serve(rate_seconds=0.3) as client, connected(client, UPLOAD + "x" * 1000) as connection:
        assert b" 408 " in connection.recv(2**16).splitlines()[0]
        assert files_in(spool) == []


def test_a_slow_upload_that_keeps_the_least_rate_is_taken(serve: Serve, clip: Path) -> None:
    content = clip.read_bytes()

    def slowly() -> Iterator[bytes]:
        for start in range(0, len(content), len(content) // 8):
            yield content[start : start + len(content) // 8]
            time.sleep(0.25)

    with serve(rate_seconds=1.0, upload_rate=len(content) // 20) as client:
        assert client.post("/api/clips", content=slowly()).status_code == 201


def test_trickling_uploads_give_way_to_others(serve: Serve, clip: Path) -> None:
    with serve(uploads=3, rate_seconds=60.0) as client, ExitStack() as stack:
        slow = [stack.enter_context(connected(client, UPLOAD)) for _ in range(3)]
        with trickling(slow):
            assert client.post("/api/clips", content=clip.read_bytes()).status_code == 429  # they are new
            time.sleep(2.5)
            for _ in range(2):
                until(client, upload(client, clip), "ready")
            cut_off = [connection for connection in slow if readable(connection)]
            assert len(cut_off) == 1  # no more than were needed
            assert b"others wait for its place" in cut_off[0].recv(2**16)


def readable(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(60)


def test_uploads_do_not_use_up_the_places_of_requests(serve: Serve) -> None:
    with serve(requests=1) as client, connected(client, UPLOAD), connected(client, UPLOAD):
        time.sleep(0.2)
        assert client.get("/api/status").status_code == 200


# Requests that cannot be parsed


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://[",
        "Origin: http://[::1]extra",
        "Origin: \xff",
        "Range: bytes=9-1,--,x",
        "Range: bytes=" + "9" * 5000 + "-",
        "If-Range: \xff",
        'Cookie: ;=;a[=\xff"\\',
        "Cookie: ctsan-0=%ff; ctsan-0",
        "Authorization: Bearer \xff",
        "Content-Length: -1",
        "Content-Length: " + "9" * 5000,
        "Transfer-Encoding: gzip",
        "Expect: a miracle",
        "Connection: upgrade\r\nUpgrade: websocket",
        "Connection: upgrade\r\nUpgrade: h2c",
        "X-Forwarded-For: [\xff\r\nX-Forwarded-Proto: \xff",
        "Accept-Encoding: \xff",
        "no colon",
        "Host: again",
    ],
)
@pytest.mark.parametrize("token", [None, "secret-word"])
def test_no_header_is_a_server_error(request: pytest.FixtureRequest, header: str, token: str | None) -> None:
    client = request.getfixturevalue("token_client" if token else "client")
    for path in ("/api/status", "/static/app.js", "/?token=%ff"):
        text = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\nConnection: close\r\n\r\n"
        with connected(client, text) as connection:
            answer = received(connection)
        status = int(answer.split()[1])
        assert 200 <= status < 500, answer
        assert b"content-security-policy: default-src 'none'" in answer.lower()
        if header.startswith("Origin"):
            assert status == 403


@pytest.fixture(scope="module")
def token_client(models: list[Path]) -> Iterator[Client]:
    from ctsan.web.app import create_app
    from ctsan.web.limits import Limits
    from web.serving import load_predictor, served

    limits = Limits(workers=1)
    app = create_app(load_predictor(models[:1]), limits=limits, token="secret-word")
    with served(app, limits) as client:
        yield client


# Clients that leave


def test_clients_that_leave_are_not_logged_as_errors(
    serve: Serve, library: Path, clip: Path, capfd: pytest.CaptureFixture[str], spool: Path
) -> None:
    with serve(library=library) as client:
        clip_id = upload(client, clip)
        until(client, clip_id, "ready")
        video = f"/api/library/{found_in(client, 'long.mp4')['id']}/video"
        get = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        requests = [
            UPLOAD,
            UPLOAD + "x" * 300_000,
            UPLOAD.replace("Content-Length: 1000000", "Transfer-Encoding: chunked") + "10\r\nabc",
            UPLOAD.replace("Content-Length: 1000000", "Transfer-Encoding: chunked") + "no number\r\n",
            f"POST /api/clips/{clip_id}/fill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{",
            get.format(f"/api/clips/{clip_id}/description"),
            *(get.format(path) * 20 for path in (video, "/static/app.js", "/api/openapi.json", "/")),
        ]
        for text in requests:
            for leave in (reset, socket.socket.close):
                for pause in (0.0, 0.02, 0.2):
                    with connected(client, text) as connection:
                        time.sleep(pause)
                        leave(connection)
        assert client.get("/api/status").status_code == 200
        until(client, upload(client, clip), "ready")
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out
    assert len((printed.err + printed.out).splitlines()) <= 2
    assert files_in(spool) == []


# The log


def test_repeated_messages_are_counted_and_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    logger, limit = logging.getLogger("ctsan.test.repeats"), RepeatFilter(seconds=0.2)
    logger.addFilter(limit)

    def fail(number: int) -> None:
        try:
            raise ValueError(number)
        except ValueError:
            logger.exception("Request %d failed.", number)

    for number in range(1000):
        fail(number)
    logger.warning("Another message.")
    assert [record.getMessage() for record in caplog.records] == ["Request 0 failed.", "Another message."]
    time.sleep(0.25)
    fail(7)
    assert caplog.records[-1].getMessage() == "Request 7 failed. (And 999 times before this.)"


def test_malformed_requests_do_not_fill_the_log(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    with serve() as client:
        for _ in range(50):
            for text in (
                "\0\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            ):
                with connected(client, text) as connection:
                    assert connection.recv(12).startswith(b"HTTP/1.1 4")
    assert len(capfd.readouterr().err.splitlines()) <= 3
