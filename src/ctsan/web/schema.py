"""Request and response models of the JSON API. The descriptions appear in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ctsan.web.clips import State

Sentence = Annotated[str, Field(min_length=1, max_length=500)]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(BaseModel):
    code: str = Field(description="Identifier for programs.")
    message: str = Field(description="What is wrong and what to do, for people.")


class ErrorResponse(BaseModel):
    error: ErrorDetail


class UploadLimits(BaseModel):
    bytes: int
    seconds: float
    pixels: int


class Status(BaseModel):
    version: str
    tasks: list[str] = Field(description="Tasks that the models can answer: describe, fill, choose, rank.")
    library: str | None = Field(
        description="Name of the library that can be searched; null if there is none."
    )
    limits: UploadLimits


class ShotsState(BaseModel):
    state: State
    progress: float
    count: int = Field(description="Shots described so far.")


class ClipState(BaseModel):
    id: str
    state: State
    progress: float = Field(description="From 0 to 1.")
    error: str | None
    start: float = Field(description="Seconds from the start of the file; above 0 for a moment of a film.")
    duration: float | None = Field(description="In seconds; 0 for a picture; null until known.")
    cut_off: float | None = Field(
        description="Seconds that the file should have, if it is cut off and ends earlier; else null."
    )
    width: int | None = Field(description="Display size, at most 640 pixels; null until known.")
    height: int | None
    times: list[float] = Field(
        description="Times of the sampled frames, in seconds; a model uses an evenly spaced subset."
    )
    shots: ShotsState | None = Field(description="Null unless the video is long.")


class ConceptWord(BaseModel):
    word: str
    confidence: float


class ConceptEffect(BaseModel):
    word: str
    effect: float = Field(
        description="log p(caption word | all concept words) - log p(caption word | all but this), in nats."
    )


class CaptionWord(BaseModel):
    word: str
    attention: list[float] = Field(
        description="Output attention of `run` on each word of `attended`; empty if the run has none."
    )
    effects: list[ConceptEffect] = Field(
        description="The concept words with the largest effects on the word, at least 0.1; at most three."
    )
    effect: float | None = Field(
        description="Effect of all concept words together, in nats; null if no model uses concept words."
    )


class DescriptionAnswer(BaseModel):
    caption: str
    score: float = Field(
        description="Score by which the hypotheses were ranked; the caption has the highest."
    )
    words: list[CaptionWord]
    num_models: int = Field(description="Number of models in the captioning ensemble.")
    run: str | None = Field(
        description="The member of the ensemble that traces and attention are from; null if none has traces."
    )
    attended: list[str] = Field(description="Concept words of `run`, in the order of `attention`.")
    concepts: list[ConceptWord]


class TracedConcept(BaseModel):
    word: str
    confidence: float
    probe_confidence: float | None = Field(description="Confidence of the probe alone; null without a probe.")
    shares: list[float] = Field(description="Contribution of each trace to the traces' score of the word.")


class TracesAnswer(BaseModel):
    times: list[float] = Field(description="Seconds from the start of the clip.")
    rows: list[float] = Field(description="Borders of the grid cells, from 0 to 1.")
    columns: list[float]
    attention: list[list[list[list[float]]]] = Field(
        description="By frame, trace, row and column; sums to one over the grid."
    )
    concepts: list[TracedConcept]


class FillQuestion(StrictModel):
    sentence: Sentence = Field(examples=["a man is _____ a car"], description="With one to four blanks.")
    n_best: int = Field(5, ge=1, le=20)


class FilledWord(BaseModel):
    word: str
    probability: float


class FillAnswer(BaseModel):
    filled: str
    blanks: list[list[FilledWord]]
    unknown: list[str] = Field(description="Words of the sentence that are not in the vocabulary.")


class ChooseQuestion(StrictModel):
    sentences: list[Sentence] = Field(
        min_length=2, max_length=20, examples=[["a man drives a car", "a dog runs on grass"]]
    )


class ChooseAnswer(BaseModel):
    choice: int = Field(description="Index of the best sentence, from 0.")
    scores: list[float] = Field(
        description="In standard deviations from the mean score on the validation clips."
    )
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


class SearchHit(BaseModel):
    id: str
    name: str = Field(description="File name without the folder.")
    folder: str = Field(description="Name of the folder that the file is in, without those above it.")
    media_type: str = Field(examples=["video/mp4"])
    is_picture: bool
    start: float = Field(description="Seconds from the start of the file.")
    end: float
    caption: str | None = Field(description="Of the shot; null if the library was indexed without captions.")
    score: float
    concepts: list[ConceptWord]
    matched: list[str] = Field(description="Words of the filter, as they were read.")


class CorrectionAnswer(BaseModel):
    typed: str
    read_as: str


class FilterAnswer(BaseModel):
    word: str = Field(description="As it was given.")
    read_as: str = Field(description="The concept word that it was read as; all its forms count.")
    is_excluded: bool
    shots: int = Field(description="Shots of the library that show it.")


class WordCount(BaseModel):
    word: str
    shots: int | None = Field(
        description="Shots that pass all filters and show the word; null in a large library."
    )


class SearchAnswer(BaseModel):
    has_match: bool = Field(description="False if probably nothing in the library matches.")
    is_judged: bool = Field(
        description="False for a clip, and among too few shots: `has_match` says nothing."
    )
    match_accuracy: float | None = Field(
        description="Accuracy of `has_match` on validation sentences; null for a word, or if not judged."
    )
    unknown: list[str] = Field(description="Words of the query that no model knows.")
    searched_for: str | None = Field(description="The query as it was read; null without one.")
    negated: str | None = Field(
        description="The word after 'no' or 'without', which exclude nothing in a sentence; `without` does."
    )
    corrections: list[CorrectionAnswer] = Field(description="Misspelt words of the query.")
    filters: list[FilterAnswer] = Field(description="Of `concept` and `without`.")
    words: list[WordCount] = Field(description="Concept words that the hits share, to narrow the search by.")
    library_shots: int
    allowed_shots: int = Field(description="Shots that pass the filters.")
    hits: list[SearchHit] = Field(description="Best first.")


class UnreadFile(BaseModel):
    name: str = Field(description="File name without the folder.")
    reason: str


class LibraryAnswer(BaseModel):
    name: str
    files: int
    shots: int
    unread_count: int = Field(description="Files that could not be read.")
    unread: list[UnreadFile] = Field(description="The first 50 of them.")


class StartAnswer(BaseModel):
    library: LibraryAnswer | None = Field(description="Null if the server has no library.")
    clips: list[SearchHit] = Field(
        description="The first shots of the files that were indexed last; without a library, example clips."
    )
    searches: list[str] = Field(description="Sentences or words that the library has answers for.")
