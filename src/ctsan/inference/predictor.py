"""Query trained runs about video files: `Predictor.load(run).describe("clip.mp4")`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np

from ctsan.data.corpus import BLANK
from ctsan.errors import UsageError, VideoError
from ctsan.inference.captioning import caption_together
from ctsan.inference.effects import blank_effects, caption_effects
from ctsan.inference.encoded_clip import AnyClip, EncodedClip, encode_together
from ctsan.inference.ensemble import (
    AskedBlank,
    detected_concepts,
    fill_blanks,
    models_covering_query,
    score_queries,
    score_sentences,
    unknown_words,
    word_ids,
)
from ctsan.inference.explaining import attention_of, caption_attention, reading_attentions
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.inference.loaded_model import (
    BlankFiller,
    Captioner,
    ClipEncoding,
    Floats,
    JointEmbedding,
    LoadedModel,
    SentenceScorer,
    concatenate,
)
from ctsan.inference.loading import load_models
from ctsan.inference.query_words import QueryReader
from ctsan.inference.results import (
    Answer,
    Attention,
    Blank,
    Caption,
    Choice,
    Concept,
    Description,
    Effects,
    Filling,
    RankedClip,
    Ranking,
    Scene,
    ScoredSentence,
    SentenceRanking,
    Tracing,
)
from ctsan.inference.trace import check_concept, trace_clip
from ctsan.runs.pack_folder import DEFAULT
from ctsan.runs.trained_run import answering, can_answer, detecting_concepts
from ctsan.text.sentences import split_at_blanks
from ctsan.text.tokens import tokenize
from ctsan.video.given_frames import ClipInput

__all__ = [
    "Answer",
    "Attention",
    "Blank",
    "Caption",
    "Choice",
    "Concept",
    "Description",
    "Effects",
    "EncodedClip",
    "Filling",
    "Predictor",
    "RankedClip",
    "Ranking",
    "Scene",
    "ScoredSentence",
    "SentenceRanking",
    "Tracing",
]


T = TypeVar("T")

_AT_ONCE = 8  # clips per batch


class Predictor:
    """Answers queries about video files. `answering` in trained_run.py selects the models for each method.

    A clip is a path, frames, or the result of `encode`, which can be asked again without reading the file.

    Args:
        models: of any tasks.
        weights: file of the backbone's weights, if they are not installed with ctsan.
    """

    def __init__(self, models: Sequence[LoadedModel], *, weights: Path | None = None) -> None:
        self.models = tuple(models)
        self._featurizer = ClipFeaturizer(weights)
        for model in self.models:
            self._featurizer.backbone(model.recipe)  # fail early if a backbone is missing

    @classmethod
    def load(
        cls, run: Path | str = DEFAULT, *more_runs: Path | str, weights: Path | None = None
    ) -> Predictor:
        """Load runs of any tasks. A folder may hold one run, an ensemble or a pack.

        `default` is the model that ships with the package. Weights are loaded on first use.

        Raises:
            RunError: a folder holds no usable run.
            UsageError: the backbone of a run is missing, so it cannot process video files.
        """
        return cls(load_models([Path(run), *map(Path, more_runs)]), weights=weights)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent so far, by stage: `load`, `decode`, `backbone`, `model`."""
        return self._featurizer.stopwatch.seconds

    @property
    def engines(self) -> list[str]:
        """What runs the backbones that were loaded, such as "ONNX Runtime, CPU"."""
        return self._featurizer.engines

    @property
    def tasks(self) -> list[str]:
        """The tasks that the models can answer; a joint embedding answers two of them."""
        tasks: tuple[str, ...] = ("describe", "fill", "choose", "rank")
        return [task for task in tasks if can_answer(self.models, task)]

    @property
    def can_trace(self) -> bool:
        return any(model.has_traces for model in self.models if isinstance(model, Captioner))

    def load_all(self) -> None:
        """Load all weights and backbones now, so that the first query does not pay for it."""
        for model in self.models:
            self._featurizer.engine(model.recipe)
            model.load()

    def encode(self, clip: ClipInput) -> EncodedClip:
        """Read a clip once, to ask about it many times.

        Raises:
            VideoError: the clip cannot be read.
        """
        return _only(self._encode_all([clip], self.models))

    def prepare(self, clips: Sequence[EncodedClip], task: str) -> None:
        """Encode clips in one batch, before queries about them are answered one by one."""
        for model in self._asked(task):
            encode_together(clips, model)

    def describe(
        self, clip: AnyClip, *, beam: int | None = None, n_best: int = 1, attention: bool = False
    ) -> Description:
        """Caption a clip, and list its concept words.

        Args:
            beam: beam width; by default the run's setting.
            attention: add attention weights for the best caption, and the effect of each concept word on it.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: there is no `describe` run.
        """
        return _only(self.describe_all([clip], beam=beam, n_best=n_best, attention=attention))

    def describe_all(
        self,
        clips: Iterable[AnyClip],
        *,
        beam: int | None = None,
        n_best: int = 1,
        attention: bool = False,
    ) -> Iterator[Description | VideoError]:
        """Caption many clips in batches; yields the error of a clip that cannot be read.

        Raises:
            UsageError: there is no `describe` run.
        """
        models = self._asked("describe")
        for batch in _batches(self._encode_all(clips, models)):
            readable = [clip for clip in batch if isinstance(clip, EncodedClip)]
            described = iter(self._describe(models, readable, beam, n_best, attention))
            for clip in batch:
                yield clip if isinstance(clip, VideoError) else next(described)

    def describe_scenes(self, video: Path | str, *, beam: int | None = None) -> Iterator[Scene]:
        """Caption each shot of a video; memory use does not grow with the video.

        Raises:
            VideoError: the video cannot be read.
            UsageError: there is no `describe` run.
        """
        models = self._asked("describe")
        for shots in _batches(self._featurizer.featurize_shots(Path(video), models)):
            clips = [EncodedClip(features) for _, features in shots]
            described = self._describe(models, clips, beam, 1, attention=False)
            for (shot, _), description in zip(shots, described, strict=True):
                yield Scene(shot.start, shot.end, description.captions[0], description.concepts)

    def concepts(self, clip: AnyClip, *, all: bool = False) -> tuple[Concept, ...]:  # noqa: A002  # what it is
        """List the concept words of a clip in order of rank, from `describe` runs if any has a detector.

        Args:
            all: return every candidate, not only the K words that the language model reads.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run has a detector.
        """
        models = self._detecting()
        return _concepts(models, self._encoded(clip, models), all_candidates=all)

    def concepts_all(
        self, clips: Iterable[AnyClip]
    ) -> Iterator[tuple[str, tuple[Concept, ...]] | VideoError]:
        """Yield many clips with their concept words, or the error of a clip that cannot be read.

        Raises:
            UsageError: no run has a detector.
        """
        models = self._detecting()
        for clip in self._encode_all(clips, models):
            yield clip if isinstance(clip, VideoError) else (clip.name, _concepts(models, clip))

    def trace(
        self,
        clip: AnyClip,
        *,
        concept: str | None = None,
        beam: int | None = None,
        caption: Caption | None = None,
    ) -> Tracing:
        """Trace a clip: spatial attention, attention in the best caption, and effects of concept words on it.

        The `describe` runs generate the caption as an ensemble, and the effects are the ensemble's. Traces
        and attention are those of the first such run that has traces.

        Args:
            concept: one more concept word to trace, detected in the clip or not.
            caption: the best caption, if it is known already.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the model has no detector, or does not know the concept.
        """
        models = self._asked("describe")
        captioners = [model for model in models if isinstance(model, Captioner)]
        traced = next((model for model in captioners if model.has_traces), captioners[0])
        check_concept(traced, concept)
        encoded = self._encoded(clip, models)
        if caption is None:
            caption = self._describe(models, [encoded], beam, 1, attention=False)[0].captions[0]
        encodings = [encoded.encoding(model) for model in captioners]
        return trace_clip(
            traced,
            encoded.encoding(traced),
            caption,
            captioned_by=captioners,
            effects=caption_effects(captioners, encodings, caption.text.split()),
            concepts=_concepts([traced], encoded),
            concept=concept,
            times=encoded.times,
            cell_borders=self._featurizer.backbone(traced.recipe).spec.cell_borders,
        )

    def fill(self, clip: AnyClip, sentence: str, *, n_best: int = 5, attention: bool = False) -> Filling:
        """Predict the most probable words for each blank of a sentence: `_____` of any length, or `<blank>`.

        Each of several blanks is predicted with the others still blank.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: there is no `fill` run, no blank, or no known word in the sentence.
        """
        models = [model for model in self._asked("fill") if isinstance(model, BlankFiller)]
        first, *rest = split_at_blanks(sentence)
        if not rest:
            raise UsageError(
                f"The sentence has no blank ({sentence!r}). Write {BLANK} for the word that is missing, such "
                f"as 'a man is {BLANK} a car'."
            )
        around = " ".join((first, *rest))
        unknown = unknown_words(models, {"The sentence": around}) if tokenize(around) else ()
        encoded = self._encoded(clip, models)
        tokens = [*tokenize(first), *(word for part in rest for word in (BLANK, *tokenize(part)))]
        with self._featurizer.stopwatch("model"):
            blanks = _fill(models, encoded, sentence, tokens, n_best=n_best, attention=attention)
        pieces = zip_longest((first, *rest), (blank.answers[0].word for blank in blanks), fillvalue="")
        filled = "".join(piece for pair in pieces for piece in pair)
        return Filling(encoded.name, sentence, filled, blanks, _concepts(models, encoded), unknown)

    def choose(self, clip: AnyClip, sentences: Sequence[str], *, attention: bool = False) -> Choice:
        """Choose which of two or more sentences matches a clip best; scores are means over the runs.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run can choose, there are too few sentences, or one has no known word.
        """
        models = [model for model in self._asked("choose") if isinstance(model, SentenceScorer)]
        if len(sentences) < 2:
            raise UsageError(f"There is nothing to choose from: {len(sentences)} given. Give two or more.")
        names = {f"Choice {number}": sentence for number, sentence in enumerate(sentences, start=1)}
        encoded, scored, unknown = self._score_sentences(models, clip, names, attention)
        return Choice(encoded.name, scored, _concepts(models, encoded), unknown)

    def rank_sentences(
        self, clip: AnyClip, sentences: Sequence[str], *, attention: bool = False
    ) -> SentenceRanking:
        """Rank sentences by how well they match a clip, best first.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run can rank, there are no sentences, or one has no known word.
        """
        models = [model for model in self._asked("rank") if isinstance(model, SentenceScorer)]
        if not sentences:
            raise UsageError("There are no sentences to rank. Give one or more.")
        names = {f"Sentence {number}": sentence for number, sentence in enumerate(sentences, start=1)}
        encoded, scored, unknown = self._score_sentences(models, clip, names, attention)
        best_first = sorted(scored, key=lambda sentence: -sentence.score)
        return SentenceRanking(encoded.name, tuple(best_first), _concepts(models, encoded), unknown)

    def rank(
        self,
        query: str,
        clips: Iterable[AnyClip],
        *,
        n_best: int | None = None,
        attention: bool = False,
        on_clip: Callable[[], object] | None = None,
    ) -> Ranking:
        """Rank clips by how well they match a query, best first; unreadable clips are listed separately.

        Misspelt words of the query are corrected, as in `Searcher.search`. Clips are encoded one at a time,
        and only their encodings are kept.

        Args:
            n_best: number of clips to return; all by default.
            on_clip: called after each clip.

        Raises:
            UsageError: no run can rank, there are no clips, or the query has no known word or seems to be in
                another language.
        """
        models = [model for model in self._asked("rank") if isinstance(model, SentenceScorer)]
        read = QueryReader(models).read(query)
        models = models_covering_query(models, read.text)  # the other models do not affect the scores
        seen: list[tuple[str, tuple[Concept, ...]]] = []
        parts: list[list[ClipEncoding]] = []
        errors = []
        for clip in self._encode_all(clips, models):
            if isinstance(clip, VideoError):
                errors.append(clip)
            else:
                seen.append((clip.name, _concepts(models, clip)))
                parts.append([clip.encoding(model).without_detection for model in models])
            if on_clip:
                on_clip()
        if not seen and not errors:
            raise UsageError("There are no clips to rank. Give one or more.")
        ranked = []
        if seen:
            encodings = [concatenate(of_model) for of_model in zip(*parts, strict=True)]
            scores = score_queries(models, encodings, [read.text])[0]
            for place in np.argsort(-scores, kind="stable")[:n_best].tolist():
                weights = reading_attentions(models, parts[place], [read.text])[0] if attention else ()
                ranked.append(RankedClip(seen[place][0], float(scores[place]), seen[place][1], weights))
        return Ranking(query, tuple(ranked), tuple(errors), read.unknown, read.text, read.corrections)

    def embed_clip(self, clip: AnyClip) -> Floats:
        """Embed a clip with the joint embedding, as a unit vector; several runs' vectors are concatenated.

        The dot product with the vector of a sentence is their cosine similarity, summed over the runs.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run is a joint embedding.
        """
        models = self._embedding()
        encoded = self._encoded(clip, models)
        return np.concatenate([model.embed_clips(encoded.encoding(model))[0] for model in models])

    def embed_text(self, text: str) -> Floats:
        """Embed a sentence with the joint embedding: see `embed_clip`.

        Raises:
            UsageError: no run is a joint embedding, or no run knows any word of the sentence.
        """
        models = self._embedding()
        unknown_words(models, {"The sentence": text})
        return np.concatenate([model.embed_sentences(word_ids(model, [text]))[0] for model in models])

    def __repr__(self) -> str:
        models = ", ".join(f"{model.folder.name} ({model.task})" for model in self.models)
        return f"Predictor({models})"

    def _embedding(self) -> list[JointEmbedding]:
        models = [model for model in self.models if isinstance(model, JointEmbedding)]
        if not models:
            raise UsageError("No run is a joint embedding. Train one: ctsan train embed --corpus CORPUS …")
        return models

    def _detecting(self) -> list[LoadedModel]:
        models = detecting_concepts(self.models)
        if not models:
            raise UsageError("No run has a concept detector. Name one that has.")
        return models

    def _asked(self, task: str) -> list[LoadedModel]:
        """Select the models that answer a task, and load them."""
        models = answering(self.models, task)
        with self._featurizer.stopwatch("load"):
            for model in models:
                model.load()
        return models

    def _encode_all(
        self, clips: Iterable[AnyClip], models: Sequence[LoadedModel]
    ) -> Iterator[EncodedClip | VideoError]:
        """Read clips ahead of their use. Clips that are encoded already are passed on."""
        for is_encoded, group in groupby(clips, key=lambda clip: isinstance(clip, EncodedClip)):
            if is_encoded:
                yield from group  # type: ignore[misc]  # encoded clips
                continue
            for features in self._featurizer.featurize_all(group, models):  # type: ignore[arg-type]  # others
                yield features if isinstance(features, VideoError) else EncodedClip(features)

    def _encoded(self, clip: AnyClip, models: Sequence[LoadedModel]) -> EncodedClip:
        if isinstance(clip, EncodedClip):
            return clip
        return _only(self._encode_all([clip], models))

    def _describe(
        self,
        models: Sequence[LoadedModel],
        clips: Sequence[EncodedClip],
        beam: int | None,
        n_best: int,
        attention: bool,
    ) -> list[Description]:
        """Caption clips as one batch."""
        if not clips:
            return []
        captioners = [model for model in models if isinstance(model, Captioner)]
        with self._featurizer.stopwatch("model"):
            hypotheses = caption_together(models, clips, beam=beam, n_best=n_best)
            descriptions = []
            for clip, best in zip(clips, hypotheses, strict=True):
                captions = tuple(Caption(*hypothesis) for hypothesis in best)
                explained = _explained(captioners, clip, captions[0]) if attention else ((), None)
                concepts = _concepts(models, clip)
                descriptions.append(
                    Description(clip.name, captions, concepts, clip.features.duration, *explained)
                )
            return descriptions

    def _score_sentences(
        self, models: Sequence[SentenceScorer], clip: AnyClip, sentences: dict[str, str], attention: bool
    ) -> tuple[EncodedClip, tuple[ScoredSentence, ...], tuple[str, ...]]:
        """Return the encoded clip, the scored sentences, and the unknown words.

        Args:
            sentences: keyed by the name to use in messages.
        """
        unknown = unknown_words(models, sentences)
        texts = list(sentences.values())
        encoded = self._encoded(clip, models)
        encodings = [encoded.encoding(model) for model in models]
        scores = score_sentences(models, encodings, texts)[:, 0].tolist()
        weights = reading_attentions(models, encodings, texts) if attention else [()] * len(texts)
        return encoded, tuple(map(ScoredSentence, texts, scores, weights)), unknown


