"""Kill commands at random moments and compare the results; check what a power loss could undo.

    python bench/crash.py --kills 100                       # index, features, train, pack and serve, each
    python bench/crash.py --kills 100 --folder crash        # goes on there if it was stopped
    python bench/crash.py --kills 5 --only train --seed 3

First part: a command is killed with SIGKILL, and run again, until it ends. Its files must be those of an
undisturbed run, byte by byte, and no process of it may be left. What depends on the clock or on the order of
transactions is left out: the speeds in metrics.jsonl, its size in the checkpoint, and the pages of
library.sqlite, whose rows are compared. The files of `serve` are a library, its folder for temporary files,
and the answers that a client gets: to uploads, questions about them, and searches.

Second part: a command runs with `os.fsync`, `os.replace` and SQLite's commits recorded. A record is a commit,
a checkpoint, a manifest, or a folder that is renamed. Before a record is written, the contents and the names
of all other files must be on the disk: otherwise a power loss could leave a record of files that are gone.

The exit code is 1 if there is any difference or fault. The folder keeps the inputs, what was done so far, and
the results that differ.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from safetensors import safe_open
from tabulate import tabulate

from ctsan.cli import group
from ctsan.io.atomic import make_folder, write_json
from fuzz import SMALL

CLIPS = 14  # of which two are for validation
_SETTINGS = (*SMALL, "training.steps=24", "training.evaluations=3", "training.checkpoint_every=3")
_MOST_KILLS = 3  # of one run, before it may end
_PATIENCE = 120.0  # seconds for an answer of the page, or for the workers of a killed command to end
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_RECORDS = frozenset({"checkpoint.safetensors", "manifest.json"})
_CLOCK = ("words_per_second", "seconds")  # in rows of metrics.jsonl
# Imported once, here, so that kills hit the work of a command and not its imports.
_MODULES = (
    *("gensim.models", "onnxruntime", "spacy", "torch", "torch.optim", "ctsan.runs.packing"),
    *("ctsan.search.indexing", "ctsan.training.train", "ctsan.video.extraction", "ctsan.web.app", "uvicorn"),
)


def _sets(settings: Sequence[str]) -> list[str]:
    return [argument for setting in settings for argument in ("--set", setting)]


def _models(inputs: Path) -> tuple[object, ...]:
    return ("--model", inputs / "describe", "--model", inputs / "embed")


# The arguments of each command, from the folder of inputs and the folder for its results.
COMMANDS: Mapping[str, Callable[[Path, Path], list[object]]] = {
    "index": lambda inputs, out: [
        *("index", inputs / "corpus/clips", "--store", out / "libraries", *_models(inputs))
    ],
    "features": lambda inputs, out: ["features", inputs / "corpus", "--out", out / "features"],
    "train": lambda inputs, out: [
        *("train", "describe", "--corpus", inputs / "corpus", "--features", inputs / "features"),
        *("--out", out / "run", *_sets(_SETTINGS)),
    ],
    "pack": lambda inputs, out: ["pack", inputs / "describe", inputs / "embed", "--out", out / "pack"],
    "serve": lambda inputs, out: [
        *("serve", *_models(inputs), "--library", "main", "--store", out / "libraries", "--port", 0)
    ],
}


@dataclass(slots=True)
class Progress:
    """What is known about a command so far.

    Attributes:
        seconds: of the undisturbed run; None before it.
        trials: how often a run was killed before it ended.
        findings: differences, and processes that were left.
        records: number of records in the recorded run; None before it.
        faults: records that came too early.
    """

    seed: int
    seconds: float | None = None
    trials: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    records: int | None = None
    faults: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, seed: int) -> Progress:
        """The progress in a file, or none yet if there is no file."""
        if not path.exists():
            return cls(seed)
        progress = cls(**json.loads(path.read_text(encoding="utf-8")))
        if progress.seed != seed:
            raise SystemExit(
                f"{path} is of seed {progress.seed}. Give --seed {progress.seed}, or another --folder."
            )
        return progress


class Trial:
    """One folder for results, in which a command may run several times."""

    def __init__(self, name: str, inputs: Path, out: Path, log: Path) -> None:
        self.name, self.inputs, self.out, self.log = name, inputs, out, log
        shutil.rmtree(out, ignore_errors=True)  # of a trial that was stopped
        make_folder(out / "tmp")
        if name == "serve":
            shutil.copytree(inputs / "libraries", out / "libraries")

    def run(self, *, kill_after: float | None = None, recorder: DiskRecorder | None = None) -> bool:
        """Run the command until it ends, or is killed after some seconds; whether it has ended."""
        self.log.write_bytes(b"")
        arguments = COMMANDS[self.name](self.inputs, self.out)
        process = start(arguments, self.log, temporary=self.out / "tmp", recorder=recorder)
        client = start_client(self, process) if self.name == "serve" else None
        try:
            has_ended = wait(process, kill_after)
            if not has_ended:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        finally:
            if client is not None:
                os.waitpid(client, 0)
        return has_ended

    def run_with_kills(self, draw: random.Random, *, seconds: float, most: int) -> int:
        """Run, kill and run again until the command ends; how often it was killed."""
        for kills in range(most):
            if self._is_complete() or self.run(kill_after=draw.uniform(0, seconds)):
                return kills
        if not self._is_complete():
            self.run()
        return most

    def _is_complete(self) -> bool:
        """Whether `pack` was killed after its folder had appeared, into which it does not write again."""
        return self.name == "pack" and (self.out / "pack").exists()


def start(
    arguments: Sequence[object], log: Path, *, temporary: Path, recorder: DiskRecorder | None = None
) -> int:
    """Run a command in a new process, whose id is returned; a recorder writes its answer beside the log."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the server raises again when it has stopped
        if recorder:
            recorder.install()
        group.main([str(argument) for argument in arguments], standalone_mode=False)
        if recorder:
            log.with_suffix(".json").write_text(json.dumps([recorder.records, list(recorder.faults)]))
        code = 0
    except BaseException as error:  # a process that was forked must not return
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def wait(child: int, seconds: float | None = None) -> bool:
    """Wait for a process to end, at most for some seconds; whether it has.

    Raises:
        RuntimeError: it failed.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, 0 if deadline is None else os.WNOHANG)
        if done:
            if status:
                raise RuntimeError(f"a command ended with {os.waitstatus_to_exitcode(status)}")
            return True
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def start_client(trial: Trial, server: int) -> int:
    """Use the page in a new process, whose id is returned, write the answers, and stop the server."""
    child = os.fork()
    if child:
        return child
    try:
        with suppress(httpx.HTTPError, ProcessLookupError):  # the server is killed
            answers = use_page(trial, server)
            write_json(trial.out / "answers.json", answers)
            os.kill(server, signal.SIGTERM)
    finally:
        os._exit(0)


def use_page(trial: Trial, server: int) -> list[object]:
    """Upload clips, ask about them, search, and delete them; all answers."""
    while not (found := re.search(rb"Open (http:\S+)/", trial.log.read_bytes())):
        os.kill(server, 0)  # raises once it is gone
        time.sleep(0.01)
    answers: list[object] = []
    with httpx.Client(base_url=found[1].decode(), timeout=_PATIENCE) as client:
        for clip in sorted((trial.inputs / "corpus/clips").glob("*.mp4"))[:3]:
            number = client.post("/api/clips", content=clip.read_bytes()).json()["id"]
            answers.append(client.get(f"/api/clips/{number}/description").json())
            answers.append(client.get(f"/api/clips/{number}/concepts").json())
            hits = client.get("/api/search", params={"query": "a red heart", "n": 3}).json()["hits"]
            answers.append([{**hit, "id": None} for hit in hits])  # ids are new at each start
            client.delete(f"/api/clips/{number}")
    return answers


def processes_left() -> list[str]:
    """The processes of killed commands that do not end, which are then killed."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = psutil.Process().children(recursive=True)
        if not left:
            return []
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    found = []
    for process in left:
        with suppress(psutil.NoSuchProcess):
            found.append(f"left running: {' '.join(process.cmdline()[:4])}")
            process.kill()
    return found


