"""The maps of a few clips, and the same with padding."""

from __future__ import annotations

import torch
from torch import Tensor

B, N, H, C = 3, 4, 2, 6


def padded(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The same clips with two more frames that are not real."""
    more = torch.cat([maps, torch.full((B, 2, H, H, C), 9.0)], dim=1)
    return more, torch.arange(N + 2).expand(B, -1) < N


def all_real(maps: Tensor) -> Tensor:
    return torch.ones(maps.shape[:2], dtype=torch.bool)