def _concepts(
    models: Sequence[LoadedModel], clip: EncodedClip, *, all_candidates: bool = False
) -> tuple[Concept, ...]:
    encodings = [clip.encoding(model) for model in models]
    return detected_concepts(models, encodings, all_candidates=all_candidates)


def _explained(
    captioners: Sequence[Captioner], clip: EncodedClip, caption: Caption
) -> tuple[tuple[Attention, ...], Effects | None]:
    """Compute the attention of each captioner, and the effects, for the caption of a clip."""
    encodings = [clip.encoding(model) for model in captioners]
    attention = [
        caption_attention(model, encoding, caption)
        for model, encoding in zip(captioners, encodings, strict=True)
    ]
    return tuple(attention), caption_effects(captioners, encodings, caption.text.split())


def _fill(
    models: Sequence[BlankFiller],
    clip: EncodedClip,
    sentence: str,
    tokens: Sequence[str],
    *,
    n_best: int,
    attention: bool,
) -> tuple[Blank, ...]:
    """Predict the word for each blank of a sentence about a clip.

    Args:
        tokens: of the sentence, with `BLANK` for each blank.
    """
    asked = [AskedBlank(sentence, number) for number in range(tokens.count(BLANK))]
    encodings = [clip.encoding(model) for model in models]
    filled = fill_blanks(models, asked, [one.without_detection.of([0] * len(asked)) for one in encodings])
    blanks = []
    for number, blank in enumerate(asked):
        probabilities = filled.probabilities[number]
        best = np.argsort(-probabilities, kind="stable")[:n_best].tolist()
        answers = [Answer(filled.words[word], float(probabilities[word])) for word in best]
        answers = [answer for answer in answers if answer.probability]
        weights: list[Attention] = []
        effects = None
        if attention:
            for model, encoding, reading in zip(models, encodings, filled.readings, strict=True):
                inputs, outputs = reading.input_weights, reading.output_weights
                weights.append(
                    attention_of(
                        model,
                        encoding,
                        tokens,
                        None if inputs is None else inputs[number],
                        None if outputs is None else outputs[number],
                    )
                )
            effects = blank_effects(models, encodings, blank, answers[0].word)
        blanks.append(Blank(tuple(answers), tuple(weights), effects))
    return tuple(blanks)


def _batches(items: Iterator[T]) -> Iterator[list[T]]:
    while batch := list(islice(items, _AT_ONCE)):
        yield batch


def _only(results: Iterator[T | VideoError]) -> T:
    """Return the only result, or raise it if it is an error."""
    [result] = results
    if isinstance(result, VideoError):
        raise result
    return result
