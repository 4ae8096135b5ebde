"""The JSON API: every function of the page, for programs too."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from ctsan import __version__
from ctsan.subtitles import web_vtt
from ctsan.web import answering, schema
from ctsan.web.clips import Clip
from ctsan.web.errors import UnknownError
from ctsan.web.service import Service

FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Failure, "description": text}
    for status, text in {
        400: "No proper request.",
        401: "A token is needed.",
        403: "From another site, or under a strange name.",
        404: "There is no such thing, or it was forgotten.",
        408: "The upload stopped half-way.",
        409: "Cancelled meanwhile, or no model does that.",
        413: "Too large.",
        422: "The question cannot be asked, or the clip cannot be read.",
        429: "Busy: try again after Retry-After seconds.",
    }.items()
}
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A picture."}}
_VTT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/vtt": {}}, "description": "WebVTT."}}
_FILE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_KEEP = {"Cache-Control": "private, max-age=3600"}  # pictures of a clip never change

router = APIRouter(prefix="/api", responses=FAILURES)


async def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


Serving = Annotated[Service, Depends(_service)]


async def _find_clip(service: Serving, clip_id: str) -> Clip:
    return service.shelf.find(clip_id)


Found = Annotated[Clip, Depends(_find_clip)]


@router.get("/status")
async def status(service: Serving) -> schema.Status:
    """What this server can do."""
    limits = service.limits
    return schema.Status(
        version=__version__,
        tasks=list(service.predictor.tasks),
        library=service.catalogue.name if service.catalogue else None,
        limits=schema.UploadLimits(bytes=limits.upload_bytes, seconds=limits.seconds, pixels=limits.pixels),
    )


@router.post("/clips", status_code=201, openapi_extra=_FILE_BODY)
async def upload(service: Serving, request: Request) -> schema.ClipState:
    """Give a video or picture: the file itself is the body. It is read in the background, then removed."""
    return state_of(await service.upload(request.stream()))


@router.get("/clips/{clip_id}")
async def clip_state(clip: Found) -> schema.ClipState:
    """How far the reading of a clip is."""
    return state_of(clip)


@router.post("/clips/{clip_id}/cancel")
async def cancel(service: Serving, clip: Found) -> schema.ClipState:
    """Stop reading; what is known already stays."""
    await service.cancel(clip)
    return state_of(clip)


@router.delete("/clips/{clip_id}", status_code=204)
async def forget(service: Serving, clip: Found) -> None:
    """Stop reading, and forget the clip."""
    await service.forget(clip)


@router.get("/clips/{clip_id}/poster", responses=JPEG, response_class=Response)
async def poster(clip: Found) -> Response:
    """The first picture, in its own proportions."""
    if clip.poster is None:
        raise UnknownError("The first picture has not been read yet.")
    return as_jpeg(clip.poster)


@router.get("/clips/{clip_id}/pictures/{number}", responses=JPEG, response_class=Response)
async def picture(clip: Found, number: int) -> Response:
    """One of the sampled frames, from 0, squashed to a square."""
    if not 0 <= number < len(clip.pictures):
        raise UnknownError(f"There is no frame {number}: there are {len(clip.pictures)} so far, from 0.")
    return as_jpeg(clip.pictures[number])


@router.get("/clips/{clip_id}/description")
async def description(service: Serving, clip: Found) -> schema.DescriptionAnswer:
    """What happens in the clip, the concept words seen in it, and what each word attended to."""
    return await service.ask(clip, "describe", answering.descriptions, None)


@router.get("/clips/{clip_id}/concepts")
async def concepts(service: Serving, clip: Found) -> list[schema.ConceptWord]:
    """The concept words seen in the clip, by models of any task."""
    return await service.ask(clip, None, answering.concepts, None)


@router.get("/clips/{clip_id}/traces")
async def traces(
    service: Serving, clip: Found, concept: Annotated[str | None, Query(max_length=100)] = None
) -> schema.TracesAnswer:
    """Where the traces of the concept detector looked, and what each added to the concept words."""
    return await service.ask(clip, "describe", answering.traces, concept)


@router.post("/clips/{clip_id}/fill")
async def fill(service: Serving, clip: Found, question: schema.FillQuestion) -> schema.FillAnswer:
    """Words for the blanks (`_____`) of a sentence about the clip."""
    return await service.ask(clip, "fill", answering.fillings, question)


@router.post("/clips/{clip_id}/choose")
async def choose(service: Serving, clip: Found, question: schema.ChooseQuestion) -> schema.ChooseAnswer:
    """Which of some sentences suits the clip best."""
    return await service.ask(clip, "choose", answering.choices, question)


@router.get("/clips/{clip_id}/shots")
async def shots(clip: Found) -> schema.ShotsAnswer:
    """The shots of a long video that are described so far."""
    return schema.ShotsAnswer(
        state=clip.shots_state or clip.state,
        progress=clip.shots_progress,
        error=clip.error,
        shots=[
            schema.ShotAnswer(
                start=scene.start,
                end=scene.end,
                caption=scene.caption.text,
                concepts=answering.listed(scene.concepts),
            )
            for scene, _ in clip.shots
        ],
    )


@router.get("/clips/{clip_id}/shots.vtt", responses=_VTT, response_class=Response)
async def shots_vtt(clip: Found) -> Response:
    """The same as WebVTT, which players show as subtitles or descriptions."""
    headers = {"Content-Disposition": 'attachment; filename="descriptions.vtt"'}
    track = "".join(web_vtt(shot.scene for shot in clip.shots))
    return Response(track, media_type="text/vtt; charset=utf-8", headers=headers)


@router.get("/clips/{clip_id}/shots/{number}/picture", responses=JPEG, response_class=Response)
async def shot_picture(clip: Found, number: int) -> Response:
    """A picture from the middle of a shot, from 0, squashed to a square."""
    if not 0 <= number < len(clip.shots):
        raise UnknownError(f"There is no shot {number}: there are {len(clip.shots)} so far, from 0.")
    return as_jpeg(clip.shots[number].picture)


def state_of(clip: Clip) -> schema.ClipState:
    shots = None
    if clip.shots_state:
        shots = schema.ShotsState(state=clip.shots_state, progress=clip.shots_progress, count=len(clip.shots))
    return schema.ClipState(
        id=clip.id,
        state=clip.state,
        progress=clip.progress,
        error=clip.error,
        duration=clip.duration,
        width=clip.width,
        height=clip.height,
        times=clip.times,
        shots=shots,
    )


def as_jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers=_KEEP)
