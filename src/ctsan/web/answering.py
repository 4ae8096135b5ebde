"""Answers of a predictor as objects of the API, to several questions of the same kind at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.inference.results import Choice, Concept, Description, Effects, Tracing
from ctsan.tasks.blank import split_at_blanks
from ctsan.web import schema
from ctsan.web.errors import RequestError
from ctsan.web.feature_cache import ClipPredictor

Q = TypeVar("Q")

Asked: TypeAlias = tuple[Path, Q]  # a clip's id, and what is asked about it

_MAX_BLANKS = 4
_DIGITS = 4


def descriptions(predictor: ClipPredictor, clips: Sequence[Asked[None]]) -> list[schema.DescriptionAnswer]:
    """Clips are described together."""
    found = predictor.described([clip for clip, _ in clips])
    return [_description(predictor, clip, each) for (clip, _), each in zip(clips, found, strict=True)]


def concepts(predictor: ClipPredictor, clips: Sequence[Asked[None]]) -> list[list[schema.ConceptWord]]:
    return [listed(predictor.concepts(clip)) for clip, _ in clips]


def traces(predictor: ClipPredictor, asked: Sequence[Asked[str | None]]) -> list[schema.TracesAnswer]:
    """Args:
    asked: clips, each with a concept word to follow if any.
    """
    predictor.described([clip for clip, _ in asked])
    return [_traces(predictor.trace(clip, concept=concept)) for clip, concept in asked]


def fillings(
    predictor: ClipPredictor, asked: Sequence[Asked[schema.FillQuestion]]
) -> list[schema.FillAnswer]:
    predictor.prepare((clip for clip, _ in asked), "fill")
    return [_filling(predictor, clip, question) for clip, question in asked]


def choices(
    predictor: ClipPredictor, asked: Sequence[Asked[schema.ChooseQuestion]]
) -> list[schema.ChooseAnswer]:
    predictor.prepare((clip for clip, _ in asked), "choose")
    return [_choice(predictor.choose(clip, question.sentences)) for clip, question in asked]


def listed(found: Iterable[Concept]) -> list[schema.ConceptWord]:
    return [schema.ConceptWord(word=each.word, confidence=round(each.confidence, _DIGITS)) for each in found]


def _description(predictor: ClipPredictor, clip: Path, found: Description) -> schema.DescriptionAnswer:
    """Words come with what they owe to concept words, by all runs that said them, and with the attention of
    the run that looks: runs that say a sentence together have none in common.
    """
    best = found.captions[0]
    words = best.text.split()
    attended: list[str] = []
    weights: list[list[float]] = [[] for _ in words]
    tracing = predictor.trace(clip) if predictor.can_trace else None
    if tracing is not None and tracing.output_weights is not None:
        attended = [each.word for each in tracing.concepts]
        weights = _listed(tracing.output_weights)
    return schema.DescriptionAnswer(
        caption=best.text,
        score=best.score,
        words=[
            _said_word(word, own, tracing.effects if tracing else None, place)
            for place, (word, own) in enumerate(zip(words, weights, strict=True))
        ],
        said_by=predictor.num_describing,
        run=tracing.run_name if tracing else None,
        attended=attended,
        concepts=listed(found.concepts),
    )


def _said_word(word: str, attention: list[float], effects: Effects | None, place: int) -> schema.SaidWord:
    if effects is None:
        return schema.SaidWord(word=word, attention=attention, owes=[], effect=None)
    owes = [
        schema.OwedConcept(word=each.word, effect=round(each.effect, _DIGITS)) for each in effects.owed(place)
    ]
    together = round(float(effects.together[place]), _DIGITS)
    return schema.SaidWord(word=word, attention=attention, owes=owes, effect=together)


def _traces(tracing: Tracing) -> schema.TracesAnswer:
    return schema.TracesAnswer(
        times=_listed(tracing.times - tracing.times[0]),
        rows=_listed(tracing.rows),
        columns=_listed(tracing.columns),
        attention=_listed(tracing.attention),
        concepts=[
            schema.RaisedConcept(
                word=each.word,
                confidence=each.confidence,
                probe_confidence=float(own) if tracing.has_probe else None,
                shares=_listed(shares),
            )
            for each, own, shares in zip(
                tracing.raised, tracing.probe_confidences, tracing.shares, strict=True
            )
        ],
    )


def _filling(predictor: ClipPredictor, clip: Path, question: schema.FillQuestion) -> schema.FillAnswer:
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


def _choice(found: Choice) -> schema.ChooseAnswer:
    return schema.ChooseAnswer(
        choice=found.choice, scores=[each.score for each in found.choices], unknown=list(found.unknown)
    )


def _listed(array: NDArray[np.floating]) -> Any:
    """Lists, as deep as the array; pydantic checks how deep."""
    return array.astype(float).round(_DIGITS).tolist()
