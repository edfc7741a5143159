"""Agents over HTTP: the paths below `/agents/`, as the forms of Thing Descriptions name them.

    /agents/NAME                            its description
    /agents/NAME/properties                 all: read, write several, observe
    /agents/NAME/properties/P               read, write
    /agents/NAME/properties/P/observable    observe
    /agents/NAME/actions                    all runs: query
    /agents/NAME/actions/A                  invoke; query and cancel the newest run
    /agents/NAME/actions/A/ID               query, cancel
    /agents/NAME/events                     all: subscribe
    /agents/NAME/events/E                   subscribe

A request becomes an envelope in the agent's mailbox, like a request over LMOS. A client that disconnects
before the answer withdraws its request. These paths are looked up in one table and not matched by routes of
Starlette: those take the decoded path, in which a "%2F" within a name has become a slash, and try one pattern
after another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from lmos_actors.actors import STREAM
from lmos_actors.errors import AgentError, LocalProtocolError, NotFound
from lmos_actors.supervision import class_at

from ..exposure._description_security import check_sight
from ..exposure._descriptions import TD_JSON
from ..exposure._exposure import AGENTS, public_name
from ..exposure._meter import refused
from ._actions import cancel, invoke, query, query_all
from ._agent_request import WAY
from ._events import observe, subscribe, subscribe_all
from ._properties import read, read_all, write, write_many
from ._request_tracker import HttpRequestTracker
from ._requests import HttpRequest, asked_at, best_of, has_tag
from ._responses import JSON, NO_CACHE, NOSNIFF, VARY, HttpError, allow, problem_response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from lmos_actors.security import Verb

    from ..exposure._descriptions import Descriptions
    from ..lmos._server import LmosServer
    from ..lmos._server_requests import AgentOrPool
    from ._options import HttpOptions

NAMES_COMPARED: Final = 1_000
LONGEST: Final = 200
"""Limit on the characters of a name: no longer one exists, and errors repeat only its beginning."""

HTML: Final = "text/html"
DESCRIPTION: Final = (TD_JSON, JSON, HTML)

READING: Final = {"GET": None, "HEAD": None}

Handler: TypeAlias = Callable[[HttpRequestTracker, HttpRequest, Any], Awaitable[Response | None]]
Methods: TypeAlias = "Mapping[str, tuple[Handler, Verb, str]]"
"""Methods of a resource: for each its handler, the permission that it needs, and its `Operation.verb`."""

_READ_ALL: Final = (read_all, "read", "read all")
_READ: Final = (read, "read", "read")
_OBSERVE: Final = (observe, "read", "observe")
_QUERY_ALL: Final = (query_all, "invoke", "")
_QUERY: Final = (query, "invoke", "")
_CANCEL: Final = (cancel, "invoke", "")
_SUBSCRIBE_ALL: Final = (subscribe_all, "subscribe", "subscribe to all")
_SUBSCRIBE: Final = (subscribe, "subscribe", "subscribe")

ROUTES: Final[Mapping[tuple[str, int], Methods]] = {
    ("properties", 2): {"GET": _READ_ALL, "HEAD": _READ_ALL, "PUT": (write_many, "write", "write many")},
    ("properties", 3): {"GET": _READ, "HEAD": _READ, "PUT": (write, "write", "write")},
    ("observable", 4): {"GET": _OBSERVE, "HEAD": _OBSERVE},
    ("actions", 2): {"GET": _QUERY_ALL, "HEAD": _QUERY_ALL},
    ("actions", 3): {"POST": (invoke, "invoke", "invoke"), "GET": _QUERY, "HEAD": _QUERY, "DELETE": _CANCEL},
    ("actions", 4): {"GET": _QUERY, "HEAD": _QUERY, "DELETE": _CANCEL},
    ("events", 2): {"GET": _SUBSCRIBE_ALL, "HEAD": _SUBSCRIBE_ALL},
    ("events", 3): {"GET": _SUBSCRIBE, "HEAD": _SUBSCRIBE},
}


class AgentsOverHttp:
    """A node's agents as an ASGI application, for paths that begin with `/agents/`."""

    def __init__(self, descriptions: Descriptions, server: LmosServer, options: HttpOptions) -> None:
        self._tracker = HttpRequestTracker(descriptions, server, options)
        self._descriptions = descriptions
        self._context = server.context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request for a path below `/agents/`."""
        request = HttpRequest(scope, receive, send)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except (AgentError, HttpError) as error:
            self._refused(request, error)
            response = self._problem(request, error)
        except Exception as error:
            if request.begun:  # a part of the answer is out: it can only be broken off
                raise
            self._context.failed(error)
            response = self._problem(request, LocalProtocolError("the answer could not be made"))
        if response is not None:
            await response(scope, receive, send)

    def _refused(self, request: HttpRequest, error: Exception) -> None:
        """Count a request that was refused before it reached a mailbox."""
        if request.ask is None or not request.ask.posted:
            refused(self._tracker.rt, WAY, request.verb, error)

    def _problem(self, request: HttpRequest, error: Exception) -> Response:
        return problem_response(error, self._tracker.rt.entropy.new_id(), lambda: self._allowed(request))

    async def _answer(self, request: HttpRequest) -> Response | None:
        if len(request.parts) == 1:
            return self._described(request)
        methods = _methods(request)
        found = methods.get(request.method)
        if found is None and request.method != "OPTIONS":
            # first, as the methods of a 405 reveal whether the agent is there
            check_sight(request.admission, request.sees, public_name(request.parts[0]))
            raise self._not_allowed(request)
        if found is not None:
            request.verb = found[2]
        link = self._agent_for(request, "read" if found is None else found[1])
        if found is None:
            return allow(self._allowed(request))
        return await found[0](self._tracker, request, link)

    def _agent_for(self, request: HttpRequest, permit: Verb) -> AgentOrPool | None:
        """Return the agent of the path; None if it is gone and the request is for one of its runs.

        Raises NotFound, and the errors of the client's admission. The permission is checked first, so that a
        client without it cannot find out which agents exist.
        """
        name, admission = request.parts[0], request.admission
        link = self._context.exposure.at(name)
        if admission is not None:
            admission.check(public_name(name if link is None else link.path), permit, trio.current_time())
        if link is None and not (request.parts[1] == "actions" and len(request.parts) == 4):
            known = self._context.known_names(admission, permit)
            raise NotFound("agent", name[:LONGEST], known=known, below=AGENTS)
        return link

    def _allowed(self, request: HttpRequest) -> str:
        """Return the methods of a resource; for a property or an action, only the supported methods."""
        methods: dict[str, Any] = dict(READING if len(request.parts) == 1 else _methods(request))
        if len(request.parts) == 3:
            link = self._context.exposure.at(request.parts[0])
            cls = None if link is None else class_at(link)
            _, kind, name = request.parts
            if kind == "properties":
                made = None if cls is None else cls.__contract__.properties.get(name)
                if made is None:
                    methods.clear()
                elif made.read_only:
                    del methods["PUT"]
                elif made.write_only:
                    del methods["GET"], methods["HEAD"]
            elif kind == "actions" and cls is not None:
                op = cls.__contract__.table.get(name)
                if op is not None and (op.kind == STREAM or op.streams):
                    del methods["GET"], methods["HEAD"], methods["DELETE"]
        return ", ".join((*methods, "OPTIONS"))

    def _not_allowed(self, request: HttpRequest) -> HttpError:
        allowed = self._allowed(request)
        return HttpError(405, f"this can be asked with {allowed}", {"allow": allowed})

    def _described(self, request: HttpRequest) -> Response:
        if not request.reads:
            if request.method == "OPTIONS":
                return allow(self._allowed(request))
            raise self._not_allowed(request)
        name = request.parts[0]
        check_sight(request.admission, request.sees, public_name(name))
        found = self._descriptions.catalogue.named(name)
        if found is None:
            # not all names: any client may ask, and comparing takes time
            known = (each.name for each in islice(self._descriptions.seen(request.sees), NAMES_COMPARED))
            raise NotFound("agent", name[:LONGEST], known=known, below=AGENTS)
        served = asked_at(self._descriptions, request).served(found)
        headers = {"etag": served.tag, **VARY, **NO_CACHE}
        if has_tag(request.headers, "if-none-match", served.tag):
            return Response(None, 304, headers)
        kind = best_of(request.headers, DESCRIPTION) or TD_JSON
        kind = JSON if kind == HTML else kind
        return Response(served.text, 200, {"content-type": kind, **NOSNIFF, **headers})


def _methods(request: HttpRequest) -> Methods:
    """Return the methods of a path. Raises HttpError 404."""
    parts = request.parts
    kind = parts[3] if len(parts) == 4 and parts[1] == "properties" else parts[1]
    methods = ROUTES.get((kind, len(parts)))
    if methods is None or max(map(len, parts[2:]), default=0) > LONGEST:
        raise HttpError(404, "there is nothing at this path below /agents/")
    return methods
