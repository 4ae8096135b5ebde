"""Query trained runs about video files: `Predictor.load(run).describe("clip.mp4")`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ctsan.data.corpus import BLANK
from ctsan.errors import UsageError, VideoError
from ctsan.inference.ensemble import (
    caption_attention,
    captions_of,
    concepts_seen,
    effects_of_caption,
    filled_blanks,
    reading_attentions,
    runs_covering_query,
    unknown_words,
)
from ctsan.inference.featurizer import ClipFeatures, ClipFeaturizer
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
from ctsan.inference.trace import check_concept, has_traces, trace_clip
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.runs.pack_folder import DEFAULT
from ctsan.runs.trained_run import TrainedRun, answering, load_runs, naming_concepts
from ctsan.tasks.blank import split_at_blanks
from ctsan.tasks.loaded_model import joined
from ctsan.tasks.scoring import embed_sentence, ensemble_scores, score_all
from ctsan.text.tokens import tokenize
from ctsan.video.given_frames import ClipInput, clip_name

__all__ = [
    "Answer",
    "Attention",
    "Blank",
    "Caption",
    "Choice",
    "Concept",
    "Description",
    "Effects",
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
    """Answers queries about video files. `answering` in trained_run.py selects the runs for each method.

    Args:
        runs: of any tasks.
        weights: file of the backbone's weights, if they are not installed with ctsan.
    """

    def __init__(self, runs: Sequence[TrainedRun], *, weights: Path | None = None) -> None:
        self.runs = tuple(runs)
        self._featurizer = ClipFeaturizer(weights)
        for run in self.runs:
            self._featurizer.backbone(run.recipe)  # fail early if a backbone is missing

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
        return cls(load_runs([Path(run), *map(Path, more_runs)]), weights=weights)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent so far, by stage: `load`, `decode`, `backbone`, `model`."""
        return self._featurizer.stopwatch.seconds

    def describe(
        self, clip: ClipInput, *, beam: int | None = None, n_best: int = 1, attention: bool = False
    ) -> Description:
        """Caption a clip, and list its concept words.

        Args:
            beam: beam width; by default the run's setting.
            attention: add attention weights for the best caption, and the effect of each concept word on it.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: there is no `describe` run.
        """
        return _answer(self.describe_all([clip], beam=beam, n_best=n_best, attention=attention))

    def describe_all(
        self,
        clips: Iterable[ClipInput],
        *,
        beam: int | None = None,
        n_best: int = 1,
        attention: bool = False,
    ) -> Iterator[Description | VideoError]:
        """Caption many clips in batches; yields the error of a clip that cannot be read.

        Raises:
            UsageError: there is no `describe` run.
        """
        runs = self._asked("describe")
        for looks in _some_at_once(self._featurizer.featurize_all(clips, runs)):
            seen = [look for look in looks if isinstance(look, ClipFeatures)]
            said = self._say(runs, seen, beam, n_best, attention)
            described = (
                Description(look.clip, captions, concepts, _duration(look), *explained)
                for look, (captions, concepts, explained) in zip(seen, said, strict=True)
            )
            for look in looks:
                yield look if isinstance(look, VideoError) else next(described)

    def describe_scenes(self, video: Path | str, *, beam: int | None = None) -> Iterator[Scene]:
        """Caption each shot of a video; memory use does not grow with the video.

        Raises:
            VideoError: the video cannot be read.
            UsageError: there is no `describe` run.
        """
        runs = self._asked("describe")
        for shots in _some_at_once(self._featurizer.featurize_shots(Path(video), runs)):
            said = self._say(runs, [look for _, look in shots], beam, 1, attention=False)
            for (shot, _), (captions, concepts, _) in zip(shots, said, strict=True):
                yield Scene(shot.start, shot.end, captions[0], concepts)

    def concepts(self, clip: ClipInput, *, all: bool = False) -> tuple[Concept, ...]:  # noqa: A002  # what it is
        """List the concept words of a clip in order of rank, from `describe` runs if any has a detector.

        Args:
            all: return every candidate, not only the K words that the language model reads.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run has a detector.
        """
        if not all:
            return _answer(self.concepts_all([clip]))[1]
        runs = self._detecting()
        return concepts_seen(runs, self._featurizer.watch(clip, runs).encodings, all_candidates=True)

    def concepts_all(
        self, clips: Iterable[ClipInput]
    ) -> Iterator[tuple[str, tuple[Concept, ...]] | VideoError]:
        """Yield many clips with their concept words, or the error of a clip that cannot be read.

        Raises:
            UsageError: no run has a detector.
        """
        runs = self._detecting()
        for look in self._featurizer.featurize_all(clips, runs):
            if isinstance(look, VideoError):
                yield look
            else:
                yield look.clip, concepts_seen(runs, self._featurizer.encode([look], runs))

    def trace(
        self,
        clip: ClipInput,
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
        runs = self._asked("describe")
        said_by = [run for run in runs if run.task == "describe"]
        run = next(filter(has_traces, said_by), said_by[0])
        check_concept(run, concept)
        sight = self._featurizer.watch(clip, runs)
        own = sight.encodings[runs.index(run)]
        caption = caption or captions_of(runs, sight.encodings, beam, 1)[0][0]
        return trace_clip(
            run,
            own,
            caption,
            said_by=said_by,
            effects=effects_of_caption(runs, sight.encodings, caption),
            concepts=concepts_seen([run], [own]),
            concept=concept,
            times=sight.times,
            cell_borders=self._featurizer.backbone(run.recipe).spec.cell_borders,
        )

    def fill(self, clip: ClipInput, sentence: str, *, n_best: int = 5, attention: bool = False) -> Filling:
        """Predict the most probable words for each blank of a sentence: `_____` of any length, or `<blank>`.

        Each of several blanks is predicted with the others still blank.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: there is no `fill` run, no blank, or no known word in the sentence.
        """
        runs = self._asked("fill")
        first, *others = split_at_blanks(sentence)
        if not others:
            raise UsageError(
                f"The sentence has no blank ({sentence!r}). Write {BLANK} for the word that is missing, such "
                f"as 'a man is {BLANK} a car'."
            )
        around = " ".join((first, *others))
        unknown = unknown_words(runs, {"The sentence": around}) if tokenize(around) else ()
        encodings = self._featurizer.watch(clip, runs).encodings
        read = [*tokenize(first), *(word for part in others for word in (BLANK, *tokenize(part)))]
        with self._featurizer.stopwatch("model"):
            blanks = filled_blanks(runs, encodings, sentence, read, n_best=n_best, attention=attention)
        pieces = zip_longest((first, *others), (blank.answers[0].word for blank in blanks), fillvalue="")
        filled = "".join(piece for pair in pieces for piece in pair)
        return Filling(clip_name(clip), sentence, filled, blanks, concepts_seen(runs, encodings), unknown)

    def choose(self, clip: ClipInput, sentences: Sequence[str], *, attention: bool = False) -> Choice:
        """Choose which of two or more sentences matches a clip best; scores are means over the runs.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run can choose, there are too few sentences, or one has no known word.
        """
        runs = self._asked("choose")
        if len(sentences) < 2:
            raise UsageError(f"There is nothing to choose from: {len(sentences)} given. Give two or more.")
        names = {f"Choice {number}": each for number, each in enumerate(sentences, start=1)}
        scored, concepts, unknown = self._score_sentences(runs, clip, names, attention)
        return Choice(clip_name(clip), scored, concepts, unknown)

    def rank_sentences(
        self, clip: ClipInput, sentences: Sequence[str], *, attention: bool = False
    ) -> SentenceRanking:
        """Rank sentences by how well they match a clip, best first.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run can rank, there are no sentences, or one has no known word.
        """
        runs = self._asked("rank")
        if not sentences:
            raise UsageError("There are no sentences to rank. Give one or more.")
        names = {f"Sentence {number}": each for number, each in enumerate(sentences, start=1)}
        scored, concepts, unknown = self._score_sentences(runs, clip, names, attention)
        best_first = sorted(scored, key=lambda each: -each.score)
        return SentenceRanking(clip_name(clip), tuple(best_first), concepts, unknown)

    def rank(
        self,
        query: str,
        clips: Iterable[ClipInput],
        *,
        n_best: int | None = None,
        attention: bool = False,
        on_clip: Callable[[], object] | None = None,
    ) -> Ranking:
        """Rank clips by how well they match a query, best first; unreadable clips are listed separately.

        Clips are encoded one at a time, and only their encodings are kept.

        Args:
            n_best: number of clips to return; all by default.
            on_clip: called after each clip.

        Raises:
            UsageError: no run can rank, there are no clips, or the query has no known word.
        """
        runs = self._asked("rank")
        unknown = unknown_words(runs, {"The query": query})
        runs = runs_covering_query(runs, query)  # the other runs do not affect the scores
        seen: list[tuple[str, tuple[Concept, ...]]] = []
        parts: list[list[ClipEncoding]] = []
        errors = []
        for look in self._featurizer.featurize_all(clips, runs):
            if isinstance(look, VideoError):
                errors.append(look)
            else:
                encodings = self._featurizer.encode([look], runs)
                seen.append((look.clip, concepts_seen(runs, encodings)))
                parts.append([encoding._replace(detection=None) for encoding in encodings])
            if on_clip:
                on_clip()
        if not seen and not errors:
            raise UsageError("There are no clips to rank. Give one or more.")
        ranked = []
        if seen:
            members = [run.loaded for run in runs]
            encodings = [joined(own) for own in zip(*parts, strict=True)]
            scores = ensemble_scores(
                members,
                [score_all(member, [query], own) for member, own in zip(members, encodings, strict=True)],
                queries=[query],
            )[0]
            for place in scores.argsort(descending=True, stable=True)[:n_best].tolist():
                weights = reading_attentions(runs, parts[place], [query])[0] if attention else ()
                ranked.append(RankedClip(seen[place][0], float(scores[place]), seen[place][1], weights))
        return Ranking(query, tuple(ranked), tuple(errors), unknown)

    @torch.inference_mode()
    def embed_clip(self, clip: ClipInput) -> NDArray[np.float32]:
        """Embed a clip with the joint embedding, as a unit vector; several runs' vectors are concatenated.

        The dot product with the vector of a sentence is their cosine similarity, summed over the runs.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run is a joint embedding.
        """
        runs = self._embedding()
        encodings = self._featurizer.watch(clip, runs).encodings
        parts = [
            run.loaded.model.embed_clips(encoding)[0] for run, encoding in zip(runs, encodings, strict=True)
        ]
        return np.concatenate([part.cpu().numpy() for part in parts])

    def embed_text(self, text: str) -> NDArray[np.float32]:
        """Embed a sentence with the joint embedding: see `embed_clip`.

        Raises:
            UsageError: no run is a joint embedding, or no run knows any word of the sentence.
        """
        runs = self._embedding()
        unknown_words(runs, {"The sentence": text})
        return np.concatenate([embed_sentence(run.loaded, text) for run in runs])

    def __repr__(self) -> str:
        runs = ", ".join(f"{run.folder.name} ({run.task})" for run in self.runs)
        return f"Predictor({runs})"

    def _embedding(self) -> list[TrainedRun]:
        runs = [run for run in self.runs if run.task == "embed"]
        if not runs:
            raise UsageError("No run is a joint embedding. Train one: ctsan train embed --corpus CORPUS …")
        return runs

    def _detecting(self) -> list[TrainedRun]:
        runs = naming_concepts(self.runs)
        if not runs:
            raise UsageError("No run has a concept detector. Name one that has.")
        return runs

    def _asked(self, task: str) -> list[TrainedRun]:
        """Select the runs that answer a task, and load their models."""
        runs = answering(self.runs, task)
        with self._featurizer.stopwatch("load"):
            for run in runs:
                run.load()
        return runs

    def _say(
        self,
        runs: Sequence[TrainedRun],
        looks: Sequence[ClipFeatures],
        beam: int | None,
        n_best: int,
        attention: bool,
    ) -> list[tuple[tuple[Caption, ...], tuple[Concept, ...], tuple[tuple[Attention, ...], Effects | None]]]:
        """Return captions and concept words of each clip; on request, attention and effects of the best."""
        if not looks:
            return []
        encodings = self._featurizer.encode(looks, runs)
        with self._featurizer.stopwatch("model"):
            captions = captions_of(runs, encodings, beam, n_best)
            return [
                (
                    own,
                    concepts_seen(runs, encodings, row),
                    _explained(runs, encodings, row, own[0]) if attention else ((), None),
                )
                for row, own in enumerate(captions)
            ]

    def _score_sentences(
        self, runs: Sequence[TrainedRun], clip: ClipInput, sentences: dict[str, str], attention: bool
    ) -> tuple[tuple[ScoredSentence, ...], tuple[Concept, ...], tuple[str, ...]]:
        """Return the scored sentences, the clip's concept words, and the unknown words.

        Args:
            sentences: keyed by the name to use in messages.
        """
        unknown = unknown_words(runs, sentences)
        texts = list(sentences.values())
        encodings = self._featurizer.watch(clip, runs).encodings
        members = [run.loaded for run in runs]
        scores = ensemble_scores(
            members, [score_all(member, texts, own) for member, own in zip(members, encodings, strict=True)]
        )[:, 0].tolist()
        weights = reading_attentions(runs, encodings, texts) if attention else [()] * len(texts)
        scored = map(ScoredSentence, texts, scores, weights)
        return tuple(scored), concepts_seen(runs, encodings), unknown


def _explained(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], row: int, caption: Caption
) -> tuple[tuple[Attention, ...], Effects | None]:
    """Compute the attention of the `describe` runs, and the effects, for the caption of one row."""
    rows = torch.tensor([row])
    of_clip = [each.without_detection.of(rows.to(each.concepts.device)) for each in encodings]
    pairs = zip(runs, of_clip, strict=True)
    attention = [caption_attention(run, each, caption) for run, each in pairs if run.task == "describe"]
    return tuple(attention), effects_of_caption(runs, of_clip, caption)


def _duration(look: ClipFeatures) -> float:
    """Estimate a clip's duration: of N evenly sampled frames, the last is at (N - 1) / N of the clip."""
    count = len(look.times)
    return float(look.times[-1] - look.times[0]) * count / max(count - 1, 1)


def _some_at_once(items: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(items, _AT_ONCE)):
        yield some


def _answer(found: Iterator[T | VideoError]) -> T:
    """Return the only result, or raise it if it is an error."""
    [answer] = found
    if isinstance(answer, VideoError):
        raise answer
    return answer
