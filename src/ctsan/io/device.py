"""The device to compute on (CUDA, Apple MPS or CPU) and the number of usable cores."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Literal

Device = Literal["cuda", "mps", "cpu"]

# Device files of the NVIDIA, AMD and WSL drivers. Without one there is no GPU, and the check saves importing
# torch, which takes seconds.
_GPU_FILES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))


def has_gpu_files() -> bool:
    """Whether there may be a GPU: only Linux can be asked without loading a library."""
    return sys.platform != "linux" or any(file.exists() for file in _GPU_FILES)


def best_device() -> Device:
    """The fastest device that PyTorch can use; the CPU without PyTorch."""
    if not has_gpu_files() or importlib.util.find_spec("torch") is None:
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
