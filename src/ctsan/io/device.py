"""The device to compute on (CUDA, Apple MPS or CPU) and the number of usable cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

Device = Literal["cuda", "mps", "cpu"]

# Device files of the NVIDIA, AMD and WSL drivers. Without one there is no GPU, and the check saves importing
# torch, which takes seconds.
_GPU_FILES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))


def best_device() -> Device:
    """The fastest available device."""
    if sys.platform == "linux" and not any(file.exists() for file in _GPU_FILES):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def usable_cores() -> int:
    """The number of cores that this process may use; a scheduler may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
