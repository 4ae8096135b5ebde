"""The result types of `Predictor`. All carry scores or confidences; attention weights are optional."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import VideoError

LEAST_EFFECT = 0.1  # nats: smaller effects are not shown
MAX_EFFECTS_SHOWN = 3  # concept words shown per word


@dataclass(frozen=True, slots=True)
class Concept:
    word: str
    confidence: float


class ConceptEffect(NamedTuple):
    """A concept word with its effect on a word of the answer."""

    word: str
    effect: float  # nats

    def __str__(self) -> str:
        return f"{self.word} {times_likelier(self.effect)}"


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no plain equality
class Effects:
    """Effects of concept words on the words of an answer, by the ensemble's mean probability.

    effect = log p(word | all concept words) - log p(word | all but this one), in nats: see
    inference/effects.py.
    """

    concepts: tuple[str, ...]  # K: the union over all runs that read concept words
    words: tuple[str, ...]  # T, the words of the answer
    each: NDArray[np.float32]  # (T, K)
    together: NDArray[np.float32]  # (T,): log p(word | all concept words) - log p(word | none)

    def largest(self, place: int) -> tuple[ConceptEffect, ...]:
        """The concept words with the largest effects on a word, largest first; small effects are left out."""
        effects = self.each[place]
        greatest = (-effects).argsort(kind="stable")[:MAX_EFFECTS_SHOWN]
        return tuple(
            ConceptEffect(self.concepts[column], float(effects[column]))
            for column in greatest
            if effects[column] >= LEAST_EFFECT
        )


def times_likelier(effect: float) -> str:
    """Format an effect as a factor: x2.2 for a word that is 2.2 times as likely as without."""
    factor = math.exp(min(effect, 700.0))  # avoids overflow
    return f"x{factor:.1f}" if 0.1 <= factor < 10 else f"x{factor:.2g}" if factor < 10 else f"x{factor:,.0f}"


@dataclass(frozen=True, slots=True)
class Caption:
    text: str
    score: float  # orders the captions of a clip
    log_probability: float  # divided by length ** length_penalty, by default the mean per word


@dataclass(frozen=True, slots=True)
class Description:
    """Captions of a clip, best first, and its concept words."""

    clip: str
    captions: tuple[Caption, ...]
    concepts: tuple[Concept, ...]
    seconds: float  # duration of the clip, estimated from the times of its sampled frames
    attention: tuple[Attention, ...] = ()  # for the best caption, one per `describe` run; optional
    effects: Effects | None = None  # likewise; None if no run reads concept words

    @property
    def caption(self) -> str:
        return self.captions[0].text


@dataclass(frozen=True, slots=True)
class Scene:
    """The caption and concept words of one shot of a video."""

    start: float  # seconds, on a player's clock
    end: float
    caption: Caption
    concepts: tuple[Concept, ...]


@dataclass(frozen=True, slots=True)
class Tracing:
    """The spatial attention of one run's traces, and its attention on concept words in the caption."""

    run: str  # whose traces and attention these are
    captioned_by: tuple[str, ...]  # the runs that generated the caption as an ensemble; `run` is one of them
    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that the model was given
    attention: NDArray[np.float32]  # (N, L, h, w); sums to 1 over the grid
    rows: NDArray[np.float64]  # (h + 1,), from 0 to 1: borders of the grid's cells in the upright picture
    columns: NDArray[np.float64]  # (w + 1,), likewise
    concepts: tuple[Concept, ...]  # K, in order of rank
    raised: tuple[Concept, ...]  # the same, then the requested concept if it is not among them
    probe_confidences: NDArray[np.float32]  # (raised,): of the probe alone; without a probe, of the traces
    has_probe: bool  # with a probe, confidences combine probe and traces
    shares: NDArray[np.float32]  # (raised, L): contribution of each trace to the traces' score
    caption: Caption
    output_weights: NDArray[np.float32] | None  # β, (words, K): output attention, when predicting a word
    input_weights: NDArray[np.float32] | None  # γ, (words, K): input attention, when reading a word
    effects: Effects | None  # of the concept words of all runs in `captioned_by`; None if none reads any

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.caption.text.split())

    @property
    def is_raised(self) -> NDArray[np.bool_]:
        """(raised,): whether the traces raise a word; with a probe, above its confidence alone."""
        is_raised: NDArray[np.bool_] = self.shares.sum(axis=1) > 0
        if self.has_probe:  # the traces' score has a term that belongs to no trace
            is_raised &= np.array([word.confidence for word in self.raised]) > self.probe_confidences
        return is_raised

    @property
    def run_name(self) -> str:
        """The run's folder name; for a member of an ensemble, `ensemble/number`."""
        folder = Path(self.run)
        return "/".join(folder.parts[-2:]) if folder.name.isdecimal() else folder.name


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no plain equality
class Attention:
    """One run's attention weights on its concept words, for each word of a sentence."""

    run: str
    concepts: tuple[str, ...]  # K, in order of rank
    words: tuple[str, ...]  # T, as tokenised
    input_weights: NDArray[np.float32] | None  # γ, (T, K); None if the run has no such attention
    output_weights: NDArray[np.float32] | None = None  # β: (K,) for a blank, (T, K) for a caption


