"""The scripted server: two things that follow the LMOS specification exactly, without any I/O.

The server has three uses: the cases are tried on it, authors of servers can use it as a model, and clients
are judged by a subclass with challenges. It shares no code with the servers of lmos_actors, so that an error
in one is not repeated in the judgement of the other.

It has no tasks, sockets or sleeps. The owner passes messages to connections, sends their output, and calls
`tick` at the time that `due` returns; the clock and the random numbers are given. So the same messages get
the same answers, and tests run on virtual time.

A server with one fault is a subclass of `ScriptedConnection` or `ScriptedServer` that overrides one small
method.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ._connection import ScriptedConnection
from ._description import KEPT_ANSWERS, NAME, NAME_B, OFFERS, described, described_b
from ._runs import KeptAnswers, RequestHistory
from ._scheduler import Scheduler
from ._thing import Json, ScriptedThing

if TYPE_CHECKING:
    from collections.abc import Callable

_PEERS: Final = 256


class ScriptedServer(Scheduler):
    """The things, the connections, and the scheduled calls.

    Ids come from `random`; see `Scheduler` for the time.
    """

    connection_class: type[ScriptedConnection] = ScriptedConnection
    thing_class: type[ScriptedThing] = ScriptedThing
    offers: tuple[str, ...] = OFFERS

    def __init__(self, clock: Callable[[], float], random: Random | None = None) -> None:
        super().__init__(clock)
        self.random = random or Random()
        self.connections: list[ScriptedConnection] = []
        self.things: dict[str, ScriptedThing] = {}
        self._began = clock()
        self._memories: dict[str, RequestHistory] = {}
        self.kept_answers = KeptAnswers(KEPT_ANSWERS)
        self._ticking = False
        self.main = self.add(NAME, self.describe)
        self.beside = self.add(NAME_B, self.describe_b)

    def describe(self, base: str) -> Json:
        """Return the thing's description, served at a base such as `ws://127.0.0.1:8080`."""
        return described(base)

    def describe_b(self, base: str) -> Json:
        """Return the description of the second thing."""
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
        """Make a new connection. `offered`: whether the subprotocol was offered; `peer`: the peer's name."""
        named = self.thing_at(path)
        made = self.connection_class(
            self, offered=offered, at=named or self.main, fixed=named is not None, peer=peer
        )
        self.connections.append(made)
        return made

    def disconnected(self, connection: ScriptedConnection) -> None:
        """Forget a connection that is over."""
        self.connections.remove(connection)

    def thing_at(self, path: str) -> ScriptedThing | None:
        """Return the thing whose own address has this path, such as `/agents/NAME`, or None."""
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
        """Return the thing with an id."""
        return self.things.get(thing_id)

    def new_id(self) -> str:
        """Return a UUID of version 4."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def timestamp(self) -> str:
        """Return the time of day, as RFC 3339 in UTC."""
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def history(self, peer: str) -> RequestHistory:
        """Return the remembered requests of a peer."""
        if peer not in self._memories and len(self._memories) >= _PEERS:
            del self._memories[next(iter(self._memories))]
        return self._memories.setdefault(peer, RequestHistory())

    # ---- time

    def now(self) -> float:
        """Return the time of the server's clock in seconds."""
        return self.clock()

    def uptime(self) -> float:
        """Return the seconds since the server began."""
        return self.clock() - self._began

    def tick_uptime(self) -> None:
        """Start sending the uptime every second, if it is observed; this stops when it is not."""
        if not self._ticking and self._is_watched():
            self._ticking = True
            self.after(1.0, self._tell_uptime)

    def _is_watched(self) -> bool:
        key = (self.main.id, "property", "uptime")
        return any(key in connection.listenings for connection in self.connections)

    def _tell_uptime(self) -> None:
        self._ticking = False
        if self._is_watched():
            self.changed(self.main, "uptime", self.main.value("uptime"))
            self.tick_uptime()
