"""Precision, recall and average precision of concept words, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from ctsan.evaluation.concepts import average_precisions, concept_statistics


@pytest.mark.parametrize(
    ("scores", "reference", "expected"),
    [
        ([4, 3, 2, 1], [1, 0, 1, 0], (1 / 1 + 2 / 3) / 2),
        ([1, 2, 3, 4], [1, 0, 1, 0], (1 / 2 + 2 / 4) / 2),
        ([5, 5, 5, 5], [0, 1, 0, 0], 1 / 4),  # all alike: the right word comes last
        ([5, 5, 5, 5], [1, 1, 1, 0], 3 / 4),
        ([9, 5, 5, 1], [1, 1, 0, 1], (1 / 1 + 2 / 3 + 3 / 4) / 3),
        ([9, 5, 5, 1], [1, 1, 1, 0], 1),  # a tie among right words costs nothing
        ([9, 5, 5, 1], [0, 0, 0, 0], 0),
    ],
)
def test_average_precision_counts_ties_against_the_word(
    scores: list[float], reference: list[float], expected: float
) -> None:
    others = torch.arange(4.0).flip(0)  # another clip in the batch changes nothing
    found = average_precisions(
        torch.stack([torch.tensor(scores).float(), others]),
        torch.stack([torch.tensor(reference).float(), torch.ones(4)]),
    )
    assert found.tolist() == pytest.approx([expected, 1])


def test_clips_without_a_word_have_precision_alone() -> None:
    found = concept_statistics(
        torch.tensor([[0, 1], [0, 1], [2, 3]]),
        torch.tensor([[4.0, 3, 2, 1], [4, 3, 2, 1], [1, 2, 3, 4]]),
        torch.tensor([[1.0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 0]]),
    )
    assert {name: statistic.value for name, statistic in found.items()} == pytest.approx(
        {
            "precision": (1 + 0 + 1) / 6,
            "recall": (1 / 3 + 1 / 1) / 2,
            "mean average precision": ((1 + 2 / 3 + 3 / 4) / 3 + 1 / 2) / 2,
        }
    )
