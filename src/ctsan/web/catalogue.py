"""The library as clients see it: search hits with opaque ids that do not reveal paths."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.runs.trained_run import TrainedRun
from ctsan.search.search import Hit, Searcher, SearchResult
from ctsan.web.errors import NotFoundError

_MAX_HITS = 5000
_MAX_THUMBNAILS = 1000

MEDIA_TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/mp4",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
    ".ogv": "video/ogg",
    ".gif": "image/gif",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


class ServedSearcher(Searcher):
    """A searcher whose `like` takes the id of a clip in the feature cache instead of a path.

    Args:
        loaded: runs that the server has in memory.
    """

    def __init__(
        self, folder: Path, featurizer: ClipFeaturizer, *, loaded: Sequence[TrainedRun], weights: Path | None
    ) -> None:
        super().__init__(folder, weights=weights, loaded=loaded)
        self._featurizer = featurizer
        for run in self.runs:
            run.load()


class Catalogue:
    """Recent search hits by id, with their thumbnails. Both are bounded; the oldest are dropped first."""

    def __init__(self, name: str, searcher: ServedSearcher) -> None:
        self.name, self.searcher = name, searcher
        self._secret = secrets.token_bytes(32)
        self._hits: OrderedDict[str, Hit] = OrderedDict()
        self._thumbnails: OrderedDict[str, bytes] = OrderedDict()

    @classmethod
    def open(
        cls, folder: Path, featurizer: ClipFeaturizer, *, loaded: Sequence[TrainedRun], weights: Path | None
    ) -> Catalogue:
        """Raises:
        StoreError: there is no such library, or it cannot be used.
        """
        return cls(folder.name, ServedSearcher(folder, featurizer, loaded=loaded, weights=weights))

    def search(self, run_query: Callable[[ServedSearcher], SearchResult]) -> tuple[SearchResult, list[str]]:
        """The result of a query, and an id for each hit."""
        result = run_query(self.searcher)
        return result, [self._register(hit) for hit in result.hits]

    def __contains__(self, hit_id: str) -> bool:
        return hit_id in self._hits

    def get(self, hit_id: str) -> Hit:
        """Raises:
        NotFoundError: the id is unknown, or the hit was dropped.
        """
        hit = self._hits.get(hit_id)
        if hit is None:
            raise NotFoundError("There is no such moment, or it was forgotten. Search again.")
        self._hits.move_to_end(hit_id)
        return hit

    def thumbnail(self, hit_id: str) -> bytes | None:
        return self._thumbnails.get(hit_id)

    def store_thumbnail(self, hit_id: str, jpeg: bytes) -> None:
        self._thumbnails[hit_id] = jpeg
        if len(self._thumbnails) > _MAX_THUMBNAILS:
            self._thumbnails.popitem(last=False)

    def _register(self, hit: Hit) -> str:
        """A keyed hash: while the server runs, a shot keeps its id, so that browsers cache its thumbnail."""
        shot = f"{hit.start} {hit.end} {hit.file}".encode(errors="surrogateescape")
        hit_id = hashlib.blake2b(shot, key=self._secret, digest_size=16).hexdigest()
        self._hits[hit_id] = hit
        self._hits.move_to_end(hit_id)
        if len(self._hits) > _MAX_HITS:
            self._hits.popitem(last=False)
        return hit_id