@dataclass(frozen=True, slots=True)
class Answer:
    word: str
    probability: float


@dataclass(frozen=True, slots=True)
class Blank:
    """The answers for one blank."""

    answers: tuple[Answer, ...]  # most probable first
    attention: tuple[Attention, ...] = ()  # one per run; optional
    effects: Effects | None = None  # on the most probable answer; optional


@dataclass(frozen=True, slots=True)
class Filling:
    """The answers for all blanks of a sentence about a clip."""

    clip: str
    sentence: str
    filled: str  # with the most probable word in each blank
    blanks: tuple[Blank, ...]  # in sentence order; each predicted with the others still blank
    concepts: tuple[Concept, ...]
    unknown: tuple[str, ...]  # words of the sentence that are in no run's vocabulary

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers for the first blank, usually the only one."""
        return self.blanks[0].answers


@dataclass(frozen=True, slots=True)
class ScoredSentence:
    """A sentence with its score: standard deviations from the run's mean score on its validation clips."""

    sentence: str
    score: float
    attention: tuple[Attention, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Sentences scored for a clip, and the best one."""

    clip: str
    choices: tuple[ScoredSentence, ...]  # in the order given
    concepts: tuple[Concept, ...]  # from the runs that answered; empty if they have no detector
    unknown: tuple[str, ...]

    @property
    def choice(self) -> int:
        """The index of the best sentence."""
        scores = [scored.score for scored in self.choices]
        return scores.index(max(scores))

    @property
    def sentence(self) -> str:
        return self.choices[self.choice].sentence


@dataclass(frozen=True, slots=True)
class RankedClip:
    clip: str
    score: float
    concepts: tuple[Concept, ...]  # from the runs that answered; empty if they have no detector
    attention: tuple[Attention, ...] = ()


@dataclass(frozen=True, slots=True)
class Correction:
    """A word of a query that was read as another."""

    typed: str
    read_as: str  # one word, or two


@dataclass(frozen=True, slots=True)
class Ranking:
    """Clips that match a query, best first, and the errors of those that could not be read."""

    query: str
    clips: tuple[RankedClip, ...]
    errors: tuple[VideoError, ...]
    unknown: tuple[str, ...]
    searched_for: str  # the query as it was read
    corrections: tuple[Correction, ...]  # typed words that were read as others


@dataclass(frozen=True, slots=True)
class SentenceRanking:
    """Sentences that match a clip, best first."""

    clip: str
    sentences: tuple[ScoredSentence, ...]
    concepts: tuple[Concept, ...]  # from the runs that answered; empty if they have no detector
    unknown: tuple[str, ...]
