"""What a predictor answers. Scores and confidences come with every answer, attention weights on request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import VideoError

LEAST_EFFECT = 0.1  # nats: a word owes nothing that people are told of to a concept word with less
MOST_OWED = 3  # concept words that people are told of, of one word


@dataclass(frozen=True, slots=True)
class Concept:
    word: str
    confidence: float


class OwedConcept(NamedTuple):
    """A concept word that a said word owes something to."""

    word: str
    effect: float  # nats

    def __str__(self) -> str:
        return f"{self.word} {times_likelier(self.effect)}"


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no plain equality
class Effects:
    """What said words owe to concept words, by the mean probability of the runs that said them.

    The effect of a concept word on a said word is log p(word | all concept words) - log p(word | all but this
    one), in nats: see tasks/effects.py.
    """

    concepts: tuple[str, ...]  # K, of all runs that read any
    words: tuple[str, ...]  # T, as they were said
    each: NDArray[np.float32]  # (T, K)
    together: NDArray[np.float32]  # (T,): log p(word | all concept words) - log p(word | none)

    def owed(self, place: int) -> tuple[OwedConcept, ...]:
        """The concept words that a word owes most to, the greatest effect first; small ones are left out."""
        effects = self.each[place]
        greatest = (-effects).argsort(kind="stable")[:MOST_OWED]
        return tuple(
            OwedConcept(self.concepts[column], float(effects[column]))
            for column in greatest
            if effects[column] >= LEAST_EFFECT
        )


def times_likelier(effect: float) -> str:
    """An effect as people read it: x2.2 for a word that is 2.2 times as likely as without."""
    factor = math.exp(min(effect, 700.0))  # the largest that a float holds
    return f"x{factor:.1f}" if 0.1 <= factor < 10 else f"x{factor:.2g}" if factor < 10 else f"x{factor:,.0f}"


@dataclass(frozen=True, slots=True)
class Caption:
    text: str
    score: float  # the sentences of a clip were ordered by it
    log_probability: float  # of a word, in the mean


@dataclass(frozen=True, slots=True)
class Description:
    """What a model says of a clip: captions from the best down, and the concept words it saw."""

    clip: str
    captions: tuple[Caption, ...]
    concepts: tuple[Concept, ...]
    seconds: float  # that the clip lasts, as its sampled frames tell
    attention: tuple[Attention, ...] = ()  # in the best caption, one for each run that said it, on request
    effects: Effects | None = None  # likewise; None where no run reads concept words

    @property
    def caption(self) -> str:
        return self.captions[0].text


@dataclass(frozen=True, slots=True)
class Scene:
    """What a model says of one shot of a video."""

    start: float  # seconds, as a player counts them
    end: float
    caption: Caption
    concepts: tuple[Concept, ...]


@dataclass(frozen=True, slots=True)
class Tracing:
    """Where the traces of one run looked in a clip, and what that run attended to in its sentence."""

    run: str  # that looked and attended
    said_by: tuple[str, ...]  # the runs that said the sentence together; that run is one of them
    times: NDArray[np.float64]  # (N,), seconds in the source, of the frames that the model saw
    attention: NDArray[np.float32]  # (N, L, h, w); adds up to one over the grid
    rows: NDArray[np.float64]  # (h + 1,), from 0 to 1: where the grid's cells begin and end in the picture
    columns: NDArray[np.float64]  # (w + 1,); upright, as a player shows it
    concepts: tuple[Concept, ...]  # K, in order of rank
    raised: tuple[Concept, ...]  # the same, and last the one that was asked for if it is not among them
    probe_confidences: NDArray[np.float32]  # (raised,): of a probe alone; those of the traces without one
    has_probe: bool  # whether there is a probe, so that confidences are not those of the traces alone
    shares: NDArray[np.float32]  # (raised, L): what each trace adds to the traces' score of each of them
    caption: Caption
    output_weights: NDArray[np.float32] | None  # β, (words, K): attention on the concepts in saying a word
    input_weights: NDArray[np.float32] | None  # γ, (words, K): and in reading it, before the next is said
    effects: Effects | None  # of the concept words of all runs that said it; None where none reads any

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.caption.text.split())

    @property
    def run_name(self) -> str:
        """The run as people name it: its folder, with the ensemble's before the number of a member."""
        folder = Path(self.run)
        return "/".join(folder.parts[-2:]) if folder.name.isdecimal() else folder.name


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no plain equality
class Attention:
    """How much one of the runs attended to its concept words when it read or said a sentence."""

    run: str
    concepts: tuple[str, ...]  # K, in order of rank
    words: tuple[str, ...]  # T, as it reads them
    input_weights: NDArray[np.float32] | None  # γ, (T, K); None where the run has no such attention
    output_weights: NDArray[np.float32] | None = None  # β: (K,) in filling the blank, (T, K) in saying words


@dataclass(frozen=True, slots=True)
class Answer:
    word: str
    probability: float


@dataclass(frozen=True, slots=True)
class Blank:
    """What could stand in one blank."""

    answers: tuple[Answer, ...]  # the likeliest first
    attention: tuple[Attention, ...] = ()  # one for each run, on request
    effects: Effects | None = None  # on the likeliest answer, on request


@dataclass(frozen=True, slots=True)
class Filling:
    """What could stand in the blanks of a sentence about a clip."""

    clip: str
    sentence: str
    filled: str  # with the likeliest word in each blank
    blanks: tuple[Blank, ...]  # in the order of the sentence; each was asked for with the others still blank
    concepts: tuple[Concept, ...]
    unknown: tuple[str, ...]  # words of the sentence that no run knows

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Of the first blank, which is the only one as a rule."""
        return self.blanks[0].answers


@dataclass(frozen=True, slots=True)
class ScoredSentence:
    """Scores are in standard deviations from the mean of a run's scores on its validation clips."""

    sentence: str
    score: float
    attention: tuple[Attention, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of some sentences suits a clip best."""

    clip: str
    choices: tuple[ScoredSentence, ...]  # as they were given
    concepts: tuple[Concept, ...]  # as the runs that decided see them; none where these have no detector
    unknown: tuple[str, ...]

    @property
    def choice(self) -> int:
        """The place of the best one, from 0."""
        scores = [each.score for each in self.choices]
        return scores.index(max(scores))

    @property
    def sentence(self) -> str:
        return self.choices[self.choice].sentence


@dataclass(frozen=True, slots=True)
class RankedClip:
    clip: str
    score: float
    concepts: tuple[Concept, ...]  # as the runs that decided see them; none where these have no detector
    attention: tuple[Attention, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Clips from the one that suits a query best down, and those that could not be read."""

    query: str
    clips: tuple[RankedClip, ...]
    errors: tuple[VideoError, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SentenceRanking:
    """Sentences from the one that suits a clip best down."""

    clip: str
    sentences: tuple[ScoredSentence, ...]
    concepts: tuple[Concept, ...]  # as the runs that decided see them; none where these have no detector
    unknown: tuple[str, ...]
