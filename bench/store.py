"""What does a feature store cost at 1 k, 10 k, 100 k and 1 M clips?

One store grows through the sizes, filled by `fill_store` as `ctsan features` fills it, but with small maps
that are drawn instead of computed. At each size a new process opens it, looks up and reads clips at random;
then one clip is added. Times are processor time, which other processes do not change: the page cache is warm,
so reading waits for nothing; what is added also waits for the disk, a few milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
from tabulate import tabulate

from ctsan.video.extraction import fill_store
from ctsan.video.store import ClipFeatures, FeatureStore, Recipe

FRAMES, CHANNELS = 4, 8
TENSOR_BYTES = FRAMES * (CHANNELS * 2 + 8)  # float16 maps, float64 times
RECIPE = Recipe(backbone="drawn", grid=(1, 1), channels=CHANNELS, mirrored=False, details={})
LOOKUPS = 10_000


def clip_name(number: int) -> str:
    """As long as the ids of real corpora."""
    return f"clips/scene-{number % 1000:03}/clip_{number:08}.mp4"


def features_of(_: Path) -> ClipFeatures:
    maps = np.arange(FRAMES * CHANNELS, dtype=np.float16).reshape(FRAMES, 1, 1, CHANNELS)
    return ClipFeatures(maps=maps, times=np.arange(FRAMES) * 10 / 24)


def fill_seconds(folder: Path, numbers: range, source: Path) -> float:
    """What it takes to add clips, all with the same source."""
    sources = [(clip_name(number), source) for number in numbers]
    started = time.process_time()
    fill_store(sources, folder, RECIPE, features_of)
    return time.process_time() - started


def measure_reading(folder: Path, count: int) -> dict[str, float]:
    """Open a store of so many clips and read from it; called in a new process."""
    process = psutil.Process()
    names = [clip_name(number) for number in np.random.default_rng(0).integers(0, count, LOOKUPS)]
    before, started = process.memory_info().rss, time.process_time()
    store = FeatureStore(folder)
    assert names[0] in store
    opened = time.process_time()
    memory = process.memory_info().rss - before
    assert all(name in store for name in names)
    looked_up = time.process_time()
    for name in names:
        assert len(store[name].maps) == FRAMES
    read = time.process_time()
    return {
        "open": opened - started,
        "memory": memory / 1e6,
        "lookups": LOOKUPS / (looked_up - opened),
        "reads": LOOKUPS / (read - looked_up),
    }


def files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    for entry in os.scandir(folder):
        yield entry
        if entry.is_dir():
            yield from files_below(entry.path)


def disk_bytes(folder: Path) -> tuple[int, int, int]:
    """Bytes of the clips' files, of all other files, and of the blocks that all of it takes."""
    clips = others = blocks = 0
    for entry in files_below(str(folder)):
        status = entry.stat()
        blocks += status.st_blocks * 512
        if entry.name.endswith(".safetensors"):
            clips += status.st_size
        elif entry.is_file():
            others += status.st_size
    return clips, others, blocks


def row(folder: Path, size: int, seconds: float, new: int, source: Path) -> tuple[str, ...]:
    clips, others, blocks = disk_bytes(folder)
    command = [sys.executable, __file__, "--measure", str(folder), str(size)]
    reading = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    one = fill_seconds(folder, range(size, size + 1), source)
    again = fill_seconds(folder, range(size + 1), source)
    return (
        f"{size:,}",
        f"{others / size:.0f}",
        f"{clips / size - TENSOR_BYTES:.0f}",
        f"{blocks / size - TENSOR_BYTES:,.0f}",
        f"{1000 * reading['open']:,.1f}",
        f"{reading['memory']:,.1f}",
        f"{reading['lookups']:,.0f}",
        f"{reading['reads']:,.0f}",
        f"{1000 * one:,.1f}",
        f"{1e6 * seconds / new:,.0f}",
        f"{1e6 * again / size:,.0f}",
    )


HEADERS = (
    "clips",
    "index, B/clip",
    "headers, B/clip",
    "blocks beyond maps, B/clip",
    "open, ms",
    "memory, MB",
    "lookups/s",
    "reads/s",
    "add one clip, ms",
    "fill, µs/clip",
    "nothing new, µs/clip",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="for the store: on the disk that is measured")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure_reading(Path(arguments.measure[0]), int(arguments.measure[1]))))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder, source, rows, filled = Path(temporary) / "store", Path(temporary) / "source", [], 0
        source.write_bytes(b"a clip")
        for size in sorted(arguments.sizes):
            seconds = fill_seconds(folder, range(filled, size), source)
            rows.append(row(folder, size, seconds, size - filled, source))
            filled = size + 1  # with the clip that was added
            print(f"{size:,} clips measured", file=sys.stderr)
        print(tabulate(rows, headers=HEADERS, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
