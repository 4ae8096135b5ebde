"""Caption clips by ensemble beam search, then rerank the hypotheses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ctsan.config import DecodingSettings, RerankSettings
from ctsan.evaluation.grammar import grammar_fault
from ctsan.inference.encoded_clip import EncodedClip, encode_together
from ctsan.inference.loaded_model import Captioner, ClipEncoding, Floats, Ints, JointEmbedding, LoadedModel
from ctsan.inference.reranking import Reranker
from ctsan.model.beam_search import beam_search
from ctsan.text.vocabulary import BOS, EOS, NEVER_SAID, UNK

_HYPOTHESES_PER_BEAM = 1.4  # with reranking, a search stops after 1.4 x beam finished hypotheses


class Hypothesis(NamedTuple):
    text: str
    score: float  # hypotheses of a clip are sorted by it, those with a grammar fault after the others
    log_probability: float  # length-normalised, as in `Sentence`


def caption_together(
    models: Sequence[LoadedModel], clips: Sequence[EncodedClip], *, beam: int | None = None, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses for each clip, best first. The first captioner provides the settings.

    Args:
        models: the runs that answer 'describe', at least one of them a captioner.
        beam: instead of that of the settings.
    """
    settings = next(model for model in models if isinstance(model, Captioner)).settings
    decoding = replace(settings.decoding, beam=max(beam or settings.decoding.beam, n_best))
    encodings = [encode_together(clips, model) for model in models]
    return caption_clips(models, encodings, decoding, settings.rerank, n_best=n_best)


def caption_clips(
    models: Sequence[LoadedModel],
    encodings: Sequence[ClipEncoding],
    decoding: DecodingSettings,
    rerank: RerankSettings | None = None,
    *,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses for each encoded clip, best first.

    The probability of a next word is the mean over the captioners. A model reads a word outside its
    vocabulary as the unknown word, and never generates it. Joint embeddings among the models rerank all
    hypotheses of the beam: see `reranking`. With `skip_faulty`, hypotheses with a grammar fault come after
    those without one, regardless of score.

    Args:
        models: captioners and joint embeddings.
        encodings: one per model, with one row per clip.
        rerank: weights of the joint embeddings; by default those of a new run.
    """
    pairs = list(zip(models, encodings, strict=True))
    captioners = [(model, encoding) for model, encoding in pairs if isinstance(model, Captioner)]
    embeddings = [(model, encoding) for model, encoding in pairs if isinstance(model, JointEmbedding)]
    words = _union(tuple(model.vocabulary.words for model, _ in captioners))
    sentences = beam_search(
        _EnsembleSteps(captioners, words),
        begin=BOS,
        end=EOS,
        never=NEVER_SAID,
        beam=decoding.beam,
        n_best=decoding.beam if embeddings or decoding.skip_faulty else n_best,
        enough=math.ceil(_HYPOTHESES_PER_BEAM * decoding.beam) if embeddings else None,
        max_words=decoding.max_words,
        length_penalty=decoding.length_penalty,
        no_repeat_ngram=decoding.no_repeat_ngram,
    )
    texts = [[" ".join(words[word] for word in sentence.words) for sentence in clip] for clip in sentences]
    log_probabilities = [[sentence.score for sentence in clip] for clip in sentences]
    scores = log_probabilities
    if embeddings:
        scores = Reranker(embeddings, rerank or RerankSettings()).scores(texts, log_probabilities)
    return [
        _ordered([Hypothesis(*hypothesis) for hypothesis in zip(*clip, strict=True)], decoding)[:n_best]
        for clip in zip(texts, scores, log_probabilities, strict=True)
    ]


def _ordered(hypotheses: Sequence[Hypothesis], decoding: DecodingSettings) -> list[Hypothesis]:
    """Sort by score, best first; with `skip_faulty`, hypotheses with a grammar fault come last."""
    by_score = sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
    if not decoding.skip_faulty:
        return by_score
    return sorted(by_score, key=lambda hypothesis: grammar_fault(hypothesis.text) is not None)


@lru_cache(maxsize=8)
def _union(vocabularies: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for words in vocabularies for word in words))


class _EnsembleSteps:
    """The mean of several captioners as `Steps`. The state is a list of theirs.

    Args:
        words: the union of the vocabularies, which word ids of the search refer to.
    """

    def __init__(self, captioners: Sequence[tuple[Captioner, ClipEncoding]], words: tuple[str, ...]) -> None:
        self._steps = [model.steps(encoding) for model, encoding in captioners]
        self._ids = [  # of the words in each vocabulary; None if it is the union
            None if model.vocabulary.words == words else np.array(model.vocabulary.encode(words))
            for model, _ in captioners
        ]

    @property
    def num_clips(self) -> int:
        return self._steps[0].num_clips

    def start(self) -> list[Any]:
        return [steps.start() for steps in self._steps]

    def next_words(self, last: Ints, state: list[Any], clips: tuple[int, ...]) -> tuple[Floats, list[Any]]:
        members = zip(self._steps, self._ids, state, strict=True)
        results = [self._step(steps, ids, before, last, clips) for steps, ids, before in members]
        states = [after for _, after in results]
        if len(results) == 1:
            return results[0][0], states
        total = sum((np.exp(log_probabilities) for log_probabilities, _ in results), np.float32(0))
        with np.errstate(divide="ignore"):  # log 0 is -inf, as it should be
            return np.log(total / np.float32(len(results))), states

    def select(self, state: list[Any], rows: Ints) -> list[Any]:
        return [steps.select(before, rows) for steps, before in zip(self._steps, state, strict=True)]

    @staticmethod
    def _step(
        steps: Any, ids: Ints | None, state: Any, last: Ints, clips: tuple[int, ...]
    ) -> tuple[Floats, Any]:
        if ids is None:
            result: tuple[Floats, Any] = steps.next_words(last, state, clips)
            return result
        log_probabilities, after = steps.next_words(ids[last], state, clips)
        log_probabilities = log_probabilities[:, ids]
        log_probabilities[:, ids == UNK] = -np.inf
        return log_probabilities, after
