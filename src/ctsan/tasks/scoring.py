"""Scores of sentences with clips, by one model or an ensemble, for multiple choice and retrieval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctsan.data.batches import pad_words
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.model.choice_model import ChoiceModel, Scored
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.pair_scores import score_pairs
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import PAD, UNK, Vocabulary

Scorer = LoadedModel[ChoiceModel] | LoadedModel[RetrievalModel] | LoadedModel[DualEncoder]


def encode_sentences(sentences: Sequence[str], vocabulary: Vocabulary, *, max_words: int) -> Tensor:
    """Word ids of sentences, (M, T), padded. An empty sentence becomes one unknown word."""
    numbers = [vocabulary.encode(tokenize(sentence)[:max_words]) or [UNK] for sentence in sentences]
    return pad_words(numbers)


def score_all(member: Scorer, sentences: Sequence[str], encoding: ClipEncoding) -> Tensor:
    """Scores of all sentences with all encoded clips, (sentences, clips), not standardised."""
    model, words = member.model, _encoded(member, sentences)
    if isinstance(model, DualEncoder):
        with torch.inference_mode():
            return model.embed_sentences(words) @ model.embed_clips(encoding).mT
    return score_pairs(model, words, encoding)


@torch.inference_mode()
def score_each(member: Scorer, sentences: Sequence[str], encoding: ClipEncoding) -> Scored:
    """Scores of sentences with the clips in their rows, not standardised, and attention weights."""
    words = _encoded(member, sentences)
    scored: Scored = member.model(words, words != PAD, encoding)
    return scored


@torch.inference_mode()
def embed_sentence(member: LoadedModel[DualEncoder], sentence: str) -> NDArray[np.float32]:
    """Embedding of a sentence, of length one."""
    vector: NDArray[np.float32] = member.model.embed_sentences(_encoded(member, [sentence]))[0].cpu().numpy()
    return vector


def ensemble_scores(
    members: Sequence[Scorer],
    scores: Sequence[Tensor],
    *,
    queries: Sequence[str] | None = None,
    standardise: bool | None = None,
) -> Tensor:
    """Mean of the members' scores. All commands, the web page and `evaluate` use this function.

    Args:
        queries: one per row, if scores are compared only within a row. Members that do not cover a query are
            then left out of its mean: see `covers_query`.
        standardise: standardise each member's scores first; None does so if any member's settings ask for it.
    """
    if standardise is None:
        standardise = any(member.standardise for member in members)
    votes = torch.stack(
        [
            (member.model.standardise(own.to(_device(member))) if standardise else own).cpu()
            for member, own in zip(members, scores, strict=True)
        ]
    )
    if queries is None:
        return votes.mean(dim=0)
    say = covers_query(members, queries).to(votes)[..., None]
    return (votes * say).sum(dim=0) / say.sum(dim=0)


def covers_query(members: Sequence[Scorer], queries: Sequence[str]) -> Tensor:
    """Whether each member's vocabulary covers each query, (members, queries).

    A member covers a query if it knows at least two thirds as many of its words as the member that knows
    most. Without "espresso" in its vocabulary, a member cannot rank clips for "an espresso".
    """
    read = [tokenize(query) for query in queries]
    known = torch.tensor(
        [[sum(word in member.words.vocabulary for word in words) for words in read] for member in members]
    )
    return 3 * known >= 2 * known.amax(dim=0)


def _encoded(member: Scorer, sentences: Sequence[str]) -> Tensor:
    words = encode_sentences(sentences, member.words.vocabulary, max_words=member.max_words)
    return words.to(_device(member))


def _device(member: Scorer) -> torch.device:
    return member.model.clip_encoder.candidate_words.device
