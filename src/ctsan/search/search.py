"""Search a library in two stages: a vector search finds candidates, then the joint embeddings rank them."""

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
from ctsan.search.ann_index import AnnIndex
from ctsan.search.encodings import (
    ARRAY_NAMES,
    concept_words,
    embed_runs_covering_query,
    query_vector,
    shot_arrays,
)
from ctsan.search.indexing import load_search_runs, run_fingerprints
from ctsan.search.library import Library
from ctsan.tasks.scoring import ensemble_scores
from ctsan.text.tokens import tokenize
from ctsan.video.shots import Shot

NUM_CANDIDATES = 100  # shots that the first stage passes on

_MIN_SHOTS_TO_JUDGE = 5  # in smaller libraries `has_match` is always True
_SAMPLE_SIZE = 1000  # shots that estimate how a query scores in general


@dataclass(frozen=True, slots=True)
class Hit:
    """A shot found by a search."""

    file: Path
    start: float  # seconds
    end: float
    score: float
    concepts: tuple[Concept, ...]  # by rank
    matched: tuple[Concept, ...]  # those in the query or the filter that affected the result


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, best first.

    Scores for a sentence are those of `ctsan rank`: standard deviations from the mean score on the runs'
    validation clips. Scores for a clip are cosines of the stored vectors.
    """

    hits: tuple[Hit, ...]
    has_match: bool  # False: the best score is below the threshold, so probably nothing matches
    trust: float | None  # accuracy of `has_match` on validation queries; None if it was not judged
    unknown: tuple[str, ...] = ()  # query words that no run has in its vocabulary


class Searcher:
    """An open library. Models are loaded once; arrays and index are memory-mapped.

    Changes that another process makes to the library are visible to the next search.

    Args:
        folder: of the library.
        models: the runs of the library, if they have been moved.
        weights: the backbone's weights, if they are not installed with ctsan.
        loaded: runs in memory, to be reused.

    Raises:
        StoreError: there is no such library, or it was indexed with other weights.
        UsageError: the library is empty.
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
        in_memory = {(run.folder.resolve(), run.task): run for run in loaded}
        self.runs = [
            in_memory.get((run.folder.resolve(), run.task), run)
            for run in load_search_runs(models or [Path(run.folder) for run in self.library.runs])
        ]
        if not self.library.matches_runs(run_fingerprints(self.runs), concept_words(self.runs)):
            raise StoreError(
                f"{folder}: it was indexed with other weights than these runs have now. Delete the library "
                "and index again, or restore those weights."
            )
        self._words = self.library.words
        self._featurizer = ClipFeaturizer(weights)
        self._revision = self._generation = -1
        self._has_index = False
        with self._snapshot():
            if len(self._rows) == 0:
                raise UsageError(
                    f"{folder}: nothing in this library can be searched. Index a folder of clips."
                )

    def search(
        self, query: str, *, n_best: int = 10, concepts: Sequence[str] = (), without: Sequence[str] = ()
    ) -> SearchResult:
        """The shots that match a sentence best.

        Args:
            concepts: keep only shots with all of these concept words.
            without: leave out shots with any of these concept words.

        Raises:
            UsageError: no run has a word of the query in its vocabulary, or a concept word is unknown.
        """
        unknown = unknown_words([run for run in self.runs if run.task == "embed"], {"The query": query})
        with self._snapshot():
            return self._search(query, unknown, n_best, concepts, without)

    def _search(
        self,
        query: str,
        unknown: tuple[str, ...],
        n_best: int,
        concepts: Sequence[str],
        without: Sequence[str],
    ) -> SearchResult:
        if len(self._rows) == 0:
            return SearchResult((), has_match=False, trust=None, unknown=unknown)
        vector = query_vector(self.runs, query, self._words)
        allowed = self._allowed_rows(concepts, without)
        rows = self.index.search(vector, max(NUM_CANDIDATES, n_best), allowed)
        if len(rows) == 0:
            return SearchResult((), has_match=False, trust=None, unknown=unknown)
        cosines = self._cosines(vector, rows)
        scores = self._scores(query, vector, rows)
        order = scores.argsort(descending=True, stable=True)[:n_best].tolist()
        num_shots = len(self._rows if allowed is None else allowed)
        # The second stage ignores concept words, so those of the query matter only if the first stage cut.
        requested = {*(tokenize(query) if len(rows) < num_shots else ()), *concepts}
        hits = self._hits(rows[order], scores[order].tolist(), requested)
        has_match, trust = self._judge_match(query, vector, cosines, num_shots)
        return SearchResult(hits, has_match and bool(hits), trust, unknown)

    def like(
        self, clip: Path, *, n_best: int = 10, concepts: Sequence[str] = (), without: Sequence[str] = ()
    ) -> SearchResult:
        """The shots most similar to a clip, which need not be in the library. A long video is one query.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: a concept word is unknown.
        """
        encodings = self._featurizer.watch(clip, self.runs).encodings
        vector = shot_arrays(self.runs, encodings, self._words)["vectors"][0]
        with self._snapshot():
            return self._like(vector, n_best, concepts, without)

    def like_moment(
        self, hit: Hit, *, n_best: int = 10, concepts: Sequence[str] = (), without: Sequence[str] = ()
    ) -> SearchResult:
        """The shots most similar to a shot of the library, itself first. Uses the stored vector.

        Raises:
            UsageError: the library no longer has the shot, or a concept word is unknown.
        """
        with self._snapshot():
            row = self.library.row_of(hit.file, Shot(hit.start, hit.end))
            if row is None or row >= len(self._vectors):  # the latter: added after the index in use was built
                raise UsageError("The library does not have this moment any more. Search again.")
            return self._like(self._vectors[row], n_best, concepts, without)

    def _like(
        self, stored: NDArray[np.generic], n_best: int, concepts: Sequence[str], without: Sequence[str]
    ) -> SearchResult:
        if len(self._rows) == 0:
            return SearchResult((), has_match=False, trust=None)
        vector: NDArray[np.float32] = stored.astype(np.float32)
        vector /= np.linalg.norm(vector)
        rows = self.index.search(vector, n_best, self._allowed_rows(concepts, without))
        neighbours = self._vectors[rows].astype(np.float32)
        scores = neighbours @ vector / np.linalg.norm(neighbours, axis=1)
        order = np.argsort(-scores, kind="stable")
        hits = self._hits(rows[order], scores[order].tolist(), set(concepts))
        return SearchResult(hits, has_match=bool(hits), trust=None)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A read transaction, in which the arrays and the index match the records."""
        self.library.begin_snapshot()
        try:
            try:
                self._refresh()
            except (FileNotFoundError, RuntimeError):  # a writer has just replaced the arrays or the index
                self.library.end_snapshot()
                self.library.begin_snapshot()
                self._refresh()
            yield
        finally:
            self.library.end_snapshot()

    def _refresh(self) -> None:
        revision, generation, file = self.library.revision, self.library.generation, self.library.index_file
        if revision == self._revision:
            return
        has_index = file.exists()
        if self._has_index and not has_index and generation == self._generation:
            return  # indexing is in progress: use the old index until the new one is written
        rows = self.library.rows()
        if len(rows):
            arrays = {name: self.library.array(name) for name in ARRAY_NAMES}
            self.index = AnnIndex(arrays["vectors"], rows, file if has_index else None)
            self._arrays, self._vectors = arrays, arrays["vectors"]
        self._rows = rows
        self._revision, self._generation, self._has_index = revision, generation, has_index

    def _scores(self, query: str, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> Tensor:
        """Scores of the shots for the query, on the scale of `ctsan rank`."""
        embed_models = [run.loaded for run in self.runs if run.task == "embed"]
        num_covering = len(embed_runs_covering_query(self.runs, query))  # each has weight 1/n in the vector
        cosines, start = [], 0
        for loaded in embed_models:
            dims = slice(start, start := start + loaded.model.joint_dim)
            cosine = self._vectors[rows, dims].astype(np.float32) @ vector[dims] * num_covering
            cosines.append(torch.from_numpy(cosine)[None])
        return ensemble_scores(embed_models, cosines, queries=[query])[0]

    def _cosines(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Mean cosine of the joint embeddings, without the concept sketch."""
        dim = sum(run.loaded.model.joint_dim for run in self.runs if run.task == "embed")
        cosines: NDArray[np.float32] = self._vectors[rows, :dim].astype(np.float32) @ vector[:dim]
        return cosines

    def _judge_match(
        self, query: str, vector: NDArray[np.float32], cosines: NDArray[np.float32], num_shots: int
    ) -> tuple[bool, float | None]:
        """Whether the best of `num_shots` matches the query, and the accuracy of that on validation."""
        if len(self._rows) < _MIN_SHOTS_TO_JUDGE:
            return True, None
        models = [run.loaded.model for run in embed_runs_covering_query(self.runs, query)]
        sample = self._cosines(vector, self._rows[:: max(1, len(self._rows) // _SAMPLE_SIZE)])
        best = float(standardised(torch.tensor([[cosines.max()]]), torch.from_numpy(sample)[None]))
        threshold = sum(model.match_score(num_shots) for model in models) / len(models)
        return best >= threshold, sum(float(model.match_accuracy) for model in models) / len(models)

    def _allowed_rows(self, concepts: Sequence[str], without: Sequence[str]) -> NDArray[np.int64] | None:
        """The rows with all of `concepts` and none of `without`; None if there is no filter."""
        if not concepts and not without:
            return None
        word_ids = self._arrays["concepts"][self._rows]
        is_allowed = np.ones(len(self._rows), bool)
        for word in concepts:
            is_allowed &= (word_ids == self._word_id(word)).any(axis=1)
        for word in without:
            is_allowed &= ~(word_ids == self._word_id(word)).any(axis=1)
        return self._rows[is_allowed]

    def _word_id(self, word: str) -> int:
        if word not in self._words:
            hint = did_you_mean(word, self._words)
            raise UsageError(
                f"No run of this library detects the concept word {word!r}. {hint}Concept words are single "
                "words of the training captions."
            )
        return self._words.index(word)

    def _hits(self, rows: NDArray[np.int64], scores: Sequence[float], requested: set[str]) -> tuple[Hit, ...]:
        """Hits for the rows that a file still refers to."""
        score_of = dict(zip(rows.tolist(), scores, strict=True))
        hits = []
        for location in self.library.locate(rows.tolist()):
            word_ids: list[int] = self._arrays["concepts"][location.row].tolist()
            confidences: list[float] = self._arrays["confidences"][location.row].tolist()
            concepts = tuple(
                Concept(self._words[word_id], confidence)
                for word_id, confidence in zip(word_ids, confidences, strict=True)
                if word_id >= 0
            )
            matched = tuple(concept for concept in concepts if concept.word in requested)
            shot, score = location.shot, score_of[location.row]
            hits.append(Hit(location.file, shot.start, shot.end, score, concepts, matched))
        return tuple(hits)
