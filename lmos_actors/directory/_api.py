"""HTTP API of a directory: the Directory Service API of W3C WoT Discovery, in front of the agent.

Each request becomes a message to the agent. This file contains only the HTTP parts: routes, media types,
pages, and problem details. Where the specification leaves a choice, lists are arrays unless
`format=collection`, in the order of ids. A list without `limit` is streamed in pages, so that memory stays
bounded. Each page starts after the last id of the page before, not at an offset, so an entry that exists all
the time is listed exactly once.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lmos_actors._core import Entropy
from lmos_actors.bindings import anything, check_sight, http_of, principal_of
from lmos_actors.bindings.http import (
    HttpError,
    allow,
    best_of,
    has_tag,
    negotiate,
    only_head,
    problem_response,
)
from lmos_actors.discovery import is_object
from lmos_actors.errors import ActionFailed, AgentError, NotFound
from lmos_actors.protocol.td import Description, dump

from ._agent import PageText, ThingDirectory
from ._changes import KINDS
from ._description import JSON, LD_JSON, MERGE_PATCH, PROBLEM, TD_JSON, directory_td, open_to_all
from ._events import EventStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import LmosServer
    from lmos_actors.security import Security, Verb

    from ._options import DirectoryOptions


class Resource:
    """Resource of the API, an ASGI application: a handler and the needed access for each method.

    An access of None means that the client only has to be able to see the directory.
    """

    def __init__(
        self, agent: str, new_id: Callable[[], str], methods: Mapping[str, tuple[Verb | None, Any]]
    ) -> None:
        self._agent = agent
        self._new_id = new_id
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._answer(Request(scope, receive, send))
        except ClientDisconnect:
            return
        except (AgentError, HttpError) as error:
            response = _problem_of_agent(error) or problem_response(error, self._new_id(), self._allowed)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return allow(self._allowed())
        found = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if found is None:
            raise HttpError(405, f"here are {self._allowed()}", {"allow": self._allowed()})
        verb, handler = found
        state = request.scope["state"]
        admission = state.get("admission")
        if verb is None:
            check_sight(admission, state.get("sees", anything), self._agent)
        elif admission is not None:
            admission.check(self._agent, verb, trio.current_time())
        response: Response = await handler(request)
        return response

    def _allowed(self) -> str:
        reading = ("HEAD",) if "GET" in self._methods else ()
        return ", ".join((*self._methods, *reading, "OPTIONS"))


def _problem_of_agent(error: Exception) -> Response | None:
    """Return the response for problem details of the agent, None for any other error."""
    data = error.output if isinstance(error, ActionFailed) else None
    if not is_object(data) or not isinstance(data.get("status"), int):
        return None
    more = {"retry-after": "1"} if data["status"] == 503 else {}
    return Response(msgspec.json.encode(data), data["status"], {"content-type": PROBLEM, **_NOSNIFF, **more})


DEFAULT_PAGE: Final = 200
"""Descriptions in a page where the client sets no limit."""

_SAFE: Final = "!$&'()*+,;=:@"  # allowed in a segment of a path besides letters and digits (RFC 3986, 3.3)
_DESCRIPTIONS: Final = (TD_JSON, JSON, LD_JSON)
_NOSNIFF: Final = {"x-content-type-options": "nosniff"}
_CURRENT: Final = {**_NOSNIFF, "cache-control": "no-cache", "vary": "Accept"}


class Api:
    """Resources of one directory."""

    def __init__(
        self,
        ref: Ref[ThingDirectory],
        options: DirectoryOptions,
        *,
        name: str,
        bases: Sequence[str],
        security: Security | None = None,
        new_id: Callable[[], str] | None = None,
        server: LmosServer | None = None,
    ) -> None:
        self.name = name
        self.new_id = new_id or Entropy().new_id
        self._ref = ref
        self._options = options
        where = urlsplit(http_of(bases[0]))
        self._prefix = where.path.rstrip("/")
        definitions, demands = open_to_all()
        if security is not None:
            definitions, demands = security.definitions(), security.demands()
        dumped = dump(Description(title="", security_definitions=definitions))["securityDefinitions"]
        td = directory_td(f"{where.scheme}://{where.netloc}", self._prefix, dumped, demands)
        self._td = msgspec.json.encode(td)
        self._streams = EventStreams(ref, options, server)

    def _resource(self, methods: Mapping[str, tuple[Verb | None, Any]]) -> Resource:
        return Resource(self.name, self.new_id, methods)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all resources."""
        things = self._resource({"GET": ("read", self._list), "POST": ("write", self._create)})
        thing = self._resource(
            {
                "GET": ("read", self._retrieve),
                "PUT": ("write", self._put),
                "PATCH": ("write", self._patch),
                "DELETE": ("write", self._delete),
            },
        )
        kinds = {
            kind: self._resource({"GET": ("subscribe", partial(self._listen, kind))}) for kind in ("", *KINDS)
        }
        return [
            Route("/things", things),
            Route("/things/{id:path}", thing),
            Route("/events", kinds[""]),
            *(Route(f"/events/{kind}", kinds[kind]) for kind in KINDS),
            Route("/events/{rest:path}", self._resource({"GET": ("subscribe", _no_events)})),
            Route("/search/jsonpath", self._resource({"GET": ("read", self._search)})),
            Route("/search/{rest:path}", self._resource({"GET": ("read", _no_search)})),
            Route("/.well-known/wot", self._resource({"GET": (None, self._own)})),
        ]

    # ---- reading

    async def _own(self, request: Request) -> Response:
        kind = best_of(request.headers, (TD_JSON, JSON)) or TD_JSON
        return Response(self._td, 200, {"content-type": kind, **_CURRENT})

    async def _retrieve(self, request: Request) -> Response:
        found = await self._ref.invoke(ThingDirectory.thing_text, _id_in(request))
        headers = {"etag": f"W/{found.tag}", **_CURRENT}
        if has_tag(request.headers, "if-none-match", found.tag):
            return Response(None, 304, headers)
        kind = negotiate(request.headers, (TD_JSON, JSON, LD_JSON))
        return Response(found.text, 200, {"content-type": kind, **headers})

    async def _list(self, request: Request) -> Response:
        query = _query(request)
        for name in ("sort_by", "sort_order"):
            if name in query:
                raise HttpError(501, f"{name} is not supported: the order is that of the ids")
        form = query.get("format", "array")
        if form not in ("array", "collection"):
            raise HttpError(400, f"format must be array or collection, not {form[:100]!r}")
        offset = _number(query, "offset", least=0) or 0
        limit = _number(query, "limit", least=1)
        kind = negotiate(request.headers, (LD_JSON, JSON))
        page = await self._page(offset, limit or DEFAULT_PAGE)
        if limit is None and offset + page.count < page.total:
            return self._all(request, page, kind, form)
        start, following = offset + page.count, None
        if limit is not None and start < page.total:
            more = {"format": form} if form == "collection" else {}
            following = self._url("things", offset=start, limit=limit, **more)
        here = self._url("things", offset=offset, limit=limit, format=form)
        body = b"[" + page.members.encode() + b"]"
        if form == "collection":
            body = (
                _collection(page, here)
                + body
                + (b',"next":' + msgspec.json.encode(following) if following else b"")
                + b"}"
            )
        response = Response(body, 200, {"content-type": kind, **_CURRENT})
        if following is not None:
            response.headers.append("link", f'<{following}>; rel="next"')
        response.headers.append("link", self._canonical(page))
        return response

    async def _page(self, offset: int, limit: int, after: str | None = None) -> PageText:
        return await self._ref.invoke(
            ThingDirectory.page_text, min(offset, 1 << 53), min(limit, 1 << 53), after
        )

    def _url(self, place: str, **query: object) -> str:
        query_text = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
        return f"{self._prefix}/{place}" + (f"?{query_text}" if query_text else "")

    def _canonical(self, page: PageText) -> str:
        return f'<{self._prefix}/things>; rel="canonical"; etag="{page.tag}"'

    def _all(self, request: Request, page: PageText, kind: str, form: str) -> Response:
        """Return all descriptions page by page, as fast as the client reads."""
        headers = {"link": self._canonical(page), **_CURRENT}
        if request.method == "HEAD":
            return only_head(kind, headers)
        before, after = b"[", b"]"
        if form == "collection":
            before, after = _collection(page, self._url("things", format=form)) + b"[", b"]}"
        pieces = self._pieces(page, before, after)
        return StreamingResponse(pieces, headers={"content-type": kind, **headers})

    async def _pieces(self, page: PageText, before: bytes, after: bytes) -> AsyncIterator[bytes]:
        while page.count:
            yield before + page.members.encode()
            before = b","
            try:
                page = await self._page(0, DEFAULT_PAGE, page.last)
            except NotFound:
                raise
            except AgentError:
                await self._ref.ready()
                page = await self._page(0, DEFAULT_PAGE, page.last)
        yield after

    async def _search(self, request: Request) -> Response:
        query = _query(request).get("query")
        if query is None:
            raise HttpError(400, "query=... is missing: a JSONPath expression")
        found = await self._ref.invoke(ThingDirectory.search_text, query)
        headers = {"content-type": JSON, **_NOSNIFF, "cache-control": "no-cache"}
        return Response(found, 200, headers)

    async def _listen(self, kind: str, request: Request) -> Response:
        diff = _query(request).get("diff", "false")
        if diff not in ("true", "false"):
            raise HttpError(400, f"diff must be true or false, not {diff[:100]!r}")
        last = request.headers.get("last-event-id", "").strip()
        return await self._streams.response(
            kind, diff=diff == "true", last=last, head=request.method == "HEAD"
        )

    # ---- changing

    async def _create(self, request: Request) -> Response:
        text = await self._body(request, _DESCRIPTIONS)
        id = await self._ref.invoke(ThingDirectory.create_anonymous_thing, text, _principal_in(request))
        return Response(None, 201, self._location(id))

    async def _put(self, request: Request) -> Response:
        id = _id_in(request)
        text = await self._body(request, _DESCRIPTIONS)
        is_new = await self._ref.invoke(ThingDirectory.put_thing, id, text, _principal_in(request))
        return Response(None, 201, self._location(id)) if is_new else Response(status_code=204)

    async def _patch(self, request: Request) -> Response:
        id = _id_in(request)
        text = await self._body(request, (MERGE_PATCH,), {"accept-patch": MERGE_PATCH})
        who = _principal_in(request)
        await self._ref.invoke(ThingDirectory.partially_update_thing, id, text, who)
        return Response(status_code=204)

    async def _delete(self, request: Request) -> Response:
        await self._ref.invoke(ThingDirectory.delete_thing, _id_in(request), _principal_in(request))
        return Response(status_code=204)

    def _location(self, id: str) -> dict[str, str]:
        return {"location": f"{self._prefix}/things/{quote(id, safe=_SAFE)}"}

    async def _body(
        self, request: Request, kinds: Sequence[str], headers: Mapping[str, str] | None = None
    ) -> str:
        """Return the body of a request as text.

        Raises HttpError 415 for another media type or an encoded body, 413 if the body is too large, and 400
        if it is not UTF-8.
        """
        declared = request.headers.get("content-type")
        kind = kinds[0] if declared is None else declared.partition(";")[0].strip().lower()
        if kind not in kinds or (declared is None and kinds == (MERGE_PATCH,)):
            raise HttpError(415, f"send {' or '.join(kinds)}", headers)
        if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise HttpError(415, "send the body without Content-Encoding")
        try:
            return (await self._whole(request)).decode()
        except UnicodeDecodeError:
            raise HttpError(400, "the body is not UTF-8") from None

    async def _whole(self, request: Request) -> bytes:
        """Return the whole body. Raises HttpError 413 if it is too large, and ClientDisconnect."""
        found = bytearray()
        async with aclosing(request.stream()) as parts:
            async for part in parts:
                found += part
                if len(found) > self._options.max_text:
                    detail = f"a description must have at most {self._options.max_bytes} bytes"
                    raise HttpError(413, detail)
        return bytes(found)


async def _no_events(request: Request) -> Response:
    raise HttpError(404, f"use /events for all events, or /events/{', /events/'.join(KINDS)}")


async def _no_search(request: Request) -> Response:
    raise HttpError(404, "only search by JSONPath is supported: /search/jsonpath?query=...")


def _collection(page: PageText, here: str) -> bytes:
    """Return the head of a collection, up to its members."""
    head = {
        "@context": "https://www.w3.org/2022/wot/discovery",
        "@type": "ThingCollection",
        "total": page.total,
        "@id": here,
    }
    return msgspec.json.encode(head)[:-1] + b',"members":'


def _principal_in(request: Request) -> str | None:
    return principal_of(request.scope["state"].get("admission"))


def _id_in(request: Request) -> str:
    id: str = request.path_params["id"]
    return id


def _query(request: Request) -> Mapping[str, str]:
    """Return the query parameters. Raises HttpError 400 for a repeated parameter."""
    found = request.query_params
    for name in found:
        if len(found.getlist(name)) > 1:
            raise HttpError(400, f"{name[:100]!r} is there more than once")
    return found


def _number(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) >= least):
        raise HttpError(400, f"{name} must be a whole number of at least {least}, not {text[:100]!r}")
    return int(text)
