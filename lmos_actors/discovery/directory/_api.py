"""HTTP API of a directory: the Directory Service API of W3C WoT Discovery, in front of the agent.

Each request becomes a message to the agent; this file holds only what concerns HTTP: routes, media types,
pages, problem details. Where the specification leaves a choice: lists are arrays unless `format=collection`,
in the order of ids; a list without `limit` is streamed in pages, so that memory stays bounded, and an entry
that is there all the time is in it exactly once, as pages go on after the last id, not at an offset.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import attrs
import msgspec
import trio

from lmos_actors._core import Entropy
from lmos_actors.bindings import (
    Answer,
    HttpError,
    anything,
    best_of,
    check_sight,
    give,
    has_tag,
    http_of,
    problem_answer,
)
from lmos_actors.errors import ActionFailed, AgentError, NotFound
from lmos_actors.protocol.td import Description, dump

from ._agent import PageText, ThingDirectory
from ._changes import KINDS
from ._description import JSON, LD_JSON, MERGE_PATCH, PROBLEM, TD_JSON, directory_td, open_to_all
from ._events import EventStreams
from ._merge_patch import is_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from starlette.routing import BaseRoute

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import LmosServer
    from lmos_actors.security import Security, Verb

    from ._options import DirectoryOptions


NOSNIFF: Final = (b"x-content-type-options", b"nosniff")

Headers = tuple[tuple[bytes, bytes], ...]


@attrs.frozen
class ApiRequest:
    """Request: ASGI scope, receive and send, with checked access."""

    scope: Any
    receive: Any
    send: Any

    @property
    def method(self) -> str:
        """Method; GET for HEAD."""
        method: str = self.scope["method"]
        return "GET" if method == "HEAD" else method

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Headers, with names in lower case."""
        found: Sequence[tuple[bytes, bytes]] = self.scope["headers"]
        return found

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, None without it."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1").strip()
        return None

    def query(self) -> dict[str, str]:
        """Return the parameters of the query. Raises HttpError for a repeated one."""
        text = self.scope["query_string"].decode("latin-1")
        found = parse_qs(text, keep_blank_values=True)
        for name, values in found.items():
            if len(values) > 1:
                raise bad(f"{name[:100]!r} is there more than once")
        return {name: values[0] for name, values in found.items()}

    def check(self, agent: str, verb: Verb) -> None:
        """Check the client's access to an agent. Raises Unauthorized, Forbidden, RateLimited."""
        admission = self.scope["state"].get("admission")
        if admission is not None:
            admission.check(agent, verb, trio.current_time())

    def check_sight(self, agent: str) -> None:
        """Check that the client may see that an agent exists. Raises as `check` does."""
        state = self.scope["state"]
        check_sight(state.get("admission"), state.get("sees", anything), agent)


def bad(detail: str) -> HttpError:
    return HttpError(400, "Bad Request", detail)


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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = ApiRequest(scope, receive, send)
        try:
            answer = await self._answer(request)
        except (AgentError, HttpError) as error:
            answer = _problem_of_agent(error) or problem_answer(error, self._new_id(), self._allowed)
        if answer is not None:
            await give(send, answer, bare=scope["method"] == "HEAD")

    async def _answer(self, request: ApiRequest) -> Answer | None:
        found = self._methods.get(request.method)
        allow = ((b"allow", self._allowed().encode()),)
        if request.method == "OPTIONS":
            return Answer(204, b"", allow)
        if found is None:
            raise HttpError(405, "Method Not Allowed", f"here are {self._allowed()}", allow)
        verb, handler = found
        if verb is None:
            request.check_sight(self._agent)
        else:
            request.check(self._agent, verb)
        answer: Answer | None = await handler(request)
        return answer

    def _allowed(self) -> str:
        reading = ("HEAD",) if "GET" in self._methods else ()
        return ", ".join((*self._methods, *reading, "OPTIONS"))


def _problem_of_agent(error: Exception) -> Answer | None:
    """Return the answer for problem details of the agent, None for any other error."""
    data = error.output if isinstance(error, ActionFailed) else None
    if not is_object(data) or not isinstance(data.get("status"), int):
        return None
    more: Headers = ((b"retry-after", b"1"),) if data["status"] == 503 else ()
    return Answer(
        data["status"], msgspec.json.encode(data), ((b"content-type", PROBLEM.encode()), NOSNIFF, *more)
    )


# --- the API

DEFAULT_PAGE: Final = 200
"""Descriptions in a page where the client sets no limit."""

