"""Where to compute: CUDA, Apple's GPU, or the processor, and on how many cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

Device = Literal["cuda", "mps", "cpu"]

# Drivers of NVIDIA, AMD and Windows' Linux: without one there is no GPU, and importing torch takes seconds.
_GPU_FILES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))


def best_device() -> Device:
    if sys.platform == "linux" and not any(file.exists() for file in _GPU_FILES):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def usable_cores() -> int:
    """The cores that this process may run on; a scheduler may keep them below the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
