"""Which engine runs the backbones fastest on this processor, and do they agree?

Every engine sees the same frames in the same process, in turns; the table gives the median time a frame of
several rounds, with one engine call on all cores and with one call a core side by side, which is how
`ctsan features` works. Differences are against PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from tabulate import tabulate

from ctsan.io.device import usable_cores
from ctsan.video.backbones import BACKBONES, Backbone, find_backbone
from ctsan.video.backbones.feature_maps import FeatureMaps
from ctsan.video.engine import BATCH, Engine, Maps, Pixels, load_engine

FRAMES = 48


def compiled(backbone: Backbone, threads: int) -> Engine:
    """PyTorch's own compiler; it needs a C compiler on the machine."""
    torch.set_num_threads(threads)
    module = torch.compile(FeatureMaps(backbone), dynamic=False)

    def run(frames: Pixels) -> Maps:
        with torch.inference_mode():
            maps: Maps = module(torch.from_numpy(frames)).numpy()
            return maps

    return run


ENGINES: dict[str, Callable[[Backbone, int], Engine]] = {
    "torch (fallback)": lambda backbone, threads: load_engine(backbone, engine="torch", threads=threads),
    "torch, compiled": compiled,
    "openvino": lambda backbone, threads: load_engine(backbone, engine="openvino", threads=threads),
    "onnxruntime (default)": lambda backbone, n: load_engine(backbone, engine="onnxruntime", threads=n),
}
REFERENCE = "torch (fallback)"
_CARRIED = [name for name, spec in BACKBONES.items() if spec.packaged and spec.load]


def milliseconds(run: Engine, frames: Pixels, *, threads: int) -> float:
    """Time a frame, batches of the size that `ctsan features` uses, called from as many threads as fit."""
    torch.set_num_threads(threads)  # a setting of the process; the other engines keep their own
    batches = [frames[start : start + BATCH] for start in range(0, len(frames), BATCH)]
    started = time.perf_counter()
    with ThreadPoolExecutor(usable_cores() // threads) as pool:
        list(pool.map(run, batches))
    return (time.perf_counter() - started) / len(frames) * 1000


def compare(backbone: Backbone, rounds: int) -> list[tuple[str, ...]]:
    """One row an engine."""
    size = backbone.image_size
    frames = np.random.default_rng(0).integers(0, 256, (FRAMES, size, size, 3), dtype=np.uint8)
    runs = {
        (engine, threads): load(backbone, threads)
        for engine, load in ENGINES.items()
        for threads in (usable_cores(), 1)
    }
    maps = {key: run(frames[:BATCH]).astype(np.float32) for key, run in runs.items()}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for (engine, threads), run in runs.items():
            times[engine, threads].append(milliseconds(run, frames, threads=threads))
    medians = {key: statistics.median(values) for key, values in times.items()}
    return [
        (
            backbone.name,
            engine,
            f"{medians[engine, usable_cores()]:.1f}",
            f"{medians[engine, 1]:.1f}",
            f"{medians[REFERENCE, 1] / medians[engine, 1]:.1f}×",
            f"{np.abs(maps[engine, 1] - maps[REFERENCE, 1]).max():.4f}",
        )
        for engine in ENGINES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbones", nargs="+", default=_CARRIED, help="that have weights")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = [row for name in arguments.backbones for row in compare(find_backbone(name), arguments.rounds)]
    cores = usable_cores()
    columns = ("backbone", "engine", f"ms/frame, 1 call on {cores} cores", f"ms/frame, {cores} calls")
    headers = (*columns, "calls, against torch", "largest difference")
    print(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
