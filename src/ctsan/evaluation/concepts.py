"""Metrics of detected concept words."""

from __future__ import annotations

import torch
from torch import Tensor

from ctsan.evaluation.clip_statistics import ClipStatistic, ratio


def average_precisions(scores: Tensor, reference: Tensor) -> Tensor:
    """The average precision of each clip, (B,): the mean of the precision at the rank of each caption word.

    The rank of a word is the number of candidates with its score or a higher one, so ties count against it.
    A clip whose captions contain no candidate has 0.
    """
    negated, order = (-scores).sort(dim=1)
    relevant = reference.gather(1, order).double()
    rank = torch.searchsorted(negated, negated, right=True)  # (B, V)
    precisions = relevant.cumsum(dim=1).gather(1, rank - 1) / rank
    return (relevant * precisions).sum(dim=1) / relevant.sum(dim=1).clamp(min=1)


def concept_statistics(words: Tensor, scores: Tensor, reference: Tensor) -> dict[str, ClipStatistic]:
    """Precision and recall of the concept words, and mean average precision, each averaged over clips.

    Precision is the share of a clip's concept words that are in its captions; recall is the share of the
    candidates in its captions that are among the concept words. Clips whose captions contain no candidate
    are left out of recall and mean average precision.

    Args:
        words: (B, K), the concept words that the model uses.
        scores: (B, V), of all candidates; minus infinity excludes a candidate from the concept words.
        reference: (B, V), 1 where a candidate is in the clip's captions.
    """
    is_word = (scores.gather(1, words) > -torch.inf).double()  # (B, K)
    num_correct = (reference.gather(1, words) * is_word).sum(dim=1)
    num_words = is_word.sum(dim=1)
    in_captions = reference.double().sum(dim=1)
    has_reference = (in_captions > 0).double()
    return {
        "precision": ratio(num_correct / num_words.clamp(min=1), (num_words > 0).double()),
        "recall": ratio(num_correct / in_captions.clamp(min=1), has_reference),
        "mean average precision": ratio(average_precisions(scores, reference), has_reference),
    }
