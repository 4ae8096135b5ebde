"""The part of the API that is about the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse, Response

from ctsan.search.search import Found, Hit
from ctsan.web import answering, schema
from ctsan.web.catalogue import MEDIA_TYPES, Catalogue, ServedSearcher
from ctsan.web.problems import NoModelError, RequestError, UnknownError
from ctsan.web.routes import FAILURES, JPEG, Serving, as_jpeg, state_of

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
    like: Annotated[str | None, Query(max_length=100, description="Id of a clip, instead.")] = None,
    concept: Words = [],  # noqa: B006 (FastAPI copies it)
    without: Words = [],  # noqa: B006
    n: Annotated[int, Query(ge=1, le=100)] = 12,
) -> schema.SearchAnswer:
    """The moments of the library that suit a sentence best, or are most like a clip."""
    if (query is None) == (like is None):
        raise RequestError("Give either a query, or the id of a clip to find what is like it.")
    filters = {"concepts": concept, "without": without}
    if like is not None:
        clip = service.shelf.find(like)
        await service.settled(clip)

    def ask(searcher: ServedSearcher) -> Found:
        if query is not None:
            return searcher.search(query, n_best=n, **filters)
        return searcher.like(Path(clip.id), n_best=n, **filters)

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


@router.get("/library/{hit_id}/video", response_class=FileResponse)
async def library_video(hit: FoundHit) -> FileResponse:
    """The file in which a moment was found; parts of it by Range."""
    kind = MEDIA_TYPES.get(hit.file.suffix.lower(), "application/octet-stream")
    if not hit.file.is_file():
        raise UnknownError("The file is gone. Index the folder again.")
    return FileResponse(hit.file, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


@router.post("/library/{hit_id}/open", status_code=201)
async def open_hit(service: Serving, hit: FoundHit) -> schema.ClipState:
    """Have the file of a moment read, to ask about it as about an upload."""
    return state_of(service.open(hit.file))
