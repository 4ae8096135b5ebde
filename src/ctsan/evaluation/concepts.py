"""How good detected concept words are."""

from __future__ import annotations

import torch
from torch import Tensor

from ctsan.evaluation.clip_statistics import ClipStatistic, ratio


def precision_at_k(scores: Tensor, reference: Tensor, k: int) -> float:
    """The share of the `k` surest candidates, by scores (B, V), that are in the clips' captions (B, V).

    Candidates with a score of minus infinity are ruled out, and do not count.
    """
    best = scores.topk(k, dim=1)
    right = reference.gather(1, best.indices)[best.values > -torch.inf]
    return float(right.mean()) if len(right) else 0.0


def average_precisions(scores: Tensor, reference: Tensor) -> Tensor:
    """Of each clip, (B,): the mean, over the words of its captions, of the precision down to that word.

    Down to a word are all candidates with its score or a higher one: ties are counted against it. A clip
    whose captions hold no candidate has 0.
    """
    minus, order = (-scores).sort(dim=1)
    right = reference.gather(1, order).double()
    down_to = torch.searchsorted(minus, minus, right=True)  # (B, V): how many candidates
    precisions = right.cumsum(dim=1).gather(1, down_to - 1) / down_to
    return (right * precisions).sum(dim=1) / right.sum(dim=1).clamp(min=1)


def concept_statistics(words: Tensor, scores: Tensor, reference: Tensor) -> dict[str, ClipStatistic]:
    """Precision and recall of the concept words, and mean average precision, over clips.

    Precision is the share of a clip's concept words, K or fewer, that are right; recall is the share of its
    captions' candidates that are among them. Both are means over clips, as is the average precision. A clip
    whose captions hold no candidate has neither recall nor average precision.

    Args:
        words: (B, K), the candidates that the model goes by.
        scores: (B, V), of all candidates; minus infinity rules one out, and it does not count as a word.
        reference: (B, V), 1 where a candidate is in the clip's captions.
    """
    is_word = (scores.gather(1, words) > -torch.inf).double()  # (B, K)
    found = reference.gather(1, words) * is_word
    given = is_word.sum(dim=1)
    in_captions = reference.double().sum(dim=1)
    has_words = (in_captions > 0).double()
    return {
        "precision": ratio(found.sum(dim=1) / given.clamp(min=1), (given > 0).double()),
        "recall": ratio(found.sum(dim=1) / in_captions.clamp(min=1), has_words),
        "mean average precision": ratio(average_precisions(scores, reference), has_words),
    }
