"""A peer: one address with one set of credentials, and the connection to it, which many refs share.

The connection is kept up for as long as a ref uses the peer: when it breaks, `run` connects again, with a
growing, randomised pause. While there is no connection requests fail at once with
AgentUnavailable(retry_in=...): to queue them would hide an outage for an unbounded time, and callers can
wait by `ref.ready()`.

A connection that breaks soon after it stood does not reset the pause, or a server that accepts and drops
would be called without end. A server that drains closes with 1012 after its last answer: what is unanswered
then was not begun, and may be asked elsewhere. Things are kept weakly, so that a peer with many short-lived
agents does not grow; `_ConnectionHandler` drops what an old connection still delivers when the next one
stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

import trio
from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import park_among
from lmos_actors.errors import AgentUnavailable, ConfigError, ConnectFailed
from lmos_actors.protocol import lmos
from lmos_actors.transport import endpoint_of

from ._peer_backoff import Backoff
from ._peer_requests import wake_all
from ._peer_things import RemoteThing
from ._peer_traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.actors import Runtime
    from lmos_actors.transport import Connection, Ended

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
Habits: TypeAlias = Literal["auto", "spec", "kotlin-wot"]

DRAINED: Final = 1012
"""The close code of a server that drains: it has answered every request that it had begun."""

STOOD: Final = 1.0
"""Seconds that a connection lasts to count as a success: what breaks sooner is tried again ever later."""


class PeerEnvironment(Protocol):
    """The parts of its node that a peer uses."""

    @property
    def rt(self) -> Runtime:
        """The machinery of the node's agents."""
        ...

    @property
    def session(self) -> lmos.SessionOptions:
        """Limits of each session."""
        ...

    async def connect(self, url: str, headers: Headers) -> Connection:
        """Make a connection. Raises ConnectFailed."""
        ...

    def release_peer(self, peer: Peer) -> None:
        """Count one user of a peer less."""
        ...

    @property
    def failed(self) -> Callable[[BaseException], object]:
        """The callable that takes a mistake of ours which has ended one connection."""
        ...


