"""How long networks take for a frame, measured in turns, so that a busy machine is busy for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from ctsan.io.device import usable_cores
from ctsan.video.engine import BATCH, Engine

REFERENCE = "efficientnet-lite0"  # what times are compared with

_ROUNDS = 5

Name = TypeVar("Name", bound=Hashable)


def milliseconds_a_frame(engines: Mapping[Name, tuple[Engine, int]]) -> dict[Name, float]:
    """The median of some rounds of `milliseconds_in_rounds`."""
    return {name: statistics.median(times) for name, times in milliseconds_in_rounds(engines).items()}


def milliseconds_in_rounds(
    engines: Mapping[Name, tuple[Engine, int]], *, rounds: int = _ROUNDS
) -> dict[Name, list[float]]:
    """Time a frame in each round, with a call a core at a time, as `ctsan features` does it.

    All take turns in every round, so that the ratio of two is best taken within a round.

    Args:
        engines: each with the pixels a side that it takes.
    """
    random = np.random.default_rng(0)
    cores = usable_cores()
    frames = {
        name: random.integers(0, 256, (BATCH, size, size, 3), dtype=np.uint8)
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
