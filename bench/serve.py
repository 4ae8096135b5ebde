"""Load test of `ctsan serve`, with workers killed: latency, failures, processes, memory and leftover files.

    python bench/serve.py --model runs/describe --model runs/fill --model runs/choose --clips FOLDER

Starts `ctsan serve` on this machine. Each client uploads clips one after the other, sends every request that
the models can answer, and deletes the clip. On status 429 it waits and retries; times are those of the last
try. There are two rounds, each for half of --seconds. Half-way through each, a decoding worker is killed.

Processes, memory, open files and files in the folder for temporary files are those of the server and its
workers, with shared pages of memory counted once. They are measured before the load, and after each round,
when all clients have left. The first round needs some: workers that were not started yet, buffers of the
models. What grows between the two rounds is a leak, and the exit code is then 1. Memory may vary by 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from tabulate import tabulate

_PATIENCE = 600.0  # seconds for one answer
_VARIATION = 1.1  # of memory after two rounds, which is no growth
_SETTLING_SECONDS = 2.0  # for the server to close the connections of clients that have left
_ENDINGS = (".mp4", ".webm", ".mkv", ".mov", ".avi")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[], help="as of ctsan serve")
    parser.add_argument("--clips", type=Path, required=True, help="folder of videos to send")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    clips = sorted(path for path in options.clips.iterdir() if path.suffix.lower() in _ENDINGS)
    if not clips:
        parser.error(f"{options.clips} holds no videos")
    report = measure(options.model, clips, clients=options.clients, seconds=options.seconds)
    print(json.dumps(report) if options.json else as_text(report))
    sys.exit(1 if report["growth"] else 0)


@dataclass(slots=True)
class LoadStatistics:
    """What all clients measured."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by kind, answered
    waits: Counter[str] = field(default_factory=Counter)  # told to wait, by kind
    failures: list[str] = field(default_factory=list)
    sent: int = 0  # clips that the server has taken
    finished: int = 0  # about which everything was answered
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """Sends requests until `stop` is set, then finishes its current clip."""

    def __init__(self, address: str, statistics: LoadStatistics, stop: threading.Event) -> None:
        self._http = httpx.Client(base_url=address, timeout=_PATIENCE)
        self._statistics, self._stop = statistics, stop

    def run(self, clips: Sequence[Path], tasks: Sequence[str], seed: int) -> None:
        order = random.Random(seed)
        while not self._stop.is_set():
            upload = self._request("upload", "POST", "", content=order.choice(clips).read_bytes())
            if upload is None:
                continue
            with self._statistics.lock:
                self._statistics.sent += 1
            path = f"/{upload['id']}"
            answers = [
                self._request(what, verb, path + end, **body) for what, verb, end, body in _questions(tasks)
            ]
            self._http.delete(f"/api/clips{path}")
            with self._statistics.lock:
                self._statistics.finished += all(answer is not None for answer in answers)
        self._http.close()

    def _request(self, what: str, verb: str, path: str, **body: Any) -> dict[str, Any] | None:
        """Send a request until it is not told to wait; None, with a failure recorded, if it fails."""
        began = time.perf_counter()
        while True:
            try:
                answer = self._http.request(verb, f"/api/clips{path}", **body)
            except httpx.HTTPError as error:
                self._fail(f"{what}: {type(error).__name__}")
                return None
            if answer.status_code != 429:
                break
            with self._statistics.lock:
                self._statistics.waits[what] += 1
            if what == "upload" and self._stop.is_set():
                return None
            time.sleep(float(answer.headers["retry-after"]))
            began = time.perf_counter()
        if answer.status_code >= 400:
            self._fail(f"{what}: {answer.status_code} {answer.text}")
            return None
        with self._statistics.lock:
            self._statistics.seconds[what].append(time.perf_counter() - began)
        document: dict[str, Any] = answer.json()
        return document

    def _fail(self, why: str) -> None:
        with self._statistics.lock:
            self._statistics.failures.append(why)


