"""The command itself: where it listens, what it prints, and how it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from commands import ctsan
from web.serving import running, upload, workers_of


def test_sigterm_finishes_what_runs(models: list[Path], clip: Path, tmp_path: Path) -> None:
    tmp_path = tmp_path / "spool"
    tmp_path.mkdir()
    os.environ["TMPDIR"], before = str(tmp_path), os.environ.get("TMPDIR")
    try:
        with running(models[:1]) as (address, process), httpx.Client(base_url=address, timeout=120) as client:
            clip_id = upload(client, clip)
            answers: list[httpx.Response] = []
            path = f"/api/clips/{clip_id}/description"
            asking = threading.Thread(target=lambda: answers.append(client.get(path)))
            [worker] = workers_of(process.pid)
            os.kill(worker, signal.SIGSTOP)
            asking.start()
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            os.kill(worker, signal.SIGCONT)
            asking.join()
            assert answers[0].status_code == 200
            assert answers[0].json()["caption"]
            process.wait(timeout=60)
            assert workers_of(process.pid) == []
            assert list(tmp_path.iterdir()) == []
    finally:
        del os.environ["TMPDIR"]
        if before:
            os.environ["TMPDIR"] = before


def test_a_terminal_that_closes_leaves_no_uploads(
    models: list[Path], clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under `nohup` would pass it on
    try:
        with running(models[:1]) as (address, process):
            with httpx.Client(base_url=address, timeout=60) as client:
                upload(client, clip)
            process.send_signal(signal.SIGHUP)
            process.wait(timeout=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert list(tmp_path.iterdir()) == []


def test_another_address_needs_a_token(models: list[Path]) -> None:
    with running(models[:1], "--host", "0.0.0.0") as (address, _):
        port = httpx.URL(address).port
        token = httpx.URL(address).params["token"]
        assert len(token) >= 20
        local = f"http://127.0.0.1:{port}/api/status"
        assert httpx.get(local, timeout=60).status_code == 401
        assert httpx.get(local, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code == 200


def test_any_token_can_stand_in_the_address(models: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    token = "a&b#c;d e%41+"
    monkeypatch.setenv("CTSAN_TOKEN", token)
    with running(models[:1], "--host", "0.0.0.0") as (address, _):
        url = httpx.URL(address)
        assert url.params["token"] == token
        with httpx.Client(base_url=f"http://127.0.0.1:{url.port}", timeout=60) as client:
            assert client.get(f"/?{url.query.decode()}").status_code == 303
            assert client.get("/api/status").status_code == 200  # the cookie is enough


def test_all_names_of_this_machine_need_no_token(models: list[Path]) -> None:
    with running(models[:1], "--host", "127.0.0.2") as (address, _):
        assert address.startswith("http://127.0.0.2:")
        assert httpx.get(f"{address}/api/status", timeout=60).status_code == 200
        strange = httpx.get(f"{address}/api/status", headers={"Host": "127.0.0.3"}, timeout=60)
        assert strange.status_code == 403


def test_a_port_that_is_taken_is_told(models: list[Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ctsan("serve", "--model", models[0], "--port", port, exit_code=2)
        assert f"Port {port} is taken" in result.stderr


def test_missing_packages_are_told() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['ctsan', 'serve', '--model', 'none'];"
        "from ctsan.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'ctsan[serve]'" in result.stderr
