"""Retrieval metrics: how well clips are ranked for queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ctsan.evaluation.clip_statistics import ClipStatistic, Numbers, ratio


def ranks(scores: Tensor, right: Tensor) -> Tensor:
    """The rank of the target clip for each query, (Q,), from 1; ties and NaN count against it.

    Args:
        scores: (Q, clips).
        right: (Q,), the index of the clip that the query was written for.
    """
    target_scores = scores.gather(1, right[:, None])
    return (~(scores < target_scores)).sum(dim=1)


def retrieval_scores(ranks: Tensor) -> dict[str, float]:
    """Recall at 1, 5 and 10, median rank, mean rank and mean reciprocal rank (MRR)."""
    ranks = ranks.double()
    recalls = {f"R@{k}": float((ranks <= k).double().mean()) for k in (1, 5, 10)}
    return recalls | {
        "median rank": float(torch.quantile(ranks, 0.5)),
        "mean rank": float(ranks.mean()),
        "MRR": float((1 / ranks).mean()),
    }


def rank_statistics(ranks: Sequence[Sequence[int]]) -> dict[str, ClipStatistic]:
    """The metrics of `retrieval_scores` as statistics, from the ranks of each clip's queries."""
    num_queries = [len(clip_ranks) for clip_ranks in ranks]
    highest = max(max(clip_ranks, default=1) for clip_ranks in ranks)
    counts = np.array(
        [np.bincount(clip_ranks, minlength=highest + 1) for clip_ranks in ranks], dtype=np.float64
    )
    recalls = {
        f"R@{k}": ratio([sum(rank <= k for rank in clip_ranks) for clip_ranks in ranks], num_queries)
        for k in (1, 5, 10)
    }
    return recalls | {
        "median rank": ClipStatistic(counts, _median_of_counts),
        "mean rank": ratio([sum(clip_ranks) for clip_ranks in ranks], num_queries),
        "MRR": ratio([sum(1 / rank for rank in clip_ranks) for clip_ranks in ranks], num_queries),
    }


def _median_of_counts(counts: Numbers) -> Numbers:
    """The median rank from the histogram of ranks from 0, (..., ranks)."""
    cumulative = counts.cumsum(axis=-1)
    half = cumulative[..., -1:] / 2
    medians: Numbers = ((cumulative < half).sum(axis=-1) + (cumulative <= half).sum(axis=-1)) / 2
    return medians
