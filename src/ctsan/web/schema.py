"""The objects of the JSON API, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ctsan.web.clips import State

Sentence = Annotated[str, Field(min_length=1, max_length=500)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    code: str = Field(description="One word for programs.")
    message: str = Field(description="What is wrong and what to do, for people.")


class Failure(BaseModel):
    error: Problem


class UploadLimits(BaseModel):
    bytes: int
    seconds: float
    pixels: int


class Status(BaseModel):
    version: str
    tasks: list[str] = Field(description="What the models can do: describe, fill, choose, rank.")
    library: str | None = Field(description="Name of the library that can be searched, if any.")
    limits: UploadLimits


class ShotsState(BaseModel):
    state: State
    progress: float
    count: int = Field(description="Shots that are described so far.")


class ClipState(BaseModel):
    id: str
    state: State
    progress: float = Field(description="From 0 to 1.")
    error: str | None
    duration: float | None = Field(description="Seconds; 0 for a picture; null until it is known.")
    width: int | None = Field(description="In proportion to the height; null until it is known.")
    height: int | None
    times: list[float] = Field(
        description="Seconds of the frames that were sampled; a model takes in some of them, evenly."
    )
    shots: ShotsState | None = Field(description="Of a long video.")


class ConceptWord(BaseModel):
    word: str
    confidence: float


class OwedConcept(BaseModel):
    word: str
    effect: float = Field(
        description="log p(said word | all concept words) - log p(said word | all but this one), in nats."
    )


class SaidWord(BaseModel):
    word: str
    attention: list[float] = Field(
        description="Of `run` on each of `attended`, in saying the word; empty where it has no attention."
    )
    owes: list[OwedConcept] = Field(
        description="The concept words with the greatest effects on the word, of at least 0.1; at most three."
    )
    effect: float | None = Field(
        description="Of all concept words together, in nats; null where no model reads any."
    )


class DescriptionAnswer(BaseModel):
    caption: str
    score: float = Field(description="What the sentences were ordered by: the highest was said.")
    words: list[SaidWord]
    said_by: int = Field(description="How many models said the sentence together.")
    run: str | None = Field(description="The one of them that looked and attended; null if none has traces.")
    attended: list[str] = Field(description="Its concept words, which `attention` is on.")
    concepts: list[ConceptWord]


class RaisedConcept(BaseModel):
    word: str
    confidence: float
    probe_confidence: float | None = Field(description="By the probe alone; null without one.")
    shares: list[float] = Field(description="What each trace adds to the traces' score of the word.")


class TracesAnswer(BaseModel):
    times: list[float] = Field(description="Seconds from the start of the clip.")
    rows: list[float] = Field(description="Where the cells of the grid begin and end, from 0 to 1.")
    columns: list[float]
    attention: list[list[list[list[float]]]] = Field(
        description="By frame, trace, row and column; adds up to one over the grid."
    )
    concepts: list[RaisedConcept]


class FillQuestion(Strict):
    sentence: Sentence = Field(examples=["a man is _____ a car"], description="With one to four blanks.")
    n_best: int = Field(5, ge=1, le=20)


class FilledWord(BaseModel):
    word: str
    probability: float


class FillAnswer(BaseModel):
    filled: str
    blanks: list[list[FilledWord]]
    unknown: list[str] = Field(description="Words that the model does not know.")


class ChooseQuestion(Strict):
    sentences: list[Sentence] = Field(
        min_length=2, max_length=20, examples=[["a man drives a car", "a dog runs on grass"]]
    )


class ChooseAnswer(BaseModel):
    choice: int = Field(description="The place of the best one, from 0.")
    scores: list[float] = Field(description="In standard deviations from the model's mean on other clips.")
    unknown: list[str]


class ShotAnswer(BaseModel):
    start: float
    end: float
    caption: str
    concepts: list[ConceptWord]


class ShotsAnswer(BaseModel):
    state: State
    progress: float
    error: str | None
    shots: list[ShotAnswer]


class FoundMoment(BaseModel):
    id: str
    name: str = Field(description="Of the file, without its folder.")
    is_picture: bool
    start: float = Field(description="Seconds in the file.")
    end: float
    score: float
    concepts: list[ConceptWord]
    matched: list[str] = Field(description="Concept words that were asked for, where they had a say.")


class SearchAnswer(BaseModel):
    has_match: bool = Field(description="False: the best are far off, and nothing may suit.")
    trust: float | None = Field(description="How often that was right on validation queries.")
    unknown: list[str]
    hits: list[FoundMoment] = Field(description="The best first.")
