"""A peer over LMOS: one address with one set of credentials, and its connection, which many refs share.

The connection is kept up for as long as a ref uses the peer: when it breaks, `run` connects again, with a
growing, randomised pause. While there is no connection requests fail at once with
AgentUnavailable(retry_in=...): queueing them would hide an outage for an unbounded time, and callers can
wait by `ref.ready()`.

A connection that breaks soon after it was made does not reset the pause: otherwise a server that accepts
connections and drops them would be called without end. A server that drains closes with 1012 after its last
answer: an unanswered request was not begun then, and may be sent elsewhere. Things are kept weakly, so that a
peer with many short-lived agents does not grow.

All that belongs to one connection is in `PeerConnection`, which is made anew for each. `Peer` outlives them:
it has the address, the things, the listenings, the pause.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

import trio
from trio.lowlevel import checkpoint_if_cancelled

from lmos_actors.actors import park_among, wake_all
from lmos_actors.errors import AgentUnavailable, ConfigError, ConnectFailed, LocalProtocolError, MailboxFull
from lmos_actors.transport import endpoint_of

from ._near_errors import no_connection
from ._peer_backoff import Backoff
from ._peer_connection import PeerConnection
from ._peer_requests import RemoteThing, WaitsQuestion
from ._peer_streams import StreamTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors._core import Budget
    from lmos_actors.actors import ItemTarget, Runtime, TraceMembers, UnsentKind, UnsentMessage
    from lmos_actors.protocol import lmos
    from lmos_actors.transport import Connection, Ended

    from ._peer_listening import SharedListening
    from ._peer_requests import PendingRequest, RemotePeer, SentTell

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
Habits: TypeAlias = Literal["auto", "spec", "kotlin-wot"]

DRAINED: Final = 1012
"""The close code of a server that drains: it has answered every request that it had begun."""

STOOD: Final = 1.0
"""Seconds that a connection must last to count as a success: if it breaks sooner, the pause grows further."""


class PeerEnvironment(Protocol):
    """The parts of its node that a peer uses."""

    @property
    def rt(self) -> Runtime:
        """The runtime of the node's agents."""
        ...

    @property
    def session(self) -> lmos.SessionOptions:
        """Limits of each session."""
        ...

    @property
    def reconnect_seconds(self) -> float:
        """The longest pause between two attempts to connect."""
        ...

    @property
    def budget(self) -> Budget:
        """The memory that peers may hold."""
        ...

    async def connect(self, url: str, headers: Headers) -> Connection:
        """Return a new connection. Raises ConnectFailed."""
        ...

    def release_peer(self, peer: RemotePeer) -> None:
        """Remove one user of a peer from the count; when none is left, stop the peer."""
        ...

    def heeds(self, url: str) -> bool:
        """Return whether the node has credentials or a token for an address."""
        ...

    @property
    def failed(self) -> Callable[[BaseException], object]:
        """The callable that receives an error of this program that has ended one connection."""
        ...


