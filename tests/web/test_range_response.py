"""Files of the library are sent in ranges of bounded size, so that slow clients block nothing."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from httpx import Client

from ctsan.search.indexing import index_folders
from web.conftest import Serve
from web.serving import ask_and_not_read, found_in, running

MAX_BYTES = 2**20


@pytest.fixture
def large(big_clip: Path, tmp_path: Path) -> Path:
    """A video of 48 MB, more than the socket buffers hold for a client that does not read."""
    (tmp_path / "films").mkdir()
    file = Path(shutil.copy(big_clip, tmp_path / "films" / "large.mp4"))
    with file.open("r+b") as stream:
        stream.truncate(48 * MAX_BYTES + 1)  # padded with zeros, which decoders skip
    return file


@pytest.fixture
def big_library(own_library: Path, large: Path) -> Path:
    index_folders([large.parent], own_library, models=[])
    return own_library


def test_a_large_video_is_sent_in_ranges(serve: Serve, big_library: Path, large: Path) -> None:
    content = large.read_bytes()
    with serve(library=big_library) as client:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        first = client.get(path)
        assert (first.status_code, len(first.content)) == (206, MAX_BYTES)
        assert first.headers["content-range"] == f"bytes 0-{MAX_BYTES - 1}/{len(content)}"
        received = first.content
        while len(received) < len(content):
            part = client.get(
                path, headers={"Range": f"bytes={len(received)}-", "If-Range": first.headers["etag"]}
            )
            assert part.status_code == 206
            assert len(part.content) <= MAX_BYTES
            received += part.content
        assert received == content


@pytest.mark.parametrize(
    ("range_header", "status", "part"),
    [
        ("bytes=4-7", 206, slice(4, 8)),
        ("bytes=0-0", 206, slice(0, 1)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=4-999999999", 206, slice(4, None)),
        ("bytes=7-4", 200, slice(None)),
        ("bytes=0-1,4-5", 200, slice(None)),
        ("bytes=x-", 200, slice(None)),
        ("frames=0-1", 200, slice(None)),
        ("bytes=999999999-", 416, None),
        ("bytes=-0", 416, None),
    ],
)
def test_ranges_of_a_small_file(
    client: Client, clip: Path, range_header: str, status: int, part: slice | None
) -> None:
    content = clip.read_bytes()
    path = f"/api/library/{found_in(client, clip.name)['id']}/video"
    answer = client.get(path, headers={"Range": range_header})
    assert answer.status_code == status
    if part is None:
        assert answer.headers["content-range"] == f"bytes */{len(content)}"
    else:
        assert answer.content == content[part]
        assert answer.headers["content-length"] == str(len(content[part]))
    assert client.get(path, headers={"Range": "bytes=4-7", "If-Range": '"old"'}).status_code == 200


def test_only_the_file_that_was_indexed_is_sent(
    serve: Serve, big_library: Path, large: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    with serve(library=big_library) as client:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        assert client.get(path).status_code == 206
        kept = large.rename(large.with_suffix(".kept"))
        for kind in ("link", "pipe"):
            if kind == "link":
                large.symlink_to(secret)
            else:
                os.mkfifo(large)
            answer = client.get(path)
            assert answer.status_code == 404
            assert "Index the folder again" in answer.text
            large.unlink()
        kept.rename(large)
        assert client.get(path).status_code == 206


def test_a_head_request_returns_the_size(client: Client, clip: Path) -> None:
    answer = client.head(f"/api/library/{found_in(client, clip.name)['id']}/video")
    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(clip.stat().st_size)
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.content == b""


def test_a_client_that_does_not_read_blocks_no_other(serve: Serve, big_library: Path, large: Path) -> None:
    with serve(library=big_library, requests=4) as client, ExitStack() as unread:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        for _ in range(4):
            unread.enter_context(ask_and_not_read(client, path))
        time.sleep(0.5)
        assert client.get("/api/status").status_code == 200


def test_a_client_that_does_not_read_does_not_block_shutdown(
    models: list[Path], big_library: Path, large: Path
) -> None:
    options = ("--library", big_library.name, "--store", big_library.parent)
    with running(models[:1], *options) as (address, process), Client(base_url=address, timeout=120) as client:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        with ask_and_not_read(client, path):
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
