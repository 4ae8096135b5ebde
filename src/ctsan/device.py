"""Where to compute: CUDA, Apple's GPU, or the processor."""

from __future__ import annotations

from typing import Literal

Device = Literal["cuda", "mps", "cpu"]


def best_device() -> Device:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"
