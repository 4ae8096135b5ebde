"""Rerank the hypotheses of a beam by joint embeddings and the CIDEr that their phrase probes expect.

    score = log p + w_e · embedding                       without a phrase probe
    score = 0.1 · log p + w_e · embedding + w_c · CIDEr   with one

log p is divided by length ** length_penalty, embedding the mean of the standardised cosines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ctsan.config import RerankSettings
from ctsan.inference.ensemble import ensemble_scores
from ctsan.inference.loaded_model import ClipEncoding, Floats, JointEmbedding
from ctsan.text.sentences import encode_sentences, pad_ids

_LOG_PROBABILITY_WEIGHT = 0.1  # with an expected CIDEr


class Reranker:
    """Scores hypotheses by joint embeddings.

    Args:
        embeddings: models with their encodings, which have one row per clip.
    """

    def __init__(
        self, embeddings: Sequence[tuple[JointEmbedding, ClipEncoding]], settings: RerankSettings
    ) -> None:
        self._embeddings, self._settings = embeddings, settings

    def scores(
        self, texts: Sequence[Sequence[str]], log_probabilities: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """Scores of the hypotheses of each clip; a model whose numbers overflow may find none."""
        if not any(texts):
            return [[] for _ in texts]
        log_probability = np.array([value for clip in log_probabilities for value in clip], np.float32)
        total = self._settings.embedding_weight * self._embedding_scores(texts)
        expected = self._expected_cider(texts)
        if expected is None:
            total = total + log_probability
        else:
            total = total + _LOG_PROBABILITY_WEIGHT * log_probability
            total = total + self._settings.cider_weight * expected
        ends = np.cumsum([len(hypotheses) for hypotheses in texts])[:-1]
        return [scores.tolist() for scores in np.split(total, ends)]

    def _embedding_scores(self, texts: Sequence[Sequence[str]]) -> Floats:
        """The standardised cosine of each hypothesis with its clip, (hypotheses of all clips,)."""
        rows = np.repeat(np.arange(len(texts)), [len(hypotheses) for hypotheses in texts])
        flat = [text for hypotheses in texts for text in hypotheses]
        scores = []
        for model, encoding in self._embeddings:
            words = encode_sentences(flat, model.vocabulary, max_words=model.settings.decoding.max_words)
            cosines = (model.embed_sentences(words) * model.embed_clips(encoding)[rows]).sum(axis=1)
            scores.append(cosines)
        return ensemble_scores([model for model, _ in self._embeddings], scores, standardise=True)

    def _expected_cider(self, texts: Sequence[Sequence[str]]) -> Floats | None:
        """Expected CIDEr, averaged over the phrase probes, (hypotheses of all clips,); None without any."""
        most = max(len(hypotheses) for hypotheses in texts)
        by_probe = []
        for model, encoding in self._embeddings:
            ids = [model.vocabulary.encode(text.split()) for clip in texts for text in _filled(clip, most)]
            padded = pad_ids(ids).reshape(len(texts), most, -1)
            if (expected := model.expected_cider(padded, encoding)) is not None:
                by_probe.append(expected)
        if not by_probe:
            return None
        mean = np.mean(by_probe, axis=0)  # (clips, most)
        is_real = np.arange(most) < np.array([len(hypotheses) for hypotheses in texts])[:, None]
        expected_of_all: Floats = mean[is_real]
        return expected_of_all


def _filled(hypotheses: Sequence[str], count: int) -> list[str]:
    return [*hypotheses, *[""] * (count - len(hypotheses))]