class Peer(Traffic):
    """One address, and the connection to it."""

    way = "lmos"
    """The binding's name in metrics and traces."""

    def __init__(self, node: PeerEnvironment, url: str, headers: Headers, habits: Habits = "auto") -> None:
        super().__init__(node.rt, node.session)
        endpoint = endpoint_of(url)
        self.url = url
        self.headers = headers
        self.habits: Habits = habits
        self.place = endpoint.url.partition("?")[0]
        self.origin = (endpoint.secure, endpoint.authority)
        self.failure: ConnectFailed | None = None
        self.ended = False
        self.released = False
        """Whether the last ref has been released."""
        self.tried = False
        """Whether a first attempt to connect has ended, well or not."""
        self.users = 0
        self.scope = trio.CancelScope()
        self.things: WeakValueDictionary[str, RemoteThing] = WeakValueDictionary()
        """By id; each lives as long as a ref, an open request or a listening refers to it."""
        self._node = node
        self._learnt: tuple[str, ...] = ()
        self._connection: Connection | None = None
        self._waiting: list[trio.lowlevel.Task] = []
        self._random = node.rt.entropy.stream(f"peer {self.place}")
        self._backoff = Backoff(self._random)
        self._retry_at: float | None = None
        self._pause: trio.CancelScope | None = None
        self._failures = 0
        self._since = 0.0

    # ---- identity

    def thing(self, thing_id: str) -> RemoteThing:
        """Return the thing of that id, the same for the same id."""
        found = self.things.get(thing_id)
        if found is None:
            found = self.things[thing_id] = RemoteThing(self, thing_id)
        return found

    def learn(self, offers: Sequence[str]) -> None:
        """Take what a description says that the peer offers; what its handshake says counts for more."""
        self._learnt = tuple(dict.fromkeys((*self._learnt, *offers)))

    def new_backoff(self) -> Backoff:
        """Return a new backoff that draws from this peer's random stream."""
        return Backoff(self._random)

    # ---- the connection

    async def run(self) -> None:
        """Connect, carry messages, and connect again, until cancelled or released. Runs once."""
        try:
            with self.scope:
                while True:
                    await self._connect_once()
                    wait = self._backoff.next()
                    self._retry_at = trio.current_time() + wait
                    wake_all(self, self._waiting)
                    with trio.move_on_after(wait) as self._pause:
                        await trio.sleep_forever()
                    self._retry_at = self._pause = None
        finally:
            self._end()

    async def _connect_once(self) -> None:
        try:
            connection = await self._node.connect(self.url, self.headers)
        except ConnectFailed as error:
            self._connect_failed(error)
            return
        except ConfigError as error:  # a header that is none
            self._connect_failed(ConnectFailed(self.place, str(error)))
            return
        except Exception as error:
            self._node.failed(error)
            self._connect_failed(ConnectFailed(self.place, f"{type(error).__name__} here"))
            return
        self.failure = None
        self._began(connection)
        ended: Ended | None = None
        try:
            ended = await connection.run(_ConnectionHandler(self))
        except Exception as error:
            self._node.failed(error)
        finally:
            self._connection_ended(ended)

    def _connect_failed(self, failure: ConnectFailed) -> None:
        self.failure = failure
        self.tried = True
        self._failures += 1

    def _began(self, connection: Connection) -> None:
        values = [value for name, value in connection.headers if name.lower() == b"lmos-extensions"]
        words = b",".join(values).decode("ascii", "replace").split(",") if values else self._learnt
        self._offers = tuple(word.strip() for word in words)
        self._connection, self._since = connection, trio.current_time()
        self.account = connection.account
        self.tried = True
        self.session = lmos.ConsumerSession(
            selected=connection.subprotocol == "lmosprotocol",
            new_id=self.rt.entropy.new_id,
            habits=self.habits,
            options=self._node.session,
            offers=self._offers,
            wake=self._wake,
        )
        for far in self.things.values():
            for listening in far.listenings.values():
                self._unasked[listening] = None
        self._ask_listenings()
        wake_all(self, self._waiting)

    def _connection_ended(self, ended: Ended | None) -> None:
        self._connection = None
        if trio.current_time() - self._since >= STOOD:
            self._backoff.reset()
        self.lose_session(drained=ended is not None and ended.code == DRAINED and ended.by == "peer")
        for far in tuple(self.things.values()):
            for listening in tuple(far.listenings.values()):
                listening.on_connection_lost(lambda far=far: self.unavailable(far))  # type: ignore[misc]

    def _end(self) -> None:
        self.ended = True
        self.empty_line()
        for far in self.things.values():
            for listening in tuple(far.listenings.values()):
                listening.close()
        wake_all(self, self._waiting)

    def release(self) -> None:
        """Count one user less; with the last one the connection ends."""
        self._node.release_peer(self)

    def close_connection(self, code: int, reason: str) -> None:
        """Close the connection; what comes after is not looked at."""
        if self._connection is not None:
            self._connection.close(code, reason)

    def _wake(self) -> None:
        if self._connection is not None and not self._is_alone:
            self._connection.wake()

    def is_direct(self) -> bool:
        """Whether the connection may send in its caller's step."""
        return self._connection is not None and self._connection.is_direct

    def flush(self) -> None:
        """Send what waits, in this step if that is possible."""
        if self._connection is not None:
            self._connection.flush()

    def unavailable(self, far: RemoteThing) -> AgentUnavailable:
        """Make the error for a request while there is no connection."""
        if self.ended or self.released:
            return AgentUnavailable(far.path, "it was released" if self.released else "the node has ended")
        retry_at, now = self._retry_at, trio.current_time()
        why = f": {self.failure.why}" if self.failure is not None else ""
        wait = None if retry_at is None else max(0.0, round(retry_at - now, 6))
        error = AgentUnavailable(far.path, f"no connection to {self.place}{why}", retry_in=wait)
        error.__cause__ = self.failure
        return error

    async def first(self) -> None:
        """Wait for the connection, which is tried now. Raises ConnectFailed once a try has failed."""
        await checkpoint_if_cancelled()
        failures = self._failures
        if self.session is None and self._pause is not None:
            self._pause.cancel("somebody waits for this connection")
        while self.session is None:
            if self.failure is not None and self._failures > failures:
                raise self.failure.at(self.failure.url)
            if self.ended:
                raise ConnectFailed(self.place, "the node has ended")
            await park_among(self._waiting)

    async def connected(self, far: RemoteThing) -> None:
        """Wait for the connection, however long it takes. Raises AgentUnavailable at the end of the node."""
        await checkpoint_if_cancelled()
        while self.session is None:
            if self.ended:
                raise self.unavailable(far)
            await park_among(self._waiting)


class _ConnectionHandler:
    """One connection's handler: nothing that comes over it reaches the peer once the next one stands."""

    __slots__ = ("_peer", "_session")

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._session = peer.session

    @enable_ki_protection
    def text(self, text: str) -> None:
        if self._peer.session is self._session:
            self._peer.text(text)

    @enable_ki_protection
    def binary(self, data: bytes) -> None:
        if self._peer.session is self._session:
            self._peer.binary(data)

    @enable_ki_protection
    def frames(self, room: int) -> list[bytes]:
        return self._peer.frames(room) if self._peer.session is self._session else []
