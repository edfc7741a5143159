"""Open requests and listeners over HTTP: counted, kept, and ended when the node drains.

Listeners never hold an agent back: each has a feed, which keeps only the latest reading, or drops its oldest
event, with a gap in its place. Values that wait in feeds are charged to the budget of all peers, see
`_shared_values.py`. The front door closes a connection whose client does not read.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import trio

from lmos_actors.actors import Feed, Occurrence
from lmos_actors.errors import AgentUnavailable

from ..exposure._access_middleware import rights_of
from ..exposure._descriptions import http_of
from ._agent_request import AgentRequest
from ._runs import Runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from lmos_actors.actors import Runtime, Seats, Sink, SinkTable

    from ..exposure._descriptions import Descriptions
    from ..exposure._shared_values import SharedValues
    from ..lmos._server import LmosServer
    from ..lmos._server_requests import AgentOrPool
    from ._options import HttpOptions
    from ._requests import HttpRequest

LEAVING: Final = "the node is shutting down"

_NO_NAMES: Final[dict[str, Any]] = {}


class FeedSink:
    """A sink that feeds one listener; a value for several listeners is encoded once.

    If several properties are observed, each value is passed on with its property's name. The events of an
    agent have their names already.
    """

    __slots__ = ("_feed", "_name", "_sharing")

    only_reads = True

    def __init__(self, feed: Feed[Any], sharing: SharedValues, name: str) -> None:
        self._feed = feed
        self._sharing = sharing
        self._name = name

    def push(self, value: Any) -> None:
        """Put a reading or an event into the feed of the listener."""
        if type(value) is Occurrence:
            self._feed.push(Occurrence(value.event, self._sharing.of(value.data)))
        elif self._name:
            self._feed.push(Occurrence(self._name, self._sharing.of(value)))
        else:
            self._feed.push(self._sharing.of(value))

    def gap(self, reason: str, missed: int | None) -> None:
        """Put a gap into the feed, because values are missing."""
        self._feed.gap(reason, missed)

    def close(self) -> None:
        """Close the feed, as there will be no more values."""
        self._feed.close()


class Listening:
    """One listener: its feed and the sinks that fill the feed. Always call `leave` at the end."""

    def __init__(self, rt: Runtime, sinks: SinkTable, sharing: SharedValues, *, conflate: bool) -> None:
        self._memory = sharing.reader(self._drop)
        self.feed: Feed[Any] = Feed(rt.timers, conflate=conflate, gaps=True, holder=self._memory)
        self.leaving = False
        self._sinks = sinks
        self._sharing = sharing
        self._joined: dict[str, Sink] = {}

    def sink(self, key: str, name: str = "") -> Sink:
        """Return a new sink for a key; if a `name` is given, each value is passed on with it."""
        sink = self._joined[key] = FeedSink(self.feed, self._sharing, name)
        return sink

    def join(self, key: str) -> None:
        """Put the values of a key into the feed from now on."""
        self._sinks.add(key, self.sink(key))

    def leave(self) -> None:
        """Stop putting values into the feed."""
        for key, sink in self._joined.items():
            self._sinks.remove(key, sink)
        self._memory.close()

    def _drop(self) -> None:
        self.feed.drop_waiting()

    def end(self) -> None:
        """End the feed because the node drains: values that have arrived are still sent."""
        self.leaving = True
        self.feed.close()


class HttpRequestTracker:
    """The `RequestTracker` of one node, and a `DrainingService`: it drains with the LMOS server."""

    def __init__(self, descriptions: Descriptions, server: LmosServer, options: HttpOptions) -> None:
        self.descriptions = descriptions
        self.options = options
        context = self.context = server.context
        self.rt: Runtime = context.rt
        self.open: dict[AgentRequest, None] = {}
        self.runs = Runs(self.rt, context.failed, context.budget, context.shown_question, options)
        self.prefix = urlsplit(http_of(descriptions.bases[0])).path if descriptions.bases else ""
        """The path prefix under which this node is reached, as behind a proxy."""
        self._listening: dict[Listening, None] = {}
        self._quiet: trio.Event | None = None
        server.join(self)

    # ---- asking

    def ask(self, request: HttpRequest) -> AgentRequest:
        """Return a new request for an agent. Raises AgentUnavailable while the node drains."""
        if self.context.draining:
            raise AgentUnavailable(request.parts[0], LEAVING)
        parent = state = None
        if b"traceparent" in request.header_names:  # a `tracestate` alone counts for nothing
            parent, state = request.header(b"traceparent"), request.header(b"tracestate")
        allows = rights_of(request.admission)
        request.ask = AgentRequest(self, request.label, request.principal, parent, state, allows=allows)
        return request.ask

    def outcome(self, request: HttpRequest, link: AgentOrPool, key: str, *args: Any) -> Awaitable[Any]:
        """Post an operation and return an awaitable of its value; the caller must await this at once.

        Raises the same errors as `AgentRequest.send`, and AgentError.
        """
        ask = self.ask(request)
        ask.send(link, (key, args, _NO_NAMES), request.remaining())
        return ask.result()

    @contextmanager
    def listening(self, link: AgentOrPool, *, conflate: bool = False) -> Generator[Listening]:
        """Yield a new listener at an agent, which gets nothing until it joins; it leaves after the block."""
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
        """Note that a request is no longer open."""
        if self._quiet is not None and not self.open:
            self._quiet.set()

    def shown(self, error: Exception) -> Exception:
        """Return an error in the form that is sent over the network; see `ServerContext.shown`."""
        return self.context.shown(error)

    def on_drain(self) -> None:
        """End the listeners once the node has stopped waiting for them."""
        if self.context.finishing:
            for listening in tuple(self._listening):
                listening.end()

    async def wait_done(self) -> None:
        """Wait until no request is open."""
        self._quiet = trio.Event()
        self.settled()
        await self._quiet.wait()
