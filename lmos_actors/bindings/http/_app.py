"""The ASGI application of a node: its agents, with their pages and descriptions."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lmos_actors.errors import AgentError, NotFound

from ..exposure._access_middleware import guarded
from ..exposure._description_security import anything, check_sight
from ..exposure._descriptions import LINKS, TD_JSON
from ..exposure._exposure import AGENTS, public_name
from ._agents import HTML, AgentsOverHttp
from ._openapi import OpenApi
from ._options import HttpOptions
from ._requests import PREFIX, asked_at, best_of, has_tag
from ._responses import JSON, NO_CACHE, NOSNIFF, VARY, only_head, problem_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Collection, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from lmos_actors.security import Admission, Guard
    from lmos_actors.transport import App

    from ..exposure._description_security import Sees
    from ..exposure._descriptions import Descriptions, Listed, TaggedText
    from ..lmos._server import LmosServer

LONGEST: Final = 200
"""Limit on the characters of an unknown name that an error repeats."""

ALWAYS: Final = {**NOSNIFF, **VARY, **NO_CACHE}
NOTHING_FOREIGN: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def http_app(
    descriptions: Descriptions,
    server: LmosServer,
    *,
    extra: Sequence[BaseRoute] = (),
    guard: Guard | None = None,
    apart: Collection[str] = (),
    options: HttpOptions | None = None,
) -> App:
    """Return the application that serves a node's agents and their descriptions over HTTP.

    Below `/agents/NAME` are the descriptions and the forms of single agents. All descriptions are at `/`; the
    description of the only agent, or else of the node, is at `/.well-known/wot`; and `/NAME` leads to
    `/agents/NAME`. The routes `extra` go before the routes of the pages. `guard` decides which clients are
    let in, before anything else is done; None lets all in. The paths `apart` belong to routes that have
    another guard. `options` has the limits of runs and listeners.
    """
    agents = AgentsOverHttp(descriptions, server, options or HttpOptions())
    pages = _pages_of(descriptions, extra)

    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (agents if scope["raw_path"].startswith(PREFIX) else pages)(scope, receive, send)

    return app if guard is None else guarded(app, guard, apart)


def _pages_of(descriptions: Descriptions, extra: Sequence[BaseRoute]) -> Starlette:
    pages = _Pages(descriptions)
    return Starlette(
        routes=[
            *extra,
            Route("/", pages.everything),
            Route("/.well-known/wot", pages.well_known),
            Route("/openapi.json", pages.openapi),
            Route("/agents", pages.everything),
            Route("/{name:path}", pages.elsewhere),
        ],
        exception_handlers={HTTPException: _as_problem, AgentError: _as_problem},
    )


class _Pages:
    """The endpoints of the pages and descriptions."""

    def __init__(self, descriptions: Descriptions) -> None:
        self._all = descriptions
        self._openapi = OpenApi(descriptions)

    async def well_known(self, request: Request) -> Response:
        """Return the description of the only agent, else the description of the node."""
        sees, all_here = _sees(request), asked_at(self._all, request)
        sole = all_here.sole(sees)
        return _described(request, all_here.own(sees) if sole is None else all_here.served(sole))

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document of the agents that the client may see."""
        sees, base = _sees(request), asked_at(self._all, request).bases[0]
        return _described(request, self._openapi.served(sees, base), (JSON,))

    async def everything(self, request: Request) -> Response:
        """Return all descriptions as an array, as kotlin-wot does; to a browser, a page of links."""
        if accepted(request, (JSON, TD_JSON, HTML)) == HTML:
            return Response(self._page(_sees(request)), media_type=HTML, headers=_with(NOTHING_FOREIGN))
        if request.method == "HEAD":
            return only_head(JSON, ALWAYS)
        array = self._array(asked_at(self._all, request), _sees(request))
        return StreamingResponse(array, media_type=JSON, headers=ALWAYS)

    async def elsewhere(self, request: Request) -> Response:
        """Redirect from `/NAME` to the agent of that name."""
        exposed = self._named(request.path_params["name"], request)
        up = "../" * (request.scope["raw_path"].count(b"/") - 1)
        place = f"{up}agents/{quote(exposed.name, safe='')}"  # relative, as a proxy may have a prefix
        return Response(status_code=307, headers={**ALWAYS, "location": place})

    def _named(self, name: str, request: Request) -> Listed:
        sees: Sees = getattr(request.state, "sees", anything)
        check_sight(getattr(request.state, "admission", None), sees, public_name(name))
        found = self._all.catalogue.named(name)
        if found is None:
            # not all names: any client may ask, and comparing takes time
            known = (each.name for each in islice(self._all.seen(sees), LINKS))
            raise NotFound("agent", name[:LONGEST], known=known, below=AGENTS)
        return found

    async def _array(self, all_here: Descriptions, sees: Sees) -> AsyncIterator[bytes]:
        """Yield the array in parts, one description at a time, as there may be very many."""
        before = b"["
        for exposed in tuple(all_here.seen(sees)):
            yield before + all_here.served(exposed).text
            before = b",\n"
        yield b"[]" if before == b"[" else b"]"

    def _page(self, sees: Sees) -> str:
        listed = list(islice(self._all.seen(sees), LINKS + 1))
        items = "\n".join(_item(exposed) for exposed in listed[:LINKS])
        more = f"<p>The first {LINKS}; all are in the array of descriptions.</p>" if listed[LINKS:] else ""
        return PAGE.format(items=items or "<li>none</li>", more=more)


PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Agents</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42em; margin: 2em auto; padding: 0 1em; }}
li {{ margin: .4em 0; }}
</style>
</head>
<body>
<h1>Agents</h1>
<ul>
{items}
</ul>
{more}
</body>
</html>
"""


def _item(exposed: Listed) -> str:
    href = escape(f"agents/{quote(exposed.name, safe='')}")
    said = (exposed.cls.__doc__ or "").strip().partition("\n")[0]
    return f'<li><a href="{href}">{escape(exposed.name)}</a> {escape(said)}</li>'


def _with(policy: str) -> dict[str, str]:
    return {**ALWAYS, "Content-Security-Policy": policy}


def _described(
    request: Request, served: TaggedText, kinds: Sequence[str] = (TD_JSON, JSON, HTML)
) -> Response:
    """Return a description in an accepted media type, or 304 if the client has it."""
    kind = accepted(request, kinds)
    headers = {**ALWAYS, "etag": served.tag}
    if has_tag(request.headers, "if-none-match", served.tag):
        return Response(status_code=304, headers=headers)
    return Response(served.text, media_type=JSON if kind == HTML else kind, headers=headers)


def accepted(request: Request, offered: Sequence[str]) -> str:
    """Return the media type that `Accept` prefers, or the first offered one if it accepts none.

    A description in another type is more useful than 406, which RFC 9110, 12.4.1 leaves to the server.
    """
    return best_of(request.headers, offered) or offered[0]


async def _as_problem(_: Request, error: Exception) -> Response:
    """Return an error as problem details (RFC 9457)."""
    response = problem_response(error)
    response.headers.update(VARY)
    return response


def _sees(request: Request) -> Sees:
    """Return the test of what the client may see; the request counts against the client's rate.

    Raises Unauthorized, RateLimited.
    """
    admission: Admission | None = getattr(request.state, "admission", None)
    if admission is not None:
        admission.charge(trio.current_time())
    found: Sees = getattr(request.state, "sees", anything)
    return found
