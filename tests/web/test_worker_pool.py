"""Workers may hang, die or be killed; the server keeps running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ctsan.errors import CtsanError, VideoError
from ctsan.io.device import usable_cores
from ctsan.video.backbones import find_backbone
from ctsan.video.engine import Maps, Pixels, load_engine
from ctsan.video.frames import sample_frames
from ctsan.web.limits import Limits
from ctsan.web.messages import Message
from ctsan.web.worker import Network, answer, read_clip
from ctsan.web.worker_pool import ReadingError, WorkerPool
from web.conftest import Serve
from web.serving import children_of, files_in, until, upload, workers_of


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
    with serve(model_queue=0) as client:
        clip_id = upload(client, clip)
        assert client.get(f"/api/clips/{clip_id}/description").status_code == 429
    with serve(requests=0) as client:
        assert client.get("/api/status").status_code == 429


def test_cancelled_clips_leave_no_processes(serve: Serve, clip: Path) -> None:
    """Each deletion ends a worker, most of them while it starts."""
    before = children_of(os.getpid())  # of other tests in this process
    with serve(workers=2) as client:
        most = 0
        for _ in range(12):
            clip_id = upload(client, clip)
            time.sleep(0.05)
            assert client.delete(f"/api/clips/{clip_id}").status_code == 204
            most = max(most, len(set(children_of(os.getpid())).difference(before)))
        assert most <= 2
        assert until(client, upload(client, clip), "ready")
        assert len(set(children_of(os.getpid())).difference(before)) <= 2
    assert set(children_of(os.getpid())) <= set(before)


def test_a_worker_that_cannot_start_leaves_no_process(tmp_path: Path) -> None:
    """Its process hangs, or prints what is no message."""

    async def start() -> None:
        pool = WorkerPool({}, Limits(workers=1), weights=None)
        with pytest.raises(CtsanError, match="could not be started"):
            await pool.start()
        await pool.stop()

    before = children_of(os.getpid())  # of other tests in this process
    for program in (
        "import time; time.sleep(100)",
        "print('x' * 100, flush=True); input()",
        "raise SystemExit",
    ):
        (tmp_path / "python").write_text(f"#!{sys.executable}\n{program}\n")
        (tmp_path / "python").chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.executable", str(tmp_path / "python"))
            patch.setattr("ctsan.web.worker_pool._START_SECONDS", 0.5)
            asyncio.run(start())
        assert set(children_of(os.getpid())) <= set(before)


SLOW_WORKER = """
import sys, time
from ctsan.web.messages import Message, pack, receive_from

def send(**head):
    sys.stdout.buffer.write(pack(Message(head)))
    sys.stdout.buffer.flush()

send(kind="started")
while (request := receive_from(sys.stdin.buffer)) is not None:
    name = request.head["file"]
    if name != "short":
        send(kind="info", duration=100.0)
        if name == "film":
            send(kind="shot", start=0.0, end=60.0)
        time.sleep(100 if name == "hangs" else 3)
    send(kind="done")
"""


@pytest.mark.parametrize("name", ["hangs", "slow", "film"])
def test_a_slow_reading_gives_way_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its deadline has the duration that the file declares, but while others wait only what was read."""

    async def read(pool: WorkerPool, name: str) -> None:
        async for _ in pool.read_clip(Path(name), max_shots=0):
            pass

    async def read_two() -> None:
        pool = WorkerPool({}, Limits(workers=1, worker_seconds=0.5), weights=None)
        await pool.start()
        try:
            first = asyncio.create_task(read(pool, name))
            await asyncio.sleep(1.5)
            assert not first.done()  # nobody waits
            if name == "slow":
                await first
                return
            second = asyncio.create_task(read(pool, "short"))
            if name == "film":
                await first
            else:
                with pytest.raises(ReadingError, match="takes too long while others wait"):
                    await first
            await second
        finally:
            await pool.stop()

    (tmp_path / "python").write_text(f"#!{sys.executable}\n{SLOW_WORKER}")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    asyncio.run(asyncio.wait_for(read_two(), 60))


@pytest.mark.parametrize(
    "error", [VideoError("x", "it is odd", "Leave it."), MemoryError(), KeyError("\x1b[2J")]
)
def test_a_worker_survives_every_error_of_a_file(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Iterator[Message]:
        yield Message({"kind": "info"})
        raise error

    monkeypatch.setattr("ctsan.web.worker.read_clip", fail)
    first, last = answer({"what": "clip", "file": "x", "pixels": 100}, [])
    assert first.head["kind"] == "info"
    assert last.head["kind"] == "error"
    assert last.head["text"].endswith(".")
    assert "Traceback" not in last.head["text"]
    assert ("log" in last.head) == isinstance(error, KeyError)


def test_no_secret_reaches_a_worker(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        name: f"hidden-{number}"
        for number, name in enumerate(("CTSAN_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "MY_PASSWORD"))
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with serve(token="hidden-token"):
        [worker] = workers_of(os.getpid())
        environment = Path(f"/proc/{worker}/environ").read_bytes()
        assert b"hidden" not in environment
        assert b"hidden" not in Path(f"/proc/{worker}/cmdline").read_bytes()
        assert b"OMP_NUM_THREADS=1" in environment.split(b"\0")


def test_no_module_is_imported_from_the_working_folder(
    serve: Serve, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "numpy", "av"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    file = clip.resolve()
    monkeypatch.chdir(tmp_path)
    with serve() as client:
        assert until(client, upload(client, file), "ready", "failed")["state"] == "ready"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("max_frames", [[10], [10, 7], [40, 3]])
def test_only_frames_that_a_run_takes_in_go_through_the_backbone(
    long_clip: Path, max_frames: list[int]
) -> None:
    backbone = find_backbone("efficientnet-lite0")
    engine = load_engine(backbone, threads=usable_cores())
    computed = 0

    def counting(pixels: Pixels) -> Maps:
        nonlocal computed
        computed += len(pixels)
        return engine(pixels)

    limits = {"seconds": 60, "pixels": 10**9, "shots": 0}
    network = Network("lite0", backbone, counting, max_frames)
    [sent] = [each for each in read_clip(long_clip, [network], limits) if each.head["kind"] == "maps"]
    wanted = {place * 40 // most for most in max_frames for place in range(most)}
    assert computed == len(wanted)
    assert sent.head["places"] == sorted(wanted)
    maps = np.frombuffer(sent.body, np.float16).reshape(sent.head["shape"])
    pixels = sample_frames(long_clip, size=backbone.image_size).pixels
    assert len(pixels) == len(sent.head["times"]) == 40
    np.testing.assert_array_equal(maps, engine(pixels)[sorted(wanted)])
