"""Measure the time per frame of several networks in turns, so that other load affects all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from ctsan.io.device import usable_cores
from ctsan.video.engine import BATCH, Engine

REFERENCE = "efficientnet-lite0"  # the network that others are compared with

_ROUNDS = 5

Name = TypeVar("Name", bound=Hashable)


def milliseconds_per_frame(engines: Mapping[Name, tuple[Engine, int]]) -> dict[Name, float]:
    """The medians over the rounds of `milliseconds_in_rounds`."""
    return {name: statistics.median(times) for name, times in milliseconds_in_rounds(engines).items()}


def milliseconds_in_rounds(
    engines: Mapping[Name, tuple[Engine, int]], *, rounds: int = _ROUNDS
) -> dict[Name, list[float]]:
    """Milliseconds per frame in each round, with one call per core in parallel, as in `ctsan features`.

    Every round runs all engines, so compare two engines within a round.

    Args:
        engines: each with its image size in pixels.
    """
    rng = np.random.default_rng(0)
    cores = usable_cores()
    frames = {
        name: rng.integers(0, 256, (BATCH, size, size, 3), dtype=np.uint8)
        for name, (_, size) in engines.items()
    }
    for name, (engine, _) in engines.items():
        engine(frames[name])
    times: dict[Name, list[float]] = {name: [] for name in engines}
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(rounds):
            for name, (engine, _) in engines.items():
                started = time.perf_counter()
                list(pool.map(engine, [frames[name]] * cores))
                times[name].append((time.perf_counter() - started) / (cores * BATCH) * 1000)
    return times
