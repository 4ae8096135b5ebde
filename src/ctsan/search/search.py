"""Ask a library: a first stage finds a hundred shots, and joint embeddings put them in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctsan.errors import StoreError, UsageError, did_you_mean
from ctsan.extensions.dual_encoder import standardised
from ctsan.inference.ensemble import unknown_words
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.inference.results import Concept
from ctsan.runs.trained_run import TrainedRun
from ctsan.search.ann_index import Nearest
from ctsan.search.encodings import KINDS, concept_words, covering_embeddings, numbers_of, query_vector
from ctsan.search.indexing import marks_of, searching_runs
from ctsan.search.library import Library
from ctsan.tasks.scoring import ensemble_scores
from ctsan.text.tokens import tokenize
from ctsan.video.shots import Shot

FIRST = 100  # clips that the first stage hands on

_FEW = 5  # among fewer clips it is not known whether the best one suits
_SAMPLE = 1000  # clips tell how a query scores with any


@dataclass(frozen=True, slots=True)
class Hit:
    """A shot that was found, in a file of the library."""

    file: Path
    start: float  # seconds
    end: float
    score: float
    concepts: tuple[Concept, ...]  # in order of rank
    matched: tuple[Concept, ...]  # those of them that were asked for, where they had a say


@dataclass(frozen=True, slots=True)
class Found:
    """Hits, the best first.

    Scores for a sentence are those of `ctsan rank`, in standard deviations from the mean of the runs' scores
    on their validation clips; for a clip they are products of vectors, 1 for the same.
    """

    hits: tuple[Hit, ...]
    has_match: bool  # False: the best are far off, and nothing in the library may suit
    trust: float | None  # how often that was right on validation; None where it is not a question
    unknown: tuple[str, ...] = ()  # words of the query that no run knows


class Searcher:
    """A library that is asked many times: models are loaded once, arrays and index stay on the disk.

    What another process changes in the library is seen by the next question.

    Args:
        folder: of the library.
        models: where its runs are now, if they were moved.
        weights: the backbone's file where it is not installed with ctsan.
        loaded: runs that are in memory already, and are taken from there.
    """

    def __init__(
        self,
        folder: Path,
        *,
        models: Sequence[Path] = (),
        weights: Path | None = None,
        loaded: Sequence[TrainedRun] = (),
    ) -> None:
        self.library = Library(folder)
        there = {(run.folder.resolve(), run.task): run for run in loaded}
        self.runs = [
            there.get((run.folder.resolve(), run.task), run)
            for run in searching_runs(models or [Path(run.folder) for run in self.library.runs])
        ]
        if not self.library.is_made_by(marks_of(self.runs), concept_words(self.runs)):
            raise StoreError(
                f"{folder}: its clips were looked at by other weights than these runs have now. Delete the "
                "library and index again, or give those runs back."
            )
        self._words = self.library.words
        self._featurizer = ClipFeaturizer(weights)
        self._revision = self._generation = -1
        self._has_index = False
        with self._up_to_date():
            if len(self._rows) == 0:
                raise UsageError(
                    f"{folder}: nothing in this library can be searched. Index a folder of clips."
                )

    def search(
        self, query: str, *, n_best: int = 10, concepts: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Found:
        """The shots that suit a sentence best.

        Args:
            concepts: only shots that show all of these concept words.
            without: no shots that show one of these.

        Raises:
            UsageError: the query has no known word, or a concept word is unknown.
        """
        unknown = unknown_words([run for run in self.runs if run.task == "embed"], {"The query": query})
        with self._up_to_date():
            return self._search(query, unknown, n_best, concepts, without)

    def _search(
        self,
        query: str,
        unknown: tuple[str, ...],
        n_best: int,
        concepts: Sequence[str],
        without: Sequence[str],
    ) -> Found:
        if len(self._rows) == 0:
            return Found((), has_match=False, trust=None, unknown=unknown)
        vector = query_vector(self.runs, query, self._words)
        allowed = self._allowed(concepts, without)
        rows = self.nearest.find(vector, max(FIRST, n_best), allowed)
        if len(rows) == 0:
            return Found((), has_match=False, trust=None, unknown=unknown)
        cosines = self._cosines(vector, rows)
        scores = self._scores(query, vector, rows)
        order = scores.argsort(descending=True, stable=True)[:n_best].tolist()
        num_clips = len(self._rows if allowed is None else allowed)
        # Joint embeddings read no concept words: these count where the first stage left shots out.
        asked = {*(tokenize(query) if len(rows) < num_clips else ()), *concepts}
        hits = self._hits(rows[order], scores[order].tolist(), asked)
        has_match, trust = self._match(query, vector, cosines, num_clips)
        return Found(hits, has_match and bool(hits), trust, unknown)

    def like(
        self, clip: Path, *, n_best: int = 10, concepts: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Found:
        """The shots that are most like a clip, be it in the library or not; of a long video, like all of it.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: a concept word is unknown.
        """
        encodings = self._featurizer.watch(clip, self.runs).encodings
        vector = numbers_of(self.runs, encodings, self._words)["vectors"][0]
        with self._up_to_date():
            return self._like(vector, n_best, concepts, without)

    def like_moment(
        self, hit: Hit, *, n_best: int = 10, concepts: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Found:
        """The shots that are most like one of the library, itself the first; nothing is decoded.

        Raises:
            UsageError: the library does not have it any more, or a concept word is unknown.
        """
        with self._up_to_date():
            row = self.library.row_of(hit.file, Shot(hit.start, hit.end))
            if row is None or row >= len(self._vectors):  # the latter: it is newer than the index in use
                raise UsageError("The library does not have this moment any more. Search again.")
            return self._like(self._vectors[row], n_best, concepts, without)

    def _like(
        self, stored: NDArray[np.generic], n_best: int, concepts: Sequence[str], without: Sequence[str]
    ) -> Found:
        if len(self._rows) == 0:
            return Found((), has_match=False, trust=None)
        vector: NDArray[np.float32] = stored.astype(np.float32)
        vector /= np.linalg.norm(vector)
        rows = self.nearest.find(vector, n_best, self._allowed(concepts, without))
        found = self._vectors[rows].astype(np.float32)
        scores = found @ vector / np.linalg.norm(found, axis=1)
        order = np.argsort(-scores, kind="stable")
        hits = self._hits(rows[order], scores[order].tolist(), set(concepts))
        return Found(hits, has_match=bool(hits), trust=None)

    @contextmanager
    def _up_to_date(self) -> Iterator[None]:
        """Within it the records stand still, and what was read of them is as new as they are."""
        self.library.hold()
        try:
            try:
                self._renew()
            except (FileNotFoundError, RuntimeError):  # newer arrays or a newer index took the place of these
                self.library.release()
                self.library.hold()
                self._renew()
            yield
        finally:
            self.library.release()

    def _renew(self) -> None:
        revision, generation, index = self.library.revision, self.library.generation, self.library.index_file
        if revision == self._revision:
            return
        has_index = index.exists()
        if self._has_index and not has_index and generation == self._generation:
            return  # it is being indexed: until that has ended, the old index finds what is still there
        rows = self.library.rows()
        if len(rows):
            numbers = {kind: self.library.numbers(kind) for kind in KINDS}
            self.nearest = Nearest(numbers["vectors"], rows, index if has_index else None)
            self._numbers, self._vectors = numbers, numbers["vectors"]
        self._rows = rows
        self._revision, self._generation, self._has_index = revision, generation, has_index

    def _scores(self, query: str, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> Tensor:
        """Of the query with the shots in some rows, as `ctsan rank` scores files."""
        embedding = [run.member for run in self.runs if run.task == "embed"]
        num_heard = len(covering_embeddings(self.runs, query))  # each has an equal part in the vector
        cosines, start = [], 0
        for member in embedding:
            own = slice(start, start := start + member.model.joint_dim)
            found = self._vectors[rows, own].astype(np.float32) @ vector[own] * num_heard
            cosines.append(torch.from_numpy(found)[None])
        return ensemble_scores(embedding, cosines, queries=[query])[0]

    def _cosines(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Of the joint embeddings alone."""
        dim = sum(run.member.model.joint_dim for run in self.runs if run.task == "embed")
        cosines: NDArray[np.float32] = self._vectors[rows, :dim].astype(np.float32) @ vector[:dim]
        return cosines

    def _match(
        self, query: str, vector: NDArray[np.float32], cosines: NDArray[np.float32], num_clips: int
    ) -> tuple[bool, float | None]:
        """Whether the best of so many clips suits the query, and how often that was right on validation."""
        if len(self._rows) < _FEW:
            return True, None
        models = [run.member.model for run in covering_embeddings(self.runs, query)]
        some = self._cosines(vector, self._rows[:: max(1, len(self._rows) // _SAMPLE)])
        best = float(standardised(torch.tensor([[cosines.max()]]), torch.from_numpy(some)[None]))
        least = sum(model.match_score(num_clips) for model in models) / len(models)
        return best >= least, sum(float(model.match_accuracy) for model in models) / len(models)

    def _allowed(self, concepts: Sequence[str], without: Sequence[str]) -> NDArray[np.int64] | None:
        """The rows that show all of some concept words and none of others; None for all of them."""
        if not concepts and not without:
            return None
        shown = self._numbers["concepts"][self._rows]
        is_allowed = np.ones(len(self._rows), bool)
        for word in concepts:
            is_allowed &= (shown == self._number(word)).any(axis=1)
        for word in without:
            is_allowed &= ~(shown == self._number(word)).any(axis=1)
        return self._rows[is_allowed]

    def _number(self, word: str) -> int:
        if word not in self._words:
            hint = did_you_mean(word, self._words)
            raise UsageError(
                f"No run of this library looks for {word!r}. {hint}Concept words are single words of the "
                "training captions."
            )
        return self._words.index(word)

    def _hits(self, rows: NDArray[np.int64], scores: Sequence[float], asked: set[str]) -> tuple[Hit, ...]:
        """Of the rows that a file still holds."""
        score_of = dict(zip(rows.tolist(), scores, strict=True))
        hits = []
        for place in self.library.places(rows.tolist()):
            words: list[int] = self._numbers["concepts"][place.row].tolist()
            sure: list[float] = self._numbers["confidences"][place.row].tolist()
            seen = tuple(
                Concept(self._words[word], confidence)
                for word, confidence in zip(words, sure, strict=True)
                if word >= 0
            )
            matched = tuple(each for each in seen if each.word in asked)
            score = score_of[place.row]
            hits.append(Hit(place.file, place.shot.start, place.shot.end, score, seen, matched))
        return tuple(hits)
