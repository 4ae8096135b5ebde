"""The library as clients see it: moments with ids that do not reveal paths, thumbnails, and what is in it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctsan.errors import UsageError
from ctsan.inference.loaded_model import LoadedModel
from ctsan.search.filters import SHOWN
from ctsan.search.opening import LibraryAddress
from ctsan.search.search import Hit, Searcher, SearchResult
from ctsan.video.shots import Shot
from ctsan.web.errors import GoneError, NotFoundError

_MAX_HITS = 5000
_MAX_PICTURES = 1000
_NUM_CANDIDATES = 24  # moments whose captions may become example searches
_NUM_SEARCHES = 4
_NUM_CLIPS = 12
_NUM_WORDS = 10  # that a search can be narrowed by
_MAX_COUNTED = 20_000  # shots of a library whose concept words are counted for each search
_MAX_UNREAD = 50  # files that are named
_DIGEST_BYTES = 12
_TIMES = struct.Struct("<dd")

_SUFFIXES = {
    "video/mp4": (".mp4", ".m4v", ".mov", ".qt", ".f4v"),
    "video/3gpp": (".3gp", ".3g2"),
    "video/webm": (".webm",),
    "video/x-matroska": (".mkv",),
    "video/x-msvideo": (".avi", ".divx"),
    "video/mpeg": (".mpg", ".mpeg", ".mpe", ".m2v", ".vob"),
    "video/ogg": (".ogv", ".ogm"),
    "video/x-ms-wmv": (".wmv", ".asf"),
    "video/x-flv": (".flv",),
    "video/mp2t": (".ts", ".mts", ".m2ts"),
    "image/gif": (".gif",),
    "image/apng": (".apng",),
    "image/jpeg": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "image/png": (".png",),
    "image/webp": (".webp",),
    "image/avif": (".avif",),
    "image/bmp": (".bmp",),
    "image/tiff": (".tif", ".tiff"),
    "image/heic": (".heic", ".heif", ".hif"),
}
MEDIA_TYPES = {suffix: media_type for media_type, suffixes in _SUFFIXES.items() for suffix in suffixes}


@dataclass(frozen=True, slots=True)
class Overview:
    """What is in a library: counts, the clips that were indexed last, and searches that have answers."""

    num_files: int
    num_shots: int
    unread: tuple[tuple[Path, str], ...]  # files that could not be read, with the reason
    num_unread: int
    clips: tuple[tuple[str, Hit], ...]  # with their ids
    searches: tuple[str, ...]


class Pictures:
    """JPEGs by key; beyond a number of them the oldest are dropped."""

    def __init__(self) -> None:
        self._pictures: OrderedDict[str, bytes] = OrderedDict()

    def get(self, key: str) -> bytes | None:
        return self._pictures.get(key)

    def store(self, key: str, jpeg: bytes) -> None:
        self._pictures[key] = jpeg
        if len(self._pictures) > _MAX_PICTURES:
            self._pictures.popitem(last=False)


class Catalogue:
    """Moments of a library by id. Those in memory are bounded; the oldest are dropped first.

    Every method that reads the library must be called in the thread that opened it.
    """

    def __init__(self, name: str, searcher: Searcher, pictures: Pictures) -> None:
        self.name, self.searcher = name, searcher
        self._pictures = pictures
        self._hits: OrderedDict[str, Hit] = OrderedDict()
        self._files: dict[bytes, Path] = {}  # by digest of the path
        self._files_revision = -1
        self._overview: Overview | None = None
        self._overview_revision = -1

    @classmethod
    def open(
        cls,
        address: LibraryAddress,
        *,
        loaded: Sequence[LoadedModel],
        weights: Path | None,
        pictures: Pictures,
    ) -> Catalogue:
        """Open a library and load its models.

        Args:
            loaded: models that the server has in memory.
            pictures: gets the thumbnails of what is found, by the id of the moment.

        Raises:
            StoreError: there is no such library, or it cannot be used.
        """
        searcher = Searcher(address, weights=weights, loaded=loaded)
        for model in searcher.models:
            model.load()
        return cls(address.name, searcher, pictures)

    def search(self, run_query: Callable[[Searcher], SearchResult]) -> tuple[SearchResult, list[str]]:
        """The result of a query, and an id for each hit."""
        result = run_query(self.searcher)
        return result, [self._register_with_thumbnail(hit) for hit in result.hits]

    def narrowing(
        self, result: SearchResult, concepts: Sequence[str], without: Sequence[str]
    ) -> Sequence[tuple[str, int | None]]:
        """Concept words that the hits share, each with the number of shots that are left if it is asked for.

        The words that are asked for or excluded already are left out. A large library is not counted through.
        """
        common = Counter(
            concept.word for hit in result.hits for concept in hit.concepts if concept.confidence >= SHOWN
        )
        words = [word for word, _ in common.most_common() if word not in (*concepts, *without)]
        if result.num_shots > _MAX_COUNTED:
            return [(word, None) for word in words[:_NUM_WORDS]]
        counted = [(word, self._num_showing([*concepts, word], without)) for word in words[: 2 * _NUM_WORDS]]
        return [(word, number) for word, number in counted if number][:_NUM_WORDS]

    def _num_showing(self, concepts: Sequence[str], without: Sequence[str]) -> int:
        return self.searcher.search(n_best=1, concepts=concepts, without=without).num_allowed

    def thumbnail(self, hit: Hit) -> bytes | None:
        """The thumbnail that was made when the moment was indexed; None if there is none."""
        return self.searcher.thumbnail(hit)

    def check(self, hit: Hit) -> None:
        """Check that the moment of a hit is still in the library, which may have been indexed again.

        Raises:
            GoneError: the library no longer has the moment.
        """
        if self.searcher.moment(hit.file, Shot(hit.start, hit.end), hit.host) is None:
            raise GoneError("The library does not have this moment any more. Search again.")

    def known(self, hit_id: str) -> Hit | None:
        """A moment that was found or opened not long ago."""
        hit = self._hits.get(hit_id)
        if hit is not None:
            self._hits.move_to_end(hit_id)
        return hit

    def find(self, hit_id: str) -> Hit:
        """A moment of the library; an id is valid for as long as the library has the shot.

        Raises:
            NotFoundError: the library does not have the moment.
        """
        known = self.known(hit_id)
        if known is not None:
            return known
        parts = _parse(hit_id)
        file = self._files_by_digest().get(parts[0]) if parts else None
        hit = self.searcher.moment(file, parts[1]) if parts and file else None
        if hit is None:
            raise NotFoundError(
                "The library has no such moment. Its file may have changed or gone since: search again."
            )
        self._register(hit)
        return hit

    def shots(self, hit: Hit) -> list[tuple[str, Hit]]:
        """All shots of the file of a moment, with their ids."""
        return [(self._register(shot), shot) for shot in self.searcher.moments_of(hit.file, hit.host)]

    def overview(self) -> Overview:
        revision = self.searcher.library.revision
        if self._overview is None or revision != self._overview_revision:
            library = self.searcher.library
            clips = self.searcher.newest(_NUM_CLIPS)
            errors = library.errors()
            self._overview = Overview(
                num_files=len(library.files()) - len(errors),
                num_shots=library.num_shots(),
                unread=tuple(
                    (path, error.removeprefix(f"{path}: "))
                    for path, error in list(errors.items())[:_MAX_UNREAD]
                ),
                num_unread=len(errors),
                clips=tuple((self._register_with_thumbnail(hit), hit) for hit in clips),
                searches=self._example_searches(),
            )
            self._overview_revision = revision
        return self._overview

    def _example_searches(self) -> tuple[str, ...]:
        """Captions of the newest moments, or their first concept words: those that match something best."""
        hits = self.searcher.newest(_NUM_CANDIDATES)
        queries = [hit.caption or (hit.concepts[0].word if hit.concepts else None) for hit in hits]
        scores = {query: self._match_score(query) for query in queries if query is not None}
        found = {query: score for query, score in scores.items() if score is not None}
        return tuple(sorted(found, key=lambda query: -found[query])[:_NUM_SEARCHES])

    def _match_score(self, query: str) -> float | None:
        """The best score of a query; None if nothing matches."""
        try:
            result = self.searcher.search(query, n_best=1)
        except UsageError:  # none of its words is known
            return None
        return result.hits[0].score if result.has_match else None

    def _files_by_digest(self) -> dict[bytes, Path]:
        revision = self.searcher.library.revision
        if revision != self._files_revision:
            self._files = {_path_digest(path): path for path in self.searcher.library.files()}
            self._files_revision = revision
        return self._files

    def _register_with_thumbnail(self, hit: Hit) -> str:
        """Read the thumbnail now: the browser asks for it next, when this thread may be busy."""
        hit_id = self._register(hit)
        if self._pictures.get(hit_id) is None and (jpeg := self.searcher.thumbnail(hit)):
            self._pictures.store(hit_id, jpeg)
        return hit_id

    def _register(self, hit: Hit) -> str:
        hit_id = moment_id(hit)
        self._hits[hit_id] = hit
        self._hits.move_to_end(hit_id)
        if len(self._hits) > _MAX_HITS:
            self._hits.popitem(last=False)
        return hit_id


def moment_id(hit: Hit) -> str:
    """A digest of the path, and the times. The same after a restart, so that a link stays valid."""
    parts = _path_digest(hit.file, hit.host) + _TIMES.pack(hit.start, hit.end)
    return base64.urlsafe_b64encode(parts).decode().rstrip("=")


def _parse(hit_id: str) -> tuple[bytes, Shot] | None:
    """The digest of the path and the times of a `moment_id`; None if it is none."""
    try:
        parts = base64.b64decode(hit_id + "=" * (-len(hit_id) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(parts) != _DIGEST_BYTES + _TIMES.size:
        return None
    return parts[:_DIGEST_BYTES], Shot(*_TIMES.unpack(parts[_DIGEST_BYTES:]))


def _path_digest(path: Path, host: str | None = None) -> bytes:
    """Of a path on another machine, also of that machine's name."""
    named = os.fsencode(path) if host is None else f"{host}\0".encode() + os.fsencode(path)
    return hashlib.blake2b(named, digest_size=_DIGEST_BYTES, person=b"ctsan moment").digest()