def contents(folder: Path) -> dict[str, object]:
    """What the files below a folder hold, without what depends on the clock."""
    return {
        path.relative_to(folder).as_posix(): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def _content(path: Path) -> object:
    match path.name:
        case "metrics.jsonl":
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            return [{name: value for name, value in row.items() if name not in _CLOCK} for row in rows]
        case "checkpoint.safetensors":
            with safe_open(path, framework="numpy") as file:
                header = json.loads(file.metadata()["ctsan"])
                tensors = {name: file.get_tensor(name).tobytes() for name in sorted(file.keys())}
            header["state"].pop("metrics_size")
            return header, tensors
        case "library.sqlite":
            with closing(sqlite3.connect(path)) as database:
                return list(database.iterdump())
    return path.read_bytes()


def differences(expected: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    """The names of files that only one has, or that differ."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


class DiskRecorder:
    """Knows which contents and names below a folder are on the disk, and finds records that come too early.

    A name is on the disk after its folder was synced, a content after its file was, or after `flush` of a
    memory map, and as long as size and modification time stay the same.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = 0
        self.faults: dict[str, None] = {}  # in order, each once
        self._contents: dict[int, tuple[int, int]] = {}  # by inode: size and modification time
        self._names: set[tuple[int, str, int]] = set()  # inode of the folder, name, inode
        self._fsync, self._replace, self._connect = os.fsync, os.replace, sqlite3.connect

    def install(self) -> None:
        """Record what this process does from now on."""
        for name, function in (("fsync", self.fsync), ("fdatasync", self.fsync)):
            setattr(os, name, function)
        for name in ("replace", "rename"):
            setattr(os, name, self.replace)
        setattr(sqlite3, "connect", self.connect)  # noqa: B010  # mypy takes it for another function

    def fsync(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        status = os.fstat(descriptor)
        self._fsync(descriptor)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(descriptor) as entries:
                self._names |= {(status.st_ino, entry.name, entry.inode()) for entry in entries}
        else:
            self._contents[status.st_ino] = (status.st_size, status.st_mtime_ns)

    def replace(self, source: Any, target: Any, **options: Any) -> None:
        source, target = Path(source), Path(target)
        if source.is_dir():
            self.check(target, source)
        elif not self._is_synced(source) and ".sqlite" not in source.name:  # SQLite syncs files itself
            self._report(target, "its own content")
        if target.name in _RECORDS:
            self.check(target, self.folder)
        self._replace(source, target, **options)

    def connect(self, database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._connect(database, *arguments, **options)
        name = Path(str(database).partition("?")[0].removeprefix("file://"))

        def trace(statement: str) -> None:
            if statement.lstrip().upper().startswith(("COMMIT", "END")) and ".tmp" not in name.name:
                self.check(name, self.folder)

        connection.set_trace_callback(trace)
        return connection

    def check(self, record: Path, folder: Path) -> None:
        """Find what is not on the disk when a record of it is written."""
        self.records += 1
        for path in folder.rglob("*"):
            name, parts = path.name, path.relative_to(folder).parts
            is_passing = parts[0] == "tmp" or any(part.endswith(".tmp") for part in parts)
            if is_passing or name in (record.name, ".lock") or ".sqlite" in name:
                continue
            status = path.stat()
            if (path.parent.stat().st_ino, name, status.st_ino) not in self._names:
                self._report(record, f"the name of {path.relative_to(folder)}")
            if path.is_file() and not self._is_synced(path):
                self._report(record, f"the content of {path.relative_to(folder)}")

    def _is_synced(self, path: Path) -> bool:
        status = path.stat()
        return self._contents.get(status.st_ino) == (status.st_size, status.st_mtime_ns)

    def _report(self, record: Path, what: str) -> None:
        self.faults[f"{record.name} is written before {what} is on the disk"] = None


def make_inputs(folder: Path) -> None:
    """A corpus, its features, two runs, and a library: what the commands work on."""
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder / "tmp")
    corpus, features = folder / "corpus", folder / "features"
    commands: list[list[object]] = [
        ["corpus", "make", corpus, "--clips", CLIPS],
        ["features", corpus, "--out", features],
    ]
    for task in ("describe", "embed"):
        options = ("--corpus", corpus, "--features", features, "--out", folder / task)
        commands.append(["train", task, *options, *_sets(SMALL)])
    commands.append(["index", corpus / "clips", "--store", folder / "libraries", *_models(folder)])
    for command in commands:
        wait(start(command, folder / "log", temporary=folder / "tmp"))


def try_command(name: str, inputs: Path, folder: Path, *, kills: int, seed: int) -> Progress:
    """Kill and record one command, from where it was stopped."""
    state, log = folder / f"{name}.json", folder / "log"
    progress = Progress.read(state, seed)

    def trial(number: str) -> Trial:
        return Trial(name, inputs, folder / name / number, log)

    def save() -> None:
        write_json(state, asdict(progress))

    if progress.seconds is None:
        began, undisturbed = time.monotonic(), trial("undisturbed")
        undisturbed.run()
        progress.seconds = time.monotonic() - began
        save()
    expected = contents(folder / name / "undisturbed")
    while (
        sum(progress.trials) < kills and len(progress.trials) < 4 * kills
    ):  # a run may end before it is killed
        number = len(progress.trials)
        draw, this = random.Random(f"{seed} {name} {number}"), trial(str(number))
        most = min(draw.randint(1, _MOST_KILLS), kills - sum(progress.trials))
        done = this.run_with_kills(draw, seconds=progress.seconds, most=most)
        found = [f"differs: {file}" for file in differences(expected, contents(this.out))] + processes_left()
        if not found:
            shutil.rmtree(this.out)
        progress.trials.append(done)
        progress.findings += [f"trial {number}: {what}" for what in found]
        save()
        print(f"\r{name}: {sum(progress.trials)} of {kills} kills", end="", file=sys.stderr, flush=True)
    if progress.records is None:
        recorded = trial("recorded")
        recorded.run(recorder=DiskRecorder(recorded.out))
        progress.records, progress.faults = json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))
        save()
    print(file=sys.stderr)
    return progress


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each command [10]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--folder", type=Path, help="keep everything here, and go on with what is there")
    options = parser.parse_args(arguments)
    rows, is_faulty = [], False
    # Workers of a killed command become children of this process, which waits for them.
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as chosen:
        folder = Path(chosen).resolve()
        inputs = folder / "inputs"
        if not (inputs / "complete").exists():
            make_inputs(inputs)
            (inputs / "complete").touch()
        for module in _MODULES:
            importlib.import_module(module)
        for name in options.only:
            progress = try_command(name, inputs, folder, kills=options.kills, seed=options.seed)
            lines = [*progress.findings, *progress.faults]
            is_faulty |= bool(lines)
            for line in lines:
                print(f"{name}: {line}", flush=True)
            kills, findings = sum(progress.trials), len(progress.findings)
            rows.append([name, len(progress.trials), kills, findings, progress.records, len(progress.faults)])
    headers = ["command", "runs", "kills", "differences", "records", "records too early"]
    print(tabulate(rows, headers, disable_numparse=True))
    return 1 if is_faulty else 0


if __name__ == "__main__":
    sys.exit(main())
