"""Read mutated files, and report every answer that is neither a result nor an error message.

    python bench/fuzz.py --minutes 30                       # all targets in turn, from seed 0
    python bench/fuzz.py --minutes 5 --only video library   # some of them
    python bench/fuzz.py --replay FINDINGS/video-17         # one finding again, with its traceback

A target is a kind of file that ctsan reads: videos and pictures, runs, packs, features, arrays, corpora,
items, libraries, and requests to the page, with their headers, queries and bodies. Small valid ones are made
first. A case mutates one of them, chosen by the seed and the number of the case alone, and reads it in
another process. A finding is an exception that is no `CtsanError`, a status of 500 or above, a response
without security headers, a crash, more than `--memory` MB, or more than `--seconds` without an answer. One
input of each kind of finding is kept in the folder `--out`. The exit code is 1 if there are any.

With the package `atheris` (`pip install atheris`), `--atheris TARGET` lets coverage choose the mutations of
the target's largest file.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import re
import resource
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tabulate import tabulate

from ctsan.errors import CtsanError

SMALL = (
    *("model.hidden_dim=16", "model.embedding_dim=8", "detector.attention_dim=4", "detector.num_concepts=3"),
    *("detector.probe=none", "training.out_of_fold=false", "training.batch_size=4", "training.steps=2"),
    *("training.evaluations=1", "decoding.max_words=8"),
)
_SIZE = 32  # pixels: the targets do not run a backbone
_INTERESTING = (0, 1, -1, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1)
_JSON_VALUES = (
    *("null", "true", "-1", "0", "1e999", "NaN", "1" + "0" * 400, '""', '"\\ud800"', '"../../x"', "[]", "{}"),
    *("[" * 5000, '{"a":' * 2000, '"' + "x" * 10_000 + '"', "0.5", '"\\u0000"', "[[[1]]]", '{"version": 99}'),
)


_shared: list[Path] = []  # one folder, with a corpus, features and runs that several targets are made of


class FindingError(Exception):
    """An answer that is a fault without being an exception."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of input.

    Attributes:
        make: writes valid inputs below a folder; each entry of the folder is one input, a file or a tree.
        read: reads one input, as commands do.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], object]


