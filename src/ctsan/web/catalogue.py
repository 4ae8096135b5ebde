"""The library as clients see it: moments that were found, by ids that say nothing of where files are."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.runs.trained_run import TrainedRun
from ctsan.search.search import Found, Hit, Searcher
from ctsan.web.errors import UnknownError

_REMEMBERED = 5000  # hits
_PICTURES = 1000

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
    """A searcher that is asked for what is like clips which a worker has read, by their ids.

    Args:
        loaded: the runs that the server has in memory already.
    """

    def __init__(
        self, folder: Path, featurizer: ClipFeaturizer, *, loaded: Sequence[TrainedRun], weights: Path | None
    ) -> None:
        super().__init__(folder, weights=weights, loaded=loaded)
        self._featurizer = featurizer
        for run in self.runs:
            run.load()


class Catalogue:
    """Hits that were given out, and small pictures of them."""

    def __init__(self, name: str, searcher: ServedSearcher) -> None:
        self.name, self.searcher = name, searcher
        self.words = list(searcher.library.words)
        self._secret = secrets.token_bytes(32)
        self._hits: OrderedDict[str, Hit] = OrderedDict()
        self._pictures: OrderedDict[str, bytes] = OrderedDict()

    @classmethod
    def open(
        cls, folder: Path, featurizer: ClipFeaturizer, *, loaded: Sequence[TrainedRun], weights: Path | None
    ) -> Catalogue:
        """Raises: StoreError: there is no such library, or it cannot be used."""
        return cls(folder.name, ServedSearcher(folder, featurizer, loaded=loaded, weights=weights))

    def search(self, ask: Callable[[ServedSearcher], Found]) -> tuple[Found, list[str]]:
        """What was found, and an id for each hit."""
        found = ask(self.searcher)
        return found, [self._remember(hit) for hit in found.hits]

    def knows(self, hit_id: str) -> bool:
        return hit_id in self._hits

    def find(self, hit_id: str) -> Hit:
        hit = self._hits.get(hit_id)
        if hit is None:
            raise UnknownError("There is no such moment, or it was forgotten. Search again.")
        self._hits.move_to_end(hit_id)
        return hit

    def picture(self, hit_id: str) -> bytes | None:
        return self._pictures.get(hit_id)

    def keep_picture(self, hit_id: str, picture: bytes) -> None:
        self._pictures[hit_id] = picture
        if len(self._pictures) > _PICTURES:
            self._pictures.popitem(last=False)

    def _remember(self, hit: Hit) -> str:
        """The same moment has the same id as long as the server runs, so that browsers keep its picture."""
        place = f"{hit.start} {hit.end} {hit.file}".encode(errors="surrogateescape")
        hit_id = hashlib.blake2b(place, key=self._secret, digest_size=16).hexdigest()
        self._hits[hit_id] = hit
        self._hits.move_to_end(hit_id)
        if len(self._hits) > _REMEMBERED:
            self._hits.popitem(last=False)
        return hit_id