_SAFE: Final = "!$&'()*+,;=:@"  # allowed in a segment of a path besides letters and digits (RFC 3986, 3.3)
_DESCRIPTIONS: Final = (TD_JSON, JSON, LD_JSON)
_NO_CACHE: Final = (b"cache-control", b"no-cache")
_VARY: Final = (b"vary", b"Accept")


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
        from starlette.routing import Route

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

    async def _own(self, request: ApiRequest) -> Answer:
        kind = best_of(request.headers, (TD_JSON, JSON)) or TD_JSON
        return Answer(200, self._td, (_type(kind), NOSNIFF, _NO_CACHE, _VARY))

    async def _retrieve(self, request: ApiRequest) -> Answer:
        found = await self._ref.invoke(ThingDirectory.thing_text, _id_in(request))
        tag = found.tag.encode()
        headers: Headers = ((b"etag", b"W/" + tag), NOSNIFF, _NO_CACHE, _VARY)
        if has_tag(request.headers, b"if-none-match", tag):
            return Answer(304, b"", headers)
        return Answer(200, found.text.encode(), (_type(_best(request, (TD_JSON, JSON, LD_JSON))), *headers))

    async def _list(self, request: ApiRequest) -> Answer | None:
        query = request.query()
        for name in ("sort_by", "sort_order"):
            if name in query:
                raise HttpError(
                    501, "Not Implemented", f"{name} is not supported: the order is that of the ids"
                )
        form = query.get("format", "array")
        if form not in ("array", "collection"):
            raise bad(f"format must be array or collection, not {form[:100]!r}")
        offset = _number(query, "offset", least=0) or 0
        limit = _number(query, "limit", least=1)
        kind = _best(request, (LD_JSON, JSON))
        page = await self._page(offset, limit or DEFAULT_PAGE)
        if limit is None and offset + page.count < page.total:
            await self._all(request, page, kind, form)
            return None
        following = self._following(page, offset, limit, form)
        here = self._url("things", offset=offset, limit=limit, format=form)
        body = b"[" + page.members.encode() + b"]"
        if form == "collection":
            body = (
                _collection(page, here)
                + body
                + (b',"next":' + msgspec.json.encode(following) if following else b"")
                + b"}"
            )
        return Answer(200, body, (_type(kind), *self._links(page, following), NOSNIFF, _NO_CACHE, _VARY))

    async def _page(self, offset: int, limit: int, after: str | None = None) -> PageText:
        return await self._ref.invoke(
            ThingDirectory.page_text, min(offset, 1 << 53), min(limit, 1 << 53), after
        )

    def _following(self, page: PageText, offset: int, limit: int | None, form: str) -> str | None:
        start = offset + page.count
        if limit is None or start >= page.total:
            return None
        more = {"format": form} if form == "collection" else {}
        return self._url("things", offset=start, limit=limit, **more)

    def _url(self, place: str, **query: object) -> str:
        declared = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
        return f"{self._prefix}/{place}" + (f"?{declared}" if declared else "")

    def _links(self, page: PageText, following: str | None) -> Headers:
        canonical = (b"link", f'<{self._prefix}/things>; rel="canonical"; etag="{page.tag}"'.encode())
        return (
            (canonical,)
            if following is None
            else ((b"link", f'<{following}>; rel="next"'.encode()), canonical)
        )

    async def _all(self, request: ApiRequest, page: PageText, kind: str, form: str) -> None:
        """Send all descriptions page by page, as fast as the client reads."""
        headers = [_type(kind), *self._links(page, None), NOSNIFF, _NO_CACHE, _VARY]
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        before, after = b"[", b"]"
        if form == "collection":
            before, after = _collection(page, self._url("things", format=form)) + b"[", b"]}"
        if request.scope["method"] != "HEAD":
            async for members in self._pieces(page):
                await request.send(
                    {"type": "http.response.body", "body": before + members, "more_body": True}
                )
                before = b","
        await request.send({"type": "http.response.body", "body": after})

    async def _pieces(self, page: PageText) -> AsyncIterator[bytes]:
        while page.count:
            yield page.members.encode()
            try:
                page = await self._page(0, DEFAULT_PAGE, page.last)
            except NotFound:
                raise
            except AgentError:
                await self._ref.ready()
                page = await self._page(0, DEFAULT_PAGE, page.last)

    async def _search(self, request: ApiRequest) -> Answer:
        query = request.query().get("query")
        if query is None:
            raise bad("query=... is missing: a JSONPath expression")
        found = await self._ref.invoke(ThingDirectory.search_text, query)
        return Answer(200, found.encode(), (_type(JSON), NOSNIFF, _NO_CACHE))

    async def _listen(self, kind: str, request: ApiRequest) -> None:
        diff = request.query().get("diff", "false")
        if diff not in ("true", "false"):
            raise bad(f"diff must be true or false, not {diff[:100]!r}")
        await self._streams.serve(
            request.send,
            kind,
            diff=diff == "true",
            last=request.header(b"last-event-id") or "",
            bare=request.scope["method"] == "HEAD",
        )

    # ---- changing

    async def _create(self, request: ApiRequest) -> Answer:
        text = await self._body(request, _DESCRIPTIONS)
        id = await self._ref.invoke(ThingDirectory.create_anonymous_thing, text)
        return Answer(201, b"", (self._location(id),))

    async def _put(self, request: ApiRequest) -> Answer:
        id = _id_in(request)
        text = await self._body(request, _DESCRIPTIONS)
        is_new = await self._ref.invoke(ThingDirectory.put_thing, id, text)
        return Answer(201, b"", (self._location(id),)) if is_new else Answer(204)

    async def _patch(self, request: ApiRequest) -> Answer:
        id = _id_in(request)
        text = await self._body(request, (MERGE_PATCH,), (b"accept-patch", MERGE_PATCH.encode()))
        await self._ref.invoke(ThingDirectory.partially_update_thing, id, text)
        return Answer(204)

    async def _delete(self, request: ApiRequest) -> Answer:
        await self._ref.invoke(ThingDirectory.delete_thing, _id_in(request))
        return Answer(204)

    def _location(self, id: str) -> tuple[bytes, bytes]:
        return b"location", f"{self._prefix}/things/{quote(id, safe=_SAFE)}".encode()

    async def _body(self, request: ApiRequest, kinds: Sequence[str], *more: tuple[bytes, bytes]) -> str:
        """Return the body of a request. Raises HttpError: 415 for another type, 413 if too large, 400."""
        declared = request.header(b"content-type")
        kind = kinds[0] if declared is None else declared.partition(";")[0].strip().lower()
        if kind not in kinds or (declared is None and kinds == (MERGE_PATCH,)):
            raise HttpError(415, "Unsupported Media Type", f"send {' or '.join(kinds)}", more)
        if (request.header(b"content-encoding") or "identity").lower() != "identity":
            raise HttpError(415, "Unsupported Media Type", "send the body without Content-Encoding")
        try:
            return (await self._whole(request)).decode()
        except UnicodeDecodeError:
            raise bad("the body is not UTF-8") from None

    async def _whole(self, request: ApiRequest) -> bytes:
        room = self._options.max_text
        found = bytearray()
        while True:
            message = await request.receive()
            if message["type"] != "http.request":
                raise bad("the body is incomplete")
            found += message.get("body", b"")
            if len(found) > room:
                detail = f"a description must have at most {self._options.max_bytes} bytes"
                raise HttpError(413, HTTPStatus(413).phrase, detail)
            if not message.get("more_body"):
                return bytes(found)


