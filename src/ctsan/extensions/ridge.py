"""Ridge regression on mean features of clips, with a lower weight for external clips."""

from __future__ import annotations

import torch
from torch import Tensor


def regress(means: Tensor, targets: Tensor, is_own: Tensor, *, ridge: float, external: float) -> Tensor:
    """Weights W (K, C) that minimise Σ_i c_i |W x_i - (y_i - ȳ)|² + ridge · |W|².

    x are the mean features and y the targets. The mean ȳ is taken over own or over external clips, like clip
    i, because their word frequencies differ. c_i is 1 for own clips and `external` for external ones.

    Args:
        means: (n, C), x.
        targets: (n, K), y.
        is_own: (n,), False for external clips.
        ridge: penalty.
        external: weight of an external clip.
    """
    features, targets = means.double(), targets.double()
    group_means = torch.stack(
        [targets[group].sum(dim=0) / max(1, int(group.sum())) for group in (~is_own, is_own)]
    )
    weighted = features * torch.where(is_own, 1.0, external)[:, None]
    gram = weighted.mT @ features + ridge * torch.eye(features.shape[1], dtype=features.dtype)
    weights: Tensor = torch.linalg.solve(gram, weighted.mT @ (targets - group_means[is_own.long()])).mT
    return weights
