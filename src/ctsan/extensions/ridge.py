"""Linear regression on clips' mean features, of one's own clips and, at less weight, of others'."""

from __future__ import annotations

import torch
from torch import Tensor


def regress(means: Tensor, told: Tensor, is_own: Tensor, *, ridge: float, others: float) -> Tensor:
    """The weights (K, C) that bring mean features closest to what is told of clips, less its mean.

    One's own clips and others', of which other things are told as often, are each compared with their mean.

    Args:
        means: (n, C).
        told: (n, K).
        is_own: (n,), False of clips that others have captioned.
        ridge: as much as so many clips that tell nothing.
        others: of a clip's weight has one of others'.
    """
    seen, told = means.double(), told.double()
    usual = torch.stack([told[some].sum(dim=0) / max(1, int(some.sum())) for some in (~is_own, is_own)])
    weighed = seen * torch.where(is_own, 1.0, others)[:, None]
    spread = weighed.mT @ seen + ridge * torch.eye(seen.shape[1], dtype=seen.dtype)
    weights: Tensor = torch.linalg.solve(spread, weighed.mT @ (told - usual[is_own.long()])).mT
    return weights
