"""Ridge regression on mean features of clips, with a lower weight for external clips."""

from __future__ import annotations

import torch
from torch import Tensor


def regress(means: Tensor, told: Tensor, is_own: Tensor, *, ridge: float, others: float) -> Tensor:
    """Weights W (K, C) that minimise Σ_i c_i |W x_i - (y_i - ȳ)|² + ridge · |W|².

    x are the mean features and y the targets. The mean ȳ is taken over own or over external clips, like clip
    i, because their word frequencies differ. c_i is 1 for own clips and `others` for external ones.

    Args:
        means: (n, C), x.
        told: (n, K), y.
        is_own: (n,), False for external clips.
        ridge: penalty.
        others: weight of an external clip.
    """
    seen, told = means.double(), told.double()
    usual = torch.stack([told[some].sum(dim=0) / max(1, int(some.sum())) for some in (~is_own, is_own)])
    weighed = seen * torch.where(is_own, 1.0, others)[:, None]
    spread = weighed.mT @ seen + ridge * torch.eye(seen.shape[1], dtype=seen.dtype)
    weights: Tensor = torch.linalg.solve(spread, weighed.mT @ (told - usual[is_own.long()])).mT
    return weights
