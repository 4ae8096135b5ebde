"""The application: the page, and the JSON API under /api."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from ctsan import __version__
from ctsan.errors import CtsanError, StoreError
from ctsan.web import library_routes, routes
from ctsan.web.errors import BusyError, RequestError, UnknownError
from ctsan.web.feature_cache import ClipPredictor
from ctsan.web.limits import Limits
from ctsan.web.security import Guard, error_body
from ctsan.web.service import Service

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"

_ABOUT = """Ask trained CT-SAN models about clips. `POST /api/clips` takes a file and gives an id; every
question about the clip waits until it has been read. Errors are `{"error": {"code", "message"}}`; 429 says:
try again after `Retry-After` seconds."""


def create_app(
    predictor: ClipPredictor,
    *,
    limits: Limits | None = None,
    library: Path | None = None,
    weights: Path | None = None,
    token: str | None = None,
    host: str = "localhost",
) -> ASGIApp:
    """What a server runs.

    Args:
        library: folder of one that can be searched.
        weights: the backbone's file where it is not installed with ctsan.
        token: that clients must show; None where only this machine reaches the server.
        host: where it listens.
    """
    limits = limits or Limits()
    service = Service(predictor, limits, library=library, weights=weights)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="ctsan",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(library_routes.router)
    app.add_middleware(GZipMiddleware, minimum_size=4096)
    app.add_exception_handler(CtsanError, _explain)
    app.add_exception_handler(StoreError, _admit_store)
    app.add_exception_handler(RequestValidationError, _explain_invalid)
    app.add_exception_handler(HTTPException, _explain_http)
    app.add_exception_handler(Exception, _admit)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    files = {file.name: file for file in STATIC.iterdir()}

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> FileResponse:
        if name not in files:  # names are looked up, and lead to no other file
            raise UnknownError("There is no such file.")
        return FileResponse(files[name])

    return Guard(app, limits=limits, token=token, host=host)


def _explain(_: Request, error: Exception) -> Response:
    known = error if isinstance(error, RequestError) else RequestError(str(error))
    headers = {"Retry-After": "2"} if isinstance(known, BusyError) else None
    return JSONResponse(error_body(known), known.status, headers)


def _explain_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = [f"{'.'.join(map(str, each['loc'][1:])) or 'body'}: {each['msg']}" for each in error.errors()]
    return JSONResponse(error_body(RequestError("; ".join(wrong) + ".")), RequestError.status)


def _explain_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = {"error": {"code": "http", "message": str(error.detail)}}
    return JSONResponse(body, error.status_code, error.headers)


def _admit_store(_: Request, error: Exception) -> Response:
    """The message names files of the server, so it is for the log."""
    logger.error("%s", error)
    message = "The library cannot be read. Whoever runs the server finds the reason in its log."
    return JSONResponse({"error": {"code": "server", "message": message}}, 500)


def _admit(_: Request, __: Exception) -> Response:
    """Our own fault: the log has the rest."""
    message = "Something went wrong in the server, not with your question. Try again."
    return JSONResponse({"error": {"code": "server", "message": message}}, 500)
