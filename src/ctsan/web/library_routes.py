"""The part of the API that is about the library."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from ctsan.search.search import Found, Hit
from ctsan.web import answering, schema
from ctsan.web.catalogue import MEDIA_TYPES, Catalogue, ServedSearcher
from ctsan.web.errors import NoModelError, RequestError, UnknownError
from ctsan.web.range_response import PIECE_BYTES, piece_of
from ctsan.web.routes import FAILURES, JPEG, Serving, as_jpeg, state_of
from ctsan.web.service import Service

_LIKE = "Id of a clip, or of a moment that was found, instead."
_PICTURE_BYTES = 32 * 2**20  # browsers want pictures in one piece
_PIECES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"*/*": {}}, "description": "All of a small file."},
    206: {"content": {"*/*": {}}, "description": "A piece; Content-Range says which, and of how many bytes."},
    416: {"model": schema.Failure, "description": "The file ends before that."},
}

Words = Annotated[list[Annotated[str, Query(max_length=100)]], Query(max_length=20)]

router = APIRouter(prefix="/api", responses=FAILURES)


async def _catalogue(service: Serving) -> Catalogue:
    if service.catalogue is None:
        raise NoModelError(
            "This server has no library. Make one and start again: ctsan index FOLDER, then "
            "ctsan serve --library NAME"
        )
    return service.catalogue


Library = Annotated[Catalogue, Depends(_catalogue)]


async def _find_hit(catalogue: Library, hit_id: str) -> Hit:
    return catalogue.find(hit_id)


FoundHit = Annotated[Hit, Depends(_find_hit)]


@router.get("/search")
async def search(
    service: Serving,
    catalogue: Library,
    query: Annotated[str | None, Query(max_length=500, examples=["a dog runs on grass"])] = None,
    like: Annotated[str | None, Query(max_length=100, description=_LIKE)] = None,
    concept: Words = [],  # noqa: B006 (FastAPI copies it)
    without: Words = [],  # noqa: B006
    n: Annotated[int, Query(ge=1, le=100)] = 12,
) -> schema.SearchAnswer:
    """The moments of the library that suit a sentence best, or are most like a clip or another moment."""
    options: dict[str, Any] = {"n_best": n, "concepts": concept, "without": without}
    if query is not None and like is None:
        ask: Callable[[ServedSearcher], Found] = partial(ServedSearcher.search, query=query, **options)
    elif like is not None and query is None:
        ask = await _asking_for_like(service, catalogue, like, options)
    else:
        raise RequestError("Give either a query, or the id of a clip or moment to find what is like it.")
    found, ids = await service.question(lambda: catalogue.search(ask))
    return schema.SearchAnswer(
        has_match=found.has_match,
        trust=found.trust,
        unknown=list(found.unknown),
        hits=[
            schema.FoundMoment(
                id=hit_id,
                name=hit.file.name.encode("utf-8", "replace").decode(),
                is_picture=MEDIA_TYPES.get(hit.file.suffix.lower(), "").startswith("image/"),
                start=hit.start,
                end=hit.end,
                score=hit.score,
                concepts=answering.listed(hit.concepts),
                matched=[each.word for each in hit.matched],
            )
            for hit_id, hit in zip(ids, found.hits, strict=True)
        ],
    )


async def _asking_for_like(
    service: Service, catalogue: Catalogue, like: str, options: dict[str, Any]
) -> Callable[[ServedSearcher], Found]:
    if catalogue.knows(like):
        return partial(ServedSearcher.like_moment, hit=catalogue.find(like), **options)
    try:
        clip = service.shelf.find(like)
    except UnknownError:
        raise UnknownError(
            "There is no such clip or moment, or it was forgotten. Upload it, or search for it, again."
        ) from None
    await service.settled(clip)
    return partial(ServedSearcher.like, clip=Path(clip.id), **options)


@router.get("/library/words")
async def library_words(catalogue: Library) -> list[str]:
    """The concept words that moments of the library can be filtered by."""
    return catalogue.words


@router.get("/library/{hit_id}/thumbnail", responses=JPEG, response_class=Response)
async def thumbnail(service: Serving, catalogue: Library, hit: FoundHit, hit_id: str) -> Response:
    """A small picture from the middle of a moment that was found."""
    picture = catalogue.picture(hit_id)
    if picture is None:
        picture = await service.picture(hit.file, (hit.start + hit.end) / 2)
        catalogue.keep_picture(hit_id, picture)
    return as_jpeg(picture)


@router.head("/library/{hit_id}/video", include_in_schema=False)
@router.get("/library/{hit_id}/video", responses=_PIECES, response_class=Response)
def library_video(hit: FoundHit, request: Request) -> Response:
    """The file in which a moment was found. Large videos come in pieces: ask on by Range, as browsers do."""
    kind = MEDIA_TYPES.get(hit.file.suffix.lower(), "application/octet-stream")
    most = _PICTURE_BYTES if kind.startswith("image/") else PIECE_BYTES
    return piece_of(hit.file, request, media_type=kind, most=most)


@router.post("/library/{hit_id}/open", status_code=201)
async def open_hit(service: Serving, hit: FoundHit) -> schema.ClipState:
    """Have the file of a moment read, to ask about it as about an upload."""
    return state_of(service.open(hit.file))
