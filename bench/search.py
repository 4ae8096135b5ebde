"""Search in libraries of growing size: latency, memory, and what two stages lose against going through all.

    python bench/search.py --corpus CLIPS --features FEATURES --model runs/embed --model runs/mine

The clips of the corpus that are not for training are real, and the queries are captions of its test clips.
The other clips of a large library are made: each is a mixture of what the runs made of two real ones, with
some noise, so that it lies where clips lie, and with the concept words of one of them. On a machine that
others use as well, --busy counts the CPU time of the process in place of the clock's.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from tabulate import tabulate

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.runs.trained_run import TrainedRun
from ctsan.search import search as searching
from ctsan.search.ann_index import AnnIndex, build_index
from ctsan.search.encodings import concept_words, shot_arrays
from ctsan.search.indexing import load_search_runs, run_fingerprints
from ctsan.search.library import FileRecord, open_for_writing
from ctsan.search.search import Searcher
from ctsan.video.shots import Shot
from ctsan.video.store import FeatureStore

Numbers = dict[str, NDArray[np.generic]]

_ROWS_AT_ONCE = 10_000
_CLIPS_AT_ONCE = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--model", type=Path, action="append", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--through", type=int, default=1_000, help="largest size that is gone through whole")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--folder", type=Path, help="for the libraries [default: a temporary one]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = load_search_runs(options.model)
    corpus, features = read_corpus(options.corpus), FeatureStore(options.features)
    clips = [clip for clip in corpus if clip.id in features and clip.split != "train"]
    clips.sort(key=lambda clip: clip.split != "test")  # the smallest library holds all that is asked for
    queries = _queries(clips, options.queries)
    real = _joined(_encoded(runs, clips, features))
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for size in options.sizes:
            library = Path(temporary) / "library"
            began = time.perf_counter()
            _make(library, runs, real, clips, size)
            made = time.perf_counter() - began
            clock = time.process_time if options.busy else time.perf_counter
            measured = _measure(library, queries, clock, exhaustive=size <= options.through)
            rows.append([f"{size:,}", *measured, f"{made:.0f} s"])
            shutil.rmtree(library)
            print(f"{size:,} clips are done", flush=True)
    print(
        f"{len(queries)} queries; {len(clips)} clips are real; runs of {', '.join(run.task for run in runs)}"
    )
    headers = [
        "clips",
        "median",
        "95th of 100",
        "memory",
        "on disk",
        "R@10",
        "gone through",
        "survives",
        "made in",
    ]
    print(tabulate(rows, headers, disable_numparse=True))


def _queries(clips: Sequence[Clip], count: int) -> list[tuple[str, str]]:
    """Captions of test clips with the clips' names."""
    asked = [(caption, clip.id) for clip in clips if clip.split == "test" for caption in clip.captions]
    random.Random(0).shuffle(asked)
    return asked[:count]


def _encoded(runs: Sequence[TrainedRun], clips: Sequence[Clip], features: FeatureStore) -> Iterator[Numbers]:
    words = concept_words(runs)
    for start in range(0, len(clips), _CLIPS_AT_ONCE):
        maps = [features[clip.id].maps for clip in clips[start : start + _CLIPS_AT_ONCE]]
        yield shot_arrays(runs, [run.loaded.encode(maps) for run in runs], words)


def _joined(parts: Iterator[Numbers]) -> Numbers:
    kept = list(parts)
    return {kind: np.concatenate([part[kind] for part in kept]) for kind in kept[0]}


def _make(folder: Path, runs: Sequence[TrainedRun], real: Numbers, clips: Sequence[Clip], size: int) -> None:
    """A library of the first `size` real clips, and of made ones beyond."""
    draw = np.random.default_rng(0)
    with open_for_writing(folder, runs=run_fingerprints(runs), words=concept_words(runs)) as library:
        for number, clip in enumerate(clips[:size]):
            own = {kind: values[number : number + 1] for kind, values in real.items()}
            library.add(FileRecord(Path(clip.id), 0, 0), f"real {number}", [Shot(0.0, 1.0)], own)
        for start in range(len(clips), size, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, size - start)
            shots = [Shot(float(second), float(second + 1)) for second in range(count)]
            library.add(
                FileRecord(Path(f"made {start}"), 0, 0), f"made {start}", shots, _mixed(real, count, draw)
            )
        build_index(library)


def _mixed(real: Numbers, count: int, draw: np.random.Generator) -> Numbers:
    total = len(real["vectors"])
    first, second = draw.integers(0, total, (2, count))
    share = draw.uniform(0.5, 1.0, count)
    made: Numbers = {}
    for kind, values in real.items():
        if values.dtype != np.float16:  # words and how sure they are
            made[kind] = values[first]
            continue
        numbers = values.astype(np.float32)
        weight = share.reshape(-1, *[1] * (values.ndim - 1)).astype(np.float32)
        mixture = weight * numbers[first] + (1 - weight) * numbers[second]
        noise = draw.standard_normal(mixture.shape, dtype=np.float32) * numbers.std(axis=0) * 0.3
        made[kind] = (mixture + noise).astype(np.float16)
        if kind == "vectors":  # as long as those of real clips
            lengths = np.linalg.norm(numbers[first], axis=1) / np.linalg.norm(mixture + noise, axis=1)
            made[kind] = ((mixture + noise) * lengths[:, None]).astype(np.float16)
    return made


def _measure(
    folder: Path, queries: Sequence[tuple[str, str]], clock: Callable[[], float], *, exhaustive: bool
) -> list[str]:
    process = psutil.Process()
    before = process.memory_info().rss
    searcher = Searcher(folder)
    for query, _ in queries[:3]:
        searcher.search(query)
    seconds, hits = [], 0
    for query, clip in queries:
        began = clock()
        found = searcher.search(query)
        seconds.append(clock() - began)
        hits += any(str(hit.file) == clip for hit in found.hits)
    memory = process.memory_info().rss - before
    on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    share = hits / len(queries)
    whole, survives = "-", "-"
    if exhaustive:
        through = _gone_through(searcher, queries)
        whole, survives = f"{through:.3f}", f"{share / through:.1%}" if through else "-"
    searcher.library.close()
    return [
        f"{statistics.median(seconds) * 1000:.0f} ms",
        f"{sorted(seconds)[int(0.95 * len(seconds))] * 1000:.0f} ms",
        f"{memory / 2**20:.0f} MB",
        f"{on_disk / 2**20:,.0f} MB",
        f"{share:.3f}",
        whole,
        survives,
    ]


def _gone_through(searcher: Searcher, queries: Sequence[tuple[str, str]]) -> float:
    """R@10 where all clips are scored."""
    first, searching.NUM_CANDIDATES = searching.NUM_CANDIDATES, len(searcher.library.rows())
    searcher.index = AnnIndex(searcher.library.array("vectors"), searcher.library.rows(), None)
    try:
        hits = sum(
            any(str(hit.file) == clip for hit in searcher.search(query).hits) for query, clip in queries
        )
    finally:
        searching.NUM_CANDIDATES = first
    return hits / len(queries)


if __name__ == "__main__":
    main()
