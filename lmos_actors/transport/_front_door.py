"""The front door: one port for HTTP and WebSocket, with or without TLS, and the limit on its connections.

Connections are grouped by state: half open (no whole head yet), idle between requests, busy, or parting after
a refusal. When the port is full, a newcomer takes the place of the connection that has been idle longest,
else of the oldest half-open one. A busy connection is never cut off for a newcomer; the newcomer is refused
instead.

Every connection has its own task, and nothing that a peer sends ends more than that task. The task reads the
first head under a deadline. A WebSocket goes to the handler that `route` names; everything else goes, request
by request, to an ASGI application. A bad request is answered by a line of plain text, and the peer is given a
moment to read it, because closing with unread input would reset the connection and lose the answer.
"""

from __future__ import annotations

import ssl
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from lmos_actors._core import Budget, check_limits
from lmos_actors.errors import ConnectionLost

from ._asgi import RETRY, Exchange, HttpLimits, received, scope_of, write_within
from ._handshake import accept
from ._head import (
    TO_WEBSOCKET,
    Accept,
    Head,
    Headers,
    HeadReader,
    Refuse,
    Refused,
    Upgrade,
    asks_for_websocket,
    opening_of,
    refused_bytes,
    upgrade_of,
)
from ._options import ConnectionOptions
from ._tls import certificate_of, unsent_alert, why_refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from ._asgi import App
    from ._network import Listener
    from ._tls import ClientCertificate


@attrs.frozen(kw_only=True)
class DoorOptions:
    """The limits of a front door; all times in seconds. Raises ConfigError if one is not above zero.

    `head_seconds`: from the beginning of a connection, or the first byte of a later request, to the end of
    its head. `tls_seconds`: for the TLS handshake. `keep_alive_seconds`: silence between two requests.
    `body_seconds`: the total wait for one request's body. `silence_seconds`: the wait for the next piece of a
    body that is read as a stream, which `body_seconds` and `max_body_bytes` do not limit. `write_seconds`:
    for one write that the peer does not take. `linger_seconds`: how long a peer has to read a refusal before
    its connection is closed.

    `max_connections` limits all open connections; beyond it, the connection that has been idle longest
    between two HTTP requests is closed, else the oldest half-open one, else the newcomer is answered 503.
    `max_half_open` limits the connections whose first head has not arrived; beyond it the oldest half-open
    one is closed.
    """

    head_seconds: float = 5.0
    tls_seconds: float = 10.0
    keep_alive_seconds: float = 5.0
    body_seconds: float = 30.0
    silence_seconds: float = 120.0
    write_seconds: float = 30.0
    linger_seconds: float = 1.0
    max_head_bytes: int = 16384
    max_headers: int = 100
    max_body_bytes: int = 4 << 20
    max_connections: int = 10_000
    max_half_open: int = 256

    def __attrs_post_init__(self) -> None:
        check_limits(self)


@attrs.frozen(kw_only=True)
class DoorStatistics:
    """The counts of a front door so far.

    Each connection ends in exactly one way: `accepted` always equals `open + served + left + failed` plus the
    sum of `refused`. `served`: it was a WebSocket, or its HTTP requests were answered. `left`: the peer was
    gone before its first request, or the door was closed. `failed`: the code that served it raised.
    `refused`: by reason, if the door answered itself ("malformed", "too large", "method", "version", "cut
    short", "slow head", "slow body", "upgrade", "route 404", "no app", "no place", "memory", "TLS on a plain
    port", "plain on a TLS port"), or closed the connection, TLS by an alert ("silent", "half open", "TLS",
    "client certificate", "slow TLS"). Of the open connections, `half_open` have not sent their first request,
    and `idle` are between two requests.
    """

    accepted: int
    open: int
    half_open: int
    idle: int
    served: int
    left: int
    failed: int
    refused: Mapping[str, int]
    requests: int
    upgrades: int


class ClientConnection:
    """One connection from a client, while it is open."""

    __slots__ = ("account", "bare", "certificate", "end", "peer", "place", "requests", "scope")

    def __init__(self, peer: str, budget: Budget) -> None:
        self.peer = peer
        self.account = budget.open(bool)  # for what it holds in memory; the code that serves it gives way
        self.certificate: ClientCertificate | None = None
        self.scope = trio.CancelScope()
        self.requests = 0  # requests that were handed on
        self.bare = False  # the answer under way has no body: it answers a HEAD
        self.end = ""  # why it was refused, or "failed"
        self.place: dict[ClientConnection, None] | None = None