async def _no_events(request: ApiRequest) -> Answer:
    raise HttpError(404, "Not Found", f"use /events for all events, or /events/{', /events/'.join(KINDS)}")


async def _no_search(request: ApiRequest) -> Answer:
    raise HttpError(404, "Not Found", "only search by JSONPath is supported: /search/jsonpath?query=...")


def _collection(page: PageText, here: str) -> bytes:
    """Return the head of a collection, up to its members."""
    head = {
        "@context": "https://www.w3.org/2022/wot/discovery",
        "@type": "ThingCollection",
        "total": page.total,
        "@id": here,
    }
    return msgspec.json.encode(head)[:-1] + b',"members":'


def _type(kind: str) -> tuple[bytes, bytes]:
    return b"content-type", kind.encode()


def _best(request: ApiRequest, offered: Sequence[str]) -> str:
    """Return the media type of the answer. Raises HttpError if the client accepts none."""
    best = best_of(request.headers, offered)
    if best is None:
        raise HttpError(406, "Not Acceptable", f"accept {' or '.join(offered)}")
    return best


def _id_in(request: ApiRequest) -> str:
    id: str = request.scope["path_params"]["id"]
    return id


def _number(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) >= least):
        raise bad(f"{name} must be a whole number of at least {least}, not {text[:100]!r}")
    return int(text)


def directory_routes(
    ref: Ref[ThingDirectory],
    options: DirectoryOptions,
    *,
    name: str = "directory",
    bases: Sequence[str],
    security: Security | None = None,
    new_id: Callable[[], str] | None = None,
    server: LmosServer | None = None,
) -> list[BaseRoute]:
    """Return the routes of a directory's API, for a Starlette application.

    `name` is the agent's public name in access lists. `bases` are the addresses of the node; the directory's
    own description names the first, and `security`. `new_id` returns ids for problems. With the `server` of
    the node, event streams end when it drains.
    """
    return Api(ref, options, name=name, bases=bases, security=security, new_id=new_id, server=server).routes()