# Mutations


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Change a few places of a file. Half of the JSON texts are changed value by value."""
    if content[:1] in (b"{", b"[") and draw.random() < 0.5:
        return _mutate_json(content, draw)
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4, 8, 32))):
        place = draw.randrange(len(data) + 1)
        if draw.random() < 0.5:
            place = min(place, draw.randrange(512))  # headers are at the beginning
        match draw.randrange(8):
            case 0:
                data[place : place + 1] = bytes([draw.randrange(256)])
            case 1 if data:
                data[min(place, len(data) - 1)] ^= 1 << draw.randrange(8)
            case 2:
                width = draw.choice((1, 2, 4, 8))
                value = draw.choice(_INTERESTING) & (2 ** (8 * width) - 1)
                data[place : place + width] = value.to_bytes(width, draw.choice(("little", "big")))
            case 3:
                del data[place : place + draw.choice((1, 4, 64, 4096))]
            case 4:
                source = draw.randrange(len(data) + 1)
                data[place:place] = data[source : source + draw.choice((1, 16, 256, 4096))]
            case 5:
                data[place:place] = draw.randbytes(draw.choice((1, 4, 64)))
            case 6 if draw.random() < 0.3:
                del data[place:]
            case _:
                data[place : place + 4] = draw.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"NaN,", b"1e99"))
    return bytes(data)


def _mutate_json(content: bytes, draw: random.Random) -> bytes:
    """Replace, drop or double a value of a JSON text, or of one line of JSON lines."""
    lines = content.splitlines(keepends=True)
    row = draw.randrange(len(lines))
    is_lines = len(lines) > 1 and lines[0].rstrip().endswith(b"}")
    try:
        value = json.loads(lines[row] if is_lines else content)
    except ValueError:
        return content[: draw.randrange(len(content) + 1)]
    places = list(_places(value))
    if not places:
        return b""
    holder, key = draw.choice(places)
    mark = f"@{draw.randrange(2**32)}@"
    match draw.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[draw.choice(("", "version", "\0", "x" * 300))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.extend([holder[key]] * draw.choice((1, 1000)))
        case _:
            holder[key] = mark
    text = json.dumps(value).replace(f'"{mark}"', draw.choice(_JSON_VALUES)).encode()
    return b"".join([*lines[:row], text + b"\n", *lines[row + 1 :]]) if is_lines else text


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys or indices."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


# Valid inputs


def _picture(number: int) -> NDArray[np.uint8]:
    rows, columns = np.mgrid[0:48, 0:64]
    return np.stack([rows * 5 + number * 9, columns * 3, (rows + columns + number * 20) % 256], -1).astype(
        np.uint8
    )


def _encode(path: Path, codec: str, *, pixels: str, frames: int = 12) -> None:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=6)
        stream.width, stream.height, stream.pix_fmt = 64, 48, pixels
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(_picture(number), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def make_videos(folder: Path) -> None:
    _encode(folder / "a.mp4", "libx264", pixels="yuv420p")
    _encode(folder / "b.mkv", "libx264", pixels="yuv420p")
    _encode(folder / "c.avi", "mpeg4", pixels="yuv420p")
    _encode(folder / "d.webm", "libvpx", pixels="yuv420p")
    _encode(folder / "e.mov", "mjpeg", pixels="yuvj420p")
    _encode(folder / "f.ts", "mpeg2video", pixels="yuv420p")
    for suffix in ("gif", "png", "jpg", "webp"):
        Image.fromarray(_picture(0)).save(folder / f"g.{suffix}")


def _trained(folder: Path, *tasks: str) -> list[Path]:
    from ctsan import train
    from ctsan.cli import group

    corpus = folder / "corpus"
    if not corpus.exists():
        group.main(["corpus", "make", str(corpus), "--clips", "14"], standalone_mode=False)
    runs = []
    for task in tasks:
        if not (folder / task).exists():
            train(task, corpus, folder / task, overrides=SMALL, features=[_features(folder)])
        runs.append(folder / task)
    return runs


def _features(folder: Path) -> Path:
    from ctsan.cli import group

    if not (folder / "features").exists():
        options = ["features", str(folder / "corpus"), "--out", str(folder / "features")]
        group.main(options, standalone_mode=False)
    return folder / "features"


def make_runs(folder: Path) -> None:
    for run in _trained(_shared[0], "describe", "embed"):
        shutil.copytree(run, folder / run.name, ignore=shutil.ignore_patterns("*.html", "*.svg"))


def make_packs(folder: Path) -> None:
    from ctsan.runs.packing import write_pack

    write_pack(_trained(_shared[0], "describe", "embed"), folder / "pack")


def make_features(folder: Path) -> None:
    _trained(_shared[0])
    shutil.copytree(_features(_shared[0]), folder / "features")


def make_arrays(folder: Path) -> None:
    np.save(folder / "clip.npy", np.zeros((4, 2, 2, 8), np.float16))
    np.save(folder / "flat.npy", np.ones((4, 8), np.float32))


def make_corpora(folder: Path) -> None:
    rows = [{"clip": f"{n}.mp4", "captions": ["a dog runs", "a wet dog"], "split": "train"} for n in range(4)]
    (folder / "lines").mkdir()
    (folder / "lines/clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "table").mkdir()
    (folder / "table/clips.csv").write_text('clip,caption\na.mp4,a dog runs\nb.mp4,"a cat, asleep"\n')


def make_items(folder: Path) -> None:
    rows = (
        {"clip": "a.mp4", "sentence": "a _____ runs", "answer": "dog"},
        {"clip": "a.mp4", "choices": ["a dog runs", "a cat", "x", "y", "z"], "right": 0},
        {"clip": "a.mp4", "query": "a dog runs"},
    )
    for number, row in enumerate(rows):
        (folder / f"items{number}.jsonl").write_text((json.dumps(row) + "\n") * 3)


def make_libraries(folder: Path) -> None:
    from ctsan.search.indexing import index_folders

    runs = _trained(_shared[0], "describe", "embed")
    index_folders([_shared[0] / "corpus/clips"], folder / "main", models=runs)


def make_requests(folder: Path) -> None:
    from ctsan.search.indexing import index_folders

    runs = _trained(_shared[0], "describe", "embed", "fill")
    if not (_shared[0] / "library").exists():
        index_folders([_shared[0] / "corpus/clips"], _shared[0] / "library", models=runs[:2])
    bodies = {
        "fill": {"sentence": "a _____ shape", "n_best": 3},
        "choose": {"sentences": ["a red heart", "a blue star"]},
        "search": {"query": "a heart", "n": 3, "concept": ["heart"]},
    }
    for name, body in bodies.items():
        (folder / f"{name}.json").write_text(json.dumps(body))
    for number, request in enumerate(_RAW_REQUESTS):
        (folder / f"raw{number}.http").write_bytes(request.replace("\n", "\r\n").encode())
    make_videos(folder)  # as uploads


# As they are sent; the ids are filled in when they are known.
_RAW_REQUESTS = (
    "GET /api/search?query=a%20heart&n=3&concept=heart&without=star HTTP/1.1\nHost: localhost\n"
    'Origin: http://localhost\nCookie: ctsan-8484=abc; other="x"\nAccept-Encoding: gzip;q=1.0\n\n',
    "GET /api/search?like=@CLIP@&n=100 HTTP/1.1\nHost: localhost:80\nSec-Fetch-Site: same-origin\n\n",
    'GET /api/library/@HIT@/video HTTP/1.1\nHost: 127.0.0.1\nRange: bytes=10-99\nIf-Range: "1-2"\n\n',
    "HEAD /api/library/@HIT@/video HTTP/1.1\nHost: [::1]\nRange: bytes=-5\n\n",
    'GET /static/app.js HTTP/1.1\nHost: localhost\nRange: bytes=0-9,20-29\nIf-None-Match: "a"\n'
    "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\n\n",
    "GET /api/clips/@CLIP@/traces?concept=heart HTTP/1.1\nHost: localhost\nAuthorization: Bearer abc\n"
    "X-Forwarded-For: 10.0.0.1\nX-Forwarded-Proto: https\n\n",
    "GET /api/clips/@CLIP@/pictures/0 HTTP/1.1\nHost: localhost\nConnection: upgrade\nUpgrade: websocket\n\n",
    "POST /api/clips/@CLIP@/fill HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    'Content-Length: 25\n\n{"sentence": "a _____ x"}',
    "POST /api/clips HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n"
    "5\nabcde\n0\n\n",
    "GET /?token=abc%20&token=&x HTTP/1.1\nHost: localhost\n\nGET /api/status HTTP/1.0\n\n",
)


# Reading


def read_video(path: Path) -> None:
    from ctsan.video.frames import pictures_at, probe, sample_frames
    from ctsan.video.shots import frames_of_shots

    for read in (
        lambda: probe(path),
        lambda: sample_frames(path, size=_SIZE),
        lambda: list(frames_of_shots(path, size=_SIZE)),
        lambda: pictures_at(path, np.array([0.0, 1.0]), box=(64, 64)),
    ):
        try:
            read()
        except CtsanError:
            continue


def read_run(path: Path) -> None:
    from ctsan.runs.trained_run import load_runs

    for run in load_runs([path]):
        _ = run.model, run.words


def read_features(path: Path) -> None:
    from ctsan.video.store import FeatureStore

    store = FeatureStore(path)
    for clip in list(store)[:3]:
        _ = store[clip].maps.sum()


def read_array(path: Path) -> None:
    from ctsan.video.imported import arrays_of, import_features

    with tempfile.TemporaryDirectory() as out:
        folder = Path(out) / "arrays"
        folder.mkdir()
        shutil.copy(path, folder / "a.npy")
        report = import_features(arrays_of(["a"], folder), Path(out) / "store", name="x", workers=1)
        _ = report.done


def read_corpus_folder(path: Path) -> None:
    from ctsan.data.reading import read_corpora

    read_corpora([path])


def read_item_file(path: Path) -> None:
    from ctsan.data.items import read_items

    read_items(path)


_MODELS: list[Any] = []


def read_library(path: Path) -> None:
    from ctsan.inference.loading import load_models
    from ctsan.search.search import Searcher

    if not _MODELS:
        _MODELS.extend(load_models([_shared[0] / "describe", _shared[0] / "embed"]))
    searcher = Searcher(path, loaded=_MODELS)
    searcher.search("a heart")


@dataclass(frozen=True, slots=True)
class _Page:
    """A server in a thread of this process."""

    client: Any
    clip: str
    hit: str
    errors: list[str]  # tracebacks that it has logged


_PAGE: list[_Page] = []


def _start_page() -> _Page:
    import httpx
    import uvicorn

    from ctsan.inference.predictor import Predictor
    from ctsan.web.app import create_app
    from ctsan.web.limits import Limits
    from ctsan.web.server import server_config

    limits = Limits(header_seconds=0.5, body_seconds=0.5, rate_seconds=0.5)
    predictor = Predictor.load(*(_shared[0] / task for task in ("describe", "embed", "fill")))
    app = create_app(predictor, limits=limits, library=_shared[0] / "library")
    server = uvicorn.Server(server_config(app, limits))
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    errors: list[str] = []
    for name in ("uvicorn.error", "asyncio", "ctsan"):
        logging.getLogger(name).addHandler(_Keep(errors))
    while not server.started:
        time.sleep(0.01)
    client = httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60)
    clip = sorted((_shared[0] / "corpus/clips").glob("*.mp4"))[0]
    clip_id = client.post("/api/clips", content=clip.read_bytes()).json()["id"]
    client.get(f"/api/clips/{clip_id}/concepts")
    [hit] = client.get("/api/search", params={"query": "a heart", "n": 1}).json()["hits"]
    return _Page(client, clip_id, hit["id"], errors)


class _Keep(logging.Handler):
    """Keeps the tracebacks that are logged."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__()
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self._errors.append("".join(traceback.format_exception(record.exc_info[1])))


