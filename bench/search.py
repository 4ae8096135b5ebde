"""Search in libraries of growing size: latency, memory, and what two stages lose against all shots.

    python bench/search.py --corpus CLIPS FRAMES --features F1 F2 --model default
    python bench/search.py --quality --corpus CLIPS FRAMES --features F1 F2 --model default
    python bench/search.py --postgres postgresql://me@host/videos --corpus CLIPS --features F1 --model default

The validation and test clips of the corpora are real; captions of the test clips are the queries. The other
clips of a large library are synthetic: the vectors of two real clips, mixed, with noise, and the concept
words of one of them. On a shared machine, --busy measures CPU time instead of wall time.

--quality prints R@1, R@5, R@10 and MRR of the search as it is, and of scoring every shot; clips below rank
100 count as not found. Mixtures resemble the clips that they are made of, so the figures of large libraries
are lower bounds; what matters is the difference of the rows.

--postgres measures a library in that database beside the one in a folder, query by query in turn, also with a
filter. Its memory and space are those of the server, and are not shown.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import psutil
import torch
from tabulate import tabulate

from ctsan.data.corpus import Clip
from ctsan.inference.loaded_model import LoadedModel
from ctsan.search import search as searching
from ctsan.search.models import load_search_models
from ctsan.search.postgres_address import PostgresAddress
from ctsan.search.postgres_schema import Connection
from ctsan.search.search import Searcher
from search_corpus import Numbers, add_options, make_library, read_clips

_DEPTH = 100  # ranks that are looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--quality", action="store_true", help="ranks instead of latency")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--postgres", metavar="URL", help="compare with a library in this database")
    parser.add_argument("--folder", type=Path, help="for the libraries [default: a temporary one]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = load_search_models(options.model)
    clips, real = read_clips(models, options.corpus, options.features, ["test", "val"])
    queries = _queries(clips, options.queries)
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for size in options.sizes:
            library = Path(temporary) / "library"
            began = time.perf_counter()
            make_library(library, models, real, clips, size)
            build_seconds = time.perf_counter() - began
            if options.postgres:
                shared = PostgresAddress(options.postgres, f"bench-{os.getpid()}-{size}")
                rows += [
                    [f"{size:,}", *row] for row in _stores(library, shared, models, real, clips, queries)
                ]
            elif options.quality:
                rows += [[f"{size:,}", *row] for row in _quality(library, queries)]
            else:
                clock = time.process_time if options.busy else time.perf_counter
                rows.append([f"{size:,}", *_speed(library, queries, clock), f"{build_seconds:.0f} s"])
            shutil.rmtree(library)
            print(f"{size:,} clips are done", flush=True)
    tasks = ", ".join(model.task for model in models)
    print(f"{len(queries)} queries; {len(clips)} clips are real; runs of {tasks}")
    if options.postgres:
        headers = ["clips", "store", "median", "95th of 100", "with a filter", "same ten", "made in"]
    elif options.quality:
        headers = ["clips", "search", "R@1", "R@5", "R@10", "MRR"]
    else:
        headers = ["clips", "median", "95th of 100", "memory", "on disk", "made in"]
    print(tabulate(rows, headers, disable_numparse=True))


def _queries(clips: Sequence[Clip], count: int) -> list[tuple[str, str]]:
    """Captions of test clips with the clips' names."""
    queries = [(caption, clip.id) for clip in clips if clip.split == "test" for caption in clip.captions]
    random.Random(0).shuffle(queries)
    return queries[:count]


def _quality(folder: Path, queries: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    searcher = Searcher(folder)
    yield ["two stages", *_ranking(searcher, queries)]
    with _exhaustive(searcher):
        yield ["every shot", *_ranking(searcher, queries)]
    searcher.library.close()


@contextmanager
def _exhaustive(searcher: Searcher) -> Iterator[None]:
    """Score every shot."""
    with (
        patch.object(searching, "NUM_CANDIDATES", len(searcher.shots)),
        patch.object(type(searcher.shots), "nearest", lambda shots, *_: shots.sample(len(shots))),
    ):
        yield


def _ranking(searcher: Searcher, queries: Sequence[tuple[str, str]]) -> list[str]:
    reciprocals = []
    for query, clip in queries:
        names = [str(hit.file) for hit in searcher.search(query, n_best=_DEPTH).hits]
        reciprocals.append(1 / (names.index(clip) + 1) if clip in names else 0.0)
    found = np.array(reciprocals)
    return [*(f"{(found >= 1 / rank).mean():.3f}" for rank in (1, 5, 10)), f"{found.mean():.3f}"]


def _stores(
    folder: Path,
    shared: PostgresAddress,
    models: Sequence[LoadedModel],
    real: Numbers,
    clips: Sequence[Clip],
    queries: Sequence[tuple[str, str]],
) -> Iterator[list[str]]:
    """Latency of both stores, and how much of the first ten hits they share."""
    seconds_made = []
    for address in (folder, shared):
        began = time.perf_counter()
        if address is shared:
            make_library(address, models, real, clips, len(Searcher(folder).shots))
        seconds_made.append(time.perf_counter() - began)
    searchers = [Searcher(folder), Searcher(shared)]
    word = searchers[0].search(queries[0][0]).hits[0].concepts[0].word
    plain: list[list[float]] = [[], []]
    filtered: list[list[float]] = [[], []]
    common = 0
    for query, _ in [*queries[:3], *queries]:
        found = []
        for times, filters, searcher in zip(plain, filtered, searchers, strict=True):
            began = time.perf_counter()
            found.append({(hit.file, hit.start) for hit in searcher.search(query).hits})
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
            searcher.search(query, concepts=[word])
            filters.append(time.perf_counter() - began)
        common += len(found[0] & found[1])
    for name, times, filters, made in zip(
        ("folder", "PostgreSQL"), plain, filtered, seconds_made, strict=True
    ):
        ordered = sorted(times[3:])  # the first ones open files and connections
        yield [
            name,
            f"{statistics.median(ordered) * 1000:.0f} ms",
            f"{ordered[int(0.95 * len(ordered))] * 1000:.0f} ms",
            f"{statistics.median(filters[3:]) * 1000:.0f} ms",
            f"{common / (10 * len(times)):.0%}",
            f"{made:.0f} s" if name == "PostgreSQL" else "-",
        ]
    with closing(Connection(shared)) as connection:
        connection.query(f'drop schema "{shared.schema}" cascade')


def _speed(folder: Path, queries: Sequence[tuple[str, str]], clock: Callable[[], float]) -> list[str]:
    process = psutil.Process()
    before = process.memory_info().rss
    searcher = Searcher(folder)
    for query, _ in queries[:3]:
        searcher.search(query)
    seconds = []
    for query, _ in queries:
        began = clock()
        searcher.search(query)
        seconds.append(clock() - began)
    memory = process.memory_info().rss - before
    on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    searcher.library.close()
    return [
        f"{statistics.median(seconds) * 1000:.0f} ms",
        f"{sorted(seconds)[int(0.95 * len(seconds))] * 1000:.0f} ms",
        f"{memory / 2**20:.0f} MB",
        f"{on_disk / 2**20:,.0f} MB",
    ]


if __name__ == "__main__":
    main()
