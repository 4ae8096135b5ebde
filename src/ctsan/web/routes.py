"""The part of the JSON API that is about clips. The page uses only this API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from ctsan import __version__
from ctsan.inference.results import Scene
from ctsan.subtitles import web_vtt
from ctsan.web import answering, schema
from ctsan.web.clips import Clip
from ctsan.web.errors import NotFoundError
from ctsan.web.service import Service

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.ErrorResponse, "description": text}
    for status, text in {
        400: "Malformed request.",
        401: "A token is needed.",
        403: "Request from another site, or unknown Host header.",
        404: "Not found, or removed meanwhile.",
        408: "The request came too slowly.",
        409: "The clip was cancelled, or no model can answer this.",
        410: "The file or moment has been removed since.",
        413: "Too large.",
        422: "The request is invalid, or the clip cannot be read.",
        429: "Too many requests: try again after Retry-After seconds.",
        507: "The server cannot store the upload.",
    }.items()
}
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A picture."}}
CACHED_JPEG = JPEG | {304: {"description": "The picture has not changed."}}
VTT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/vtt": {}}, "description": "WebVTT."}}
_FILE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_CACHEABLE = {"Cache-Control": "private, max-age=3600"}  # pictures of a clip never change

router = APIRouter(prefix="/api", responses=ERROR_RESPONSES)


async def _get_service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


ServiceDep = Annotated[Service, Depends(_get_service)]


async def _get_clip(service: ServiceDep, clip_id: str) -> Clip:
    return service.clips.get(clip_id)


ClipDep = Annotated[Clip, Depends(_get_clip)]


@router.get("/status")
async def status(service: ServiceDep) -> schema.Status:
    """What this server can do, and its limits."""
    limits = service.limits
    return schema.Status(
        version=__version__,
        tasks=list(service.predictor.tasks),
        library=service.catalogue.name if service.catalogue else None,
        limits=schema.UploadLimits(bytes=limits.upload_bytes, seconds=limits.seconds, pixels=limits.pixels),
    )


@router.post("/clips", status_code=201, openapi_extra=_FILE_BODY)
async def upload(service: ServiceDep, request: Request) -> schema.ClipState:
    """Upload a video or picture as the request body. It is read in the background, then deleted."""
    return clip_state_answer(await service.upload(request.stream()))


@router.get("/clips/{clip_id}")
async def clip_state(clip: ClipDep) -> schema.ClipState:
    """The state of a clip, and how much of it has been read."""
    return clip_state_answer(clip)


@router.post("/clips/{clip_id}/cancel")
async def cancel(service: ServiceDep, clip: ClipDep) -> schema.ClipState:
    """Stop reading a clip. What has been read so far stays."""
    await service.cancel(clip)
    return clip_state_answer(clip)


@router.delete("/clips/{clip_id}", status_code=204)
async def delete(service: ServiceDep, clip: ClipDep) -> None:
    """Stop reading a clip, and remove it."""
    await service.remove(clip)


@router.get("/clips/{clip_id}/poster", responses=JPEG, response_class=Response)
async def poster(clip: ClipDep) -> Response:
    """The first frame, with its aspect ratio."""
    if clip.poster is None:
        raise NotFoundError("The first frame has not been read yet. Try again in a second.")
    return jpeg_response(clip.poster)


@router.get("/clips/{clip_id}/pictures/{number}", responses=JPEG, response_class=Response)
async def picture(clip: ClipDep, number: int) -> Response:
    """A sampled frame, numbered from 0, scaled to a square."""
    if not 0 <= number < len(clip.pictures):
        raise NotFoundError(f"There is no frame {number}: there are {len(clip.pictures)} so far, from 0.")
    return jpeg_response(clip.pictures[number])


@router.get("/clips/{clip_id}/description")
async def description(service: ServiceDep, clip: ClipDep) -> schema.DescriptionAnswer:
    """The caption, the concept words, and their effect on each word of the caption."""
    return await service.ask(clip, "describe", answering.describe_clips, None)


@router.get("/clips/{clip_id}/concepts")
async def concepts(service: ServiceDep, clip: ClipDep) -> list[schema.ConceptWord]:
    """The concept words of the clip, detected by models of any task."""
    return await service.ask(clip, None, answering.list_concepts, None)


@router.get("/clips/{clip_id}/traces")
async def traces(
    service: ServiceDep, clip: ClipDep, concept: Annotated[str | None, Query(max_length=100)] = None
) -> schema.TracesAnswer:
    """Attention of each trace of the concept detector, and its contribution to each concept word."""
    return await service.ask(clip, "describe", answering.trace_clips, concept)


@router.post("/clips/{clip_id}/fill")
async def fill(service: ServiceDep, clip: ClipDep, question: schema.FillQuestion) -> schema.FillAnswer:
    """Words for the blanks (`_____`) of a sentence about the clip."""
    return await service.ask(clip, "fill", answering.fill_blanks, question)


@router.post("/clips/{clip_id}/choose")
async def choose(service: ServiceDep, clip: ClipDep, question: schema.ChooseQuestion) -> schema.ChooseAnswer:
    """Which of the given sentences matches the clip best."""
    return await service.ask(clip, "choose", answering.choose_sentences, question)


@router.get("/clips/{clip_id}/shots")
async def shots(clip: ClipDep) -> schema.ShotsAnswer:
    """The shots of a long video that have been described so far."""
    return schema.ShotsAnswer(
        state=clip.shots_state or clip.state,
        progress=clip.shots_progress,
        error=clip.error,
        shots=[
            schema.ShotAnswer(
                start=scene.start,
                end=scene.end,
                caption=scene.caption.text,
                concepts=answering.concept_list(scene.concepts),
            )
            for scene, _ in clip.shots
        ],
    )


@router.get("/clips/{clip_id}/shots.vtt", responses=VTT, response_class=Response)
async def shots_vtt(clip: ClipDep) -> Response:
    """The shots as a WebVTT track, for subtitles or audio description."""
    return vtt_response(shot.scene for shot in clip.shots)


@router.get("/clips/{clip_id}/shots/{number}/picture", responses=JPEG, response_class=Response)
async def shot_picture(clip: ClipDep, number: int) -> Response:
    """The frame in the middle of a shot, numbered from 0, scaled to a square."""
    if not 0 <= number < len(clip.shots):
        raise NotFoundError(f"There is no shot {number}: there are {len(clip.shots)} so far, from 0.")
    return jpeg_response(clip.shots[number].picture)


def clip_state_answer(clip: Clip) -> schema.ClipState:
    shots = None
    if clip.shots_state:
        shots = schema.ShotsState(state=clip.shots_state, progress=clip.shots_progress, count=len(clip.shots))
    return schema.ClipState(
        id=clip.id,
        state=clip.state,
        progress=clip.progress,
        error=clip.error,
        start=clip.start,
        duration=clip.duration,
        cut_off=_cut_off(clip),
        width=clip.width,
        height=clip.height,
        times=clip.times,
        shots=shots,
    )


def _cut_off(clip: Clip) -> float | None:
    """The duration that the header of an upload declares, if less can be read."""
    if clip.span is not None or clip.duration is None or clip.declared_duration is None:
        return None
    return clip.declared_duration if clip.duration < clip.declared_duration else None


def vtt_response(scenes: Iterable[Scene]) -> Response:
    headers = {"Content-Disposition": 'attachment; filename="descriptions.vtt"'}
    return Response("".join(web_vtt(scenes)), media_type="text/vtt; charset=utf-8", headers=headers)


def jpeg_response(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers=_CACHEABLE)


def cached_jpeg_response(content: bytes, request: Request) -> Response:
    """A picture of the library, with a validator: its file may change under the same id."""
    headers = _CACHEABLE | {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="image/jpeg", headers=headers)
