"""Caption clips by ensemble beam search, then rerank the hypotheses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from ctsan.config import DecodingSettings, RerankSettings
from ctsan.evaluation.grammar import grammar_fault
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.model.beam_search import Sentence, beam_search
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.description_model import DescriptionModel
from ctsan.model.lstm import State
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.reranking import Reranker
from ctsan.text.vocabulary import BLANK, BOS, EOS, PAD, UNK

NEVER_SAID = (PAD, UNK, BLANK)
_HYPOTHESES_PER_BEAM = 1.4  # with reranking, a search stops after 1.4 x beam finished hypotheses

Captioner = LoadedModel[DescriptionModel] | LoadedModel[DualEncoder]


class Hypothesis(NamedTuple):
    text: str
    score: float  # hypotheses of a clip are sorted by it, those with a grammar fault after the others
    log_probability: float  # length-normalised, as in `Sentence`


@torch.inference_mode()
def caption_clips(
    models: Sequence[Captioner],
    encodings: Sequence[ClipEncoding],
    decoding: DecodingSettings,
    rerank: RerankSettings | None = None,
    *,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses for each encoded clip, best first.

    The probability of a next word is the mean over the description models. A model reads a word outside its
    vocabulary as the unknown word, and never generates it. Joint embeddings among the models rerank all
    hypotheses of the beam: see `reranking`. With `skip_faulty`, hypotheses with a grammar fault come after
    those without one, regardless of score.

    Args:
        encodings: one per model, with one row per clip.
        rerank: weights of the joint embeddings; by default those of a new run.
    """
    describing = [(model, own) for model, own in zip(models, encodings, strict=True) if _describes(model)]
    reranking = [(model, own) for model, own in zip(models, encodings, strict=True) if _embeds(model)]
    words = _words_of_all(tuple(model.words.vocabulary.words for model, _ in describing))
    sentences = _search(
        describing,
        words,
        decoding,
        n_best=decoding.beam if reranking or decoding.skip_faulty else n_best,
        enough=math.ceil(_HYPOTHESES_PER_BEAM * decoding.beam) if reranking else None,
    )
    texts = [[" ".join(words[number] for number in each.words) for each in of_clip] for of_clip in sentences]
    log_probabilities = [[each.score for each in of_clip] for of_clip in sentences]
    scores = log_probabilities
    if reranking:
        reranker = Reranker(
            [model for model, _ in reranking],
            [encoding for _, encoding in reranking],
            words,
            rerank or RerankSettings(),
        )
        numbers = [[each.words for each in of_clip] for of_clip in sentences]
        scores = reranker.scores(texts, numbers, log_probabilities)
    by_clip = zip(texts, scores, log_probabilities, strict=True)
    return [
        _ordered([Hypothesis(*each) for each in zip(*of_clip, strict=True)], decoding)[:n_best]
        for of_clip in by_clip
    ]


def _ordered(hypotheses: Sequence[Hypothesis], decoding: DecodingSettings) -> list[Hypothesis]:
    """Sort by score, best first; with `skip_faulty`, hypotheses with a grammar fault come last."""
    by_score = sorted(hypotheses, key=lambda each: -each.score)
    if not decoding.skip_faulty:
        return by_score
    return sorted(by_score, key=lambda each: grammar_fault(each.text) is not None)


@lru_cache(maxsize=8)
def _words_of_all(vocabularies: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in vocabularies for word in words))


def _describes(model: Captioner) -> TypeGuard[LoadedModel[DescriptionModel]]:
    return isinstance(model.model, DescriptionModel)


def _embeds(model: Captioner) -> TypeGuard[LoadedModel[DualEncoder]]:
    return isinstance(model.model, DualEncoder)


def _search(
    telling: Sequence[tuple[LoadedModel[DescriptionModel], ClipEncoding]],
    words: Sequence[str],
    decoding: DecodingSettings,
    *,
    n_best: int,
    enough: int | None,
) -> list[list[Sentence]]:
    """Ensemble beam search. Word ids index `words`, the union of the members' vocabularies."""
    members, encodings = zip(*telling, strict=True)
    device = encodings[0].concepts.device
    vocabularies = [member.words.vocabulary for member in members]
    known = [
        None if own.words == words else torch.tensor(own.encode(words), device=device) for own in vocabularies
    ]
    related = [member.model.decode.related(encoding.concepts) for member, encoding in telling]
    shapes = [encoding.state.hidden.shape for encoding in encodings]

    @lru_cache(maxsize=1)  # successive steps mostly search the same clips
    def shown(clips: tuple[int, ...], width: int) -> list[tuple[Tensor, Tensor | None]]:
        rows = torch.tensor(clips, device=device).repeat_interleave(width)
        return [
            (encoding.concepts[rows], None if own is None else own[rows])
            for encoding, own in zip(encodings, related, strict=True)
        ]

    def next_words(last: Tensor, state: State, clips: tuple[int, ...]) -> tuple[Tensor, State]:
        total, states = torch.zeros((), device=device), []
        seen = shown(clips, len(last) // len(clips))
        for member, numbers, (concepts, same), own in zip(
            members, known, seen, _parted(state, shapes), strict=True
        ):
            scores, after = member.model.next_words(
                last if numbers is None else numbers[last], concepts, own, same
            )
            if numbers is not None:
                scores = scores[:, numbers].masked_fill_(numbers == UNK, -torch.inf)
            total = scores.exp_().add_(total)
            states.append(after)
        return total.div_(len(states)).log_(), _together(states)

    return beam_search(
        next_words,
        _together([encoding.state for encoding in encodings]),
        begin=BOS,
        end=EOS,
        never=NEVER_SAID,
        beam=decoding.beam,
        n_best=n_best,
        enough=enough,
        max_words=decoding.max_words,
        length_penalty=decoding.length_penalty,
        no_repeat_ngram=decoding.no_repeat_ngram,
    )


def _together(states: Sequence[State]) -> State:
    """Concatenate the states of several models, which may differ in layers and sizes, into one layer."""
    hidden, cell = (
        torch.cat([tensor.transpose(0, 1).flatten(1) for tensor in tensors], dim=1)[None]
        for tensors in zip(*states, strict=True)
    )
    return State(hidden, cell)


def _parted(state: State, shapes: Sequence[torch.Size]) -> Iterator[State]:
    """Undo `_together`. The states had these shapes, except for the batch size."""
    sizes = [layers * dim for layers, _, dim in shapes]
    hiddens, cells = (torch.split(tensor[0], sizes, dim=1) for tensor in state)
    for hidden, cell, (layers, _, dim) in zip(hiddens, cells, shapes, strict=True):
        yield State(*(part.reshape(-1, layers, dim).transpose(0, 1) for part in (hidden, cell)))