class Peer:
    """One address over LMOS, and the connection to it; see `RemotePeer`.

    `place` is its name in texts, and `chance` the name of the random stream for its pauses; both are derived
    from the address if not given.
    """

    way = "lmos"
    """The binding's name in metrics and traces."""

    def __init__(
        self,
        node: PeerEnvironment,
        url: str,
        headers: Headers,
        habits: Habits = "auto",
        *,
        place: str | None = None,
        chance: str | None = None,
    ) -> None:
        endpoint = endpoint_of(url)
        self.rt = node.rt
        self.budget = node.budget
        self.url = url
        self.headers = headers
        self.habits: Habits = habits
        self.place = endpoint.url.partition("?")[0] if place is None else place
        self.origin = (endpoint.secure, endpoint.authority)
        self.failure: ConnectFailed | None = None
        self.ended = False
        self.tried = False
        self.things: WeakValueDictionary[str, RemoteThing] = WeakValueDictionary()
        """Things by id; each lives as long as a ref, an open request or a listening refers to it."""
        self.connection: PeerConnection | None = None
        self.named = False
        """Whether code of this node, or its file, has named the address, not only a directory."""
        self._node = node
        self._released = False
        self._scope = trio.CancelScope()
        self._learnt: tuple[str, ...] = ()
        self._waiting: list[trio.lowlevel.Task] = []
        self._random = node.rt.entropy.stream(f"peer {self.place}" if chance is None else chance)
        self._backoff = self.new_backoff()
        self._retry_at: float | None = None
        self._pause: trio.CancelScope | None = None
        self._failures = 0

    # ---- identity

    def thing(self, thing_id: str) -> RemoteThing:
        """Return the thing with an id; the same id gives the same object."""
        found = self.things.get(thing_id)
        if found is None:
            found = self.things[thing_id] = RemoteThing(self, thing_id)
        return found

    def learn(self, offers: Sequence[str]) -> None:
        """Store the peer's offers in a description; the offers in its handshake take precedence."""
        self._learnt = tuple(dict.fromkeys((*self._learnt, *offers)))

    def new_backoff(self) -> Backoff:
        """Return a new backoff that draws from this peer's random stream."""
        return Backoff(self._random, self._node.reconnect_seconds)

    # ---- requests and listenings

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self.connection is not None

    @property
    def heeds(self) -> bool:
        """Whether deadlines stand still while an agent there reports that it asks a person."""
        return self.named or bool(self.headers) or self._node.heeds(self.url)

    @property
    def takes_keys(self) -> bool:
        """Whether requests with keys can be sent; True without a connection, when that is not known."""
        return self.connection is None or self.connection.takes_keys

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or stand in line."""
        return 0 if self.connection is None else self.connection.open_requests

    @property
    def tell_credit(self) -> tuple[lmos.Credit, lmos.Credit] | None:
        """The credit window for one-way messages, and its spent part; None without a connection."""
        return None if self.connection is None else self.connection.session.tell_credit

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the messages in line; see `Outbox` of the actors."""
        return iter(()) if self.connection is None else self.connection.unsent()

    def post(self, request: PendingRequest) -> None:
        """Send a request, or put it in line; see `RemotePeer`."""
        if self.connection is None:
            raise self.unavailable(request.far.path)
        self.connection.post(request)

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; return False without room or credit. Raises the same errors as `post`."""
        if self.connection is None:
            raise self.unavailable(sent.far.path)
        return self.connection.tell(sent, name, payload, trace)

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether messages to a thing already wait, for room or for credit."""
        return self.connection is not None and self.connection.holds_up(far)

    def withdraw(self, request: PendingRequest) -> None:
        """Take a request out of the line, or cancel its run without waiting, because its caller is gone."""
        if self.connection is not None:
            self.connection.withdraw(request)

    def follow(
        self, request: PendingRequest, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]
    ) -> None:
        """Ask what a request waits for; see `RemotePeer`."""
        connection, pending = self.connection, request.pending
        if connection is not None and "waits" in connection.offers and pending is not None:
            with suppress(MailboxFull, LocalProtocolError):
                control = connection.session.query(pending, list(asked))
                if not control.done:
                    connection.ask(WaitsQuestion(request.far, "query", request.name, then=then), control)
                    return
        then({})

    async def query(self, request: PendingRequest) -> lmos.RunStatus | None:
        """Query the status of a run; see `RemotePeer`."""
        return None if self.connection is None else await self.connection.query(request)

    async def cancel(self, request: PendingRequest, reason: str | None) -> lmos.RunStatus | None:
        """Cancel a request; see `RemotePeer`."""
        return None if self.connection is None else await self.connection.cancel(request, reason)

    def taken(self, request: PendingRequest) -> None:
        """Note that the consumer has taken an item of a run, so that the agent may send more."""
        if self.connection is not None:
            self.connection.taken(request)

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Return the target for the items of a request's input stream, over the present connection."""
        return StreamTarget(self.connection, request, name)

    def listen(self, listening: SharedListening) -> None:
        """Request the values of a listening, now or on the next connection."""
        if self.connection is not None:
            self.connection.listen((listening,))

    def unlisten(self, listening: SharedListening) -> None:
        """Stop listening, because the last listener here has left."""
        if self.connection is not None:
            self.connection.unlisten(listening)

    def _listenings(self) -> list[SharedListening]:
        return [listening for far in self.things.values() for listening in far.listenings.values()]

    # ---- the connection

    async def run(self) -> None:
        """Connect, carry messages, and connect again, until cancelled or stopped. Runs once."""
        try:
            with self._scope:
                while True:
                    await self._connect_once()
                    wait = self._backoff.next()
                    self._retry_at = trio.current_time() + wait
                    wake_all(self.rt.timers, self._waiting)
                    with trio.move_on_after(wait) as self._pause:
                        await trio.sleep_forever()
                    self._retry_at = self._pause = None
        finally:
            self.ended = True
            for listening in self._listenings():
                listening.close()
            wake_all(self.rt.timers, self._waiting)

    def stop(self) -> None:
        """Stop this peer, because its last ref has been released."""
        self._released = True
        self._scope.cancel("no ref uses this connection")

    def release(self) -> None:
        """Count one user fewer; when none is left, stop the peer."""
        self._node.release_peer(self)

    async def _connect_once(self) -> None:
        try:
            connection = await self._node.connect(self.url, self.headers)
        except ConnectFailed as error:
            self._connect_failed(error)
            return
        except ConfigError as error:  # an invalid header
            self._connect_failed(ConnectFailed(self.place, str(error)))
            return
        except Exception as error:
            self._node.failed(error)
            self._connect_failed(ConnectFailed(self.place, f"{type(error).__name__} here"))
            return
        self.failure = None
        self.tried = True
        since, ended = trio.current_time(), None
        standing = self._began(connection)
        try:
            ended = await connection.run(standing)
        except Exception as error:
            self._node.failed(error)
        finally:
            self._connection_ended(standing, ended, trio.current_time() - since)

    def _connect_failed(self, failure: ConnectFailed) -> None:
        self.failure = failure
        self.tried = True
        self._failures += 1

    def _began(self, connection: Connection) -> PeerConnection:
        values = [value for name, value in connection.headers if name.lower() == b"lmos-extensions"]
        words = b",".join(values).decode("ascii", "replace").split(",") if values else self._learnt
        offers = tuple(word.strip() for word in words)
        self.connection = PeerConnection(self.rt, connection, self._node.session, self.habits, offers)
        self.connection.listen(self._listenings())
        wake_all(self.rt.timers, self._waiting)
        return self.connection

    def _connection_ended(self, standing: PeerConnection, ended: Ended | None, lasted: float) -> None:
        self.connection = None  # first: a caller that is woken below may ask again
        if lasted >= STOOD:
            self._backoff.reset()
        drained = ended is not None and ended.code == DRAINED and ended.by == "peer"
        if standing.stranger:
            self.failure, drained = ConnectFailed(self.place, standing.stranger), True  # nothing was begun
        standing.lose(self.unavailable, drained=drained)
        for listening in self._listenings():
            listening.on_connection_lost(partial(self.unavailable, listening.far.path))

    def unavailable(self, path: str) -> AgentUnavailable:
        """Return the error for a request that cannot be sent now."""
        if self.ended or self._released:
            return AgentUnavailable(path, "it was released" if self._released else "the node has ended")
        return no_connection(path, self.place, self.failure, self._retry_at)

    async def first(self) -> None:
        """Connect now, and wait for the connection. Raises ConnectFailed after a failed attempt."""
        await checkpoint_if_cancelled()
        failures = self._failures
        if self.connection is None and self._pause is not None:
            self._pause.cancel("a caller waits for this connection")
        while self.connection is None:
            if self.failure is not None and self._failures > failures:
                raise self.failure.at(self.failure.url)
            if self.ended:
                raise ConnectFailed(self.place, "the node has ended")
            await park_among(self._waiting)

    async def connected(self, path: str) -> None:
        """Wait for the connection, however long it takes. Raises AgentUnavailable at the end of the node."""
        await checkpoint_if_cancelled()
        while self.connection is None:
            if self.ended:
                raise self.unavailable(path)
            await park_among(self._waiting)
