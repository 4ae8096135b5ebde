"""Rerank the hypotheses of a beam by joint embeddings and the CIDEr that their phrase probes expect.

    score = log p + w_e · embedding                       without a phrase probe
    score = 0.1 · log p + w_e · embedding + w_c · CIDEr   with one

log p is the mean over the words of a hypothesis, embedding the mean of the standardised cosines.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ctsan.config import RerankSettings
from ctsan.extensions.dual_encoder import DualEncoder
from ctsan.extensions.phrase_probe import PhraseProbe
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.scoring import ensemble_scores, score_each
from ctsan.text.vocabulary import PAD

_LOG_PROBABILITY_WEIGHT = 0.1  # with an expected CIDEr


class Reranker:
    """Scores hypotheses of the description models by joint embeddings.

    Args:
        encodings: one per model, with one row per clip.
        words: the vocabulary of the hypotheses' word ids.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel[DualEncoder]],
        encodings: Sequence[ClipEncoding],
        words: Sequence[str],
        settings: RerankSettings,
    ) -> None:
        self._models, self._encodings, self._settings = models, encodings, settings
        self._probes: list[tuple[PhraseProbe, Tensor, Tensor]] = []
        for model, encoding in zip(models, encodings, strict=True):
            if (probe := model.model.phrases) is not None:
                device = encoding.concepts.device
                numbers = torch.tensor(model.words.vocabulary.encode(words), device=device)
                self._probes.append((probe, probe.weigh(encoding.state.top), numbers))

    def scores(
        self,
        texts: Sequence[Sequence[str]],
        numbers: Sequence[Sequence[Sequence[int]]],
        log_probabilities: Sequence[Sequence[float]],
    ) -> list[list[float]]:
        """Scores of the hypotheses of each clip, given as texts and as ids into `words`."""
        counts = [len(hypotheses) for hypotheses in texts]
        total = self._settings.embedding_weight * self._embedding_scores(texts)
        log_probability = torch.tensor([value for values in log_probabilities for value in values])
        if self._probes:
            total = total + _LOG_PROBABILITY_WEIGHT * log_probability
            total = total + self._settings.cider_weight * self._expected_cider(numbers)
        else:
            total = total + log_probability
        return [part.tolist() for part in torch.split(total, counts)]

    def _embedding_scores(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """The standardised cosine of each hypothesis with its clip, (hypotheses of all clips,)."""
        counts = torch.tensor([len(hypotheses) for hypotheses in texts])
        rows = torch.arange(len(texts)).repeat_interleave(counts)
        flat = [text for hypotheses in texts for text in hypotheses]
        scores = [
            score_each(model, flat, encoding.of(rows.to(encoding.concepts.device))).scores
            for model, encoding in zip(self._models, self._encodings, strict=True)
        ]
        return ensemble_scores(self._models, scores, standardise=True)

    def _expected_cider(self, numbers: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """Expected CIDEr, averaged over the phrase probes, (hypotheses of all clips,)."""
        counts = [len(hypotheses) for hypotheses in numbers]
        flat = [torch.tensor(words) for hypotheses in numbers for words in hypotheses]
        padded = pad_sequence(flat, batch_first=True, padding_value=PAD)
        by_clip = pad_sequence(list(torch.split(padded, counts)), batch_first=True, padding_value=PAD)
        sentences = by_clip.to(self._probes[0][1].device)
        by_probe = [probe(own[sentences], weights) for probe, weights, own in self._probes]
        expected = torch.stack(by_probe).mean(dim=0).cpu()
        return torch.cat([row[:count] for row, count in zip(expected, counts, strict=True)])
