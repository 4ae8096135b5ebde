"""Files of the library come in pieces, and one that nobody reads is in nobody's way."""

from __future__ import annotations

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

PIECE = 2**20


@pytest.fixture
def large(big_clip: Path, tmp_path: Path) -> Path:
    """A video of 48 MB: more than the system holds for a client that does not read."""
    (tmp_path / "films").mkdir()
    file = shutil.copy(big_clip, tmp_path / "films" / "large.mp4")
    with file.open("r+b") as stream:
        stream.truncate(48 * PIECE + 1)  # the rest is zeros, which decoders pass over
    return file


@pytest.fixture
def big_library(own_library: Path, large: Path) -> Path:
    index_folders([large.parent], own_library, models=[])
    return own_library


def test_a_large_video_comes_in_pieces(serve: Serve, big_library: Path, large: Path) -> None:
    content = large.read_bytes()
    with serve(library=big_library) as client:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        first = client.get(path)
        assert (first.status_code, len(first.content)) == (206, PIECE)
        assert first.headers["content-range"] == f"bytes 0-{PIECE - 1}/{len(content)}"
        got = first.content
        while len(got) < len(content):
            part = client.get(
                path, headers={"Range": f"bytes={len(got)}-", "If-Range": first.headers["etag"]}
            )
            assert part.status_code == 206
            assert len(part.content) <= PIECE
            got += part.content
        assert got == content


@pytest.mark.parametrize(
    ("asked", "status", "part"),
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
def test_parts_of_a_small_file(
    client: Client, clip: Path, asked: str, status: int, part: slice | None
) -> None:
    content = clip.read_bytes()
    path = f"/api/library/{found_in(client, clip.name)['id']}/video"
    answer = client.get(path, headers={"Range": asked})
    assert answer.status_code == status
    if part is None:
        assert answer.headers["content-range"] == f"bytes */{len(content)}"
    else:
        assert answer.content == content[part]
        assert answer.headers["content-length"] == str(len(content[part]))
    assert client.get(path, headers={"Range": "bytes=4-7", "If-Range": '"old"'}).status_code == 200


def test_the_head_alone_tells_how_large_a_file_is(client: Client, clip: Path) -> None:
    answer = client.head(f"/api/library/{found_in(client, clip.name)['id']}/video")
    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(clip.stat().st_size)
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.content == b""


def test_who_does_not_read_keeps_nobody_waiting(serve: Serve, big_library: Path, large: Path) -> None:
    with serve(library=big_library, requests=4) as client, ExitStack() as unread:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        for _ in range(4):
            unread.enter_context(ask_and_not_read(client, path))
        time.sleep(0.5)
        assert client.get("/api/status").status_code == 200


def test_who_does_not_read_does_not_keep_a_server_that_ends(
    models: list[Path], big_library: Path, large: Path
) -> None:
    options = ("--library", big_library.name, "--store", big_library.parent)
    with running(models[:1], *options) as (address, process), Client(base_url=address, timeout=120) as client:
        path = f"/api/library/{found_in(client, large.name)['id']}/video"
        with ask_and_not_read(client, path):
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
