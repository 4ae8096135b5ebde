"""Many clients at once, and a worker that is killed meanwhile: who is answered, how soon, and what stays.

    python bench/serve.py --model runs/describe --model runs/fill --model runs/choose --clips FOLDER

Starts `ctsan serve` on this machine. Each client sends clips one after the other, asks everything about each
that the models answer, and forgets it; told to wait, it waits and tries again, and its times are those of the
last try. Half-way a worker that decodes is killed. Memory is that of the server and its workers together,
with what they share counted once.
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
    found = measure(options.model, clips, clients=options.clients, seconds=options.seconds)
    print(json.dumps(found) if options.json else as_text(found))


@dataclass(slots=True)
class ClipStatistic:
    """What clients saw, of all of them together."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by kind, answered
    waits: Counter[str] = field(default_factory=Counter)  # told to wait, by kind
    failures: list[str] = field(default_factory=list)
    sent: int = 0  # clips that the server has taken
    finished: int = 0  # about which everything was answered
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """Asks until told to stop, and then finishes with the clip that it has sent."""

    def __init__(self, address: str, statistic: ClipStatistic, stop: threading.Event) -> None:
        self._http = httpx.Client(base_url=address, timeout=_PATIENCE)
        self._tally, self._stop = statistic, stop

    def go_on(self, clips: Sequence[Path], tasks: Sequence[str], seed: int) -> None:
        order = random.Random(seed)
        while not self._stop.is_set():
            given = self._ask("upload", "POST", "", content=order.choice(clips).read_bytes())
            if given is None:
                continue
            with self._tally.lock:
                self._tally.sent += 1
            path = f"/{given['id']}"
            answers = [
                self._ask(what, verb, path + end, **body) for what, verb, end, body in _questions(tasks)
            ]
            self._http.delete(f"/api/clips{path}")
            with self._tally.lock:
                self._tally.finished += all(answer is not None for answer in answers)
        self._http.close()

    def _ask(self, what: str, verb: str, path: str, **body: Any) -> dict[str, Any] | None:
        """The answer; None where there is none to be had, which is noted."""
        began = time.perf_counter()
        while True:
            try:
                answer = self._http.request(verb, f"/api/clips{path}", **body)
            except httpx.HTTPError as error:
                self._fail(f"{what}: {type(error).__name__}")
                return None
            if answer.status_code != 429:
                break
            with self._tally.lock:
                self._tally.waits[what] += 1
            if what == "upload" and self._stop.is_set():
                return None
            time.sleep(float(answer.headers["retry-after"]))
            began = time.perf_counter()
        if answer.status_code >= 400:
            self._fail(f"{what}: {answer.status_code} {answer.text}")
            return None
        with self._tally.lock:
            self._tally.seconds[what].append(time.perf_counter() - began)
        found: dict[str, Any] = answer.json()
        return found

    def _fail(self, why: str) -> None:
        with self._tally.lock:
            self._tally.failures.append(why)


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
    """Clients at a server for some time, with a worker killed half-way."""
    statistic, stop = ClipStatistic(), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder)
        with _server(models, spool) as (address, process):
            status = httpx.get(f"{address}/api/status", timeout=_PATIENCE).json()
            before = _megabytes(process)
            asking = [
                threading.Thread(
                    target=Client(address, statistic, stop).go_on, args=(clips, status["tasks"], seed)
                )
                for seed in range(clients)
            ]
            began = time.perf_counter()
            for each in asking:
                each.start()
            peak, killed = before, 0
            while time.perf_counter() - began < seconds:
                time.sleep(min(1.0, seconds / 10))
                peak = max(peak, _megabytes(process))
                if not killed and time.perf_counter() - began > seconds / 2:
                    killed = _kill_worker(process)
            stop.set()
            for each in asking:
                each.join()
            took = time.perf_counter() - began
            after = _megabytes(process)
            left = sum(path.is_file() for path in spool.rglob("*"))
        remains = [path.name for path in spool.iterdir()]
    return {
        "clients": clients,
        "seconds": took,
        "clips_taken": statistic.sent,
        "clips_finished": statistic.finished,
        "workers_killed": killed,
        "requests": {
            what: {
                "answered": len(times),
                "told_to_wait": statistic.waits[what],
                "median_s": float(np.percentile(times, 50)),
                "p95_s": float(np.percentile(times, 95)),
                "p99_s": float(np.percentile(times, 99)),
            }
            for what, times in statistic.seconds.items()
        },
        "failures": statistic.failures,
        "memory_mb": {"before": before, "highest": peak, "after": after},
        "files_left": left,
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
    """One that is at work if any is: it has used the most time."""
    workers = sorted(_workers(server), key=lambda worker: -worker.cpu_times().user)
    for worker in workers[:1]:
        worker.kill()
    return len(workers[:1])


def _megabytes(server: psutil.Process) -> float:
    total = 0
    for process in [server, *server.children()]:
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:  # it was killed just now
            continue
    return total / 2**20


def as_text(found: dict[str, Any]) -> str:
    rows = [
        [what, each["answered"], each["told_to_wait"], each["median_s"], each["p95_s"], each["p99_s"]]
        for what, each in found["requests"].items()
    ]
    headers = ["request", "answered", "told to wait", "median s", "95 % s", "99 % s"]
    return "\n".join(
        [
            "{clients} clients for {seconds:.0f} s, workers killed: {workers_killed}".format(**found),
            "",
            tabulate(rows, headers, tablefmt="github", floatfmt=".2f"),
            "",
            f"clips taken {found['clips_taken']}, answered in full {found['clips_finished']}, "
            f"failed requests {len(found['failures'])}",
            "memory {before:.0f} MB before, {highest:.0f} at most, {after:.0f} after".format(
                **found["memory_mb"]
            ),
            f"files left: {found['files_left']} at the end, {found['files_left_after_stop']} after the stop",
            *sorted(set(found["failures"])),
        ]
    )


if __name__ == "__main__":
    main()
