"""The HTTP routes of a hub: `POST /register`, `GET /stats`, `GET /health`."""

from __future__ import annotations

from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import trio
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lmos_actors.errors import StoreFailed
from lmos_actors.persistence import Registered
from lmos_actors.security import Buckets, Rate

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from ._hub import HubPlace

MOST: Final = 4 << 10
"""Bytes of the body of a registration."""

_REFUSED: Final = {
    "invalid": (400, "invalid_agent_id", "an id has 3 to 64 of a-z, 0-9 and hyphens, none of them at an end"),
    "taken": (409, "agent_id_taken", "this id is taken"),
    "full": (503, "unavailable", "there are too many agents"),
}


def relay_routes(place: HubPlace) -> list[BaseRoute]:
    """Return the routes of a hub."""
    routes = _RelayRoutes(place)
    return [
        Route("/register", routes.register, methods=["POST"]),
        Route("/stats", routes.stats),
        Route("/health", routes.health),
    ]


class _RelayRoutes:
    def __init__(self, place: HubPlace) -> None:
        self._place = place
        often = place.options.registrations_per_minute
        self._registrations = Buckets(Rate(per_second=often / 60, burst=often))

    async def register(self, request: Request) -> Response:
        if not self._place.registration_is_open:
            return _error(403, "not_allowed", "agents do not register themselves here")
        client = request.client
        wait = self._registrations.take("" if client is None else client.host, trio.current_time())
        if wait:
            refused = _error(429, "rate_limit", "too many registrations")
            refused.headers["retry-after"] = str(int(wait) + 1)
            return refused
        body = bytearray()
        async with aclosing(request.stream()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MOST:
                    return _error(413, "too_large", f"a registration has {MOST} bytes at most")
        id, fault = _wanted(bytes(body))
        return fault if fault is not None else await self._registered(id)

    async def _registered(self, id: str | None) -> Response:
        hub = self._place.hub
        if hub is None:
            return _error(503, "unavailable", "the relay is not there")
        try:
            found = await hub.identities.register(id)
        except StoreFailed:
            return _error(503, "unavailable", "the registration cannot be kept")
        if not isinstance(found, Registered):
            return _error(*_REFUSED[found])
        return JSONResponse(
            {"agent_id": found.id, "token": found.token}, headers={"cache-control": "no-store"}
        )

    async def stats(self, _: Request) -> Response:
        found = self._place.statistics()
        if found is None:
            return _error(503, "unavailable", "the relay is not there")
        hub = found.hub
        return JSONResponse(
            {
                "connected": hub.connected,
                "registered": found.identities,
                "messages": hub.passed,
                "deliveries": hub.deliveries,
                "dropped": hub.dropped,
            }
        )

    async def health(self, _: Request) -> Response:
        if self._place.hub is None:
            return _error(503, "unavailable", "the relay is not there")
        return JSONResponse({"status": "ok"})


def _wanted(body: bytes) -> tuple[str | None, Response | None]:
    """Return the id that is asked for, None for any; else why the body is none."""
    if not body.strip():
        return None, None
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, _error(400, "invalid_json", "the body is no JSON")
    if not isinstance(found, dict):
        return None, _error(400, "invalid_json", "the body is no object")
    id = cast("dict[str, Any]", found).get("agent_id")
    if not isinstance(id, str | None):
        return None, _error(*_REFUSED["invalid"])
    return id, None


def _error(status: int, error: str, message: str) -> Response:
    return JSONResponse({"error": error, "message": message}, HTTPStatus(status))
