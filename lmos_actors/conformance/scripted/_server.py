"""The scripted server: two things that follow the LMOS specification exactly, without any I/O.

It is what conformance cases are tried on, a model for authors of servers, and what clients are judged by. A
server that is wrong in one way is a subclass of `ScriptedConnection` or `ScriptedServer` that overrides one
small method.
"""

from __future__ import annotations

import heapq
import uuid
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import attrs

from ._connection import Disconnect, Request, SendClose
from ._description import NAME, NAME_B, OFFERS, described, described_b
from ._runs import (
    RequestHistory,
    RunsEndpoint,
    RunsServerContext,
    Timer,
)
from ._thing import (
    Json,
    Problem,
    ScriptedThing,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_LISTENINGS: Final = 256
_PEERS: Final = 256
_TICK: Final = 1.0
_TIMERS: Final = 1024  # of which cancelled ones are not looked for


@attrs.define(eq=False)
class Listening:
    """An observation or a subscription. `name`: of the property or event, "" for all events."""

    kind: Literal["property", "event", "all"]
    thing: ScriptedThing
    name: str
    correlation: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """The key under which a repeated request replaces it."""
        return self.thing.id, self.kind, self.name


class ScriptedConnection(RunsEndpoint):
    """One connection: `text`, `binary` and `lost` take what comes, `out` is what goes out."""

    server: ScriptedServer

    def __init__(
        self, server: ScriptedServer, *, offered: bool, at: ScriptedThing, fixed: bool, peer: str = ""
    ) -> None:
        super().__init__(server, offered=offered, at=at, fixed=fixed, peer=peer)
        self.server = server
        self.listenings: dict[tuple[str, str, str], Listening] = {}

    def take(self, request: Request) -> None:
        """Carry a request out: the method `do_` and the name of its type."""
        if self.repeated(request):
            return
        handler = cast("Callable[[Request], None]", getattr(self, f"do_{request.kind}"))
        try:
            handler(request)
        except Problem as problem:
            self.remember(request, problem)
            self.refuse(request, problem)

    def hang_up(self, code: int | None = 1000, reason: str = "") -> None:
        """Close the connection."""
        self.put(SendClose(code, reason))

    def cut(self) -> None:
        """End the stream without a Close."""
        self.put(Disconnect())

    def lost(self) -> None:
        """Note that the connection is over."""
        if not self.over:
            self.over = True
            self.listenings.clear()
            self.release_runs()
            self.server.connections.remove(self)

    # ---- properties

    def do_readProperty(self, request: Request) -> None:
        """Answer with the value of a property."""
        value = request.thing.read(request.name)
        self.answer(request, "propertyReading", self.reading(request.name, value))

    def do_readAllProperties(self, request: Request) -> None:
        """Answer with the values of all properties that can be read."""
        self.answer(request, "propertyReadings", self.readings(request.thing, request.thing.readable()))

    def do_readMultipleProperties(self, request: Request) -> None:
        """Answer with the values of some properties."""
        names: list[str] = request.message["properties"]
        self.answer(request, "propertyReadings", self.readings(request.thing, names))

    def readings(self, thing: ScriptedThing, names: list[str]) -> Json:
        """Return the members of a message with several values."""
        return {"data": {name: thing.read(name) for name in names}, "timestamp": self.timestamp()}

    def reading(self, name: str, value: Any) -> Json:
        """Return the members of a message with one value."""
        return {"name": name, "value": value, "timestamp": self.timestamp()}

    def do_writeProperty(self, request: Request) -> None:
        """Set a property, and answer with what it is now."""
        data = request.message["data"]
        request.thing.check_write(request.name, data, "$.data")
        request.thing.write({request.name: data})
        value = request.thing.value(request.name)
        self.written(request, "propertyReading", self.reading(request.name, value))

    def do_writeMultipleProperties(self, request: Request) -> None:
        """Set several properties, all or none."""
        data: Json = request.message["data"]
        for name, value in data.items():
            request.thing.check_write(name, value, f"$.data.{name}")
        request.thing.write(data)
        self.written(request, "propertyReadings", {"data": data, "timestamp": self.timestamp()})

    do_writeAllProperties = do_writeMultipleProperties

    def written(self, request: Request, kind: str, members: Json) -> None:
        """Answer that something was written."""
        self.remember(request, (kind, members))
        self.answer(request, kind, members)

    # ---- listening

    def do_observeProperty(self, request: Request) -> None:
        """Send the value of a property, and each change of it."""
        request.thing.check_observable(request.name)
        self.listen(request, "property", request.name)
        value = request.thing.value(request.name)
        self.answer(request, "propertyReading", self.reading(request.name, value))
        self.server.tick_uptime()

    def do_unobserveProperty(self, request: Request) -> None:
        """Stop sending changes of a property; a success even if none were sent: it can be repeated."""
        request.thing.property(request.name)
        self.unlisten(request, [(request.thing.id, "property", request.name)])

    def do_subscribeEvent(self, request: Request) -> None:
        """Send each occurrence of an event."""
        request.thing.check_event(request.name)
        self.listen(request, "event", request.name)
        self.acknowledge(request)

    def do_subscribeAllEvents(self, request: Request) -> None:
        """Send each occurrence of any event."""
        self.listen(request, "all", "")
        self.acknowledge(request)

    def do_unsubscribeEvent(self, request: Request) -> None:
        """Stop sending an event."""
        request.thing.check_event(request.name)
        self.unlisten(request, [(request.thing.id, "event", request.name)])

    def do_unsubscribeAllEvents(self, request: Request) -> None:
        """Stop sending all events, including those subscribed to one by one."""
        self.unlisten(request, [key for key in self.listenings if self.is_of_events(request, key)])

    def is_of_events(self, request: Request, key: tuple[str, str, str]) -> bool:
        """Return whether a listening is about events of the thing of a request."""
        return key[0] == request.thing.id and key[1] != "property"

    def listen(self, request: Request, kind: Literal["property", "event", "all"], name: str) -> None:
        """Note an observation or a subscription, in the place of an older one."""
        listening = Listening(kind, request.thing, name, self.correlation(request))
        if listening.key not in self.listenings and len(self.listenings) >= _LISTENINGS:
            raise too_many("observations and subscriptions")
        self.listenings[listening.key] = listening

    def unlisten(self, request: Request, keys: list[tuple[str, str, str]]) -> None:
        """End observations or subscriptions."""
        for key in keys:
            self.listenings.pop(key, None)
        self.acknowledge(request)

    def acknowledge(self, request: Request) -> None:
        """Acknowledge a request, if that is wanted: LMOS knows no such answer."""
        if self.kotlin or request.message.get("ack") is True:
            self.answer(request, "acknowledgement", {"message": request.literal})

    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        """Send the change of a property, if it is observed on this connection."""
        for listening in tuple(self.listenings.values()):
            if (listening.thing, listening.kind, listening.name) == (thing, "property", name):
                self.deliver_change(listening, value)

    def deliver_change(self, listening: Listening, value: Any) -> None:
        """Send the new value of a property."""
        correlation = None if self.kotlin else listening.correlation
        self.send("propertyReading", listening.thing.id, correlation, self.reading(listening.name, value))

    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        """Send an event to each matching subscription of this connection."""
        for listening in tuple(self.listenings.values()):
            wanted = listening.kind == "all" or (listening.kind, listening.name) == ("event", name)
            if listening.thing is thing and wanted:
                self.deliver_event(listening, name, data)

    def deliver_event(self, listening: Listening, name: str, data: Any) -> None:
        """Send an event."""
        members = {"event": name, "data": data, "timestamp": self.timestamp()}
        self.send("event", listening.thing.id, listening.correlation, members)


class ScriptedServer(RunsServerContext):
    """The things, the connections, and what is to happen later.

    `clock` gives seconds, never fewer than before. Ids come from `random`. The owner calls `tick` when `due`
    says so; `wake` is called when that may have changed.
    """

    connection_class: type[ScriptedConnection] = ScriptedConnection
    thing_class: type[ScriptedThing] = ScriptedThing
    offers: tuple[str, ...] = OFFERS

    def __init__(self, clock: Callable[[], float], random: Random | None = None) -> None:
        self.clock = clock
        self.random = random or Random()
        self.wake: Callable[[], object] = lambda: None
        self.connections: list[ScriptedConnection] = []
        self.things: dict[str, ScriptedThing] = {}
        self._began = clock()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._most_timers = _TIMERS
        self._memories: dict[str, RequestHistory] = {}
        self._ticking = False
        self.main = self.add(NAME, self.describe)
        self.beside = self.add(NAME_B, self.describe_b)

    def describe(self, base: str) -> Json:
        """Describe the thing, as served at a base such as `ws://127.0.0.1:8080`."""
        return described(base)

    def describe_b(self, base: str) -> Json:
        """Describe the thing beside it."""
        return described_b(base)

    def add(self, name: str, describe: Callable[[str], Json]) -> ScriptedThing:
        """Add a thing."""
        thing = self.thing_class(name, describe, self.uptime)
        thing.changed = lambda prop, value: self.changed(thing, prop, value)
        thing.happened = lambda event, data: self.happened(thing, event, data)
        self.things[thing.id] = thing
        return thing

    # ---- connections

    def connect(self, *, offered: bool, path: str = "/ws", peer: str = "") -> ScriptedConnection:
        """Make a connection. `offered`: the subprotocol; `path`: where; `peer`: what it calls itself."""
        named = self.thing_at(path)
        made = self.connection_class(
            self, offered=offered, at=named or self.main, fixed=named is not None, peer=peer
        )
        self.connections.append(made)
        return made

    def thing_at(self, path: str) -> ScriptedThing | None:
        """Return the thing whose own address a path is."""
        things = self.things.values()
        return next((thing for thing in things if path == f"/agents/{thing.name}"), None)

    def changed(self, thing: ScriptedThing, name: str, value: Any) -> None:
        """Notify all connections of a changed property."""
        for connection in tuple(self.connections):
            connection.changed(thing, name, value)

    def happened(self, thing: ScriptedThing, name: str, data: Any) -> None:
        """Notify all connections of an event."""
        for connection in tuple(self.connections):
            connection.happened(thing, name, data)

    # ---- for the connections

    def thing(self, thing_id: str) -> ScriptedThing | None:
        """Return the thing of that id."""
        return self.things.get(thing_id)

    def new_id(self) -> str:
        """Make a UUID of version 4."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def timestamp(self) -> str:
        """Return the time of day, as RFC 3339 in UTC."""
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def history(self, peer: str) -> RequestHistory:
        """Return what is remembered for a peer."""
        if peer not in self._memories and len(self._memories) >= _PEERS:
            del self._memories[next(iter(self._memories))]
        return self._memories.setdefault(peer, RequestHistory())

    # ---- time

    def now(self) -> float:
        """Return the seconds of the clock."""
        return self.clock()

    def uptime(self) -> float:
        """Return how many seconds the server has been there."""
        return self.clock() - self._began

    def after(self, seconds: float, act: Callable[[], object]) -> Timer:
        """Let something happen after so many seconds."""
        if len(self._timers) > self._most_timers:
            self._timers = [each for each in self._timers if not each[2].cancelled]
            heapq.heapify(self._timers)
            self._most_timers = max(_TIMERS, 2 * len(self._timers))
        timer = Timer(self.clock() + seconds, act)
        heapq.heappush(self._timers, (timer.at, next(self._numbers), timer))
        self.wake()
        return timer

    def due(self) -> float | None:
        """Return when `tick` is to be called next, by the clock."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def tick(self) -> None:
        """Let happen what is due."""
        while (at := self.due()) is not None and at <= self.clock():
            heapq.heappop(self._timers)[2].act()

    def tick_uptime(self) -> None:
        """Send the uptime every second, while it is observed."""
        if not self._ticking and self._is_watched():
            self._ticking = True
            self.after(_TICK, self._tell_uptime)

    def _is_watched(self) -> bool:
        key = (self.main.id, "property", "uptime")
        return any(key in connection.listenings for connection in self.connections)

    def _tell_uptime(self) -> None:
        self._ticking = False
        if self._is_watched():
            self.changed(self.main, "uptime", self.main.value("uptime"))
            self.tick_uptime()
