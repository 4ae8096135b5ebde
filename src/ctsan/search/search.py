"""Search a library in two stages: a vector search finds candidates, then the joint embeddings rank them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import StoreError, UsageError
from ctsan.inference.ensemble import (
    combined_scores,
    covers_query,
    ensemble_scores,
    match_threshold,
    models_covering_query,
)
from ctsan.inference.loaded_model import LoadedModel
from ctsan.inference.query_words import QueryReader, ReadQuery
from ctsan.inference.results import Concept, Correction
from ctsan.search.encodings import (
    Vector,
    concept_words,
    embed_query,
    joint_embeddings,
    shot_arrays,
    vector_dim,
)
from ctsan.search.filters import (
    NOT_SHOWN,
    NOT_SHOWN_PERSON,
    SHOWN,
    ConceptWords,
    FilterCount,
)
from ctsan.search.models import load_search_models, run_fingerprints, stored_folders
from ctsan.search.opening import LibraryAddress, open_library
from ctsan.search.store import ConceptFilter, Shots, ShownWords
from ctsan.text.tokens import tokenize
from ctsan.video.shots import Shot

if TYPE_CHECKING:
    from ctsan.inference.encoded_clip import AnyClip
    from ctsan.inference.featurizer import ClipFeaturizer

NUM_CANDIDATES = 100  # shots that the first stage passes on

_MIN_SHOTS_TO_JUDGE = 10  # among fewer, a match is not judged
_STANDS_OUT = 1.0  # the best score alone is a match so far above the threshold: bench/nothing_matches.py
_NEGATIONS = frozenset({"no", "without"})
_SAMPLE_SIZE = 1000  # shots that estimate how a query scores in general
_MOST_COPIES = 50  # shots of a clip, and of copies of it, that are looked for to leave them out
_SAME_CLIP = 0.9999  # least cosine of a clip with itself, in half precision
_ARTICLES = ("a", "an", "the")
_NEWEST_ROWS = 5000  # shots among which the newest files are looked for


@dataclass(frozen=True, slots=True)
class Hit:
    """A shot found by a search."""

    file: Path
    start: float  # seconds
    end: float
    score: float
    concepts: tuple[Concept, ...]  # by rank
    matched: tuple[Concept, ...]  # words that a filter asks for, each with the confidence of its surest form
    caption: str | None = None  # of the shot, made when it was indexed; None if no run describes
    host: str | None = None  # the machine that has the file, if it is another than this
    versions: frozenset[tuple[int, int]] = frozenset()  # sizes and dates (ns) of its files, as indexed


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, best first.

    Scores for a sentence are those of `ctsan rank`: standard deviations from the mean score on the runs'
    validation clips. Scores for a clip are cosines of the stored vectors. Without either, they are the
    confidences of the concept words that were asked for.
    """

    hits: tuple[Hit, ...]
    has_match: bool  # False: probably nothing matches, or there are no hits
    is_judged: bool  # False: a match is not judged, because of no or several sentences, or too few shots
    match_accuracy: (
        float | None
    )  # accuracy of `has_match` on validation sentences; None for a word, or if not judged
    unknown: tuple[str, ...] = ()  # query words that no run has in its vocabulary
    searched_for: str | None = None  # the query as it was read; None without one
    corrections: tuple[Correction, ...] = ()  # typed words that were read as others
    filters: tuple[FilterCount, ...] = ()
    num_shots: int = 0  # of the library
    num_allowed: int = 0  # of these, the ones that pass the filters
    skipped: int = 0  # better hits that were left out

    @property
    def negated(self) -> str | None:
        """The word after a "no" or "without" of the query, which a sentence does not exclude."""
        words = tokenize(self.searched_for or "")
        return next((word for before, word in pairwise(words) if before in _NEGATIONS), None)


@dataclass(frozen=True, slots=True)
class _Part:
    """A sentence of a query, which is added or subtracted."""

    text: str
    vector: Vector
    weight: float


@dataclass(frozen=True, eq=False)
class _Selection:
    """The shots that pass the filters, and the filters."""

    shots: Shots
    where: ConceptFilter
    filters: tuple[FilterCount, ...]
    asked_for: tuple[str, ...]  # concept words

    @cached_property
    def count(self) -> int:
        return self.shots.count(self.where)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """All of them, in ascending order."""
        return self.shots.sample(max(1, self.count), self.where)

    def nearest(self, vector: Vector, k: int) -> NDArray[np.int64]:
        return self.shots.nearest(vector, k, self.where)


