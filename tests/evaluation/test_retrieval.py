"""Ranks and recalls, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from ctsan.evaluation.retrieval import ranks, retrieval_scores


def test_ranks_count_from_one_and_ties_count_against_us() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.5], [0.9, 0.1, 0.5], [0.5, 0.5, 0.5]])
    assert ranks(scores, torch.tensor([0, 2, 1])).tolist() == [1, 2, 3]


def test_recalls_median_and_mean() -> None:
    found = retrieval_scores(torch.tensor([1, 4, 8, 20]))
    assert found == pytest.approx(
        {
            "R@1": 0.25,
            "R@5": 0.5,
            "R@10": 0.75,
            "median rank": 6.0,
            "mean rank": 8.25,
            "MRR": (1 + 1 / 4 + 1 / 8 + 1 / 20) / 4,
        }
    )