def send_request(path: Path) -> None:
    """Send a request to a server in this process: a body, an upload, or all bytes of a request."""
    if not _PAGE:
        _PAGE.append(_start_page())
    [page] = _PAGE
    page.errors.clear()
    content = path.read_bytes()
    status = _send_raw(page, content) if path.suffix == ".http" else _send_body(page, path, content)
    if page.errors:
        raise FindingError(f"status {status}\n{page.errors[0]}")
    if status >= 500 and status != 503:
        raise FindingError(f"status {status}")


def _send_body(page: _Page, path: Path, body: bytes) -> int:
    if path.suffix != ".json":
        response = page.client.post("/api/clips", content=body)
        if response.status_code == 201:
            uploaded = response.json()["id"]
            page.client.get(f"/api/clips/{uploaded}/concepts")
            page.client.delete(f"/api/clips/{uploaded}")
    elif path.stem == "search":
        text = body.decode("latin-1")
        response = page.client.get("/api/search", params={"query": text[:500], "n": 3})
    else:
        headers = {"Content-Type": "application/json"}
        response = page.client.post(f"/api/clips/{page.clip}/{path.stem}", content=body, headers=headers)
    status: int = response.status_code
    return status


def _send_raw(page: _Page, request: bytes) -> int:
    """The status of the first response, which must have the security headers."""
    request = request.replace(b"@CLIP@", page.clip.encode()).replace(b"@HIT@", page.hit.encode())
    with socket.create_connection(("127.0.0.1", page.client.base_url.port), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"):
            part = connection.recv(2**16)
            if not part:
                raise FindingError(f"closed after {answer[:100]!r}")
            answer += part
    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    if b"content-security-policy: default-src 'none'" not in answer.lower():
        raise FindingError(f"no security headers: {answer[:300]!r}")
    return int(answer.split()[1])


TARGETS = {
    target.name: target
    for target in (
        Target("video", make_videos, read_video),
        Target("run", make_runs, read_run),
        Target("pack", make_packs, read_run),
        Target("features", make_features, read_features),
        Target("array", make_arrays, read_array),
        Target("corpus", make_corpora, read_corpus_folder),
        Target("items", make_items, read_item_file),
        Target("library", make_libraries, read_library),
        Target("request", make_requests, send_request),
    )
}


# Running


def mutated_input(seeds: Path, folder: Path, *, target: str, seed: int, case: int) -> Path:
    """Write case number `case` into a folder, and return its path."""
    draw = random.Random(f"{seed} {target} {case}")
    source = draw.choice(sorted(seeds.iterdir()))
    copy = folder / source.name
    if source.is_file():
        copy.write_bytes(mutate(source.read_bytes(), draw))
        return copy
    shutil.copytree(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.suffix != ".mp4")
    for path in draw.sample(files, min(len(files), draw.choice((1, 1, 1, 2)))):
        match draw.randrange(12):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(b"")
            case 2:
                path.unlink()
                path.mkdir()
            case _:
                path.write_bytes(mutate(path.read_bytes(), draw))
    return copy


def fault_of(target: Target, path: Path) -> str | None:
    """Read an input; the traceback of anything but a result or a `CtsanError`."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            target.read(path)
        except CtsanError as error:
            if len(str(error)) > 20_000:
                return f"a message of {len(str(error)):,} characters"
        except Exception:
            return traceback.format_exc()
    return None


def _work(
    connection: Connection, name: str, seeds: Path, shared: Path, seed: int, first: int, memory: int
) -> None:
    """Read one case after the other, and say which."""
    target, case = TARGETS[name], first
    _shared.append(shared)
    with tempfile.TemporaryDirectory() as warm:  # what is loaded once does not count as memory of a case
        shutil.copytree(seeds, Path(warm) / "seeds")
        for path in sorted((Path(warm) / "seeds").iterdir()):
            fault_of(target, path)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + memory * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        connection.send(("begins", case, None))
        with tempfile.TemporaryDirectory() as folder:
            path = mutated_input(seeds, Path(folder), target=name, seed=seed, case=case)
            fault = fault_of(target, path)
        if fault:
            connection.send(("fault", case, fault))
        case += 1


def fuzz(
    name: str, seeds: Path, *, seed: int, seconds: float, silence: float, memory: int
) -> tuple[int, dict[int, str]]:
    """Read cases for some seconds; how many there were, and the faults by case."""
    context = multiprocessing.get_context("spawn")
    deadline = time.monotonic() + seconds
    faults: dict[int, str] = {}
    case = 0
    while time.monotonic() < deadline:
        receiver, sender = context.Pipe(duplex=False)
        worker = context.Process(
            target=_work, args=(sender, name, seeds, _shared[0], seed, case, memory), daemon=True
        )
        worker.start()
        sender.close()
        heard = time.monotonic() + 60  # importing and loading models may take a minute
        has_begun = False
        try:
            while time.monotonic() < deadline or not has_begun:
                if receiver.poll(0.2):
                    kind, case, fault = receiver.recv()
                    has_begun, heard = True, time.monotonic()
                    if kind == "fault":
                        faults[case] = fault
                elif time.monotonic() - heard > silence:
                    faults[case] = f"no answer within {silence:.0f} s"
                    break
        except EOFError:
            worker.join()
            faults[case] = f"the process ended with {worker.exitcode}"
        worker.kill()
        worker.join()
        case += 1
    return case, faults


def kind_of(fault: str) -> str:
    """The exception and the line of ctsan that it came through; faults of the same kind have one cause."""
    last = fault.strip().splitlines()[-1].partition(":")[0][:100]
    lines = re.findall(r'File ".*/ctsan/([\w/]+\.py)", line (\d+)', fault)
    return f"{last} at {lines[-1][0]}:{lines[-1][1]}" if lines else last


def _replay(finding: Path) -> None:
    name = finding.name.partition("-")[0]
    [path] = [path for path in finding.iterdir() if path.name != "fault.txt"]
    if name in ("library", "request"):
        (_shared[0] / "seeds").mkdir()
        TARGETS[name].make(_shared[0] / "seeds")
    print(fault_of(TARGETS[name], path) or "No fault any more.")


def _run_atheris(target: Target, seeds: Path) -> None:
    import atheris

    source = max((path for path in seeds.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / source.name

        def one(data: bytes) -> None:
            copy.write_bytes(data)
            if fault := fault_of(target, copy):
                raise FindingError(fault)

        atheris.Setup([sys.argv[0], str(source.parent)], one)
        atheris.instrument_all()
        atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="for all targets together [30]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=30.0, help="without an answer that are a fault [30]")
    parser.add_argument("--memory", type=int, default=1024, help="MB that a case may take [1024]")
    parser.add_argument("--out", type=Path, default=Path("findings"), help="folder of findings [findings]")
    parser.add_argument("--replay", type=Path, help="a folder of a finding")
    parser.add_argument("--atheris", choices=TARGETS, help="mutations chosen by coverage, without end")
    options = parser.parse_args(arguments)
    rows, num_findings = [], 0
    with tempfile.TemporaryDirectory() as folder:
        _shared.append(Path(folder) / "shared")
        _shared[0].mkdir()
        if options.replay:
            _replay(options.replay)
            return 0
        for name in [options.atheris] if options.atheris else options.only:
            seeds = Path(folder) / name
            seeds.mkdir()
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                TARGETS[name].make(seeds)
            if options.atheris:
                _run_atheris(TARGETS[name], seeds)
            count, faults = fuzz(
                name,
                seeds,
                seed=options.seed,
                seconds=options.minutes * 60 / len(options.only),
                silence=options.seconds,
                memory=options.memory,
            )
            kinds: dict[str, int] = {}
            for case, fault in faults.items():
                kind = kind_of(fault)
                kinds[kind] = kinds.get(kind, 0) + 1
                if kinds[kind] == 1:  # one of each kind is kept
                    kept = options.out / f"{name}-{case}"
                    shutil.rmtree(kept, ignore_errors=True)
                    kept.mkdir(parents=True)
                    mutated_input(seeds, kept, target=name, seed=options.seed, case=case)
                    (kept / "fault.txt").write_text(fault)
                    print(f"{name} {case}: {kind}\n  {kept}", flush=True)
            num_findings += len(kinds)
            rows.append([name, f"{count:,}", len(kinds), len(faults)])
            print(f"{name}: {count:,} cases, {len(kinds)} kinds of findings", flush=True)
    print(tabulate(rows, ["target", "cases", "kinds of findings", "findings"], disable_numparse=True))
    return 1 if num_findings else 0


if __name__ == "__main__":
    sys.exit(main())