def _questions(tasks: Sequence[str]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    if "describe" in tasks:
        yield "description", "GET", "/description", {}
        yield "traces", "GET", "/traces", {}
    if "fill" in tasks:
        yield "fill", "POST", "/fill", {"json": {"sentence": "a man is ___ a ___"}}
    if "choose" in tasks:
        sentences = ["a man is driving a car", "a dog runs on grass", "a woman is cooking"]
        yield "choose", "POST", "/choose", {"json": {"sentences": sentences}}


def measure(models: Sequence[Path], clips: Sequence[Path], *, clients: int, seconds: float) -> dict[str, Any]:
    """Run clients against a server in two rounds, with a worker killed in each."""
    statistics = LoadStatistics()
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder)
        with _server(models, spool) as (address, process):
            status = httpx.get(f"{address}/api/status", timeout=_PATIENCE).json()
            resources = {"start": _resources(process, spool)}
            peak, killed, took = 0.0, 0, 0.0
            for when in ("middle", "end"):
                stop = threading.Event()
                threads = [
                    threading.Thread(
                        target=Client(address, statistics, stop).run, args=(clips, status["tasks"], seed)
                    )
                    for seed in range(clients)
                ]
                began, has_killed = time.perf_counter(), False
                for thread in threads:
                    thread.start()
                while time.perf_counter() - began < seconds / 2:
                    time.sleep(min(1.0, seconds / 20))
                    peak = max(peak, _resources(process, spool)["memory_mb"])
                    if not has_killed and time.perf_counter() - began > seconds / 4:
                        killed += _kill_worker(process)
                        has_killed = True
                stop.set()
                for thread in threads:
                    thread.join()
                took += time.perf_counter() - began
                time.sleep(_SETTLING_SECONDS)
                resources[when] = _resources(process, spool)
        remains = [path.name for path in spool.iterdir()]
    return {
        "clients": clients,
        "seconds": took,
        "clips_taken": statistics.sent,
        "clips_finished": statistics.finished,
        "workers_killed": killed,
        "requests": {
            what: {
                "answered": len(times),
                "told_to_wait": statistics.waits[what],
                "median_s": float(np.percentile(times, 50)),
                "p95_s": float(np.percentile(times, 95)),
                "p99_s": float(np.percentile(times, 99)),
            }
            for what, times in statistics.seconds.items()
        },
        "failures": statistics.failures,
        "resources": resources,
        "growth": _growth(resources["middle"], resources["end"]),
        "highest_memory_mb": peak,
        "files_left_after_stop": len(remains),
    }


@contextmanager
def _server(models: Sequence[Path], spool: Path) -> Iterator[tuple[str, psutil.Process]]:
    named = [option for folder in models for option in ("--model", str(folder))]
    command = [sys.executable, "-m", "ctsan", "serve", "--port", "0", *named]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(spool)}
    )
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        if not line.startswith("Open "):
            sys.exit("The server did not start; what it said stands above.")
        yield line.removeprefix("Open ").strip().rstrip("/"), psutil.Process(started.pid)
    finally:
        started.send_signal(signal.SIGTERM)
        started.communicate()


def _workers(server: psutil.Process) -> list[psutil.Process]:
    return [child for child in server.children() if "ctsan.web.worker" in child.cmdline()]


def _kill_worker(server: psutil.Process) -> int:
    """Kill the worker with the most CPU time, which is a busy one if there is any."""
    workers = sorted(_workers(server), key=lambda worker: -worker.cpu_times().user)
    for worker in workers[:1]:
        worker.kill()
    return len(workers[:1])


def _resources(server: psutil.Process, spool: Path) -> dict[str, float]:
    """What the server and all processes that it has started hold, including those that nobody waited for."""
    num_processes, num_files, num_bytes = 0, 0, 0
    for process in [server, *server.children(recursive=True)]:
        try:
            num_bytes += process.memory_full_info().pss
            num_files += process.num_fds()
        except psutil.ZombieProcess:
            pass
        except psutil.NoSuchProcess:  # it was killed just now
            continue
        num_processes += 1
    return {
        "processes": num_processes,
        "open_files": num_files,
        "temporary_files": sum(path.is_file() for path in spool.rglob("*")),
        "memory_mb": num_bytes / 2**20,
    }


def _growth(middle: dict[str, float], end: dict[str, float]) -> list[str]:
    """Names of what grew between two rounds of the same load."""
    allowed = {name: _VARIATION if name == "memory_mb" else 1.0 for name in middle}
    return [name for name, factor in allowed.items() if end[name] > factor * middle[name]]


def as_text(report: dict[str, Any]) -> str:
    rows = [
        [what, row["answered"], row["told_to_wait"], row["median_s"], row["p95_s"], row["p99_s"]]
        for what, row in report["requests"].items()
    ]
    resources = [
        [when, row["processes"], row["open_files"], row["temporary_files"], row["memory_mb"]]
        for when, row in report["resources"].items()
    ]
    columns = ["", "processes", "open files", "temporary files", "memory, MB"]
    headers = ["request", "answered", "told to wait", "median s", "95 % s", "99 % s"]
    return "\n".join(
        [
            "{clients} clients for {seconds:.0f} s, workers killed: {workers_killed}".format(**report),
            "",
            tabulate(rows, headers, tablefmt="github", floatfmt=".2f"),
            "",
            f"clips taken {report['clips_taken']}, answered in full {report['clips_finished']}, "
            f"failed requests {len(report['failures'])}",
            "",
            tabulate(resources, columns, "github", floatfmt=".0f"),
            f"at most {report['highest_memory_mb']:.0f} MB; grew between the rounds: "
            f"{', '.join(report['growth']) or 'nothing'}; "
            f"temporary files after the stop: {report['files_left_after_stop']}",
            *sorted(set(report["failures"])),
        ]
    )


if __name__ == "__main__":
    main()
