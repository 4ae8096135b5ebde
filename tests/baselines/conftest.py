from __future__ import annotations

import pytest
import torch
from torch import Tensor

from baselines.small_clips import B, C, H, N


@pytest.fixture
def maps() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(B, N, H, H, C)
