"""A joint embedding of sentences and clips that ignores the order of words and frames.

A clip is embedded from its mean feature, a sentence from a weighted bag of words. Both embeddings have length
one, and the score of a pair is their cosine. The model is weaker than CT-SAN, but fast: clips are embedded
once, independently of the query, and the nearest ones can be looked up in an index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.extensions.phrase_probe import PhraseProbe
from ctsan.extensions.ridge import regress
from ctsan.model.choice_model import Scored
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.score_scale import ScoreScale

_RIDGE = 1000.0  # penalty
_EXTERNAL_WEIGHT = 0.05  # of an external clip; own clips have 1
_NOTHING = 1e-6  # predicted bags with a smaller mean norm count as zero
_AT_ONCE = 4096  # sentences per batch
_HIDDEN_DROPOUT = 0.3  # in the MLP
_MOST_ALIKE = 0.5  # share of the clips; more are like a query that matches everywhere


class Matches(NamedTuple):
    """Share of queries for which the decision "match" or "no match" is correct."""

    found: float  # "match", with the query's clip in the set
    none: float  # "no match", without that clip and those like it
    none_alone: float  # "no match", without that clip only; similar clips may still match


class MatchCalibration(NamedTuple):
    threshold: float  # of the statistic in `fit_matches`
    growth: float | None  # slope of the statistic over log(num_clips); None with too few clips
    num_clips: int
    rates: Matches


class DualEncoder(ScoreScale):
    """Score sentences and clips by the cosine of their embeddings.

    Args:
        joint_dim: size J of the embeddings.
        clip_dropout: dropout rate of the mean features, against overfitting small corpora.
        hidden_dim: hidden size of an MLP that is added to the linear map of clips; 0 for none.
        num_phrases: vocabulary size of a phrase probe, which predicts the CIDEr of sentences; 0 for none.
    """

    match_threshold: Tensor
    match_growth: Tensor
    match_clips: Tensor
    match_accuracy: Tensor

    def __init__(
        self,
        *,
        clip_encoder: MeanPooling,
        joint_dim: int = 256,
        clip_dropout: float = 0.5,
        hidden_dim: int = 0,
        num_phrases: int = 0,
    ) -> None:
        super().__init__()
        self.clip_encoder = clip_encoder
        self.clip_dropout = clip_dropout
        words, embedding_dim = clip_encoder.embedding.weight.shape
        self.weigh = nn.Embedding(words, 1)  # logit of a word's weight in its bag
        nn.init.zeros_(self.weigh.weight)
        self.from_words = nn.Linear(embedding_dim, joint_dim, bias=False)
        channels = len(clip_encoder.channel_means)
        self.from_clip = nn.Linear(channels, joint_dim)
        self.perceptron = _perceptron(channels, hidden_dim, joint_dim) if hidden_dim else None
        self.phrases = PhraseProbe(channels=channels, num_phrases=num_phrases) if num_phrases else None
        # Statistic from which a query has a match: see `fit_matches`.
        for name in ("match_threshold", "match_growth", "match_clips", "match_accuracy"):
            self.register_buffer(name, torch.zeros(()))

    @property
    def joint_dim(self) -> int:
        return self.from_clip.out_features

    @torch.no_grad()
    def fit(self, means: Tensor, captions: Sequence[Sequence[Sequence[int]]], is_own: Tensor) -> None:
        """Initialise by ridge regression from mean features to the captions' bags of words.

        The joint space is spanned by the principal directions of the predicted bags. If all captions are
        alike, there are no such directions, and the weights are left unchanged.

        Args:
            means: (n, C), mean features of the clips.
            captions: word ids of the captions of each clip.
            is_own: (n,), False for external clips.
        """
        clip_of = torch.tensor([clip for clip, clip_captions in enumerate(captions) for _ in clip_captions])
        word_ids = [torch.tensor(caption) for clip_captions in captions for caption in clip_captions]
        bags = torch.cat(
            [
                F.normalize(
                    self._bags(pad_sequence(word_ids[start : start + _AT_ONCE], batch_first=True)), dim=1
                )
                for start in range(0, len(word_ids), _AT_ONCE)
            ]
        )
        targets = bags.new_zeros(len(means), bags.shape[1]).index_add_(0, clip_of, bags)
        targets /= torch.bincount(clip_of, minlength=len(means))[:, None]
        weight = regress(means, targets, is_own, ridge=_RIDGE, external=_EXTERNAL_WEIGHT)  # (E, C)
        counts = torch.where(is_own, 1.0, _EXTERNAL_WEIGHT).double()
        predicted = means.double() @ weight.mT * counts.sqrt()[:, None]
        size = predicted[is_own].norm(dim=1).mean()
        if size < _NOTHING:
            return
        directions = torch.linalg.svd(predicted, full_matrices=False).Vh[: self.joint_dim]
        num_directions = len(directions)
        self.from_words.weight[:num_directions] = directions.to(self.from_words.weight)
        nn.init.zeros_(self.from_clip.weight)
        nn.init.zeros_(self.from_clip.bias)
        self.from_clip.weight[:num_directions] = (directions @ weight / size).to(self.from_clip.weight)

    def embed_clips(self, encoding: ClipEncoding) -> Tensor:
        """Embeddings of encoded clips, (B, J), of length one."""
        pooled = F.dropout(encoding.state.top, self.clip_dropout, self.training)
        embedded = self.from_clip(pooled)
        if self.perceptron is not None:
            embedded = embedded + self.perceptron(pooled)
        return F.normalize(embedded, dim=1)

    def embed_sentences(self, words: Tensor) -> Tensor:
        """Embeddings of sentences (M, T), padded with 0: (M, J), of length one."""
        return F.normalize(self.from_words(self._bags(words)), dim=1)

    def _bags(self, words: Tensor) -> Tensor:
        weights = self.weigh(words)[..., 0].masked_fill(words == 0, -torch.inf).softmax(dim=1)  # (M, T)
        return torch.einsum("mt,mte->me", weights, self.clip_encoder.embedding(words))

    def forward(self, words: Tensor, is_real: Tensor, encoding: ClipEncoding) -> Scored:  # noqa: ARG002  # padding is 0
        """Score each sentence with the clip in its row. There are no attention weights."""
        return Scored((self.embed_sentences(words) * self.embed_clips(encoding)).sum(dim=1), None)

    @torch.no_grad()
    def set_matches(self, calibration: MatchCalibration) -> None:
        """Store the result of `fit_matches` in the buffers."""
        self.match_threshold.fill_(calibration.threshold)
        self.match_clips.fill_(calibration.num_clips)
        self.match_accuracy.fill_((calibration.rates.found + calibration.rates.none) / 2)
        if calibration.growth is not None:
            self.match_growth.fill_(calibration.growth)

    def match_score(self, num_clips: int) -> float:
        """The statistic of `fit_matches` from which a query has a match among `num_clips` clips."""
        doublings = math.log(max(num_clips, 1) / max(float(self.match_clips), 1.0))
        return float(self.match_threshold) + float(self.match_growth) * doublings


@torch.no_grad()
def fit_matches(scores: Tensor, right: Tensor, is_alike: Tensor, *, top_k: int) -> MatchCalibration:
    """Choose the statistic from which a query has a match, and measure how often that is correct.

    The statistic is the mean of the `top_k` best scores plus the mean of all scores. Each query is evaluated
    twice: without its clip and the clips like it, and with its clip, without as many other clips at random.
    Queries that more than half of the clips are like are left out: they match everywhere. The threshold makes
    the smaller of both accuracies as large as possible.

    The statistic grows with the number of clips, by about the same amount for each doubling. The slope is
    the mean of both cases, estimated from halves of the clips.

    Args:
        scores: (Q, clips), standardised as in `ScoreScale`.
        right: (Q,), column of the clip that each query was written for.
        is_alike: (Q, clips), True for that clip and the clips like it.
    """
    specific = is_alike.double().mean(dim=1) <= _MOST_ALIKE
    if not specific.any():
        specific = torch.ones_like(specific)
    scores, right, is_alike = scores[specific], right[specific], is_alike[specific]
    num_clips = scores.shape[1]
    left_out = _random_others(right, is_alike)
    with_clip = _statistics(scores, ~left_out, top_k)
    without = _statistics(scores, ~is_alike, top_k)
    levels = torch.cat([with_clip, without]).sort().values
    match_rate = (with_clip[:, None] >= levels).double().mean(dim=0)
    no_match_rate = (without[:, None] < levels).double().mean(dim=0)
    best_level = torch.minimum(match_rate, no_match_rate).argmax()
    threshold = (levels[best_level] + levels[max(0, int(best_level) - 1)]) / 2  # between two queries
    is_right = torch.zeros_like(is_alike).scatter(1, right[:, None], True)
    steps = []
    for start in (0, 1):
        is_in_half = torch.arange(num_clips, device=scores.device) % 2 == start
        steps.append(with_clip - _statistics(scores, ~left_out & (is_in_half | is_right), top_k))
        steps.append(without - _statistics(scores, ~is_alike & is_in_half, top_k))
    halving = torch.stack(steps).mean(dim=0)
    halving = halving[halving.isfinite()]
    growth = float(halving.mean()) / math.log(2) if len(halving) else None
    alone = _statistics(scores, ~is_right, top_k)
    rates = Matches(
        float(match_rate[best_level]),
        float(no_match_rate[best_level]),
        float((alone < threshold).double().mean()),
    )
    sizes = (~is_alike).sum(dim=1).double()
    return MatchCalibration(float(threshold), growth, max(1, round(float(sizes.mean()))), rates)


def _statistics(scores: Tensor, is_kept: Tensor, top_k: int) -> Tensor:
    """The statistic of each query (Q,) among the clips that are kept; -inf if none is."""
    counts = is_kept.sum(dim=1)
    best = scores.masked_fill(~is_kept, -torch.inf).topk(min(top_k, scores.shape[1]), dim=1).values
    num_best = counts.clamp(max=top_k)
    of_best = best.masked_fill(best.isinf(), 0.0).sum(dim=1) / num_best.clamp(min=1)
    of_all = (scores * is_kept).sum(dim=1) / counts.clamp(min=1)
    return (of_best + of_all).masked_fill(counts == 0, -torch.inf)


def _random_others(right: Tensor, is_alike: Tensor) -> Tensor:
    """For each query, as many clips as are like its own, without that one: (Q, clips)."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.rand(is_alike.shape, generator=generator).to(is_alike.device)
    keys = keys.scatter(1, right[:, None], torch.inf)  # its own clip comes last
    ranks = keys.argsort(dim=1).argsort(dim=1)
    counts = is_alike.sum(dim=1, keepdim=True).clamp(max=is_alike.shape[1] - 1)
    return ranks < counts


