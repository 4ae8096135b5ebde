"""Trained runs, ready to be asked about video files: `Predictor.load(run).describe("clip.mp4")`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

import torch

from ctsan.answers import (
    Answer,
    Attention,
    Blank,
    Caption,
    Choice,
    Concept,
    Description,
    Filling,
    RankedClip,
    Ranking,
    ScoredSentence,
    SentenceRanking,
    Tracing,
)
from ctsan.data.corpus import BLANK
from ctsan.ensemble import attention_of, concepts_seen, reading_attentions, unknown_words
from ctsan.errors import UsageError, VideoError
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.blank import AskedBlank, fill, split_at_blanks
from ctsan.tasks.description import describe
from ctsan.tasks.member import joined
from ctsan.tasks.scoring import as_one, score_all
from ctsan.text.tokens import tokenize
from ctsan.tracing import check_concept, trace_clip
from ctsan.trained_run import TrainedRun, answering, load_runs
from ctsan.watching import Watcher

__all__ = [
    "Answer",
    "Attention",
    "Blank",
    "Caption",
    "Choice",
    "Concept",
    "Description",
    "Filling",
    "Predictor",
    "RankedClip",
    "Ranking",
    "ScoredSentence",
    "SentenceRanking",
    "Tracing",
]


class Predictor:
    """Answers questions about video files. Every verb asks the runs that were trained for it, all as one.

    Args:
        runs: of any tasks.
        weights: the backbone's file where it is not installed with ctsan.
    """

    def __init__(self, runs: Sequence[TrainedRun], *, weights: Path | None = None) -> None:
        self.runs = tuple(runs)
        self._watcher = Watcher(weights)

    @classmethod
    def load(cls, run: Path | str, *more_runs: Path | str, weights: Path | None = None) -> Predictor:
        """Run folders, of any tasks; the folder of an ensemble stands for its members.

        Raises:
            RunError: there is no usable run in one of them.
        """
        return cls(load_runs([Path(run), *map(Path, more_runs)]), weights=weights)

    def describe(self, clip: Path | str, *, beam: int = 5, n_best: int = 1) -> Description:
        """The best sentences for a clip, and its concept words.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run describes, or several do that know different words.
        """
        runs = answering(self.runs, "describe")
        encodings = self._watcher.watch(Path(clip), runs).encodings
        captions = _captions(runs, encodings, beam, n_best)
        return Description(str(clip), captions, concepts_seen(runs, encodings))

    def concepts(self, clip: Path | str) -> tuple[Concept, ...]:
        """The concept words of a clip, the surest first: those of runs that describe if there are any.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run has a detector.
        """
        able = [run for run in self.runs if run.member.model.clip_encoder.detector is not None]
        if not able:
            raise UsageError("No run has a concept detector. Name one that has.")
        runs = [run for run in able if run.task == "describe"] or able
        return concepts_seen(runs, self._watcher.watch(Path(clip), runs).encodings)

    def trace(self, clip: Path | str, *, concept: str | None = None, beam: int = 5) -> Tracing:
        """Where the model looked and which concept words it used for its best sentence.

        One model does it: the first of the runs that describe.

        Args:
            concept: a concept word to follow too, whether the model sees it in the clip or not.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: the model has no detector, or does not know the concept.
        """
        run = answering(self.runs, "describe")[0]
        check_concept(run, concept)
        sight = self._watcher.watch(Path(clip), [run])
        return trace_clip(
            run,
            sight.encodings[0],
            _captions([run], sight.encodings, beam, 1)[0],
            concepts=concepts_seen([run], sight.encodings),
            concept=concept,
            times=sight.times,
            image_size=self._watcher.engine(run.recipe)[0].image_size,
        )

    def fill(self, clip: Path | str, sentence: str, *, n_best: int = 5, attention: bool = False) -> Filling:
        """The likeliest words for each blank of a sentence: `_____` of any length, or `<blank>`.

        Of several blanks each is asked for with the others still blank.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run fills blanks, there is no blank, or no word of the sentence is known.
        """
        runs = answering(self.runs, "fill")
        first, *others = split_at_blanks(sentence)
        if not others:
            raise UsageError(
                f"The sentence has no blank ({sentence!r}). Write {BLANK} for the word that is missing, such "
                f"as 'a man is {BLANK} a car'."
            )
        around = " ".join((first, *others))
        unknown = unknown_words(runs, {"The sentence": around}) if tokenize(around) else ()
        encodings = self._watcher.watch(Path(clip), runs).encodings
        asked = [AskedBlank(sentence, number) for number in range(len(others))]
        rows = torch.zeros(len(asked), dtype=torch.long)
        found = fill([run.member for run in runs], asked, [each.of(rows) for each in encodings])
        read = [*tokenize(first), *(word for part in others for word in (BLANK, *tokenize(part)))]
        blanks = []
        for number in range(len(asked)):
            best = found.probabilities[number].topk(min(n_best, len(found.words)))
            likeliest = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            weights = [
                attention_of(
                    run,
                    encoding,
                    read,
                    None if own.input_weights is None else own.input_weights[number],
                    None if own.output_weights is None else own.output_weights[number, 0],
                )
                for run, encoding, own in zip(runs, encodings, found.members, strict=True)
                if attention
            ]
            answers = (
                Answer(found.words[word], probability) for word, probability in likeliest if probability
            )
            blanks.append(Blank(tuple(answers), tuple(weights)))
        pieces = zip_longest((first, *others), (blank.answers[0].word for blank in blanks), fillvalue="")
        filled = "".join(piece for pair in pieces for piece in pair)
        return Filling(str(clip), sentence, filled, tuple(blanks), concepts_seen(runs, encodings), unknown)

    def choose(self, clip: Path | str, sentences: Sequence[str], *, attention: bool = False) -> Choice:
        """Which of two or more sentences suits a clip best; scores are means over the runs.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run chooses, there are too few sentences, or one has no known word.
        """
        runs = answering(self.runs, "choose")
        if len(sentences) < 2:
            raise UsageError(f"There is nothing to choose from: {len(sentences)} given. Give two or more.")
        names = {f"Choice {number}": each for number, each in enumerate(sentences, start=1)}
        scored, concepts, unknown = self._score_sentences(runs, clip, names, attention)
        return Choice(str(clip), scored, concepts, unknown)

    def rank_sentences(
        self, clip: Path | str, sentences: Sequence[str], *, attention: bool = False
    ) -> SentenceRanking:
        """Sentences from the one that suits a clip best down.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no run ranks, there are no sentences, or one has no known word.
        """
        runs = answering(self.runs, "rank")
        if not sentences:
            raise UsageError("There are no sentences to rank. Give one or more.")
        names = {f"Sentence {number}": each for number, each in enumerate(sentences, start=1)}
        scored, concepts, unknown = self._score_sentences(runs, clip, names, attention)
        best_first = sorted(scored, key=lambda each: -each.score)
        return SentenceRanking(str(clip), tuple(best_first), concepts, unknown)

    def rank(
        self,
        query: str,
        clips: Iterable[Path | str],
        *,
        n_best: int | None = None,
        attention: bool = False,
        on_clip: Callable[[], object] | None = None,
    ) -> Ranking:
        """Clips from the one that suits a query best down; those that cannot be read are told apart.

        Clips are looked at one after the other, and little is kept of each.

        Args:
            n_best: only so many; all by default.
            on_clip: is called after each clip.

        Raises:
            UsageError: no run ranks, there are no clips, or the query has no known word.
        """
        runs = answering(self.runs, "rank")
        unknown = unknown_words(runs, {"The query": query})
        seen: list[tuple[str, tuple[Concept, ...]]] = []
        parts: list[list[ClipEncoding]] = []
        errors = []
        for clip in clips:
            try:
                encodings = self._watcher.watch(Path(clip), runs).encodings
            except VideoError as error:
                errors.append(error)
            else:
                seen.append((str(clip), concepts_seen(runs, encodings)))
                parts.append([encoding._replace(detection=None) for encoding in encodings])
            if on_clip:
                on_clip()
        if not seen and not errors:
            raise UsageError("There are no clips to rank. Give one or more.")
        ranked = []
        if seen:
            members = [run.member for run in runs]
            encodings = [joined(own) for own in zip(*parts, strict=True)]
            scores = as_one(
                members,
                [score_all(member, [query], own) for member, own in zip(members, encodings, strict=True)],
            )[0]
            for place in scores.argsort(descending=True, stable=True)[:n_best].tolist():
                weights = reading_attentions(runs, parts[place], [query])[0] if attention else ()
                ranked.append(RankedClip(seen[place][0], float(scores[place]), seen[place][1], weights))
        return Ranking(query, tuple(ranked), tuple(errors), unknown)

    def _score_sentences(
        self, runs: Sequence[TrainedRun], clip: Path | str, sentences: dict[str, str], attention: bool
    ) -> tuple[tuple[ScoredSentence, ...], tuple[Concept, ...], tuple[str, ...]]:
        """Sentences, by their names in messages, with scores; the clip's concept words; and unknown words."""
        unknown = unknown_words(runs, sentences)
        texts = list(sentences.values())
        encodings = self._watcher.watch(Path(clip), runs).encodings
        members = [run.member for run in runs]
        scores = as_one(
            members, [score_all(member, texts, own) for member, own in zip(members, encodings, strict=True)]
        )[:, 0].tolist()
        weights = reading_attentions(runs, encodings, texts) if attention else [()] * len(texts)
        scored = map(ScoredSentence, texts, scores, weights)
        return tuple(scored), concepts_seen(runs, encodings), unknown


def _captions(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], beam: int, n_best: int
) -> tuple[Caption, ...]:
    """The best sentences that runs have for a clip, decoded as the first one says."""
    decoding, words = runs[0].settings.decoding, runs[0].member.words
    found = describe(
        [run.member for run in runs],
        encodings,
        beam=max(beam, n_best),
        n_best=n_best,
        max_words=decoding.max_words,
        length_penalty=decoding.length_penalty,
    )[0]
    return tuple(Caption(" ".join(words.vocabulary.decode(each.words)), each.score) for each in found)
