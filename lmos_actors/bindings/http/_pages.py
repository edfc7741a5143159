"""Descriptions of a node's agents over plain HTTP, for machines and for people."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lmos_actors.errors import AgentError, NotFound
from lmos_actors.protocol.td import JSON

from ..exposure._description_security import anything, check_sight
from ..exposure._descriptions import LINKS, TD_JSON
from ..exposure._exposure import AGENTS, public_name
from ._accept import best_of
from ._answers import problem_answer
from ._openapi import OpenApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from lmos_actors.security import Admission

    from ..exposure._description_security import Sees
    from ..exposure._descriptions import Descriptions, Listed, TaggedText

LONGEST: Final = 200
"""Characters of a name that is not there that are said back."""

HTML: Final = "text/html"
PROBLEM: Final = "application/problem+json"
ALWAYS: Final = {"X-Content-Type-Options": "nosniff", "Vary": "Accept", "Cache-Control": "no-cache"}
NOTHING_FOREIGN: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def pages_of(descriptions: Descriptions, extra: Sequence[BaseRoute] = ()) -> Starlette:
    """See `http_app`."""
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
        exception_handlers={HTTPException: _as_problem, AgentError: _as_error},
    )


class _Pages:
    """The answers to requests."""

    def __init__(self, descriptions: Descriptions) -> None:
        self._all = descriptions
        self._openapi = OpenApi(descriptions)

    async def well_known(self, request: Request) -> Response:
        """Return the description of the only agent, else that of the node."""
        sees = _sees(request)
        sole = self._all.sole(sees)
        return _described(request, self._all.own(sees) if sole is None else self._all.served(sole))

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document of what the client may see."""
        return _described(request, self._openapi.served(_sees(request)), (JSON,))

    async def everything(self, request: Request) -> Response:
        """Return all descriptions as an array, as kotlin-wot does; to a browser, a page of links."""
        if accepted(request, (JSON, TD_JSON, HTML)) == HTML:
            return Response(self._page(_sees(request)), media_type=HTML, headers=_with(NOTHING_FOREIGN))
        if request.method == "HEAD":
            head = Response(media_type=JSON, headers=ALWAYS)
            del head.headers["content-length"]  # which is not known
            return head
        return StreamingResponse(self._array(_sees(request)), media_type=JSON, headers=ALWAYS)

    async def elsewhere(self, request: Request) -> Response:
        """Lead from `/NAME` to the agent of that name."""
        exposed = self._named(request.path_params["name"], request)
        up = "../" * (request.scope["raw_path"].count(b"/") - 1)
        place = f"{up}agents/{quote(exposed.name, safe='')}"  # relative: what stands before it is a proxy's
        return Response(status_code=307, headers={**ALWAYS, "Location": place})

    def _named(self, name: str, request: Request) -> Listed:
        sees: Sees = getattr(request.state, "sees", anything)
        check_sight(getattr(request.state, "admission", None), sees, public_name(name))
        found = self._all.catalogue.named(name)
        if found is None:
            # not all names: any client may ask, and comparing takes time
            known = (each.name for each in islice(self._all.seen(sees), LINKS))
            raise NotFound("agent", name[:LONGEST], known=known, below=AGENTS)
        return found

    async def _array(self, sees: Sees) -> AsyncIterator[bytes]:
        """One by one: there may be very many."""
        before = b"["
        for exposed in tuple(self._all.seen(sees)):
            yield before + self._all.served(exposed).text
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
    """Return a description as the media type that is asked for, or say that it has not changed."""
    kind = accepted(request, kinds)
    headers = {**ALWAYS, "ETag": served.tag}
    if served.tag in _tags(request):
        return Response(status_code=304, headers=headers)
    return Response(served.text, media_type=JSON if kind == HTML else kind, headers=headers)


def _tags(request: Request) -> list[str]:
    said = request.headers.get("if-none-match", "")
    return [tag.strip().removeprefix("W/") for tag in said.split(",")]


def accepted(request: Request, offered: Sequence[str]) -> str:
    """Return the media type that `Accept` likes best; where it likes none, the first.

    A description in a type that was not asked for is better than none.
    """
    return best_of(request.scope["headers"], offered) or offered[0]


async def _as_problem(request: Request, error: Exception) -> Response:
    """Return what is wrong as problem details (RFC 9457)."""
    assert isinstance(error, HTTPException)
    data = {"type": "about:blank", "title": error.detail, "status": error.status_code}
    headers = {**ALWAYS, **(error.headers or {})}
    return JSONResponse(data, status_code=error.status_code, media_type=PROBLEM, headers=headers)


def _sees(request: Request) -> Sees:
    """Return what the client may see. Counts against its rate as any request. Raises Unauthorized,
    RateLimited."""
    admission: Admission | None = getattr(request.state, "admission", None)
    if admission is not None:
        admission.charge(trio.current_time())
    found: Sees = getattr(request.state, "sees", anything)
    return found


async def _as_error(request: Request, error: Exception) -> Response:
    """Raise NotFound with the most similar name, or the error for what may not be seen."""
    assert isinstance(error, AgentError)
    answer = problem_answer(error)
    headers = {name.decode(): text.decode() for name, text in answer.headers}
    return Response(answer.body, status_code=answer.status, headers={**ALWAYS, **headers})
