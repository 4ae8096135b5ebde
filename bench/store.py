"""What does a feature store cost at 1 k, 10 k, 100 k and 1 M clips?

One store grows through the sizes, filled by `fill_store` as `ctsan features` fills it, but with small maps
that are drawn instead of computed. At each size a new process opens it, looks up and reads clips at random;
then one clip is added. With --files N only the first N clips get files, and only these are read; the others
stand in the index alone.

Times are processor time, which other processes hardly change: the page cache is warm, so reading waits for
nothing. Adding a clip also waits for the disk, which is not in it.
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
from typing import NamedTuple

import numpy as np
import psutil
from tabulate import tabulate

from ctsan.video.clip_index import INDEX_FILE, ClipIndex, ClipRecord
from ctsan.video.extraction import BLOCK, fill_store
from ctsan.video.store import FeatureStore, Recipe, StoredFeatures

FRAMES, CHANNELS = 4, 8
TENSOR_BYTES = FRAMES * (CHANNELS * 2 + 8)  # float16 maps, float64 times
RECIPE = Recipe(backbone="drawn", grid=(1, 1), channels=CHANNELS, mirrored=False, details={})
LOOKUPS = 10_000


def clip_name(number: int) -> str:
    """As long as the ids of real corpora."""
    return f"clips/scene-{number % 1000:03}/clip_{number:08}.mp4"


def features_of(_: Path) -> StoredFeatures:
    maps = np.arange(FRAMES * CHANNELS, dtype=np.float16).reshape(FRAMES, 1, 1, CHANNELS)
    return StoredFeatures(maps=maps, times=np.arange(FRAMES) * 10 / 24)


def fill_seconds(folder: Path, numbers: range, source: Path) -> float:
    """CPU seconds to add clips, all with the same source."""
    sources = [(clip_name(number), source) for number in numbers]
    started = time.process_time()
    fill_store(sources, folder, RECIPE, features_of)
    return time.process_time() - started


def enter_records(folder: Path, numbers: range, source: Path) -> None:
    """Clips without files, in blocks as `fill_store` enters them."""
    index, status = ClipIndex(folder / INDEX_FILE), source.stat()
    record = ClipRecord(FRAMES, status.st_size, status.st_mtime_ns)
    for start in range(0, len(numbers), BLOCK):
        index.update({clip_name(number): record for number in numbers[start : start + BLOCK]}, {})


def measure_reading(folder: Path, count: int, files: int) -> dict[str, float]:
    """Open a store of so many clips and files and read from it; called in a new process."""
    process = psutil.Process()
    draw = np.random.default_rng(0)
    names = [clip_name(number) for number in draw.integers(0, count, LOOKUPS)]
    names_with_files = [clip_name(number) for number in draw.integers(0, files, LOOKUPS)]
    before, started = process.memory_info().rss, time.process_time()
    store = FeatureStore(folder)
    assert names[0] in store
    opened = time.process_time()
    memory = process.memory_info().rss - before
    assert all(name in store for name in names)
    looked_up = time.process_time()
    for name in names_with_files:
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


class DiskUse(NamedTuple):
    files: int  # of clips
    clips: int  # bytes of these files
    others: int  # bytes of all other files
    blocks: int  # bytes of the blocks of files and folders, without those of other files


def disk_use(folder: Path) -> DiskUse:
    files = clips = others = blocks = 0
    for entry in files_below(str(folder)):
        status = entry.stat()
        if entry.name.endswith(".safetensors"):
            files, clips = files + 1, clips + status.st_size
        if entry.is_file() and not entry.name.endswith(".safetensors"):
            others += status.st_size
        else:
            blocks += status.st_blocks * 512
    return DiskUse(files, clips, others, blocks)


def row(folder: Path, size: int, files: int, fill: float | None, source: Path) -> tuple[str, ...]:
    use = disk_use(folder)
    command = [sys.executable, __file__, "--measure", str(folder), str(size), str(files)]
    reading = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    one = fill_seconds(folder, range(size, size + 1), source)
    again = fill_seconds(folder, range(files), source)
    return (
        f"{size:,}",
        f"{use.others / size:.0f}",
        f"{use.clips / use.files - TENSOR_BYTES:.0f}",
        f"{use.blocks / use.files - TENSOR_BYTES:,.0f}",
        f"{1000 * reading['open']:,.1f}",
        f"{reading['memory']:,.1f}",
        f"{reading['lookups']:,.0f}",
        f"{reading['reads']:,.0f}",
        f"{1000 * one:,.1f}",
        f"{1e6 * fill:,.0f}" if fill else "",
        f"{1e6 * again / files:,.0f}",
    )


HEADERS = (
    "clips",
    "index, B/clip",
    "headers, B/clip",
    "blocks of the file beyond maps, B/clip",
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
    parser.add_argument("--files", type=int, help="the first so many clips get files [default: all]")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        folder, count, files = arguments.measure
        print(json.dumps(measure_reading(Path(folder), int(count), int(files))))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder, source, rows, clips = Path(temporary) / "store", Path(temporary) / "source", [], 0
        source.write_bytes(b"a clip")
        for size in sorted(arguments.sizes):
            files = min(size, arguments.files or size)
            new = range(clips, files)
            fill = fill_seconds(folder, new, source) / len(new) if new else None
            enter_records(folder, range(max(clips, files), size), source)
            rows.append(row(folder, size, files, fill, source))
            clips = size + 1  # with the clip that was added
            print(f"{size:,} clips measured", file=sys.stderr)
        print(tabulate(rows, headers=HEADERS, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
