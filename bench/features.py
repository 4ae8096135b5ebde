"""How close is `ctsan features` to the speed limit of the machine?

The floor is measured in the same run, on the same clips: decoding the same frames on all cores and doing
nothing with them, and then a bare forward pass of the same number of ready frames on all cores. The command
is the real one, in a process of its own, from start to end, with an empty folder. Rounds alternate, because
machines are noisy. Then memory: the command's peak for ten clips, for all of them, and for ten thousand
clips of one frame.

Several corpora are taken as one, in one command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import numpy as np
import psutil
from numpy.typing import NDArray
from tabulate import tabulate

from ctsan.data.reading import read_corpus
from ctsan.io.device import usable_cores
from ctsan.video.backbones import DEFAULT_BACKBONE, find_backbone
from ctsan.video.engine import BATCH, load_engine
from ctsan.video.frames import sample_frames


def decode_seconds(clips: list[Path], size: int) -> tuple[float, int]:
    started = time.perf_counter()
    with ThreadPoolExecutor(usable_cores()) as pool:
        frames = sum(pool.map(lambda path: len(sample_frames(path, size=size).times), clips))
    return time.perf_counter() - started, frames


def forward_seconds(backbone_name: str, frames: int) -> float:
    """The forward pass alone, on tensors that are ready, extrapolated from a few hundred frames."""
    backbone = find_backbone(backbone_name)
    run = load_engine(backbone, engine="onnxruntime", threads=1)
    shape = (BATCH, backbone.image_size, backbone.image_size, 3)
    batch = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    rounds = max(usable_cores(), min(frames, 800) // BATCH)
    run(batch)
    started = time.perf_counter()
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(lambda _: run(batch), range(rounds)))
    return (time.perf_counter() - started) / (rounds * BATCH) * frames


def command_seconds(corpus: Path, backbone: str) -> tuple[float, float]:
    """Wall time of the whole command, and its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "ctsan",
            "features",
            str(corpus),
            "--backbone",
            backbone,
            "--out",
            folder,
        ]
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            watched, peak = psutil.Process(process.pid), 0
            while process.poll() is None:
                try:
                    peak = max(peak, watched.memory_info().rss)
                except psutil.NoSuchProcess:
                    break
                time.sleep(0.02)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed")
        return time.perf_counter() - started, peak / 1e6


def subset(corpora: list[Path], folder: Path, count: int | None = None) -> Path:
    """A corpus of `count` clips, evenly spaced over several corpora; of all clips by default."""
    paths = [str(clip.path.resolve()) for corpus in corpora for clip in read_corpus(corpus)]
    if count is not None and count < len(paths):
        paths = [paths[number * len(paths) // count] for number in range(count)]
    folder.mkdir()
    lines = "".join(json.dumps({"clip": path}) + "\n" for path in paths)
    (folder / "clips.jsonl").write_text(lines, encoding="utf-8")
    return folder


def pictures(pixels: NDArray[np.uint8], folder: Path, count: int) -> Path:
    """A folder of so many links to one picture."""
    folder.mkdir()
    first = folder / "0.png"
    with av.open(str(first), "w", format="image2") as container:
        stream = container.add_stream("png")
        stream.height, stream.width, stream.pix_fmt = *pixels.shape[:2], "rgb24"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    for number in range(1, count):
        (folder / f"{number}.png").hardlink_to(first)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--clips", type=int, default=150, help="evenly from all corpora, for the rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backbone", default=DEFAULT_BACKBONE)
    parser.add_argument("--no-memory", action="store_true")
    arguments = parser.parse_args()
    size = find_backbone(arguments.backbone).image_size
    with tempfile.TemporaryDirectory() as temporary:
        small = subset(arguments.corpora, Path(temporary) / "some", arguments.clips)
        paths = [clip.path for clip in read_corpus(small)]
        decoding, forward, command = [], [], []
        for _ in range(arguments.rounds):
            seconds, frames = decode_seconds(paths, size)
            decoding.append(seconds)
            forward.append(forward_seconds(arguments.backbone, frames))
            command.append(command_seconds(small, arguments.backbone)[0])
        ratios = [(d + f) / w for d, f, w in zip(decoding, forward, command, strict=True)]
        rows = [
            ("bare decoding", statistics.median(decoding)),
            ("bare forward pass", statistics.median(forward)),
            ("floor: the two together", statistics.median(map(sum, zip(decoding, forward, strict=True)))),
            ("ctsan features, whole command", statistics.median(command)),
        ]
        print(f"{arguments.backbone}, {len(paths)} clips, {frames} frames, {usable_cores()} cores")
        table = [(name, f"{seconds:.1f}", f"{frames / seconds:.0f}") for name, seconds in rows]
        print(tabulate(table, headers=("", "seconds", "frames/s"), tablefmt="github"))
        print(
            f"of the floor: {statistics.median(ratios):.2f} (rounds: {', '.join(f'{r:.2f}' for r in ratios)})"
        )
        if not arguments.no_memory:
            ten = subset(arguments.corpora, Path(temporary) / "ten", 10)
            every = subset(arguments.corpora, Path(temporary) / "all")
            many = pictures(sample_frames(paths[0], size=size).pixels[0], Path(temporary) / "many", 10_000)
            memory = [
                (what, f"{command_seconds(corpus, arguments.backbone)[1]:.0f}")
                for what, corpus in (
                    ("10 clips", ten),
                    (f"all {len(read_corpus(every)):,} clips", every),
                    ("10,000 clips of one frame", many),
                )
            ]
            print()
            print(tabulate(memory, headers=("", "peak memory, MB"), tablefmt="github"))


if __name__ == "__main__":
    main()