class ClientConnections:
    """All connections by state, each state in the order in which they entered it: the first is the oldest."""

    def __init__(self, options: DoorOptions) -> None:
        self._options = options
        self._half_open: dict[ClientConnection, None] = {}
        self._idle: dict[ClientConnection, None] = {}
        self._busy: dict[ClientConnection, None] = {}
        self._parting: dict[ClientConnection, None] = {}  # answered with a refusal, which they may read yet
        self._open = 0
        self._accepted = 0
        self._ends: Counter[str] = Counter()
        self.requests = 0
        self.upgrades = 0

    def admit(self, client: ClientConnection) -> bool:
        """Admit a new connection; if the port is full, end a silent one. Return False if all are busy."""
        self._accepted += 1
        self._open += 1
        if len(self._half_open) + len(self._idle) + len(self._busy) >= self._options.max_connections:
            silent = next(iter(self._idle or self._half_open), None)
            if silent is None:
                client.end = "no place"
                self.part(client)
                return False
            self._dismiss(silent, "no place")
        elif len(self._half_open) >= self._options.max_half_open:
            self._dismiss(next(iter(self._half_open)), "half open")
        self._move(client, self._half_open)
        return True

    def wait(self, client: ClientConnection) -> None:
        """Mark a connection as idle between two requests."""
        self._move(client, self._idle)

    def serve(self, client: ClientConnection, *, upgrade: bool = False) -> None:
        """Count a request that is passed on, and mark its connection as busy."""
        client.requests += 1
        self.requests += not upgrade
        self.upgrades += upgrade
        self._move(client, self._busy)

    def part(self, client: ClientConnection) -> None:
        """Mark a connection as refused, so that its place is free.

        If too many connections are in this state, the oldest of them is closed.
        """
        if client.place is self._parting:
            return
        if len(self._parting) >= self._options.max_half_open:
            self._dismiss(next(iter(self._parting)), "")
        self._move(client, self._parting)

    def leave(self, client: ClientConnection) -> None:
        """Remove and count a connection that is closed."""
        self._open -= 1
        self._ends[client.end or ("served" if client.requests else "left")] += 1
        self._move(client, None)

    def end_idle(self) -> None:
        """Close the connections that are idle between two requests."""
        for client in list(self._idle):
            self._dismiss(client, "")

    def _dismiss(self, client: ClientConnection, why: str) -> None:
        client.end = client.end or ("" if client.requests else why)
        client.scope.cancel()
        self._move(client, None)

    def _move(self, client: ClientConnection, place: dict[ClientConnection, None] | None) -> None:
        if client.place is not None:
            del client.place[client]
        if place is not None:
            place[client] = None
        client.place = place

    def statistics(self) -> DoorStatistics:
        ends = self._ends.copy()
        return DoorStatistics(
            accepted=self._accepted,
            open=self._open,
            half_open=len(self._half_open),
            idle=len(self._idle),
            served=ends.pop("served", 0),
            left=ends.pop("left", 0),
            failed=ends.pop("failed", 0),
            refused=dict(sorted(ends.items())),
            requests=self.requests,
            upgrades=self.upgrades,
        )


# --- serving

_Serve: TypeAlias = "Callable[[], Awaitable[None]]"

_NOT_TLS: Final = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")  # what OpenSSL says of a plain request
_LINGER: Final = 1 << 20  # bytes that are read and forgotten after a refusal


