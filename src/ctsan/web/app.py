"""The ASGI application: the page, and the JSON API under /api."""

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
from ctsan.inference.predictor import Predictor
from ctsan.search.opening import LibraryAddress
from ctsan.web import library_routes, routes
from ctsan.web.errors import BusyError, NotFoundError, RequestError, UnexpectedError
from ctsan.web.limits import Limits
from ctsan.web.security import SecurityMiddleware, error_body
from ctsan.web.service import Service

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"

_DESCRIPTION = """Ask trained CT-SAN models about clips. `POST /api/clips` takes a file and returns an id;
every question about the clip waits until the clip has been read. Errors are `{"error": {"code", "message"}}`.
After 429, try again after `Retry-After` seconds."""


def create_app(
    predictor: Predictor,
    *,
    limits: Limits | None = None,
    library: LibraryAddress | None = None,
    weights: Path | None = None,
    token: str | None = None,
    host: str = "localhost",
) -> ASGIApp:
    """Build the application.

    Args:
        library: to search, in a folder or in PostgreSQL.
        weights: the backbone's weights, if they are not installed with ctsan.
        token: required from clients; None if the server listens on the loopback interface only.
        host: the address that the server listens on.
    """
    limits = limits or Limits()
    service = Service(predictor, limits, library=library, weights=weights)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            await service.start()
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="ctsan",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # the built-in docs load scripts from a CDN
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(library_routes.router)
    app.add_middleware(GZipMiddleware, minimum_size=4096)
    app.add_exception_handler(CtsanError, _handle_ctsan_error)
    app.add_exception_handler(StoreError, _handle_store_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(Exception, _handle_unexpected_error)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    files = {file.name: file for file in STATIC.iterdir()}

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> FileResponse:
        if name not in files:  # the name is a dict key and never becomes part of a path
            raise NotFoundError("There is no such file.")
        return FileResponse(files[name])

    return SecurityMiddleware(app, limits=limits, token=token, host=host)


def _handle_ctsan_error(_: Request, error: Exception) -> Response:
    request_error = error if isinstance(error, RequestError) else RequestError(str(error))
    headers = {"Retry-After": "2"} if isinstance(request_error, BusyError) else None
    return JSONResponse(error_body(request_error), request_error.status, headers)


def _handle_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    details = [
        f"{'.'.join(map(str, detail['loc'][1:])) or 'body'}: {detail['msg']}" for detail in error.errors()
    ]
    return JSONResponse(error_body(RequestError("; ".join(details) + ".")), RequestError.status)


def _handle_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == NotFoundError.status:
        return JSONResponse(
            error_body(NotFoundError("There is no such address. See /api/openapi.json.")),
            NotFoundError.status,
        )
    body = {"error": {"code": "http", "message": str(error.detail)}}
    return JSONResponse(body, error.status_code, error.headers)


def _handle_store_error(_: Request, error: Exception) -> Response:
    """Log the message and keep it from the client, because it names paths of the server."""
    logger.error("%s", error)
    message = "The library cannot be read. The reason is in the log of the server."
    return JSONResponse({"error": {"code": "server", "message": message}}, 500)


def _handle_unexpected_error(_: Request, __: Exception) -> Response:
    """A bug in the server; uvicorn logs the traceback."""
    error = UnexpectedError()
    return JSONResponse(error_body(error), error.status)
