"""Open requests and listeners over HTTP: counted, kept, and ended when the node drains."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import trio

from lmos_actors.errors import AgentUnavailable

from ..exposure._descriptions import http_of
from ._accept import check_brought
from ._agent_request import AgentRequest
from ._answers import whole_body
from ._listening import LEAVING, Listening
from ._runs import Runs
from ._values import read_json

if TYPE_CHECKING:
    from collections.abc import Generator

    from lmos_actors.actors import Runtime, Seats

    from ..exposure._descriptions import Descriptions
    from ..lmos._server import LmosServer
    from ..lmos._server_requests import AgentOrPool
    from ._requests import WebRequest

_NO_NAMES: Final[dict[str, Any]] = {}


class HttpRequestTracker:
    """The `RequestTracker` of one node, and a `DrainingService`: it drains with the LMOS server."""

    def __init__(self, descriptions: Descriptions, server: LmosServer) -> None:
        self.descriptions = descriptions
        context = self.context = server.context
        self.rt: Runtime = context.rt
        self.open: dict[AgentRequest, None] = {}
        self.runs = Runs(self.rt, context.failed, context.budget)
        self.prefix = urlsplit(http_of(descriptions.bases[0])).path if descriptions.bases else ""
        """The path prefix under which this node is reached, as behind a proxy."""
        self._listening: dict[Listening, None] = {}
        self._quiet: trio.Event | None = None
        server.join(self)

    # ---- asking

    def ask(self, request: WebRequest) -> AgentRequest:
        """Make the request for an agent. Raises AgentUnavailable while the node drains."""
        if self.context.draining:
            raise AgentUnavailable(request.parts[0], LEAVING)
        parent, state = request.header(b"traceparent"), request.header(b"tracestate")
        request.ask = AgentRequest(self, request.label, request.principal, parent, state)
        return request.ask

    async def outcome(self, request: WebRequest, link: AgentOrPool, key: str, *args: Any) -> Any:
        """Carry out an operation and return its value. Raises what `AgentRequest.send` does, AgentError."""
        ask = self.ask(request)
        ask.send(link, (key, args, _NO_NAMES), request.remaining())
        return await ask.result()

    @contextmanager
    def listening(self, link: AgentOrPool, *, conflate: bool = False) -> Generator[Listening]:
        """Make a listener at an agent, not joined yet; it leaves with the block."""
        made = Listening(self.rt, link.sinks(), self.context.sharing, conflate=conflate)
        self._listening[made] = None
        try:
            yield made
        finally:
            del self._listening[made]
            made.leave()

    # ---- the end

    @property
    def seats(self) -> Seats:
        """The mailbox seats that far requests take, by peer."""
        return self.context.seats

    def settled(self) -> None:
        """Take note that a request is no longer open."""
        if self._quiet is not None and not self.open:
            self._quiet.set()

    def shown(self, error: Exception) -> Exception:
        """Return an error as it goes over the network; see `ServerContext.shown`."""
        return self.context.shown(error)

    def on_drain(self) -> None:
        """End the listeners once the node has stopped waiting for them."""
        if self.context.finishing:
            for listening in tuple(self._listening):
                listening.end()

    async def wait_done(self) -> None:
        """Wait until nothing is open."""
        self._quiet = trio.Event()
        self.settled()
        await self._quiet.wait()


async def brought(request: WebRequest) -> Any:
    """Return the value that a request brings. Raises HttpError 415, InvalidInput, ClientGone."""
    body = await whole_body(request.receive)
    if body:
        check_brought(request.headers)
    return read_json(body)
