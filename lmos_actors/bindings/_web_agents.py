"""Agents over HTTP: what is below `/agents/`, as Thing Descriptions have it in their forms for HTTP.

    /agents/NAME                            the description
    /agents/NAME/properties                 all of them: read, write several
    /agents/NAME/properties/PROPERTY        read, write
    /agents/NAME/actions/ACTION             invoke

A request becomes an envelope in the agent's mailbox, as one that comes over LMOS does; whoever leaves before
it is answered takes it back. All of this is dispatched by hand: it is what most requests are for.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._errors import AgentError, AgentUnavailable, LocalProtocolError, NotAllowed, NotFound
from lmos_actors.actors import STREAM, LocalLink, property_key

from ._descriptions import LINKS, TD_JSON
from ._exposure import public_name
from ._server_requests import READ_ALL, WRITE_MANY, operation_named, somebody
from ._web_accept import check_brought, check_taken, has_tag, best_of
from ._web_answers import (
    EMPTY,
    NO_CACHE,
    NO_STORE,
    NOSNIFF,
    VARY,
    Answer,
    ClientGone,
    HttpError,
    give,
    problem_answer,
    value,
    whole_body,
)
from ._web_ask import WebAsk
from ._web_requests import WebRequest
from ._web_values import read_json, tag_of, with_parameters, written_members, written_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import Runtime

    from ._descriptions import Descriptions
    from ._server import LmosServer
    from ._server_requests import Anybody
    from ._web_answers import Receive, Send

LONGEST: Final = 200
"""Characters of a name that is not there that are said back."""

JSON: Final = ("application/json",)
DESCRIPTION: Final = (TD_JSON, "application/json", "text/html")
_NONE: Final[dict[str, Any]] = {}


class AgentsOverHttp:
    """Serves a node's agents over HTTP, as an ASGI application for paths that begin with `/agents/`."""

    def __init__(self, descriptions: Descriptions, server: LmosServer) -> None:
        self.descriptions = descriptions
        self.server = server
        self.rt: Runtime = server.rt
        self.open: dict[WebAsk, None] = {}

    def settled(self) -> None:
        """A request is open no more."""

    # ---- any request

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = WebRequest(scope, receive, send)
        try:
            answer = await self._answer(request)
        except ClientGone:
            return
        except (AgentError, HttpError) as error:
            answer = self._problem(request, error)
        except Exception as error:
            self.server.failed(error)
            answer = self._problem(request, LocalProtocolError("the answer could not be made"))
        if answer is not None:
            await give(send, answer, bare=request.method == "HEAD")

    def _problem(self, request: WebRequest, error: Exception) -> Answer:
        return problem_answer(error, self.rt.entropy.new_id(), self._allowed(request))

    def _allowed(self, request: WebRequest) -> str:
        return "GET, HEAD, PUT, POST, DELETE"

    async def _answer(self, request: WebRequest) -> Answer | None:
        parts = request.parts
        if len(parts) == 1:
            return self._described(request, parts[0])
        route = _ROUTES.get((parts[1], len(parts)))
        if route is None:
            raise _nowhere()
        method, verb = route.get(request.method, (None, ""))
        if method is None:
            raise _not_so(route)
        link = self._asked(request, verb)
        return await method(self, request, link)

    def _asked(self, request: WebRequest, verb: Any) -> Anybody:
        """Give the agent that is meant, once whoever asks may ask it for that."""
        name = request.parts[0]
        link = self.server.exposure.at(name)
        if link is None:
            raise NotFound("agent", name[:LONGEST], known=self.server.known_names())
        if request.admission is not None:
            request.admission.check(public_name(link.path), verb, trio.current_time())
        if self.server.draining:
            raise AgentUnavailable(name, "the node is shutting down")
        return link

    def _described(self, request: WebRequest, name: str) -> Answer:
        if not request.reads:
            raise _not_so({"GET": None, "HEAD": None})
        found = self.descriptions.catalogue.named(name)
        if found is None:
            # not all names: anybody may ask, and to compare them takes time
            known = (each.name for each in islice(self.descriptions.catalogue, LINKS))
            raise NotFound("agent", name[:LONGEST], known=known)
        served = self.descriptions.served(found)
        kind = best_of(request.headers, DESCRIPTION) or TD_JSON
        tag = (b"etag", served.tag.encode())
        if has_tag(request.headers, b"if-none-match", served.tag.encode()):
            return Answer(304, b"", (tag, VARY, NO_CACHE))
        shown = (b"content-type", b"application/json" if kind == "text/html" else kind.encode())
        return Answer(200, served.text, (shown, NOSNIFF, VARY, NO_CACHE, tag))

    def ask(self, request: WebRequest) -> WebAsk:
        """Make the request that an agent gets."""
        parent, state = request.header(b"traceparent"), request.header(b"tracestate")
        return WebAsk(self, request.label, request.principal, parent, state)

    async def _outcome(self, request: WebRequest, link: Anybody, key: str, *args: Any) -> Any:
        ask = self.ask(request)
        ask.send(link, (key, args, _NONE), request.remaining())
        return await ask.result()

    # ---- properties

    async def _read(self, request: WebRequest, link: Anybody) -> Answer:
        name = request.parts[2]
        key = property_key(name)
        operation_named(link, "property", key, name)
        check_taken(request.headers, JSON)
        return _tagged(request, written_value(await self._outcome(request, link, key)))

    async def _read_all(self, request: WebRequest, link: Anybody) -> Answer:
        somebody(link)
        check_taken(request.headers, JSON)
        return _tagged(request, written_members(await self._outcome(request, link, READ_ALL)))

    async def _write(self, request: WebRequest, link: Anybody) -> Answer:
        name = request.parts[2]
        key = f"{WRITE_MANY}{name}"
        operation_named(link, "property", key, name)
        await self._outcome(request, link, key, await _brought(request))
        return EMPTY

    async def _write_many(self, request: WebRequest, link: Anybody) -> Answer:
        somebody(link)
        await self._outcome(request, link, WRITE_MANY, await _brought(request))
        return EMPTY

    # ---- actions

    async def _invoke(self, request: WebRequest, link: Anybody) -> Answer:
        name = request.parts[2]
        op = operation_named(link, "action", name, name)
        if op.kind == STREAM:
            raise NotAllowed(f"{op.label} gives a stream, which is not carried over HTTP: use LMOS")
        check_taken(request.headers, JSON)
        body = await whole_body(request.receive)
        data = None
        if body:
            check_brought(request.headers)
            data = read_json(body)
        if request.query:
            data = with_parameters(op, data, request.query)
        ask = self.ask(request)
        self._post(ask, request, link, name, data)
        result = await ask.result()
        if result is None and op.result_shape is not None and op.result_shape.type in (None, type(None)):
            return EMPTY
        return value(written_value(result), NO_STORE)

    def _post(self, ask: WebAsk, request: WebRequest, link: Anybody, name: str, data: Any) -> None:
        one = somebody(link)
        args, kwargs = one.spread(one.table[name], data, tolerant=True)
        ask.send(link, (name, args, kwargs), request.remaining())


