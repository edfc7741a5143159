"""The HTTP routes for monitoring a node: /healthz, /readyz, /metrics.

/healthz and /readyz need no credentials and return only a short status. Access lists treat /metrics as an
agent named `metrics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from ._exposition import media_type_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from ._metrics import Metrics

HEALTH: Final = "/healthz"
READINESS: Final = "/readyz"
METRICS: Final = "/metrics"

WELL: Final = ("ready", "degraded")
"""Words for a node that takes requests; `degraded` while agents that have run before are down."""

_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def health_routes(state: Callable[[], str], metrics: Metrics | None = None) -> list[BaseRoute]:
    """Return the routes. `state` returns one of `WELL`, or in a word why the node takes no requests."""
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_HEADERS)

    async def readiness(_: Request) -> Response:
        word = state()
        return PlainTextResponse(f"{word}\n", status_code=200 if word in WELL else 503, headers=_HEADERS)

    routes: list[BaseRoute] = [Route(HEALTH, health), Route(READINESS, readiness)]
    if metrics is None:
        return routes

    async def scrape(request: Request) -> Response:
        admission: Any = request.scope.get("state", {}).get("admission")
        if admission is not None:  # raises Unauthorized, Forbidden, RateLimited
            admission.check(METRICS.removeprefix("/"), "read", trio.current_time())
        kind = media_type_for(",".join(request.headers.getlist("accept")))
        headers = {**_HEADERS, "Content-Type": kind, "Vary": "Accept"}
        if request.method == "HEAD":
            response = Response(headers=headers)
            del response.headers["content-length"]  # the length is not known before the text is made
            return response
        return StreamingResponse(metrics.pieces(kind), headers=headers)

    routes.append(Route(METRICS, scrape))
    return routes
