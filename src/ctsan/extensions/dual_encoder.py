"""A joint embedding of sentences and clips, without any order of words or frames.

A clip is the mean of its features and a sentence a weighted bag of its words, each brought to a vector of
length one; how well they suit each other is the cosine between them. It knows far less than CT-SAN, and it is
quick: clips are embedded once, whatever the query, and their nearest ones are found in an index.
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

_RIDGE = 1000.0  # as much as so many clips that tell nothing
_OTHERS = 0.05  # of a clip's weight has one that others have captioned
_NOTHING = 1e-6  # a guessed bag is as good as none
_AT_ONCE = 4096  # sentences
_HIDDEN_DROPOUT = 0.3  # of the perceptron


class Matches(NamedTuple):
    """How often it is right that a query has a match, or has none, as a share of queries."""

    found: float  # with their clips
    none: float  # without their clips and those that are most like them
    none_alone: float  # without their clips only, where others may suit as well


class MatchCalibration(NamedTuple):
    threshold: float  # in standard deviations of a query's scores
    growth: float | None  # of the best score for each doubling of the clips, over log 2; None of one clip
    num_clips: int
    rates: Matches


class DualEncoder(ScoreScale):
    """Scores are cosines.

    Args:
        joint_dim: of the vectors that are compared.
        clip_dropout: of the mean features; a few hundred clips are soon known by heart.
        hidden_dim: of a perceptron beside the linear map of clips; 0 for none.
        num_phrases: of a phrase probe, which tells what a sentence would be worth; 0 for none.
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
        self.weigh = nn.Embedding(words, 1)  # how much a word says of a clip
        nn.init.zeros_(self.weigh.weight)
        self.from_words = nn.Linear(embedding_dim, joint_dim, bias=False)
        channels = len(clip_encoder.channel_means)
        self.from_clip = nn.Linear(channels, joint_dim)
        self.perceptron = _perceptron(channels, hidden_dim, joint_dim) if hidden_dim else None
        self.phrases = PhraseProbe(channels=channels, num_phrases=num_phrases) if num_phrases else None
        # From which score on the best of some clips is said to suit a query: see `fit_matches`.
        for name in ("match_threshold", "match_growth", "match_clips", "match_accuracy"):
            self.register_buffer(name, torch.zeros(()))

    @property
    def joint_dim(self) -> int:
        return self.from_clip.out_features

    @torch.no_grad()
    def fit(self, means: Tensor, captions: Sequence[Sequence[Sequence[int]]], is_own: Tensor) -> None:
        """Begin with a linear regression of captions' bags of words on training clips.

        Bags and clips are compared in the directions in which the guessed bags of clips differ most. Where
        all captions are alike there are none, and it begins as it is.

        Args:
            means: (n, C), the clips' mean features.
            captions: of each clip, in numbers of words.
            is_own: (n,), False of clips that others have captioned.
        """
        clip_of = torch.tensor([clip for clip, own in enumerate(captions) for _ in own])
        read = [torch.tensor(caption) for own in captions for caption in own]
        bags = torch.cat(
            [
                F.normalize(self._bags(pad_sequence(read[start : start + _AT_ONCE], batch_first=True)), dim=1)
                for start in range(0, len(read), _AT_ONCE)
            ]
        )
        said = bags.new_zeros(len(means), bags.shape[1]).index_add_(0, clip_of, bags)
        said /= torch.bincount(clip_of, minlength=len(means))[:, None]
        weight = regress(means, said, is_own, ridge=_RIDGE, others=_OTHERS)  # (E, C)
        counts = torch.where(is_own, 1.0, _OTHERS).double()
        guessed = means.double() @ weight.mT * counts.sqrt()[:, None]
        size = guessed[is_own].norm(dim=1).mean()
        if size < _NOTHING:
            return
        directions = torch.linalg.svd(guessed, full_matrices=False).Vh[: self.joint_dim]
        kept = len(directions)
        self.from_words.weight[:kept] = directions.to(self.from_words.weight)
        nn.init.zeros_(self.from_clip.weight)
        nn.init.zeros_(self.from_clip.bias)
        self.from_clip.weight[:kept] = (directions @ weight / size).to(self.from_clip.weight)

    def embed_clips(self, encoding: ClipEncoding) -> Tensor:
        """(B, J), of length one."""
        pooled = F.dropout(encoding.state.top, self.clip_dropout, self.training)
        embedded = self.from_clip(pooled)
        if self.perceptron is not None:
            embedded = embedded + self.perceptron(pooled)
        return F.normalize(embedded, dim=1)

    def embed_sentences(self, words: Tensor) -> Tensor:
        """Sentences (M, T), padded with 0, to (M, J), of length one."""
        return F.normalize(self.from_words(self._bags(words)), dim=1)

    def _bags(self, words: Tensor) -> Tensor:
        weights = self.weigh(words)[..., 0].masked_fill(words == 0, -torch.inf).softmax(dim=1)  # (M, T)
        return torch.einsum("mt,mte->me", weights, self.clip_encoder.embedding(words))

    def forward(self, words: Tensor, is_real: Tensor, encoding: ClipEncoding) -> Scored:  # noqa: ARG002  # padding is 0
        """The score of each sentence and the clip in its row; no attention weights."""
        return Scored((self.embed_sentences(words) * self.embed_clips(encoding)).sum(dim=1), None)

    @torch.no_grad()
    def set_matches(self, calibration: MatchCalibration) -> None:
        """Take over what `fit_matches` found."""
        self.match_threshold.fill_(calibration.threshold)
        self.match_clips.fill_(calibration.num_clips)
        self.match_accuracy.fill_((calibration.rates.found + calibration.rates.none) / 2)
        if calibration.growth is not None:
            self.match_growth.fill_(calibration.growth)

    def match_score(self, num_clips: int) -> float:
        """From which score, in standard deviations, the best of so many clips is a match."""
        doublings = math.log(max(num_clips, 1) / max(float(self.match_clips), 1.0))
        return float(self.match_threshold) + float(self.match_growth) * doublings


