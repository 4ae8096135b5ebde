"""The part of the JSON API that is about the library."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from ctsan.inference.results import Caption, Scene
from ctsan.search.search import Hit, Searcher, SearchResult
from ctsan.web import answering, schema
from ctsan.web.catalogue import MEDIA_TYPES, Catalogue
from ctsan.web.errors import GoneError, NoModelError, NotFoundError, RequestError
from ctsan.web.range_response import MAX_RANGE_BYTES, range_response
from ctsan.web.routes import (
    CACHED_JPEG,
    ERROR_RESPONSES,
    VTT,
    ServiceDep,
    cached_jpeg_response,
    clip_state_answer,
    vtt_response,
)
from ctsan.web.service import Service

_LIKE = "Instead of `query`: the id of a clip or of a hit, to find similar moments."
STRIP_CELLS = 6
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


async def _get_hit(service: ServiceDep, hit_id: str) -> Hit:
    if hit_id in service.examples:
        hits = await asyncio.to_thread(lambda: service.examples.hits)
        if hit_id in hits:
            return hits[hit_id]
    catalogue = await _get_catalogue(service)
    return await _find(service, catalogue, hit_id)


async def _find(service: Service, catalogue: Catalogue, hit_id: str) -> Hit:
    known = catalogue.known(hit_id)
    if known is not None:
        return known
    return await service.run_queued(lambda: catalogue.find(hit_id))


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
    skip: Annotated[int, Query(ge=0, le=10_000, description="Best hits to leave out, for more pages.")] = 0,
) -> schema.SearchAnswer:
    """The moments of the library that match a sentence best, or are most similar to a clip or a hit."""
    options: dict[str, Any] = {"n_best": n, "skip": skip, "concepts": concept, "without": without}
    if query is not None and like is None:
        run_query: Callable[[Searcher], SearchResult] = partial(Searcher.search, query=query, **options)
    elif like is not None and query is None:
        run_query = await _similarity_query(service, catalogue, like, options)
    else:
        raise RequestError("Give either 'query', or in 'like' the id of a clip or moment.")

    def run() -> tuple[SearchResult, list[str], Sequence[tuple[str, int | None]]]:
        result, ids = catalogue.search(run_query)
        return result, ids, catalogue.narrowing(result, concept, without)

    result, ids, words = await service.run_queued(run)
    return schema.SearchAnswer(
        has_match=result.has_match,
        is_judged=result.is_judged,
        match_accuracy=result.match_accuracy,
        unknown=list(result.unknown),
        searched_for=result.searched_for,
        negated=result.negated,
        corrections=[
            schema.CorrectionAnswer(typed=correction.typed, read_as=correction.read_as)
            for correction in result.corrections
        ],
        filters=[
            schema.FilterAnswer(
                word=each.word, read_as=each.read_as, is_excluded=each.is_excluded, shots=each.num_shots
            )
            for each in result.filters
        ],
        words=[schema.WordCount(word=word, shots=number) for word, number in words],
        library_shots=result.num_shots,
        allowed_shots=result.num_allowed,
        hits=[_hit_answer(hit_id, hit) for hit_id, hit in zip(ids, result.hits, strict=True)],
    )


async def _similarity_query(
    service: Service, catalogue: Catalogue, like: str, options: dict[str, Any]
) -> Callable[[Searcher], SearchResult]:
    try:
        clip = service.clips.get(like)
    except NotFoundError:
        try:
            hit = await _find(service, catalogue, like)
        except NotFoundError:
            raise NotFoundError(
                "There is no such clip or moment, or it was forgotten. Upload it, or search for it, again."
            ) from None

        def like_moment(searcher: Searcher) -> SearchResult:
            catalogue.check(hit)
            return searcher.like_moment(hit, **options)

        return like_moment
    await service.wait_settled(clip)
    return partial(Searcher.like, clip=answering.encoded_clip(clip), **options)


@router.get("/start")
async def start(service: ServiceDep) -> schema.StartAnswer:
    """What to begin with: the clips that were indexed last, or example clips, and searches to try."""
    catalogue = service.catalogue
    if catalogue is None:
        examples = await asyncio.to_thread(lambda: service.examples.hits)
        clips = [_hit_answer(hit_id, hit) for hit_id, hit in examples.items()]
        return schema.StartAnswer(library=None, clips=clips, searches=[])
    overview = await service.run_queued(catalogue.overview)
    return schema.StartAnswer(
        library=schema.LibraryAnswer(
            name=catalogue.name,
            files=overview.num_files,
            shots=overview.num_shots,
            unread_count=overview.num_unread,
            unread=[schema.UnreadFile(name=_name(file), reason=reason) for file, reason in overview.unread],
        ),
        clips=[_hit_answer(hit_id, hit) for hit_id, hit in overview.clips],
        searches=list(overview.searches),
    )


@router.get("/library/{hit_id}")
async def moment(hit: HitDep, hit_id: str) -> schema.SearchHit:
    """A moment of the library. Its id stays valid for as long as the library has the shot."""
    return _hit_answer(hit_id, hit)


@router.get("/library/{hit_id}/shots")
async def film_shots(service: ServiceDep, hit: HitDep, hit_id: str) -> list[schema.SearchHit]:
    """All shots of the file of a moment, in order, as the library has them."""
    catalogue = service.catalogue
    if hit_id in service.examples or catalogue is None:
        return [_hit_answer(hit_id, hit)]
    shots = await service.run_queued(lambda: catalogue.shots(hit))
    return [_hit_answer(shot_id, shot) for shot_id, shot in shots]


@router.get("/library/{hit_id}/shots.vtt", responses=VTT, response_class=Response)
async def film_track(service: ServiceDep, hit: HitDep, hit_id: str) -> Response:
    """The stored captions of a file as a WebVTT track; shots without a caption are left out."""
    catalogue = service.catalogue
    shots = [hit]
    if hit_id not in service.examples and catalogue is not None:
        shots = [shot for _, shot in await service.run_queued(lambda: catalogue.shots(hit))]
    return vtt_response(
        Scene(
            shot.start, shot.end, Caption(shot.caption, math.nan, math.nan), shot.concepts
        )  # scores are not stored
        for shot in shots
        if shot.caption
    )


@router.get("/library/{hit_id}/thumbnail", responses=CACHED_JPEG, response_class=Response)
async def thumbnail(service: ServiceDep, hit: HitDep, hit_id: str, request: Request) -> Response:
    """The frame in the middle of a moment, as it was indexed."""
    jpeg = service.pictures.get(hit_id) or await service.stored_thumbnail(hit)
    if jpeg is not None:
        service.pictures.store(hit_id, jpeg)
    else:  # a library of an older ctsan, or an example
        middle = (hit.start + hit.end) / 2
        jpeg = await _picture(service, hit, hit_id, lambda: service.thumbnail(hit.file, middle))
    return cached_jpeg_response(jpeg, request)


@router.get("/library/{hit_id}/strip", responses=CACHED_JPEG, response_class=Response)
async def strip(service: ServiceDep, hit: HitDep, hit_id: str, request: Request) -> Response:
    """Six frames of a moment side by side, each cropped to 16:9: a preview of what browsers cannot play."""
    times = [
        hit.start + (number + 0.5) * (hit.end - hit.start) / STRIP_CELLS for number in range(STRIP_CELLS)
    ]
    jpeg = await _picture(service, hit, f"{hit_id}/strip", lambda: service.strip(hit.file, times))
    return cached_jpeg_response(jpeg, request)


async def _picture(service: Service, hit: Hit, key: str, read: Callable[[], Awaitable[bytes]]) -> bytes:
    """A picture of a moment, read by a worker unless it is known.

    Raises:
        GoneError: the file is gone.
        UnreadableError: the file cannot be read.
    """
    pictures = service.pictures
    jpeg = pictures.get(key)
    if jpeg is None:
        _check_is_here(hit)
        if not hit.file.is_file():
            raise GoneError("The file of this moment is gone. Index its folder again.")
        jpeg = await read()
        pictures.store(key, jpeg)
    return jpeg


@router.head("/library/{hit_id}/video", include_in_schema=False)
@router.get("/library/{hit_id}/video", responses=_RANGE_RESPONSES, response_class=Response)
def library_video(hit: HitDep, request: Request) -> Response:
    """The file of a hit. At most 1 MB of a video is sent per request: ask for the rest by Range."""
    _check_is_here(hit)
    media_type = MEDIA_TYPES.get(hit.file.suffix.lower(), "application/octet-stream")
    max_bytes = _MAX_PICTURE_BYTES if media_type.startswith("image/") else MAX_RANGE_BYTES
    return range_response(
        hit.file, request, versions=hit.versions, media_type=media_type, max_bytes=max_bytes
    )


@router.post("/library/{hit_id}/open", status_code=201)
async def open_hit(service: ServiceDep, hit: HitDep) -> schema.ClipState:
    """Read a moment, to ask about it as about an upload. What was read before is not read again."""
    _check_is_here(hit)
    span = (hit.start, hit.end) if hit.end > hit.start else None
    return clip_state_answer(service.open(hit.file, span))


def _check_is_here(hit: Hit) -> None:
    """Check that the file of a hit is on this machine.

    Raises:
        GoneError: the file is on another machine, where a file of this name may be another one.
    """
    if hit.host is not None:
        raise GoneError("The file of this moment is on another machine. Start ctsan serve there.")


def _hit_answer(hit_id: str, hit: Hit) -> schema.SearchHit:
    media_type = MEDIA_TYPES.get(hit.file.suffix.lower(), "application/octet-stream")
    return schema.SearchHit(
        id=hit_id,
        name=_name(hit.file),
        folder=_name(hit.file.parent),
        media_type=media_type,
        is_picture=media_type.startswith("image/"),
        start=hit.start,
        end=hit.end,
        caption=hit.caption,
        score=hit.score,
        concepts=answering.concept_list(hit.concepts),
        matched=[concept.word for concept in hit.matched],
    )


def _name(path: Path) -> str:
    """The name of a file or folder alone, as valid text."""
    return path.name.encode("utf-8", "replace").decode()
