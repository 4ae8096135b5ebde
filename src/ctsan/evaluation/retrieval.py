"""How well clips are ranked for queries."""

from __future__ import annotations

import torch
from torch import Tensor


def ranks(scores: Tensor, right: Tensor) -> Tensor:
    """The rank of the right clip for each query, (Q,), from 1; ties are counted against it.

    Args:
        scores: (Q, clips).
        right: (Q,), the place of the clip that the query was written for.
    """
    own = scores.gather(1, right[:, None])
    return (scores >= own).sum(dim=1)


def retrieval_scores(ranks: Tensor) -> dict[str, float]:
    """Recall at 1, 5 and 10, median and mean rank, and the mean of one over the rank."""
    ranks = ranks.double()
    recalls = {f"R@{k}": float((ranks <= k).double().mean()) for k in (1, 5, 10)}
    return recalls | {
        "median rank": float(torch.quantile(ranks, 0.5)),
        "mean rank": float(ranks.mean()),
        "MRR": float((1 / ranks).mean()),
    }
