"""The HTTP routes of uploads: `PUT /media/upload/ID`, `GET /media/download/SESSION/ID`, `/media/info/...`.

A client is identified by its credentials, as on its connection: for another client a file does not exist.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from lmos_actors.bindings import principal_of

from ._uploads import UploadRefused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from ._uploads import StoredFile, Uploads

_SAFE: Final = {
    "cache-control": "private, no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox",
}
"""Headers that keep an uploaded file from running in a browser."""


def media_routes(uploads: Uploads) -> list[BaseRoute]:
    """Return the routes for the files of a node."""
    routes = _MediaRoutes(uploads)
    return [
        Route("/media/upload/{id}", routes.upload, methods=["PUT"]),
        Route("/media/download/{session}/{id}", routes.download),
        Route("/media/info/{session}/{id}", routes.info),
    ]


class _MediaRoutes:
    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    async def upload(self, request: Request) -> Response:
        exchange: Any = request.scope["state"].get("exchange")  # None for a request without a body
        if exchange is not None:
            exchange.stream()
        try:
            async with aclosing(_pieces(request, exchange)) as pieces:
                await self._uploads.take(request.path_params["id"], _owner(request), pieces)
        except LookupError:
            return PlainTextResponse("there is no such upload", 404)
        except UploadRefused as error:
            return PlainTextResponse(str(error), 400)
        except OSError:
            return PlainTextResponse("the file could not be stored", 507)
        return Response(status_code=204)

    async def download(self, request: Request) -> Response:
        file = self._file(request)
        if file is None:
            return PlainTextResponse("not found", 404)
        name = quote(file.filename, safe="")
        headers = {**_SAFE, "content-disposition": f"attachment; filename*=UTF-8''{name}"}
        headers["content-length"] = str(file.size)
        return StreamingResponse(self._uploads.pieces(file), headers=headers, media_type=_media_type(file))

    async def info(self, request: Request) -> Response:
        file = self._file(request)
        if file is None:
            return PlainTextResponse("not found", 404)
        known = {
            "storage_ref": file.reference,
            "filename": file.filename,
            "mime_type": file.mime_type,
            "size_bytes": file.size,
        }
        return JSONResponse(known, headers=_SAFE)

    def _file(self, request: Request) -> StoredFile | None:
        named = request.path_params
        return self._uploads.find(_owner(request), named["session"], named["id"])


def _media_type(file: StoredFile) -> str:
    """Return the media type of a file, or a general type if it cannot be sent as a header."""
    plain = file.mime_type.isascii() and file.mime_type.isprintable()
    return file.mime_type if plain else "application/octet-stream"


def _owner(request: Request) -> str:
    return principal_of(getattr(request.state, "admission", None)) or ""


async def _pieces(request: Request, exchange: Any) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(request.stream()) as pieces:
            async for piece in pieces:
                if exchange is not None:
                    exchange.keep(len(piece))
                yield piece  # noqa: ASYNC119 -- closed by its reader
    except ClientDisconnect:
        raise UploadRefused("the client has left") from None
