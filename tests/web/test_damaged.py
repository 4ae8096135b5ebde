"""Files as strangers send them: each is answered or explained, and nothing of it stays."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest
from httpx import Client
from PIL import Image

from clip_making import counting, encode
from web.conftest import Serve
from web.serving import files_in, until, upload, workers_of

PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"


def no_videos(clip: bytes) -> Iterator[tuple[str, bytes]]:
    """Nothing that could be shown is in these."""
    yield "one byte", b"\0"
    yield "text", b"this is no video\n" * 50
    yield "a page", b"<!doctype html><title>none</title>"
    yield "a drawing with a script", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"
    yield "noise", np.random.default_rng(0).bytes(20_000)
    yield "a playlist", PLAYLIST
    yield "a list of files", b"ffconcat version 1.0\nfile /etc/passwd\n"
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.mp4", clip)
    yield "an archive", archive.getvalue()
    yield "sound only", sound()


def damaged(clip: bytes, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Of some of these a part can be shown."""
    for tenths in (1, 3, 5, 7, 9):
        yield f"cut off after {tenths} tenths", clip[: len(clip) * tenths // 10]
    yield "the last byte is missing", clip[:-1]
    yield "the header only", clip[:32]
    yield "zeros after the header", clip[:64] + bytes(10_000)
    yield "zeros before everything", bytes(512) + clip
    yield "itself twice", clip + clip
    for seed in range(4):
        yield f"flipped bytes {seed}", flipped(clip, seed)
    index = clip.index(b"moov")
    yield "no index", clip[: index - 4]
    yield "an index of zeros", clip[: index + 4] + bytes(len(clip) - index - 4)
    yield "an index before the start", clip[index - 4 :]
    yield "an index of four gigabytes", patched(clip, b"moov", -4, 0xFFFFFFFF)
    yield "an index of no length", patched(clip, b"moov", -4, 0)
    yield "pictures of four gigabytes", patched(clip, b"mdat", -4, 0xFFFFFFF0)
    yield "pictures outside of the file", patched(clip, b"stco", 12, 0x7FFFFFF0)
    yield "more pictures than there are", patched(clip, b"stsz", 12, 0x7FFFFFFF)
    yield "no pictures", patched(clip, b"stsz", 12, 0)
    yield "pictures that last for years", patched(clip, b"stts", 16, 0x7FFFFFFF)
    yield "a codec that nobody knows", clip.replace(b"avc1", b"zzzz")
    yield "a broken description of the codec", patched(clip, b"avcC", 4, 0xFFFFFFFF)
    for ending in (".mkv", ".avi", ".webm", ".gif"):
        whole = encode(folder / f"whole{ending}", counting(24)).read_bytes()
        yield f"half of {ending}", whole[: len(whole) // 2]
        yield f"flipped bytes in {ending}", flipped(whole, 5)
    jpeg = BytesIO()
    Image.new("RGB", (64, 48), "red").save(jpeg, "JPEG")
    yield "half a picture", jpeg.getvalue()[: len(jpeg.getvalue()) // 2]
    yield "a picture of 60,000 x 60,000", png_header(60_000, 60_000)
    yield "a picture without size", png_header(0, 0)
    yield "a gif of 65,535 x 65,535", b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff;"
    Image.new("L", (12_000, 9_000)).save(folder / "large.png")
    yield "more pixels than allowed", (folder / "large.png").read_bytes()


def sound() -> bytes:
    """A second of a tone, and no picture."""
    file = BytesIO()
    with av.open(file, "w", format="wav") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        tone = (8000 * np.sin(np.arange(8000) / 5)).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(tone[None], format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def flipped(content: bytes, seed: int) -> bytes:
    """One byte in fifty is another one."""
    random, changed = np.random.default_rng(seed), np.frombuffer(content, dtype=np.uint8).copy()
    places = random.choice(len(changed), len(changed) // 50, replace=False)
    changed[places] ^= random.integers(1, 256, len(places), dtype=np.uint8)
    return changed.tobytes()


def patched(clip: bytes, box: bytes, offset: int, value: int) -> bytes:
    """With another 32-bit number, so many bytes from the name of a box of an mp4."""
    place = clip.index(box) + offset
    return clip[:place] + struct.pack(">I", value) + clip[place + 4 :]


def png_header(width: int, height: int, packed: bytes | None = None) -> bytes:
    """A picture that says how large it is, with the given content or almost none."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(100)) if packed is None else packed)
        + chunk(b"IEND", b"")
    )


def answer_to(client: Client, name: str, content: bytes) -> str:
    """What becomes of a file; whatever that is, it is told in a way that people understand."""
    given = client.post("/api/clips", content=content)
    assert given.status_code == 201, name
    clip = given.json()["id"]
    known = until(client, clip, "failed", "ready")
    answer = client.get(f"/api/clips/{clip}/description")
    if known["state"] == "ready":
        assert answer.status_code == 200, (name, answer.text)
        assert answer.json()["caption"], name
        assert known["times"], name
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unreadable"), name
        error = answer.json()["error"]["message"]
        assert error.endswith("."), (name, error)
        for unwanted in ("ctsan-uploads", "Traceback", "[Errno", "not with the file"):
            assert unwanted not in error, (name, error)
    return str(known["state"])


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """Two seconds, with the index at the end as most files have it."""
    return encode(tmp_path / "small.mp4", counting(48)).read_bytes()


def test_what_is_no_video_is_refused(serve: Serve, spool: Path, small: bytes) -> None:
    with serve() as client:
        for name, content in no_videos(small):
            assert answer_to(client, name, content) == "failed", name
        assert files_in(spool) == []


def test_damaged_videos_are_answered_or_explained(
    serve: Serve, spool: Path, small: bytes, tmp_path: Path
) -> None:
    kinds = dict(damaged(small, tmp_path))
    assert len(kinds) >= 20
    with serve(workers=2) as client, ThreadPoolExecutor(4) as clients:
        states = dict(
            zip(kinds, clients.map(answer_to, [client] * len(kinds), kinds, kinds.values()), strict=True)
        )
        refused = [name for name, state in states.items() if state == "failed"]
        assert "the header only" in refused
        assert "no index" in refused
        assert "a picture of 60,000 x 60,000" in refused
        assert "more pixels than allowed" in refused
        assert states["itself twice"] == "ready"
        assert files_in(spool) == []
        assert len(workers_of(os.getpid())) <= 2
        (tmp_path / "whole.mp4").write_bytes(small)
        assert until(client, upload(client, tmp_path / "whole.mp4"), "ready", "failed")["state"] == "ready"
    assert list(spool.iterdir()) == []


def test_an_empty_upload_is_refused_at_once(serve: Serve, spool: Path) -> None:
    with serve() as client:
        for content in (b"", iter([b"", b""])):  # with Content-Length, and in chunks
            answer = client.post("/api/clips", content=content)
            assert answer.status_code == 422
            assert answer.json()["error"]["message"].startswith("The file is empty (0 bytes)")
        assert files_in(spool) == []


def test_of_an_upload_that_is_cut_off_the_length_is_what_can_be_read(serve: Serve, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (120, 48, 64, 3), dtype=np.uint8)
    whole = encode(tmp_path / "whole.mkv", noise, rate=12).read_bytes()
    with serve() as client:
        states = []
        for content in (whole, whole[: len(whole) // 2]):
            clip_id = client.post("/api/clips", content=content).json()["id"]
            states.append(until(client, clip_id, "ready", "failed"))
    assert (states[0]["duration"], states[0]["cut_off"]) == (pytest.approx(10, abs=0.1), None)
    assert states[1]["duration"] == pytest.approx(5, abs=1)
    assert states[1]["cut_off"] == pytest.approx(10, abs=0.1)


def test_a_picture_that_would_unpack_to_gigabytes_takes_no_memory(serve: Serve) -> None:
    bombs = [png_bomb(15_000), png_bomb(20_000)]  # FFmpeg itself refuses the second
    assert max(map(len, bombs)) < 2 * 10**6
    with serve() as client:
        [worker] = workers_of(os.getpid())
        before = peak_memory(worker)
        for bomb in bombs:
            clip_id = client.post("/api/clips", content=bomb).json()["id"]
            assert "9,437,184 pixels" in until(client, clip_id, "failed", "ready")["error"]
        assert workers_of(os.getpid()) == [worker]
        assert peak_memory(worker) < before + 100 * 2**20


def png_bomb(side: int) -> bytes:
    """A square picture of zeros, in less than a thousandth of its bytes."""
    packer, rows = zlib.compressobj(9), bytes((3 * side + 1) * 100)
    packed = [packer.compress(rows) for _ in range(side // 100)]
    return png_header(side, side, b"".join([*packed, packer.flush()]))


def peak_memory(process: int) -> int:
    """Bytes, in RAM."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