class FrontDoor:
    """A server of all connections of `listener`: WebSockets by `route`, everything else by `app`.

    `route` is called with each well-formed `Upgrade`; it must not block. Its `Accept.serve` has the
    connection until it returns or is cancelled, and must call the connection's `run`; the stream is closed
    after that in any case. `app` is an ASGI application, called with `http` scopes only: no lifespan. Without
    an application, every other request is answered 426. `tls`: the context of a server, None for plain TCP.

    Exceptions of `route`, `serve` or `app` end one connection and are passed to `on_failure`, once per
    connection; it must not block or raise. A KeyboardInterrupt, or any other exception that is not an
    `Exception`, ends `serve`. For each failed TLS handshake, `on_refusal` is called with a line that names
    the peer and the reason. Any peer can cause such a call with each connection. `now` returns the time of
    day for `Date` headers; without it there are none. Memory that peers occupy is charged to `budget`;
    without it, this door has its own budget.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        route: Callable[[Upgrade], Accept | Refuse],
        app: App | None = None,
        tls: ssl.SSLContext | None = None,
        options: DoorOptions | None = None,
        connection: ConnectionOptions | None = None,
        on_failure: Callable[[BaseException], None],
        on_refusal: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._listener = listener
        self._route = route
        self._app = app
        self._tls = tls
        self._options = options = options or DoorOptions()
        self._connection = connection
        self._on_failure = on_failure
        self._on_refusal = on_refusal
        self._now = now
        self.budget = budget or Budget((connection or ConnectionOptions()).total_bytes)
        self._guests = ClientConnections(options)
        self._accepting = trio.CancelScope()
        self._http = HttpLimits(
            max_body_bytes=options.max_body_bytes,
            body_seconds=options.body_seconds,
            silence_seconds=options.silence_seconds,
            write_seconds=options.write_seconds,
            stamp=self._stamp,
        )

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, or until `stop_accepting()` was called and the last connection has ended.

        If cancelled, it first closes the listener and every connection, a WebSocket with 1001. Raises what a
        listener raises, and any exception of a connection that is no `Exception`.
        """
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                with self._accepting:
                    while True:
                        stream, peer = await self._listener.accept()
                        nursery.start_soon(self._host, stream, peer, name=f"connection from {peer}")
                await self._listener.aclose()
        finally:
            with trio.CancelScope(shield=True):
                await self._listener.aclose()

    def stop_accepting(self) -> None:
        """Close the listener; open connections are still served, with one more request at most."""
        self._accepting.cancel()
        self._guests.end_idle()

    def statistics(self) -> DoorStatistics:
        """Return the counts so far."""
        return self._guests.statistics()

    async def _host(self, stream: trio.abc.Stream, peer: str) -> None:
        client = ClientConnection(peer, self.budget)
        serve: _Serve | None = None
        try:
            with client.scope:
                serve = await self._receive(client, stream, admitted=self._guests.admit(client))
            if serve is not None:  # out here, where an idle connection keeps the fewest frames and no scope
                await serve()
        except Exception as error:
            self._failed(client, error)
        except BaseExceptionGroup as group:
            self._failed_in_part(client, group)
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
            client.account.close()
            self._guests.leave(client)

    def _stamp(self) -> Headers:
        """Return the Date header, which RFC 9110, 6.6.1 requires of servers with a clock."""
        if self._now is None:
            return ()
        from email.utils import format_datetime  # takes long, and many ask for no page

        return ((b"Date", format_datetime(self._now(), usegmt=True).encode()),)

    def _failed(self, client: ClientConnection, error: BaseException) -> None:
        client.end = "failed"
        self._on_failure(error)

    def _failed_in_part(self, client: ClientConnection, group: BaseExceptionGroup[BaseException]) -> None:
        """Report each `Exception` of a group, and raise the others."""
        worse, errors = group.split(lambda each: not isinstance(each, Exception | BaseExceptionGroup))
        if errors is not None:
            self._failed(client, errors)
        if worse is not None:
            raise worse

    async def _receive(
        self, client: ClientConnection, raw: trio.abc.Stream, *, admitted: bool
    ) -> _Serve | None:
        """Serve HTTP requests. If one of them opens a WebSocket, return the function that serves it."""
        stream = raw if self._tls is None else await self._secured(client, raw, self._tls)
        if stream is None:
            return None
        try:
            if not admitted:
                raise Refused(503, "there are too many connections", "no place", RETRY)
            serve = await self._converse(client, stream)
            if serve is not None:
                return serve
        except Refused as refused:
            await self._turn_away(client, stream, refused)
        with trio.move_on_after(self._options.linger_seconds):
            await stream.aclose()
        return None

    async def _secured(
        self, client: ClientConnection, raw: trio.abc.Stream, tls: ssl.SSLContext
    ) -> trio.abc.Stream | None:
        """Do the TLS handshake; return None if it failed, which has then been handled."""
        # not `https_compatible`: such a stream says no goodbye, and its end looks like a cut
        stream = trio.SSLStream(raw, tls, server_side=True)
        try:
            with trio.move_on_after(self._options.tls_seconds):
                await stream.do_handshake()
                client.certificate = certificate_of(stream, tls)
                return stream
            client.end = "slow TLS"
        except trio.BrokenResourceError as error:
            why = error.__cause__
            if isinstance(why, ssl.SSLError) and why.reason in _NOT_TLS:
                refused = Refused(400, "this port speaks TLS: use https:// or wss://", "plain on a TLS port")
                await self._turn_away(client, raw, refused)
            elif isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError):
                await self._turn_away_from_tls(client, stream, why)
        return None

    async def _turn_away_from_tls(
        self, client: ClientConnection, stream: trio.SSLStream[trio.abc.Stream], error: ssl.SSLError
    ) -> None:
        """Send the alert with the reason of a failed handshake, and report the failure."""
        why, is_certificate = why_refused(error)
        client.end = client.end or ("client certificate" if is_certificate else "TLS")
        self._on_refusal(f"{client.peer}: {why}")
        self._guests.part(client)
        raw, alert = stream.transport_stream, unsent_alert(stream)
        # a client of TLS 1.3 has often sent its request by now: that is read, or it would never see the alert
        if alert and await write_within(raw, alert, self._options.linger_seconds):
            await self._linger(raw)

    async def _turn_away(self, client: ClientConnection, stream: trio.abc.Stream, refused: Refused) -> None:
        client.end = client.end or refused.kind
        self._guests.part(client)
        answer = refused_bytes(refused, self._stamp(), bare=client.bare)
        if await write_within(stream, answer, self._options.linger_seconds):
            await self._linger(stream)

    async def _linger(self, stream: trio.abc.Stream) -> None:
        """Read on for a moment: closing with unread input would reset the connection and lose the answer."""
        with trio.move_on_after(self._options.linger_seconds):
            if isinstance(stream, trio.abc.HalfCloseableStream):
                try:
                    await stream.send_eof()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            read = 0
            while read < _LINGER and (data := await received(stream)):
                read += len(data)

    async def _converse(self, client: ClientConnection, stream: trio.abc.Stream) -> _Serve | None:
        """Serve requests one by one, or return the function that serves a WebSocket. Raises `Refused`."""
        rest: bytes | None = b""
        while rest is not None:
            client.bare = False
            found = await self._next_head(client, stream, rest)
            if found is None:
                return None
            head, rest = found
            client.bare = head.method == "HEAD"
            if asks_for_websocket(head):
                return await self._upgraded(client, stream, head, rest)
            rest = await self._exchange(client, stream, head, rest)
        return None

    async def _next_head(
        self, client: ClientConnection, stream: trio.abc.Stream, rest: bytes
    ) -> tuple[Head, bytes] | None:
        """Wait for a head; return it and the bytes after it, or None if the peer stays silent or leaves."""
        options = self._options
        reader = HeadReader(rest, max_bytes=options.max_head_bytes, max_headers=options.max_headers)
        first = not client.requests
        if not first:
            self._guests.wait(client)
        urgent = first or reader.begun
        with trio.move_on_after(options.head_seconds if urgent else options.keep_alive_seconds) as scope:
            while (head := reader.take()) is None:
                data = await received(stream)
                if not data and reader.begun:
                    raise Refused(400, "the request ends within its head", "cut short")
                if not data:
                    return None
                if not urgent:
                    urgent = True
                    scope.deadline = trio.current_time() + options.head_seconds
                reader.feed(data)
            return head, reader.rest
        if reader.begun:
            raise Refused(408, f"no whole head within {options.head_seconds:g} s", "slow head")
        client.end = "silent" if first else ""
        return None

    async def _upgraded(
        self, client: ClientConnection, stream: trio.abc.Stream, head: Head, rest: bytes
    ) -> _Serve | None:
        """Answer a request for a WebSocket; return the function that serves it."""
        upgrade = upgrade_of(head, client.peer, secure=self._tls is not None, certificate=client.certificate)
        try:
            answer = self._route(upgrade)
        except Exception as error:
            self._failed(client, error)
            raise _failed() from None
        if isinstance(answer, Refuse):
            raise Refused(answer.status, answer.reason, f"route {answer.status}", answer.headers)
        try:
            connection = await accept(
                stream,
                opening_of(head) + rest,
                subprotocol=answer.subprotocol,
                headers=answer.headers,
                peer=client.peer,
                options=answer.options or self._connection,
                account=client.account,
            )
        except ConnectionLost:
            return None
        self._guests.serve(client, upgrade=True)
        return partial(answer.serve, connection)

    async def _exchange(
        self, client: ClientConnection, stream: trio.abc.Stream, head: Head, rest: bytes
    ) -> bytes | None:
        """Let the application answer a request; return the bytes after it, None to close the connection."""
        if self._app is None:
            raise Refused(426, "only WebSockets are served here", "no app", TO_WEBSOCKET)
        if [each for each in head.tokens(b"expect") if each.lower() != "100-continue"]:
            raise Refused(417, "only 100-continue can be expected", "malformed")
        self._guests.serve(client)
        exchange = Exchange(stream, head, rest, self._http, self._is_leaving, client.account)
        scope = scope_of(head, client.peer, self._listener.addresses[0], secure=self._tls is not None)
        if head.chunked or head.length:
            scope["state"]["exchange"] = exchange
        if client.certificate is not None:
            scope["state"]["certificate"] = client.certificate
        outcome = await exchange.run(self._app, scope)
        if outcome.failure is not None:
            self._failed(client, outcome.failure)
        elif outcome.refused is not None:
            client.end = outcome.refused.kind
        if not outcome.answered:
            raise outcome.refused or _failed()
        if outcome.unread:
            self._guests.part(client)
            await self._linger(stream)
        if self._is_leaving() and not outcome.rest:
            return None  # as connections that were idle when the door began to close
        return outcome.rest

    def _is_leaving(self) -> bool:
        return self._accepting.cancel_called


def _failed() -> Refused:
    return Refused(500, "the failure is on this side, and was reported here", "failed")
