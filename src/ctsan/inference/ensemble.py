"""How several models answer as one, for all commands, the page and `evaluate`.

Two things are mixed elsewhere: the next words of a caption, step by step, in `captioning`, and the expected
CIDEr of several phrase probes in `reranking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError
from ctsan.inference.loaded_model import (
    BlankFiller,
    BlankReading,
    ClipEncoding,
    Floats,
    JointEmbedding,
    LoadedModel,
    SentenceScorer,
)
from ctsan.inference.results import Concept
from ctsan.text.sentences import WordIds, encode_blanks, encode_sentences, pad_ids
from ctsan.text.tokens import tokenize

ModelT = TypeVar("ModelT", bound=LoadedModel)


def ensemble_scores(
    models: Sequence[SentenceScorer],
    scores: Sequence[Floats],
    *,
    queries: Sequence[str] | None = None,
    standardise: bool | None = None,
) -> Floats:
    """Mean of the models' scores.

    Args:
        queries: one per row, if scores are compared only within a row. Models that do not cover a query are
            then left out of its mean: see `covers_query`.
        standardise: standardise each model's scores first; None does so if any model's settings ask for it.
    """
    if standardise is None:
        standardise = any(model.settings.ensemble.standardise for model in models)
    votes = np.stack(
        [
            model.standardise(model_scores) if standardise else model_scores
            for model, model_scores in zip(models, scores, strict=True)
        ]
    )
    if queries is None:
        mean: Floats = votes.mean(axis=0)
        return mean
    covers = covers_query(models, queries).astype(np.float32)[..., None]  # (models, queries, 1)
    mean_of_covering: Floats = (votes * covers).sum(axis=0) / covers.sum(axis=0)
    return mean_of_covering


def combined_scores(scores: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """The score of a query with added and subtracted sentences: the weighted sum of theirs."""
    total: Floats = np.sum(
        [part * np.float32(weight) for part, weight in zip(scores, weights, strict=True)], axis=0
    )
    return total


def covers_query(models: Sequence[LoadedModel], queries: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each model's vocabulary covers each query, (models, queries).

    A model covers a query if it knows at least two thirds as many of its words as the model that knows most.
    Without "espresso" in its vocabulary, a model cannot rank clips for "an espresso".
    """
    read = [tokenize(query) for query in queries]
    known = np.array(
        [[sum(word in model.vocabulary for word in words) for words in read] for model in models]
    )
    covers: NDArray[np.bool_] = 3 * known >= 2 * known.max(axis=0)
    return covers


def models_covering_query(models: Sequence[ModelT], query: str) -> list[ModelT]:
    """Select the models whose vocabulary covers enough words of a query."""
    covers = covers_query(models, [query])[:, 0].tolist()
    return [model for model, is_covering in zip(models, covers, strict=True) if is_covering]


def score_sentences(
    models: Sequence[SentenceScorer], encodings: Sequence[ClipEncoding], sentences: Sequence[str]
) -> Floats:
    """Scores of sentences that are compared with each other, with all clips: (sentences, clips)."""
    return ensemble_scores(models, _score_all(models, encodings, sentences))


def score_queries(
    models: Sequence[SentenceScorer], encodings: Sequence[ClipEncoding], queries: Sequence[str]
) -> Floats:
    """Scores of clips that are compared with each other, for each query: (queries, clips)."""
    return ensemble_scores(models, _score_all(models, encodings, queries), queries=queries)


def score_pairs(
    models: Sequence[SentenceScorer], encodings: Sequence[ClipEncoding], sentences: Sequence[str]
) -> Floats:
    """Scores of sentences with the clips in their rows: (sentences,)."""
    scores = [
        model.score_each(word_ids(model, sentences), encoding)[0]
        for model, encoding in zip(models, encodings, strict=True)
    ]
    return ensemble_scores(models, scores)


def _score_all(
    models: Sequence[SentenceScorer], encodings: Sequence[ClipEncoding], sentences: Sequence[str]
) -> list[Floats]:
    return [
        model.score_all(word_ids(model, sentences), encoding)
        for model, encoding in zip(models, encodings, strict=True)
    ]


def match_threshold(models: Sequence[JointEmbedding], num_clips: int) -> tuple[float, float]:
    """The mean statistic from which a query has a match among clips, and the mean accuracy of that."""
    scores = [model.match_score(num_clips) for model in models]
    accuracies = [model.match_accuracy for model in models]
    return sum(scores) / len(models), sum(accuracies) / len(models)


