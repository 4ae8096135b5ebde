"""The folder of uploads: trouble with the disk, a folder that is removed, and what killed servers leave."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from ctsan.web.spool import Spool
from web.conftest import Serve
from web.serving import files_in, running, until, upload, workers_of


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_full_disk_is_told(
    serve: Serve, clip: Path, spool: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class FullFile:
        def __enter__(self) -> FullFile:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, _: bytes) -> None:
            raise OSError(number, os.strerror(number))

    usual = Path.open

    def open_full(path: Path, mode: str = "r", **named: Any) -> Any:
        return FullFile() if mode == "xb" else usual(path, mode, **named)

    with serve(spool_bytes=clip.stat().st_size + 1) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", open_full)
            for _ in range(2):
                answer = client.post("/api/clips", content=clip.read_bytes())
                assert answer.status_code == 507
                assert answer.json()["error"]["code"] == "storage"
                assert "disk is full" in answer.json()["error"]["message"]
                assert str(spool) not in answer.text
        assert files_in(spool) == []
        until(client, upload(client, clip), "ready")  # the failed ones do not count as spooled


def test_a_folder_that_cannot_be_written_to_is_told(serve: Serve, clip: Path, spool: Path) -> None:
    with serve() as client:
        shutil.rmtree(spool)
        answer = client.post("/api/clips", content=clip.read_bytes())
        assert answer.status_code == 507
        spool.mkdir()
        until(client, upload(client, clip), "ready")


def test_a_removed_folder_is_made_again(serve: Serve, clip: Path, spool: Path) -> None:
    with serve() as client:
        [folder] = spool.iterdir()
        shutil.rmtree(folder)
        until(client, upload(client, clip), "ready")
        [folder] = spool.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
    assert list(spool.iterdir()) == []


def test_a_folder_that_was_replaced_is_not_used(
    serve: Serve, clip: Path, spool: Path, tmp_path: Path
) -> None:
    """Somebody else could have made it in a folder that all may write to."""
    with serve() as client:
        [folder] = spool.iterdir()
        shutil.rmtree(folder)
        (tmp_path / "theirs").mkdir()
        folder.symlink_to(tmp_path / "theirs")
        clip_id = upload(client, clip)
        assert list((tmp_path / "theirs").iterdir()) == []
        until(client, clip_id, "ready")


def test_a_file_that_is_removed_while_it_waits_fails_alone(serve: Serve, clip: Path, spool: Path) -> None:
    with serve(spool_bytes=clip.stat().st_size + 1) as client:
        [worker] = workers_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        clip_id = upload(client, clip)
        for file in files_in(spool):
            file.unlink()
        os.kill(worker, signal.SIGCONT)
        until(client, clip_id, "failed")
        until(client, upload(client, clip), "ready")


def test_uploads_of_a_killed_server_are_removed_by_the_next(
    models: list[Path], clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setenv("TMPDIR", str(spool))
    with running(models[:1]) as (_, living):
        assert living.poll() is None
        [used] = spool.iterdir()
        with running(models[:1]) as (address, killed):
            [left] = set(spool.iterdir()) - {used}
            with httpx.Client(base_url=address, timeout=60) as client:
                os.kill(killed.pid, signal.SIGSTOP)
                (left / "upload").write_bytes(clip.read_bytes())
                os.kill(killed.pid, signal.SIGKILL)
                killed.wait()
            assert client.is_closed
        assert (left / "upload").exists()
        with running(models[:1]):
            assert not left.exists()
            assert used.exists()
            assert len(list(spool.iterdir())) == 2


def test_only_own_folders_without_a_server_are_removed(spool: Path, tmp_path: Path) -> None:
    (spool / "ctsan-uploads-stale").mkdir(mode=0o700)
    (spool / "ctsan-uploads-stale" / "upload").write_bytes(b"x")
    (spool / "ctsan-serve-older").mkdir()  # of a version without locks: it may live
    (spool / "ctsan-uploads-file").write_bytes(b"x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_bytes(b"x")
    (spool / "ctsan-uploads-link").symlink_to(tmp_path / "elsewhere")
    living = Spool()
    folder = living.new_file().parent
    other = Spool()
    assert folder.is_dir()
    assert not (spool / "ctsan-uploads-stale").exists()
    assert (spool / "ctsan-serve-older").exists()
    assert (spool / "ctsan-uploads-file").exists()
    assert (tmp_path / "elsewhere" / "precious").exists()
    other.close()
    living.close()
    assert not folder.exists()


def test_servers_that_start_together_keep_their_folders(tmp_path: Path) -> None:
    code = (
        "import sys; from ctsan.web.spool import Spool; spools = [Spool() for _ in range(20)];"
        "assert all(spool.new_file().parent.is_dir() for spool in spools); print('kept')"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in started:
        printed, errors = process.communicate(timeout=60)
        assert printed.strip() == "kept", errors
        assert "made again" not in errors