class Searcher:
    """An open library. Models are loaded once; arrays and index of a folder are memory-mapped.

    Changes that another process makes to the library are visible to the next search.

    Args:
        address: the folder of the library, or where it is in PostgreSQL: see `library_address`.
        models: the runs of the library, if they have been moved.
        weights: the backbone's weights, if they are not installed with ctsan.
        loaded: models in memory, to be reused.

    Raises:
        StoreError: there is no such library, it is damaged, or it was indexed with other weights.
        UsageError: the library is empty.
    """

    def __init__(
        self,
        address: LibraryAddress,
        *,
        models: Sequence[Path] = (),
        weights: Path | None = None,
        loaded: Sequence[LoadedModel] = (),
    ) -> None:
        self.library = open_library(address)
        in_memory = {(model.folder.resolve(), model.task): model for model in loaded}
        self.models = [
            in_memory.get((model.folder.resolve(), model.task), model)
            for model in load_search_models(models or stored_folders(self.library.runs))
        ]
        self._embeddings = joint_embeddings(self.models)
        self._dim = vector_dim(self.models)
        if not self._has_same_runs():
            raise StoreError(
                f"{address}: it was indexed with other weights than these runs have now. Delete the library "
                "and index again, or restore those weights."
            )
        self._words = self.library.words
        self._weights = weights
        self._last_shots: Shots | None = None
        with self._snapshot():
            if len(self.shots) == 0:
                raise UsageError(
                    f"{address}: nothing in this library can be searched. Index a folder of clips."
                )

    @cached_property
    def _featurizer(self) -> ClipFeaturizer:
        from ctsan.inference.featurizer import ClipFeaturizer  # only a query by clip decodes anything

        return ClipFeaturizer(self._weights)

    def _has_same_runs(self) -> bool:
        """Whether the library was indexed with these runs, without loading those that only name concepts."""
        current = run_fingerprints(self.models)
        stored = [(run.task, run.weights) for run in self.library.runs]
        if [(run.task, run.weights) for run in current] == stored:
            return True
        return self.library.matches_runs(current, concept_words(self.models))

    def search(
        self,
        query: str | None = None,
        *,
        n_best: int = 10,
        skip: int = 0,
        concepts: Sequence[str] = (),
        without: Sequence[str] = (),
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        min_score: float | None = None,
    ) -> SearchResult:
        """The shots that match a sentence best; without one, those that surely show the concept words.

        The score with further sentences is the mean of the scores of `query` and `plus`, less the scores of
        `minus`. Whether anything matches is judged for a sentence alone.

        Args:
            skip: best hits to leave out, for the pages after the first.
            concepts: keep only shots that show all of these concept words.
            without: leave out shots that may show any of these concept words.
            plus: sentences to add.
            minus: sentences to subtract.
            min_score: leave out hits with a lower score.

        Raises:
            UsageError: no run knows a word of a sentence, no concept word is like that of a filter, or
                nothing is asked for.
        """
        if query is None and plus:
            query, *plus = plus
        if query is None and (minus or not concepts):
            raise UsageError("Nothing is searched for. Give a sentence, or concept words to show.")
        read = None if query is None else self._reader.read(query)
        added = [self._reader.read(text) for text in plus]
        subtracted = [self._reader.read(text) for text in minus]
        with self._snapshot():
            selection = self.select(concepts, without)
            if read is None:
                return self._page(*self._by_confidence(selection), selection, n_best, skip, min_score)
            parts = self._parts([read, *added], subtracted)
            result = self._search(read, parts, selection, n_best, skip, min_score)
        parts_read = [*added, *subtracted]
        return replace(
            result,
            corrections=result.corrections + tuple(fix for part in parts_read for fix in part.corrections),
            unknown=result.unknown + tuple(word for part in parts_read for word in part.unknown),
        )

    def _parts(self, added: Sequence[ReadQuery], subtracted: Sequence[ReadQuery]) -> list[_Part]:
        weighted = [(read, 1 / len(added)) for read in added] + [(read, -1.0) for read in subtracted]
        return [_Part(read.text, embed_query(self.models, read.text), weight) for read, weight in weighted]

    def _search(
        self,
        read: ReadQuery,
        parts: Sequence[_Part],
        selection: _Selection,
        n_best: int,
        skip: int,
        min_score: float | None,
    ) -> SearchResult:
        vector: Vector = np.sum([part.vector * np.float32(part.weight) for part in parts], axis=0)
        rows = selection.nearest(vector, max(NUM_CANDIDATES, skip + n_best))
        if len(rows) == 0:
            return self._page(rows, np.zeros(0, np.float32), selection, n_best, skip, None, read)
        scores = combined_scores(
            [self.scores(part.text, part.vector, rows) for part in parts], [part.weight for part in parts]
        )
        order = np.argsort(-scores, kind="stable")
        rows, scores = rows[order], scores[order]
        judged = None
        if len(parts) == 1:
            sample = self.shots.sample(_SAMPLE_SIZE, selection.where)
            judged = self.judge_match(read.text, vector, rows, sample, selection.count)
        return self._page(rows, scores, selection, n_best, skip, min_score, read, judged)

    def _by_confidence(self, selection: _Selection) -> tuple[NDArray[np.int64], Vector]:
        """Rows by the least of their confidences of the concept words that are asked for."""
        rows = selection.rows
        least = np.ones(len(rows), np.float32)
        for word in selection.asked_for:
            least = np.minimum(least, self.confidences(self._concept_words.meant_by(word).forms, rows))
        order = np.argsort(-least, kind="stable")
        return rows[order], least[order]

    def _page(
        self,
        rows: NDArray[np.int64],
        scores: Vector,
        selection: _Selection,
        n_best: int,
        skip: int,
        min_score: float | None,
        read: ReadQuery | None = None,
        judged: tuple[bool, float | None] | None = None,
    ) -> SearchResult:
        """The result with some of the rows, which are given best first."""
        if min_score is not None:
            rows, scores = rows[scores >= min_score], scores[scores >= min_score]
        page = slice(skip, skip + n_best)
        hits = self._hits(rows[page], scores[page].tolist(), selection.asked_for)
        return SearchResult(
            hits,
            has_match=bool(hits) and (judged is None or judged[0]),
            is_judged=judged is not None,
            match_accuracy=None if judged is None else judged[1],
            unknown=() if read is None else read.unknown,
            searched_for=None if read is None else read.text,
            corrections=() if read is None else read.corrections,
            filters=selection.filters,
            num_shots=len(self.shots),
            num_allowed=selection.count,
            skipped=min(skip, len(rows)),
        )

    def like(
        self,
        clip: AnyClip,
        *,
        also: Sequence[AnyClip] = (),
        n_best: int = 10,
        skip: int = 0,
        concepts: Sequence[str] = (),
        without: Sequence[str] = (),
        min_score: float | None = None,
        exclude_itself: bool = False,
    ) -> SearchResult:
        """The shots most similar to a clip, which need not be in the library. A long video is one query.

        Args:
            also: further clips. The query is then the mean of the clips' vectors.
            exclude_itself: leave out shots of the same files, and of copies of them.

        Raises:
            VideoError: the clip cannot be read.
            UsageError: no concept word is like that of a filter.
        """
        from ctsan.inference.encoded_clip import EncodedClip

        clips = [clip, *also]
        encoded = [
            one if isinstance(one, EncodedClip) else EncodedClip(self._featurizer.featurize(one, self.models))
            for one in clips
        ]
        vectors = shot_arrays(self.models, encoded, self._words)["vectors"].astype(np.float32)
        files = {Path(one).absolute() for one in clips if isinstance(one, str | Path)}
        with self._snapshot():
            selection = self.select(concepts, without)
            excluded = (files, vectors) if exclude_itself else None
            return self._like(vectors, selection, n_best, skip, min_score, excluded)

    def like_moment(
        self,
        hit: Hit,
        *,
        n_best: int = 10,
        skip: int = 0,
        concepts: Sequence[str] = (),
        without: Sequence[str] = (),
        exclude_itself: bool = False,
    ) -> SearchResult:
        """The shots most similar to a shot of the library, itself first. Uses the stored vector.

        Args:
            exclude_itself: leave out the shot, and copies of it.

        Raises:
            UsageError: the library no longer has the shot, or no concept word is like that of a filter.
        """
        with self._snapshot():
            row = self.library.row_of(hit.file, Shot(hit.start, hit.end), hit.host)
            rows = self.shots.known([] if row is None else [row])
            if len(rows) == 0:
                raise UsageError("The library does not have this moment any more. Search again.")
            vectors = self.shots.vectors(rows).astype(np.float32)
            excluded = (set[Path](), vectors) if exclude_itself else None
            return self._like(vectors, self.select(concepts, without), n_best, skip, None, excluded)

    def _like(
        self,
        vectors: Vector,
        selection: _Selection,
        n_best: int,
        skip: int,
        min_score: float | None,
        excluded: tuple[Set[Path], Vector] | None,
    ) -> SearchResult:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        vector: Vector = unit.mean(axis=0)
        vector /= np.linalg.norm(vector)
        num_rows = skip + n_best + (_MOST_COPIES * len(vectors) if excluded else 0)
        rows = selection.nearest(vector, num_rows)
        if len(rows) == 0:
            return self._page(rows, np.zeros(0, np.float32), selection, n_best, skip, None)
        neighbours = self.shots.vectors(rows).astype(np.float32)
        neighbours /= np.linalg.norm(neighbours, axis=1, keepdims=True)
        scores: Vector = neighbours @ vector
        order = np.argsort(-scores, kind="stable")
        if excluded is not None:
            files, _ = excluded
            is_copy = (neighbours @ unit.T).max(axis=1) >= _SAME_CLIP
            rows_of_files = {
                location.row
                for location in self.library.locate(rows.tolist())
                if location.file in files and location.host is None
            }
            order = np.array(
                [place for place in order if not is_copy[place] and int(rows[place]) not in rows_of_files],
                int,
            )
        return self._page(rows[order], scores[order], selection, n_best, skip, min_score)

    def thumbnail(self, hit: Hit) -> bytes | None:
        """The JPEG of a hit, made when it was indexed; None if the library has none, or not any more."""
        with self._snapshot():
            row = self.library.row_of(hit.file, Shot(hit.start, hit.end), hit.host)
            return None if row is None else self.library.thumbnail(row)

    def moment(self, file: Path, shot: Shot, host: str | None = None) -> Hit | None:
        """A shot of the library as a hit with a score of 0; None if the library does not have it.

        Args:
            host: the machine that has the file; None if it is this one.
        """
        with self._snapshot():
            row = self.library.row_of(file, shot, host)
            return next(iter(self._moments(file, host, [] if row is None else [row])), None)

    def moments_of(self, file: Path, host: str | None = None) -> tuple[Hit, ...]:
        """All shots of a file in order, as hits with a score of 0.

        Args:
            host: the machine that has the file; None if it is this one.
        """
        with self._snapshot():
            rows = [location.row for location in self.library.shots_of(file, host)]
            return self._moments(file, host, rows)

    def _moments(self, file: Path, host: str | None, rows: Sequence[int]) -> tuple[Hit, ...]:
        known = self.shots.known(rows)
        hits = self._hits(known, [0.0] * len(known))
        return tuple(replace(hit, file=file, host=host) for hit in hits)

    def newest(self, n_best: int) -> tuple[Hit, ...]:
        """The first shot of each of the files that were indexed last, the last one first."""
        files: list[tuple[Path, str | None]] = []
        with self._snapshot():
            for row in self.shots.last(_NEWEST_ROWS).tolist():
                for location in self.library.locate([row]):
                    if (location.file, location.host) not in files:
                        files.append((location.file, location.host))
                if len(files) == n_best:
                    break
        return tuple(hits[0] for file in files if (hits := self.moments_of(*file)))

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A read transaction, in which `shots` are those that can be found."""
        self.library.begin_snapshot()
        try:
            try:
                self._last_shots = self.library.shots(self._dim, self._last_shots)
            except (FileNotFoundError, StoreError):  # a writer may just have replaced the arrays or the index
                self.library.end_snapshot()
                self.library.begin_snapshot()
                self._last_shots = self.library.shots(self._dim, self._last_shots)
            yield
        finally:
            self.library.end_snapshot()

    @property
    def shots(self) -> Shots:
        """The shots of the last snapshot."""
        assert self._last_shots is not None
        return self._last_shots

    def scores(
        self, query: str, vector: Vector, rows: NDArray[np.int64], *, standardise: bool | None = None
    ) -> Vector:
        """Scores of the shots for the query, on the scale of `ctsan rank` or standardised."""
        num_covering = covers_query(self._embeddings, [query]).sum()  # each has weight 1/n in the vector
        vectors = self.shots.vectors(rows).astype(np.float32)
        cosines, start = [], 0
        for model in self._embeddings:
            dims = slice(start, start := start + model.joint_dim)
            cosine = vectors[:, dims] @ vector[dims] * np.float32(num_covering)
            cosines.append(cosine[None])
        [scores] = ensemble_scores(self._embeddings, cosines, queries=[query], standardise=standardise)
        return np.asarray(scores)

    def judge_match(
        self,
        query: str,
        vector: Vector,
        best_rows: NDArray[np.int64],
        among: NDArray[np.int64],
        num_among: int | None = None,
    ) -> tuple[bool, float | None] | None:
        """Whether the query has a match among some rows, and the accuracy of that on validation sentences.

        None if they are too few, or the runs were trained without a threshold. A single word is judged
        hardly better than by chance (docs/search.md): its accuracy is None.

        Args:
            best_rows: best first.
            among: all rows, or a sample.
            num_among: the number of all, if `among` is a sample.
        """
        num_among = len(among) if num_among is None else num_among
        models = models_covering_query(self._embeddings, query)
        top_k = min(model.settings.retrieval.match_top_k for model in models)
        if num_among < _MIN_SHOTS_TO_JUDGE or top_k == 0:
            return None
        best = self.scores(query, vector, best_rows[:top_k], standardise=True)
        sample = self.scores(query, vector, among[:: max(1, len(among) // _SAMPLE_SIZE)], standardise=True)
        statistic = float(best.mean() + sample.mean())
        threshold, accuracy = match_threshold(models, num_among)
        # The statistic asks for several good hits, and would miss the only clip of its kind.
        is_match = statistic >= threshold or float(best.max()) >= threshold + _STANDS_OUT
        return is_match, accuracy if _is_sentence(query) else None

    def select(self, concepts: Sequence[str], without: Sequence[str]) -> _Selection:
        """The shots that show all of `concepts` and that surely show none of `without`."""
        filters: list[FilterCount] = []
        showing: list[ShownWords] = []
        hiding: list[ShownWords] = []
        for word, is_excluded in [(word, False) for word in concepts] + [(word, True) for word in without]:
            meant = self._concept_words.meant_by(word)
            least = SHOWN if not is_excluded else NOT_SHOWN_PERSON if meant.is_person else NOT_SHOWN
            shown = ShownWords(meant.forms, least)
            count = self.shots.count(ConceptFilter((shown,)))
            filters.append(FilterCount(word, meant.read_as, is_excluded, count))
            (hiding if is_excluded else showing).append(shown)
        where = ConceptFilter(tuple(showing), tuple(hiding))
        return _Selection(self.shots, where, tuple(filters), tuple(concepts))

    @cached_property
    def _reader(self) -> QueryReader:
        return QueryReader(self._embeddings)

    @cached_property
    def _concept_words(self) -> ConceptWords:
        return ConceptWords(self._words, self._embeddings)

    def confidences(self, words: Sequence[str], rows: NDArray[np.int64]) -> Vector:
        """The largest confidence of any of the words in each row."""
        return self.shots.confidences(words, rows)

    def _hits(
        self, rows: NDArray[np.int64], scores: Sequence[float], asked_for: Sequence[str] = ()
    ) -> tuple[Hit, ...]:
        """Hits for the rows that a file still refers to.

        Raises:
            StoreError: their numbers are damaged.
        """
        score_of = dict(zip(rows.tolist(), scores, strict=True))
        concepts_of = self.shots.concepts(rows.tolist())
        captions = self.library.captions(rows.tolist())
        matched_of: dict[int, list[Concept]] = {row: [] for row in rows.tolist()}
        for word in asked_for:
            meant = self._concept_words.meant_by(word)
            for row, confidence in zip(
                rows.tolist(), self.confidences(meant.forms, rows).tolist(), strict=True
            ):
                matched_of[row].append(Concept(meant.read_as, confidence))
        hits = []
        for location in self.library.locate(rows.tolist()):
            row, shot = location.row, location.shot
            concepts = tuple(
                Concept(self._words[word_id], confidence) for word_id, confidence in concepts_of[row]
            )
            hits.append(
                Hit(
                    location.file,
                    shot.start,
                    shot.end,
                    score_of[row],
                    concepts,
                    matched=tuple(matched_of[row]),
                    caption=captions.get(row),
                    host=location.host,
                    versions=location.versions,
                )
            )
        return tuple(hits)


def _is_sentence(query: str) -> bool:
    """Whether a query has more than one word, articles aside."""
    return len([word for word in tokenize(query) if word not in _ARTICLES]) > 1
