"""How good detected concept words are."""

from __future__ import annotations

from torch import Tensor


def precision_at_k(scores: Tensor, reference: Tensor, k: int) -> float:
    """The share of the `k` surest candidates, by scores (B, V), that are in the clips' captions (B, V)."""
    best = scores.topk(k, dim=1).indices
    return float(reference.gather(1, best).mean())
