"""What the tests of libraries put into them."""

from __future__ import annotations

import numpy as np

from ctsan.search.candidates import MAX_CANDIDATES
from ctsan.search.library_format import RunFingerprint, ShotArrays, ShotDetails

RUNS = [RunFingerprint("/runs/embed", "embed", "0" * 64)]
WORDS = ["cat", "dog"]
DIM = 8


def arrays_of(num_shots: int, seed: int) -> ShotArrays:
    random = np.random.default_rng(seed)
    return {
        "vectors": random.normal(size=(num_shots, DIM)).astype(np.float16),
        "concepts": random.integers(-1, len(WORDS), (num_shots, 3), dtype=np.int32),
        "confidences": random.uniform(size=(num_shots, 3)).astype(np.float16),
        "candidates": random.integers(0, len(WORDS), (num_shots, MAX_CANDIDATES), dtype=np.uint16),
        "candidate_confidences": random.integers(1, 256, (num_shots, MAX_CANDIDATES), dtype=np.uint8),
    }


def details_of(num_shots: int, seed: int) -> list[ShotDetails]:
    random = np.random.default_rng(seed)
    return [ShotDetails(f"shot {place} of {seed}", random.bytes(3000)) for place in range(num_shots)]