def _tagged(request: WebRequest, body: bytes) -> Answer:
    tag = tag_of(body)
    if has_tag(request.headers, b"if-none-match", tag):
        return Answer(304, b"", ((b"etag", tag), NO_CACHE))
    return value(body, (b"etag", tag), NO_CACHE)


async def _brought(request: WebRequest) -> Any:
    """Give the value that a request brings. Raises HttpError 415, InvalidInput."""
    body = await whole_body(request.receive)
    if body:
        check_brought(request.headers)
    return read_json(body)


def _nowhere() -> HttpError:
    return HttpError(404, "Not Found", "there is nothing at this path below /agents/")


def _not_so(route: dict[str, Any]) -> HttpError:
    allowed = ", ".join((*route, "OPTIONS"))
    return HttpError(
        405, "Method Not Allowed", f"this can be asked with {allowed}", ((b"allow", allowed.encode()),)
    )


_Route = dict[str, tuple[Any, str]]

_ROUTES: Final[dict[tuple[str, int], _Route]] = {
    ("properties", 2): {
        "GET": (AgentsOverHttp._read_all, "read"),
        "HEAD": (AgentsOverHttp._read_all, "read"),
        "PUT": (AgentsOverHttp._write_many, "write"),
    },
    ("properties", 3): {
        "GET": (AgentsOverHttp._read, "read"),
        "HEAD": (AgentsOverHttp._read, "read"),
        "PUT": (AgentsOverHttp._write, "write"),
    },
    ("actions", 3): {"POST": (AgentsOverHttp._invoke, "invoke")},
}
