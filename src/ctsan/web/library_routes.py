"""The part of the JSON API that is about the library."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from ctsan.search.search import Hit, SearchResult
from ctsan.web import answering, schema
from ctsan.web.catalogue import MEDIA_TYPES, Catalogue, ServedSearcher
from ctsan.web.errors import NoModelError, NotFoundError, RequestError
from ctsan.web.range_response import MAX_RANGE_BYTES, range_response
from ctsan.web.routes import ERROR_RESPONSES, JPEG, ServiceDep, clip_state_answer, jpeg_response
from ctsan.web.service import Service

_LIKE = "Instead of `query`: the id of a clip or of a hit, to find similar moments."
_MAX_PICTURE_BYTES = 32 * 2**20  # browsers do not request pictures by range
_RANGE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"*/*": {}}, "description": "The whole of a small file."},
    206: {"content": {"*/*": {}}, "description": "A range of the file, given by Content-Range."},
    416: {"model": schema.ErrorResponse, "description": "The range starts beyond the end of the file."},
}

Words = Annotated[list[Annotated[str, Query(max_length=100)]], Query(max_length=20)]

router = APIRouter(prefix="/api", responses=ERROR_RESPONSES)


async def _get_catalogue(service: ServiceDep) -> Catalogue:
    if service.catalogue is None:
        raise NoModelError(
            "This server has no library. Make one and start again: ctsan index FOLDER, then "
            "ctsan serve --library NAME"
        )
    return service.catalogue


CatalogueDep = Annotated[Catalogue, Depends(_get_catalogue)]


async def _get_hit(catalogue: CatalogueDep, hit_id: str) -> Hit:
    return catalogue.get(hit_id)


HitDep = Annotated[Hit, Depends(_get_hit)]


@router.get("/search")
async def search(
    service: ServiceDep,
    catalogue: CatalogueDep,
    query: Annotated[str | None, Query(max_length=500, examples=["a dog runs on grass"])] = None,
    like: Annotated[str | None, Query(max_length=100, description=_LIKE)] = None,
    concept: Words = [],  # noqa: B006 (FastAPI copies it)
    without: Words = [],  # noqa: B006
    n: Annotated[int, Query(ge=1, le=100)] = 12,
) -> schema.SearchAnswer:
    """The moments of the library that match a sentence best, or are most similar to a clip or a hit."""
    options: dict[str, Any] = {"n_best": n, "concepts": concept, "without": without}
    if query is not None and like is None:
        run_query: Callable[[ServedSearcher], SearchResult] = partial(
            ServedSearcher.search, query=query, **options
        )
    elif like is not None and query is None:
        run_query = await _similarity_query(service, catalogue, like, options)
    else:
        raise RequestError("Give either 'query', or in 'like' the id of a clip or moment.")
    result, ids = await service.run_queued(lambda: catalogue.search(run_query))
    return schema.SearchAnswer(
        has_match=result.has_match,
        trust=result.trust,
        unknown=list(result.unknown),
        hits=[
            schema.SearchHit(
                id=hit_id,
                name=hit.file.name.encode("utf-8", "replace").decode(),
                is_picture=MEDIA_TYPES.get(hit.file.suffix.lower(), "").startswith("image/"),
                start=hit.start,
                end=hit.end,
                score=hit.score,
                concepts=answering.concept_list(hit.concepts),
                matched=[concept.word for concept in hit.matched],
            )
            for hit_id, hit in zip(ids, result.hits, strict=True)
        ],
    )


async def _similarity_query(
    service: Service, catalogue: Catalogue, like: str, options: dict[str, Any]
) -> Callable[[ServedSearcher], SearchResult]:
    if like in catalogue:
        return partial(ServedSearcher.like_moment, hit=catalogue.get(like), **options)
    try:
        clip = service.clips.get(like)
    except NotFoundError:
        raise NotFoundError(
            "There is no such clip or moment, or it was forgotten. Upload it, or search for it, again."
        ) from None
    await service.wait_settled(clip)
    return partial(ServedSearcher.like, clip=Path(clip.id), **options)


@router.get("/library/{hit_id}/thumbnail", responses=JPEG, response_class=Response)
async def thumbnail(service: ServiceDep, catalogue: CatalogueDep, hit: HitDep, hit_id: str) -> Response:
    """The frame in the middle of a hit."""
    jpeg = catalogue.thumbnail(hit_id)
    if jpeg is None:
        jpeg = await service.thumbnail(hit.file, (hit.start + hit.end) / 2)
        catalogue.store_thumbnail(hit_id, jpeg)
    return jpeg_response(jpeg)


@router.head("/library/{hit_id}/video", include_in_schema=False)
@router.get("/library/{hit_id}/video", responses=_RANGE_RESPONSES, response_class=Response)
def library_video(hit: HitDep, request: Request) -> Response:
    """The file of a hit. At most 1 MB of a video is sent per request: ask for the rest by Range."""
    media_type = MEDIA_TYPES.get(hit.file.suffix.lower(), "application/octet-stream")
    max_bytes = _MAX_PICTURE_BYTES if media_type.startswith("image/") else MAX_RANGE_BYTES
    return range_response(hit.file, request, media_type=media_type, max_bytes=max_bytes)


@router.post("/library/{hit_id}/open", status_code=201)
async def open_hit(service: ServiceDep, hit: HitDep) -> schema.ClipState:
    """Read the file of a hit, to ask about it as about an upload."""
    return clip_state_answer(service.open(hit.file))
