"""Ranks and recalls, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctsan.evaluation.retrieval import rank_statistics, ranks, retrieval_scores


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


def test_where_all_clips_have_one_score_the_right_one_comes_last() -> None:
    assert ranks(torch.zeros(2, 7), torch.tensor([0, 6])).tolist() == [7, 7]


@pytest.mark.parametrize("found", [[3], [2, 5], [1, 1, 9], [1, 4, 8, 20], [6, 6, 1, 2, 300]])
def test_tallies_of_ranks_give_the_same_however_queries_are_spread_over_clips(found: list[int]) -> None:
    expected = retrieval_scores(torch.tensor(found))
    for by_clip in ([[rank] for rank in found], [found], [found[:1], [], found[1:]]):
        assert {
            name: statistic.value for name, statistic in rank_statistics(by_clip).items()
        } == pytest.approx(expected)


def test_medians_of_draws_are_those_of_the_drawn_ranks() -> None:
    found, drawn = np.array([1, 2, 5, 9, 9]), np.array([[0, 0, 1, 2], [3, 4, 1, 1], [2, 2, 0, 4]])
    statistic = rank_statistics([[rank] for rank in found])["median rank"]
    sums = statistic.rows[drawn].sum(axis=1)
    assert statistic.of_sums(sums).tolist() == np.median(found[drawn], axis=1).tolist()


def test_scores_that_are_no_numbers_come_last() -> None:
    assert ranks(torch.full((2, 3), torch.nan), torch.tensor([0, 2])).tolist() == [3, 3]
    assert ranks(torch.tensor([[0.5, torch.nan, 0.1]]), torch.tensor([0])).tolist() == [2]