@torch.no_grad()
def fit_matches(scores: Tensor, right: Tensor, likeness: Tensor) -> MatchCalibration:
    """From which score on a best clip is a match, and how often that is right.

    Each query is asked twice: with the clip that it was written for among the others, and without it and
    the fifth of all clips that are most like it, for those may suit as well. A query's scores count in
    standard deviations from their mean over the clips, for some queries score high with all. The
    threshold is where the best scores of both cases part best. The best of many clips scores higher than
    the best of few, by about the same for each doubling: how much is learnt from halves of the clips.

    Args:
        scores: (Q, clips).
        right: (Q,), places of the clips that queries were written for.
        likeness: (clips, clips), cosines of the clips' vectors.
    """
    num_clips = scores.shape[1]
    scores = standardised(scores, scores)
    alike = likeness[right].scatter(1, right[:, None], torch.inf).topk(max(1, num_clips // 5)).indices
    best = scores.amax(dim=1)
    others = scores.scatter(1, alike, -torch.inf)
    without = others.amax(dim=1)
    levels = torch.cat([best, without]).sort().values
    found = (best[:, None] >= levels).double().mean(dim=0)
    none = (without[:, None] < levels).double().mean(dim=0)
    chosen = (found + none).argmax()
    threshold = levels[chosen]
    halves = torch.stack([others[:, 0::2].amax(dim=1), others[:, 1::2].amax(dim=1)])
    both = halves.isfinite().all(dim=0)
    growth = float((without - halves.mean(dim=0))[both].mean()) / math.log(2) if both.any() else None
    alone = scores.scatter(1, right[:, None], -torch.inf).amax(dim=1)
    rates = Matches(float(found[chosen]), float(none[chosen]), float((alone < threshold).double().mean()))
    return MatchCalibration(float(threshold), growth, num_clips, rates)


def _perceptron(channels: int, hidden_dim: int, joint_dim: int) -> nn.Sequential:
    """Clips' features to what is added to their linear map: nothing, to begin with."""
    last = nn.Linear(hidden_dim, joint_dim, bias=False)
    nn.init.zeros_(last.weight)
    return nn.Sequential(nn.Linear(channels, hidden_dim), nn.GELU(), nn.Dropout(_HIDDEN_DROPOUT), last)


def standardised(scores: Tensor, among: Tensor) -> Tensor:
    """Scores of queries (Q, …) in standard deviations from the mean of those with some clips (Q, C)."""
    spread = among.std(dim=1, correction=0, keepdim=True).clamp(min=1e-6)
    return (scores - among.mean(dim=1, keepdim=True)) / spread


def in_batch_loss(
    sentences: Tensor, clips: Tensor, clip_of_sentence: Tensor, *, temperature: float
) -> Tensor:
    """Each sentence must find its clip among those of the batch, and each clip's sentence among the others'.

    Args:
        sentences: (M, J).
        clips: (B, J), each there once.
        clip_of_sentence: (M,); a clip's other sentences are no negatives.
    """
    scores = sentences @ clips.mT / temperature  # (M, B)
    to_clips = F.cross_entropy(scores, clip_of_sentence)
    of_own_clip = scores[:, clip_of_sentence].mT  # (M, M): sentence m's clip with all sentences
    rows = torch.arange(len(sentences), device=scores.device)
    same_clip = clip_of_sentence[:, None] == clip_of_sentence
    same_clip[rows, rows] = False
    return (to_clips + F.cross_entropy(of_own_clip.masked_fill(same_clip, -torch.inf), rows)) / 2
