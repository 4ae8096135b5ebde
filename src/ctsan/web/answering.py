"""Convert predictor results to API objects. Each function answers a batch of requests of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import VideoError
from ctsan.inference.encoded_clip import EncodedClip
from ctsan.inference.predictor import Predictor
from ctsan.inference.results import Choice, Concept, Description, Effects, Tracing
from ctsan.text.sentences import split_at_blanks
from ctsan.web import schema
from ctsan.web.clips import Clip
from ctsan.web.errors import RequestError

Q = TypeVar("Q")

ClipRequest: TypeAlias = tuple[Clip, Q]  # a clip that is ready, and the parameters of the request

_MAX_BLANKS = 4
_DIGITS = 4


def describe_clips(
    predictor: Predictor, requests: Sequence[ClipRequest[None]]
) -> list[schema.DescriptionAnswer]:
    descriptions = _describe(predictor, [clip for clip, _ in requests])
    return [
        _description_answer(predictor, encoded_clip(clip), description)
        for (clip, _), description in zip(requests, descriptions, strict=True)
    ]


def list_concepts(
    predictor: Predictor, requests: Sequence[ClipRequest[None]]
) -> list[list[schema.ConceptWord]]:
    return [concept_list(predictor.concepts(encoded_clip(clip))) for clip, _ in requests]


def trace_clips(
    predictor: Predictor, requests: Sequence[ClipRequest[str | None]]
) -> list[schema.TracesAnswer]:
    """Trace each clip beside the caption that it is described by, so that clips are captioned as one batch.

    Args:
        requests: clips, each with an additional concept word to trace, or None.
    """
    descriptions = _describe(predictor, [clip for clip, _ in requests])
    return [
        _traces_answer(predictor.trace(encoded_clip(clip), concept=concept, caption=description.captions[0]))
        for (clip, concept), description in zip(requests, descriptions, strict=True)
    ]


def fill_blanks(
    predictor: Predictor, requests: Sequence[ClipRequest[schema.FillQuestion]]
) -> list[schema.FillAnswer]:
    predictor.prepare([encoded_clip(clip) for clip, _ in requests], "fill")
    return [_fill_answer(predictor, encoded_clip(clip), question) for clip, question in requests]


def choose_sentences(
    predictor: Predictor, requests: Sequence[ClipRequest[schema.ChooseQuestion]]
) -> list[schema.ChooseAnswer]:
    predictor.prepare([encoded_clip(clip) for clip, _ in requests], "choose")
    return [
        _choose_answer(predictor.choose(encoded_clip(clip), question.sentences))
        for clip, question in requests
    ]


def concept_list(concepts: Iterable[Concept]) -> list[schema.ConceptWord]:
    return [
        schema.ConceptWord(word=concept.word, confidence=round(concept.confidence, _DIGITS))
        for concept in concepts
    ]


def _describe(predictor: Predictor, clips: Sequence[Clip]) -> list[Description]:
    """Descriptions of clips; those that are not described yet are described in one batch."""
    missing = list(dict.fromkeys(clip for clip in clips if clip.description is None))
    described = predictor.describe_all([encoded_clip(clip) for clip in missing])
    for clip, description in zip(missing, described, strict=True):
        assert not isinstance(description, VideoError)  # the clip has been read
        clip.description = description
    return [clip.description for clip in clips if clip.description is not None]


def encoded_clip(clip: Clip) -> EncodedClip:
    assert clip.encoded is not None  # only clips that are ready are asked about
    return clip.encoded


def _description_answer(
    predictor: Predictor, clip: EncodedClip, description: Description
) -> schema.DescriptionAnswer:
    """The effects of concept words are those of the whole ensemble. Attention is that of the one run with
    traces, because the runs of an ensemble have no common attention.
    """
    caption = description.captions[0]
    words = caption.text.split()
    attended: list[str] = []
    attention: list[list[float]] = [[] for _ in words]
    tracing = predictor.trace(clip, caption=caption) if predictor.can_trace else None
    if tracing is not None and tracing.output_weights is not None:
        attended = [concept.word for concept in tracing.concepts]
        attention = _to_list(tracing.output_weights)
    return schema.DescriptionAnswer(
        caption=caption.text,
        score=caption.score,
        words=[
            _caption_word(word, weights, tracing.effects if tracing else None, position)
            for position, (word, weights) in enumerate(zip(words, attention, strict=True))
        ],
        num_models=sum(model.task == "describe" for model in predictor.models),
        run=tracing.run_name if tracing else None,
        attended=attended,
        concepts=concept_list(description.concepts),
    )


def _caption_word(
    word: str, attention: list[float], effects: Effects | None, position: int
) -> schema.CaptionWord:
    if effects is None:
        return schema.CaptionWord(word=word, attention=attention, effects=[], effect=None)
    strongest = [
        schema.ConceptEffect(word=concept.word, effect=round(concept.effect, _DIGITS))
        for concept in effects.largest(position)
    ]
    total = round(float(effects.together[position]), _DIGITS)
    return schema.CaptionWord(word=word, attention=attention, effects=strongest, effect=total)


def _traces_answer(tracing: Tracing) -> schema.TracesAnswer:
    return schema.TracesAnswer(
        times=_to_list(tracing.times - tracing.times[0]),
        rows=_to_list(tracing.rows),
        columns=_to_list(tracing.columns),
        attention=_to_list(tracing.attention),
        concepts=[
            schema.TracedConcept(
                word=concept.word,
                confidence=concept.confidence,
                probe_confidence=float(probe_confidence) if tracing.has_probe else None,
                shares=_to_list(shares),
            )
            for concept, probe_confidence, shares in zip(
                tracing.raised, tracing.probe_confidences, tracing.shares, strict=True
            )
        ],
    )


def _fill_answer(predictor: Predictor, clip: EncodedClip, question: schema.FillQuestion) -> schema.FillAnswer:
    if len(split_at_blanks(question.sentence)) > _MAX_BLANKS + 1:
        raise RequestError(f"The sentence has more than {_MAX_BLANKS} blanks. Leave out some.")
    filling = predictor.fill(clip, question.sentence, n_best=question.n_best)
    return schema.FillAnswer(
        filled=filling.filled,
        blanks=[
            [schema.FilledWord(word=answer.word, probability=answer.probability) for answer in blank.answers]
            for blank in filling.blanks
        ],
        unknown=list(filling.unknown),
    )


def _choose_answer(choice: Choice) -> schema.ChooseAnswer:
    return schema.ChooseAnswer(
        choice=choice.choice,
        scores=[sentence.score for sentence in choice.choices],
        unknown=list(choice.unknown),
    )


def _to_list(array: NDArray[np.floating]) -> Any:
    """Rounded nested lists. The depth depends on the array; pydantic validates it."""
    return array.astype(float).round(_DIGITS).tolist()
