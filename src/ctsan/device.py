"""Where to compute: CUDA, Apple's GPU, or the processor."""

from __future__ import annotations

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
