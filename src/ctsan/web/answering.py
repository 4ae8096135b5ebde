"""Answers of a predictor as objects of the API."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctsan.answers import Concept
from ctsan.predictor import Predictor
from ctsan.tasks.blank import split_at_blanks
from ctsan.web import schema
from ctsan.web.problems import RequestError

_MAX_BLANKS = 4
_DIGITS = 4


def description(predictor: Predictor, clip: Path) -> schema.DescriptionAnswer:
    """Words come with their attention where one model said them: an ensemble has none in common."""
    found = predictor.describe(clip)
    best = found.captions[0]
    words = best.text.split()
    attended: list[str] = []
    weights: list[list[float]] = [[] for _ in words]
    if found.concepts:
        tracing = predictor.trace(clip)
        if tracing.caption.text == best.text and tracing.output_weights is not None:
            attended = [each.word for each in tracing.concepts]
            weights = _listed(tracing.output_weights)
    return schema.DescriptionAnswer(
        caption=best.text,
        score=best.score,
        words=[schema.SaidWord(word=word, attention=own) for word, own in zip(words, weights, strict=True)],
        attended=attended,
        concepts=listed(found.concepts),
    )


def concepts(predictor: Predictor, clip: Path) -> list[schema.ConceptWord]:
    return listed(predictor.concepts(clip))


def traces(predictor: Predictor, clip: Path, concept: str | None) -> schema.TracesAnswer:
    tracing = predictor.trace(clip, concept=concept)
    return schema.TracesAnswer(
        times=_listed(tracing.times - tracing.times[0]),
        rows=_listed(tracing.rows),
        columns=_listed(tracing.columns),
        attention=_listed(tracing.attention),
        concepts=[
            schema.RaisedConcept(word=each.word, confidence=each.confidence, shares=_listed(shares))
            for each, shares in zip(tracing.raised, tracing.shares, strict=True)
        ],
    )


def fill(predictor: Predictor, clip: Path, question: schema.FillQuestion) -> schema.FillAnswer:
    if len(split_at_blanks(question.sentence)) > _MAX_BLANKS + 1:
        raise RequestError(f"The sentence has more than {_MAX_BLANKS} blanks. Leave out some.")
    found = predictor.fill(clip, question.sentence, n_best=question.n_best)
    return schema.FillAnswer(
        filled=found.filled,
        blanks=[
            [schema.FilledWord(word=each.word, probability=each.probability) for each in blank.answers]
            for blank in found.blanks
        ],
        unknown=list(found.unknown),
    )


def choose(predictor: Predictor, clip: Path, question: schema.ChooseQuestion) -> schema.ChooseAnswer:
    found = predictor.choose(clip, question.sentences)
    return schema.ChooseAnswer(
        choice=found.choice, scores=[each.score for each in found.choices], unknown=list(found.unknown)
    )


def listed(found: Iterable[Concept]) -> list[schema.ConceptWord]:
    return [schema.ConceptWord(word=each.word, confidence=round(each.confidence, _DIGITS)) for each in found]


def _listed(array: NDArray[np.floating]) -> Any:
    """Lists, as deep as the array; pydantic checks how deep."""
    return array.astype(float).round(_DIGITS).tolist()