def word_ids(model: LoadedModel, sentences: Sequence[str]) -> WordIds:
    """Sentences as a model reads them: (M, T), padded."""
    return encode_sentences(sentences, model.vocabulary, max_words=model.settings.decoding.max_words)


class AskedBlank(NamedTuple):
    sentence: str
    number: int  # index of the blank within the sentence, from 0


@dataclass(frozen=True, slots=True, eq=False)
class FilledBlanks:
    """Predictions of an ensemble for M blanks."""

    words: tuple[str, ...]  # union of the vocabularies
    probabilities: Floats  # (M, words), mean over the models; 0 for special tokens
    readings: tuple[BlankReading, ...]  # one per model


def fill_blanks(
    models: Sequence[BlankFiller], asked: Sequence[AskedBlank], encodings: Sequence[ClipEncoding]
) -> FilledBlanks:
    """Predict words for blanks. Other blanks of the same sentence are not filled.

    Args:
        encodings: one per model, with one row per blank.
    """
    words = tuple(dict.fromkeys(word for model in models for word in model.vocabulary.words))
    columns = {word: column for column, word in enumerate(words)}
    probabilities = np.zeros((len(asked), len(words)), np.float32)
    readings = []
    for model, encoding in zip(models, encodings, strict=True):
        encoded = [encode_blanks(blank.sentence, model.vocabulary) for blank in asked]
        places = [blanks[blank.number] for (_, blanks), blank in zip(encoded, asked, strict=True)]
        reading = model.read_blanks(pad_ids([ids for ids, _ in encoded]), np.array(places), encoding)
        model_columns = [columns[word] for word in model.vocabulary.words]
        probabilities[:, model_columns] += reading.probabilities / np.float32(len(models))
        readings.append(reading)
    return FilledBlanks(words, probabilities, tuple(readings))


def detected_concepts(
    models: Sequence[LoadedModel], encodings: Sequence[ClipEncoding], *, all_candidates: bool = False
) -> tuple[Concept, ...]:
    """Rank the concept words of a clip as the language models receive them.

    Confidence and ranking score of a word are means over the models that have a detector.

    Args:
        encodings: one per model, of one clip.
        all_candidates: return every candidate, not only the first K.
    """
    detecting = [
        (model, encoding.detection.confidences[0])
        for model, encoding in zip(models, encodings, strict=True)
        if encoding.detection is not None
    ]
    means: dict[str, float] = {}
    ranks: dict[str, float] = {}
    lemmas: dict[str, str] = {}
    has_prior = False
    for model, confidences in detecting:
        prior = model.prior
        has_prior = has_prior or prior is not None
        # As in `ClipEncoder.ranking`: a candidate with p = 0 ranks last.
        ranking = confidences if prior is None else np.where(confidences > 0, confidences - prior, -1.0)
        candidates = zip(model.concepts.candidates, confidences.tolist(), ranking.tolist(), strict=True)
        for candidate, confidence, rank in candidates:
            word = candidate.word
            means[word] = means.get(word, 0.0) + confidence / len(detecting)
            ranks[word] = ranks.get(word, 0.0) + rank / len(detecting)
            lemmas[word] = candidate.lemma or lemmas.get(word, word)
    most = None if all_candidates else max(encoding.concept_words.shape[1] for encoding in encodings)
    first: dict[str, str] = {}  # best word by lemma, or by word
    for word in sorted((word for word in ranks if means[word] > 0), key=lambda word: -ranks[word]):
        first.setdefault(lemmas[word] if has_prior and not all_candidates else word, word)
        if len(first) == most:
            break
    return tuple(Concept(word, means[word]) for word in first.values())


def unknown_words(models: Sequence[LoadedModel], sentences: Mapping[str, str]) -> tuple[str, ...]:
    """List the words that are in no model's vocabulary.

    Args:
        sentences: keyed by the name to use in messages.

    Raises:
        UsageError: a sentence has no words, or only unknown ones. The message lists every such sentence.
    """
    vocabularies = [model.vocabulary for model in models]
    unknown: dict[str, None] = {}
    problems = []
    for name, sentence in sentences.items():
        words = tokenize(sentence)
        strange = [word for word in words if not any(word in vocabulary for vocabulary in vocabularies)]
        unknown |= dict.fromkeys(strange)
        if not words:
            problems.append(f"{name} has no words ({sentence!r}). Write a sentence, such as 'a dog runs'.")
        elif len(strange) == len(words):
            problems.append(
                f"{name} has only words that are not known to the model: {', '.join(strange)}. Say it in "
                "more common words."
            )
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(unknown)