def _perceptron(channels: int, hidden_dim: int, joint_dim: int) -> nn.Sequential:
    """An MLP whose output is added to the linear map of clips. It is initialised to output 0."""
    last = nn.Linear(hidden_dim, joint_dim, bias=False)
    nn.init.zeros_(last.weight)
    return nn.Sequential(nn.Linear(channels, hidden_dim), nn.GELU(), nn.Dropout(_HIDDEN_DROPOUT), last)


def in_batch_loss(
    sentences: Tensor, clips: Tensor, clip_of_sentence: Tensor, *, temperature: float
) -> Tensor:
    """Symmetric contrastive loss with in-batch negatives (InfoNCE): sentence to clip and clip to sentence.

    Args:
        sentences: (M, J).
        clips: (B, J), each clip once.
        clip_of_sentence: (M,). Other sentences of the same clip are not negatives.
    """
    scores = sentences @ clips.mT / temperature  # (M, B)
    to_clips = F.cross_entropy(scores, clip_of_sentence)
    of_own_clip = scores[:, clip_of_sentence].mT  # (M, M): the clip of sentence m with all sentences
    rows = torch.arange(len(sentences), device=scores.device)
    same_clip = clip_of_sentence[:, None] == clip_of_sentence
    same_clip[rows, rows] = False
    return (to_clips + F.cross_entropy(of_own_clip.masked_fill(same_clip, -torch.inf), rows)) / 2
