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

from ctsan.folders import usable_cores
from ctsan.video.backbone import EFFICIENTNETS, Backbone, feature_maps, find_backbone
from ctsan.video.engine import BATCH, Engine, Maps, Pixels, load_engine, onnx_file

FRAMES = 48


def eager(backbone: Backbone, threads: int) -> Engine:
    """PyTorch as most people would write it."""
    torch.set_num_threads(threads)
    module = feature_maps(backbone)

    def run(frames: Pixels) -> Maps:
        with torch.inference_mode():
            maps: Maps = module(torch.from_numpy(frames)).numpy()
            return maps

    return run


def openvino(backbone: Backbone, threads: int) -> Engine:
    import openvino as ov

    model = ov.Core().compile_model(
        onnx_file(backbone), "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    )

    def run(frames: Pixels) -> Maps:
        maps: Maps = model.create_infer_request().infer({"frames": frames})["maps"]
        return maps

    return run


ENGINES: dict[str, Callable[[Backbone, int], Engine]] = {
    "torch, eager": eager,
    "torch, channels last (fallback)": lambda backbone, n: load_engine(backbone, engine="torch", threads=n),
    "openvino": openvino,
    "onnxruntime (default)": lambda backbone, n: load_engine(backbone, engine="onnxruntime", threads=n),
}


def milliseconds(run: Engine, frames: Pixels, callers: int) -> float:
    """Time a frame, batches of the size that `ctsan features` uses, from so many threads at once."""
    batches = [frames[start : start + BATCH] for start in range(0, len(frames), BATCH)]
    started = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(run, batches))
    return (time.perf_counter() - started) / len(frames) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbones", nargs="+", default=list(EFFICIENTNETS), choices=list(EFFICIENTNETS))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    cores = usable_cores()
    frames = np.random.default_rng(0).integers(0, 256, (FRAMES, 224, 224, 3), dtype=np.uint8)
    rows = []
    for name in arguments.backbones:
        backbone = find_backbone(name)
        reference = eager(backbone, cores)(frames[:BATCH]).astype(np.float32)
        together: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        apart: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        differences = {}
        for engine, load in ENGINES.items():
            differences[engine] = np.abs(load(backbone, 1)(frames[:BATCH]) - reference).max()
        for _ in range(arguments.rounds):
            for engine, load in ENGINES.items():
                for times, threads in ((together, cores), (apart, 1)):
                    run = load(backbone, threads)
                    run(frames[:BATCH])  # warm
                    times[engine].append(milliseconds(run, frames, callers=cores // threads))
        slowest = statistics.median(together["torch, eager"])
        for engine in ENGINES:
            best = statistics.median(apart[engine])
            rows.append(
                (
                    name,
                    engine,
                    f"{statistics.median(together[engine]):.1f}",
                    f"{best:.1f}",
                    f"{slowest / best:.1f}×",
                    f"{differences[engine]:.4f}",
                )
            )
    headers = (
        "backbone",
        "engine",
        f"ms/frame, {cores} threads",
        f"ms/frame, {cores} callers",
        "against eager",
        "largest difference",
    )
    print(tabulate(rows, headers=headers, tablefmt="github"))


if __name__ == "__main__":
    main()
