"""How well clips are ranked for queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ctsan.evaluation.clip_statistics import ClipStatistic, Numbers, ratio


def ranks(scores: Tensor, right: Tensor) -> Tensor:
    """The rank of the right clip for each query, (Q,), from 1; ties, and what is no number, count against it.

    Args:
        scores: (Q, clips).
        right: (Q,), the place of the clip that the query was written for.
    """
    own = scores.gather(1, right[:, None])
    return (~(scores < own)).sum(dim=1)


def retrieval_scores(ranks: Tensor) -> dict[str, float]:
    """Recall at 1, 5 and 10, median and mean rank, and the mean of one over the rank."""
    ranks = ranks.double()
    recalls = {f"R@{k}": float((ranks <= k).double().mean()) for k in (1, 5, 10)}
    return recalls | {
        "median rank": float(torch.quantile(ranks, 0.5)),
        "mean rank": float(ranks.mean()),
        "MRR": float((1 / ranks).mean()),
    }


def rank_statistics(ranks: Sequence[Sequence[int]]) -> dict[str, ClipStatistic]:
    """What `retrieval_scores` gives, of the ranks for each clip's queries."""
    queries = [len(own) for own in ranks]
    highest = max(max(own, default=1) for own in ranks)
    counts = np.array([np.bincount(own, minlength=highest + 1) for own in ranks], dtype=np.float64)
    statistics = {
        f"R@{k}": ratio([sum(rank <= k for rank in own) for own in ranks], queries) for k in (1, 5, 10)
    }
    return statistics | {
        "median rank": ClipStatistic(counts, _median_of_counts),
        "mean rank": ratio([sum(own) for own in ranks], queries),
        "MRR": ratio([sum(1 / rank for rank in own) for own in ranks], queries),
    }


def _median_of_counts(counts: Numbers) -> Numbers:
    """Of how often each rank from 0 occurs, (..., ranks)."""
    up_to = counts.cumsum(axis=-1)
    half = up_to[..., -1:] / 2
    medians: Numbers = ((up_to < half).sum(axis=-1) + (up_to <= half).sum(axis=-1)) / 2
    return medians
