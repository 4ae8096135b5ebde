"""Workers that read clips may hang, die and be killed; the server goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from PIL import Image

from web.conftest import Serve
from web.serving import files_in, until, upload, workers_of


def test_nothing_is_lost_with_a_killed_worker(serve: Serve, clip: Path) -> None:
    with serve() as client:
        [worker] = workers_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        clip_id = upload(client, clip)
        os.kill(worker, signal.SIGKILL)
        assert until(client, clip_id, "ready", "failed")["state"] == "ready"
        assert workers_of(os.getpid()) != [worker]
    assert workers_of(os.getpid()) == []


def test_a_file_that_kills_every_worker_kills_nothing_else(serve: Serve, clip: Path) -> None:
    with serve() as client:
        [worker] = workers_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        clip_id = upload(client, clip)
        while client.get(f"/api/clips/{clip_id}").json()["state"] != "failed":
            for worker in workers_of(os.getpid()):
                os.kill(worker, signal.SIGKILL)
            time.sleep(0.05)
        assert client.get(f"/api/clips/{clip_id}/description").status_code == 422
        assert until(client, upload(client, clip), "ready", "failed")["state"] == "ready"


def test_a_worker_that_hangs_is_stopped(serve: Serve, clip: Path) -> None:
    with serve(worker_seconds=1.0) as client:
        [worker] = workers_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        assert "too long" in until(client, upload(client, clip), "failed")["error"]
        while worker in workers_of(os.getpid()):
            time.sleep(0.05)


def test_a_worker_has_only_so_much_memory(serve: Serve, tmp_path: Path) -> None:
    Image.new("RGB", (4000, 2200)).save(tmp_path / "large.png")
    with serve() as client:  # it is the memory, and nothing else that is wrong with it
        assert until(client, upload(client, tmp_path / "large.png"), "failed", "ready")["state"] == "ready"
    with serve(worker_bytes=24 * 2**20) as client:
        assert until(client, upload(client, tmp_path / "large.png"), "failed", "ready")["state"] == "failed"
        assert client.get("/api/status").status_code == 200


def test_reading_can_be_cancelled(serve: Serve, clip: Path, spool: Path) -> None:
    with serve() as client:
        [worker] = workers_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        clip_id = upload(client, clip)
        assert client.post(f"/api/clips/{clip_id}/cancel").json()["state"] == "cancelled"
        assert client.get(f"/api/clips/{clip_id}/description").status_code == 409
        assert files_in(spool) == []
        assert client.delete(f"/api/clips/{clip_id}").status_code == 204
        assert client.get(f"/api/clips/{clip_id}").status_code == 404
        assert until(client, upload(client, clip), "ready")


def test_too_many_are_told_to_wait(serve: Serve, clip: Path) -> None:
    with serve(unread_clips=1) as client:
        [worker] = workers_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        upload(client, clip)
        answer = client.post("/api/clips", content=clip.read_bytes())
        os.kill(worker, signal.SIGCONT)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
    with serve(questions=0) as client:
        clip_id = upload(client, clip)
        assert client.get(f"/api/clips/{clip_id}/description").status_code == 429
    with serve(requests=0) as client:
        assert client.get("/api/status").status_code == 429
