"""Leave-one-out effects of concept words on the words of an answer.

    effect of concept word k on word t = log p(w_t | all concept words) - log p(w_t | all but k)

p is the ensemble's mean probability of word t, given the words before it. The rest of the clip encoding, such
as the state s_N, stays unchanged. If joint embeddings or a phrase probe reranked the captions, the effects do
not include that choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ctsan.model.blank_model import BlankModel
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.description_model import DescriptionModel
from ctsan.tasks.blank import AskedBlank, fill
from ctsan.tasks.loaded_model import LoadedModel, reads_concepts
from ctsan.text.vocabulary import BOS, UNK


class WordEffects(NamedTuple):
    """Effects on the T words of an answer, in nats."""

    concepts: tuple[str, ...]  # K: the union over all models that read concept words, in model order
    each: Tensor  # (T, K), effect of each concept word alone
    together: Tensor  # (T,), of all together: log p(w_t | all concept words) - log p(w_t | none)


@torch.inference_mode()
def caption_effects(
    members: Sequence[LoadedModel[DescriptionModel]], encodings: Sequence[ClipEncoding], words: Sequence[str]
) -> WordEffects | None:
    """Compute effects on an ensemble's caption; None if no member reads concept words.

    Args:
        encodings: one per member, with one row.
        words: of the caption. The effect on a word that no member knows is 0.
    """
    if not any(reads_concepts(member.model) for member in members):
        return None
    concepts, without = _taken_away(members, encodings)
    said = [_log_probabilities(*each, words) for each in zip(members, without, strict=True)]
    return _effects(concepts, torch.stack(said).logsumexp(dim=0))  # a log-sum: the mean's 1 / M cancels out


@torch.inference_mode()
def blank_effects(
    members: Sequence[LoadedModel[BlankModel]],
    encodings: Sequence[ClipEncoding],
    asked: AskedBlank,
    answer: str,
) -> WordEffects | None:
    """Compute effects on the word filled into a blank (T = 1); None if no member reads concept words.

    Args:
        encodings: one per member, with one row.
        answer: a word that at least one member knows.
    """
    if not any(reads_concepts(member.model) for member in members):
        return None
    concepts, without = _taken_away(members, encodings)
    filled = fill(members, [asked] * (len(concepts) + 2), without)
    probabilities = filled.probabilities[:, [filled.words.index(answer)]]  # (K + 2, 1)
    return _effects(concepts, probabilities.clamp(min=torch.finfo(torch.float).tiny).double().log())


def _taken_away(
    members: Sequence[LoadedModel[Any]], encodings: Sequence[ClipEncoding]
) -> tuple[tuple[str, ...], list[ClipEncoding]]:
    """Return the K concept words, and encodings of K + 2 rows: all words, all but word k, no words."""
    given = [_given(member, encoding) for member, encoding in zip(members, encodings, strict=True)]
    concepts = tuple(dict.fromkeys(word for places in given for word in places))
    without = []
    for member, encoding, places in zip(members, encodings, given, strict=True):
        rows = torch.zeros(len(concepts) + 2, dtype=torch.long, device=encoding.concepts.device)
        repeated = encoding.without_detection.of(rows)
        if places:
            confidences = repeated.confidences.clone()
            for row, word in enumerate(concepts, start=1):
                if word in places:
                    confidences[row, places[word]] = 0
            confidences[-1] = 0
            encoder = member.model.clip_encoder
            repeated = encoder.replace_concepts(repeated, repeated.concept_words, confidences)
        without.append(repeated)
    return concepts, without


def _given(member: LoadedModel[Any], encoding: ClipEncoding) -> dict[str, int]:
    """Map the concept words that a model reads for a clip to their columns; there may be fewer than K."""
    if not reads_concepts(member.model):
        return {}
    candidates = member.words.concepts.words
    pairs = zip(encoding.concept_words[0].tolist(), encoding.confidences[0].tolist(), strict=True)
    return {candidates[number]: place for place, (number, sure) in enumerate(pairs) if sure > 0}


def _log_probabilities(
    member: LoadedModel[DescriptionModel], encoding: ClipEncoding, words: Sequence[str]
) -> Tensor:
    """log p of each word given the words before it, (rows, T); -inf for unknown words."""
    numbers = torch.tensor(member.words.vocabulary.encode(words), device=encoding.concepts.device)
    read = torch.cat([numbers.new_tensor([BOS]), numbers[:-1]]).expand(len(encoding.concepts), -1)
    scores = member.model(read, encoding).scores.double().log_softmax(dim=-1)  # (rows, T, words)
    said: Tensor = scores.gather(2, numbers.expand(len(scores), -1)[..., None])[..., 0]
    return said.masked_fill(numbers == UNK, -torch.inf)


def _effects(concepts: tuple[str, ...], log_probabilities: Tensor) -> WordEffects:
    """Compute effects from log-probabilities (K + 2, T), with rows as in `_taken_away`."""
    lost = (log_probabilities[0] - log_probabilities[1:]).nan_to_num(nan=0.0)  # (K + 1, T)
    return WordEffects(concepts, lost[:-1].mT.float(), lost[-1].float())
