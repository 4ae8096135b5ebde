"""Leave-one-out effects of concept words on the words of an answer.

    effect of concept word k on word t = log p(w_t | all concept words) - log p(w_t | all but k)

p is the ensemble's mean probability of word t, given the words before it. The rest of the clip encoding, such
as the state s_N, stays unchanged. If joint embeddings or a phrase probe reranked the captions, the effects do
not include that choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.inference.ensemble import AskedBlank, fill_blanks
from ctsan.inference.loaded_model import BlankFiller, Captioner, ClipEncoding, LoadedModel
from ctsan.inference.results import Effects
from ctsan.text.vocabulary import BOS, UNK

Doubles = NDArray[np.float64]


def caption_effects(
    models: Sequence[Captioner], encodings: Sequence[ClipEncoding], words: Sequence[str]
) -> Effects | None:
    """Compute effects on an ensemble's caption; None if no model reads concept words.

    Args:
        encodings: one per model, with one row.
        words: of the caption. The effect on a word that no model knows is 0.
    """
    if not any(model.reads_concepts for model in models):
        return None
    concepts, without = _leave_one_out(models, encodings)
    by_model = [
        _log_probabilities(model, encoding, words) for model, encoding in zip(models, without, strict=True)
    ]
    return _effects(concepts, words, np.logaddexp.reduce(by_model, axis=0))  # the mean's 1 / M cancels out


def blank_effects(
    models: Sequence[BlankFiller], encodings: Sequence[ClipEncoding], asked: AskedBlank, answer: str
) -> Effects | None:
    """Compute effects on the word filled into a blank (T = 1); None if no model reads concept words.

    Args:
        encodings: one per model, with one row.
        answer: a word that at least one model knows.
    """
    if not any(model.reads_concepts for model in models):
        return None
    concepts, without = _leave_one_out(models, encodings)
    filled = fill_blanks(models, [asked] * (len(concepts) + 2), without)
    probabilities = filled.probabilities[:, [filled.words.index(answer)]].astype(np.float64)  # (K + 2, 1)
    return _effects(concepts, [answer], np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)))


def _leave_one_out(
    models: Sequence[LoadedModel], encodings: Sequence[ClipEncoding]
) -> tuple[tuple[str, ...], list[ClipEncoding]]:
    """Return the K concept words, and encodings of K + 2 rows: all words, all but word k, no words."""
    columns_by_model = [_columns(model, encoding) for model, encoding in zip(models, encodings, strict=True)]
    concepts = tuple(dict.fromkeys(word for columns in columns_by_model for word in columns))
    without = []
    for model, encoding, columns in zip(models, encodings, columns_by_model, strict=True):
        repeated = encoding.without_detection.of([0] * (len(concepts) + 2))
        if columns:
            confidences = repeated.confidences.copy()
            for row, word in enumerate(concepts, start=1):
                if word in columns:
                    confidences[row, columns[word]] = 0
            confidences[-1] = 0
            repeated = model.replace_concepts(repeated, repeated.concept_words, confidences)
        without.append(repeated)
    return concepts, without


def _columns(model: LoadedModel, encoding: ClipEncoding) -> dict[str, int]:
    """Map the concept words that a model reads for a clip to their columns; there may be fewer than K."""
    if not model.reads_concepts:
        return {}
    candidates = model.concepts.words
    pairs = zip(encoding.concept_words[0].tolist(), encoding.confidences[0].tolist(), strict=True)
    return {candidates[number]: column for column, (number, sure) in enumerate(pairs) if sure > 0}


def _log_probabilities(model: Captioner, encoding: ClipEncoding, words: Sequence[str]) -> Doubles:
    """log p of each word given the words before it, (rows, T); -inf for unknown words."""
    ids = np.array(model.vocabulary.encode(words))
    read = np.tile([BOS, *ids[:-1]], (len(encoding), 1))
    log_probabilities = model.read_caption(read, encoding).log_probabilities  # (rows, T, words)
    chosen: Doubles = log_probabilities[:, np.arange(len(ids)), ids].astype(np.float64)
    chosen[:, ids == UNK] = -np.inf
    return chosen


def _effects(concepts: tuple[str, ...], words: Sequence[str], log_probabilities: Doubles) -> Effects:
    """Compute effects from log-probabilities (K + 2, T), with rows as in `_leave_one_out`."""
    with np.errstate(invalid="ignore"):  # -inf - -inf: a word that no model knows
        lost = np.nan_to_num(log_probabilities[0] - log_probabilities[1:], nan=0.0)  # (K + 1, T)
    each, together = lost[:-1].T.astype(np.float32), lost[-1].astype(np.float32)
    return Effects(concepts, tuple(words), each, together)
