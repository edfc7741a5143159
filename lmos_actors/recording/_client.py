"""A client of the recorder: its HTTP requests, each on a separate connection to the server, and its
WebSocket.

h11 parses both sides. A body is passed on piece by piece, and no sooner than the other side accepts it.
Answers that may be descriptions are the exception: they are read whole, and their addresses are rewritten.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final

import h11
import trio

from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import MAX_BYTES
from lmos_actors.security import is_loopback
from lmos_actors.transport import endpoint_of

from ._passage import Refused, words_of
from ._pipes import CHUNK, GOING_AWAY, GONE, Pipes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._passage import Headers, Passage
    from ._requests import WebExchange

LONGEST_HEAD: Final = 65_536

HEAD_SECONDS: Final = 60.0
"""Seconds for a client to send the head of its next request."""

LINGER_SECONDS: Final = 1.0
"""Seconds for which input of a client is still read once its request has been answered."""

LINGER_BYTES: Final = 1 << 20
"""Maximum bytes that are read and dropped after a refusal."""

DESCRIPTIONS: Final = (b"application/td+json", b"application/json", b"application/ld+json")


class Client:
    """One connection of a client."""

    def __init__(self, passage: Passage, stream: trio.abc.Stream) -> None:
        self._passage = passage
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)

    async def serve(self) -> None:
        """Serve requests until the client disconnects, or until its WebSocket has ended."""
        while True:
            try:
                request = None
                with trio.move_on_after(HEAD_SECONDS):
                    request = await self._event()
                if not isinstance(request, h11.Request):
                    return
                self._check(request)
                if b"websocket" in words_of(tuple(request.headers), b"upgrade"):
                    await self._upgrade(request)
                    return
                await self._exchange(request)
            except Refused as refused:
                await self._refuse(refused)
            except h11.RemoteProtocolError as error:
                await self._refuse(Refused(error.error_status_hint, "this is no request of HTTP/1.1"))
            except h11.LocalProtocolError:
                return  # the server has sent what is no answer to this request
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _event(self) -> Any:
        """Return the next event of the client's request."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))

    def _check(self, request: h11.Request) -> None:
        """Refuse a request whose host is not this machine, or whose target is not a path."""
        hosts = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
        try:
            here = len(hosts) == 1 and is_loopback(endpoint_of(f"http://{hosts[0]}").host)
        except ConfigError:
            here = False
        if not here:
            raise Refused(421, "the recorder is a host of this machine, and is asked by that name alone")
        if not request.target.startswith(b"/"):
            raise Refused(400, "the target is not a path")

    async def _refuse(self, refused: Refused) -> None:
        if self._http.our_state is not h11.SEND_RESPONSE and self._http.our_state is not h11.IDLE:
            return
        body = f"{refused.why}\n".encode()
        headers = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Content-Length", b"%d" % len(body)),
            (b"Connection", b"close"),
        ]
        with suppress(*GONE, h11.LocalProtocolError):
            await self._send(h11.Response(status_code=refused.status, headers=headers))
            await self._send(h11.Data(body))
            await self._send(h11.EndOfMessage())
            await self._linger()

    async def _linger(self) -> None:
        """Wait until the client has read a refusal: closing with unread input would reset the connection."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
        left = LINGER_BYTES
        with trio.move_on_after(LINGER_SECONDS):
            while left > 0 and (data := await self._stream.receive_some(CHUNK)):
                left -= len(data)

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send_all(data)

    # ---- requests over HTTP

    async def _exchange(self, request: h11.Request) -> None:
        passage, target = self._passage, request.target.decode("latin-1")
        headers = passage.onward(request)
        passage.keep(target, request.headers)
        accept = _header(request.headers, b"accept").decode("latin-1")
        record = passage.exchange(request.method.decode("latin-1"), target, accept)
        failure: Exception | None = None
        try:
            stream = await passage.connect()
        except Refused:
            record.end(has_left=False)
            raise
        try:
            server = _Server(stream)
            parts = self._parts_at_hand(record)
            await server.send(
                h11.Request(
                    method=request.method,
                    target=request.target,
                    headers=[*headers, (b"Connection", b"close")],
                )
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_body, parts, server, record, nursery.cancel_scope)
                try:
                    await self._pass_answer(server, request, record)
                except (Refused, h11.LocalProtocolError, *GONE) as error:
                    failure = error  # raised below, and not as a group of one
                if failure is None and self._http.their_state is h11.SEND_BODY:
                    # The server has answered early. What is still on its way is read, as it is recorded.
                    nursery.cancel_scope.deadline = trio.current_time() + LINGER_SECONDS
                else:
                    nursery.cancel_scope.cancel("the request has been answered")
            if failure is not None:
                raise failure
        finally:
            record.end(has_left=failure is None)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    def _parts_at_hand(self, record: WebExchange) -> list[h11.Event]:
        """Return the parts of the request's body that have already arrived, and add them to the record.

        All are added before the first is passed on: a server may answer as soon as it has the last byte, and
        an answer is recorded after its request. Raise h11.RemoteProtocolError if the client has disconnected.
        """
        parts: list[h11.Event] = []
        while isinstance(part := self._http.next_event(), (h11.Data, h11.EndOfMessage)):
            parts.append(part)
            if isinstance(part, h11.EndOfMessage):
                record.asked()
                break
            record.add_input(bytes(part.data))
        return parts

    async def _pass_body(
        self, parts: list[h11.Event], server: _Server, record: WebExchange, scope: trio.CancelScope
    ) -> None:
        """Pass on the body of a request. A client that disconnects afterwards ends the exchange."""
        try:
            while True:
                for part in parts:
                    await server.send(part)
                if parts and isinstance(parts[-1], h11.EndOfMessage):
                    break
                self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))
                parts = self._parts_at_hand(record)
            if not self._http.trailing_data[0] and scope.deadline == inf:
                data = await self._stream.receive_some(CHUNK)
                if not data:
                    scope.cancel("the client has left")
                self._http.receive_data(bytes(data))
        except (h11.RemoteProtocolError, *GONE):
            scope.cancel("the client has left")

    async def _pass_answer(self, server: _Server, request: h11.Request, record: WebExchange) -> None:
        event = await server.event()
        while isinstance(event, h11.InformationalResponse):
            await self._send(h11.InformationalResponse(status_code=event.status_code, headers=event.headers))
            event = await server.event()
        if not isinstance(event, h11.Response):
            self._passage.outcomes.lost += 1
            raise Refused(502, "the recorder: the server has ended the connection without an answer")
        self._passage.keep("", event.headers)
        kind = _header(event.headers, b"content-type")
        location = _header(event.headers, b"location").decode("latin-1")
        record.head(event.status_code, kind.decode("latin-1"), location)
        if kind.partition(b";")[0].strip().lower() in DESCRIPTIONS and request.method != b"HEAD":
            await self._pass_json(server, request, event, record)
        else:
            await self._send(_answer(event, self._passage.backward(event.headers)))
            await self._pass_rest(server, record)

    async def _pass_json(
        self, server: _Server, request: h11.Request, head: h11.Response, record: WebExchange
    ) -> None:
        """Pass on an answer that may be a description, with its addresses rewritten unless it is too long."""
        body = b""
        while len(body) <= MAX_BYTES:
            event = await server.event()
            if not isinstance(event, h11.Data):
                target = request.target.decode("latin-1")
                record.is_whole = isinstance(event, h11.EndOfMessage)
                record.add_output(body)
                rewritten = self._passage.keep_answer(target, body)
                headers = self._passage.backward(head.headers, length=rewritten == body)
                await self._send(_answer(head, headers, None if rewritten == body else len(rewritten)))
                await self._send(h11.Data(rewritten))
                await self._end(event)
                return
            body += bytes(event.data)
        await self._send(_answer(head, self._passage.backward(head.headers)))
        record.add_output(body)
        await self._send(h11.Data(body))
        await self._pass_rest(server, record)

    async def _pass_rest(self, server: _Server, record: WebExchange) -> None:
        event = await server.event()
        while isinstance(event, h11.Data):
            record.add_output(bytes(event.data))
            await self._send(event)
            event = await server.event()
        record.is_whole = isinstance(event, h11.EndOfMessage)
        await self._end(event)

    async def _end(self, event: Any) -> None:
        if isinstance(event, h11.EndOfMessage):
            await self._send(h11.EndOfMessage())
            return
        self._passage.outcomes.lost += 1  # so the client sees an answer that is cut, as without the recorder
        raise trio.BrokenResourceError("the server has ended the connection within its answer")

    # ---- WebSockets

    async def _upgrade(self, request: h11.Request) -> None:
        passage, target = self._passage, request.target.decode("latin-1")
        onward = [*passage.onward(request), (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        passage.keep(target, request.headers)
        event = await self._event()
        if not isinstance(event, h11.EndOfMessage):
            raise Refused(400, "a request with a body cannot become a WebSocket")
        stream = await passage.connect()
        try:
            server = _Server(stream)
            await server.send(h11.Request(method=request.method, target=request.target, headers=onward))
            await server.send(h11.EndOfMessage())
            event = await server.event()
            if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
                await self._pass_refusal(server, event, target)
                return
            passage.keep("", event.headers)
            await passage.describe(target, tuple(request.headers))
            await self._converse(stream, server, request, event)
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _pass_refusal(self, server: _Server, event: Any, target: str) -> None:
        if not isinstance(event, h11.Response):
            self._passage.outcomes.lost += 1
            raise Refused(502, "the recorder: the server has ended the connection without an answer")
        self._passage.keep("", event.headers)
        self._passage.refused(target, event.status_code)
        await self._send(_answer(event, self._passage.backward(event.headers)))
        event = await server.event()
        while isinstance(event, h11.Data):
            await self._send(event)
            event = await server.event()
        await self._end(event)

    async def _converse(
        self,
        stream: trio.abc.Stream,
        server: _Server,
        request: h11.Request,
        agreed: h11.InformationalResponse,
    ) -> None:
        passage = self._passage
        offered = tuple(
            part.strip().decode("latin-1")
            for name, value in request.headers
            if name == b"sec-websocket-protocol"
            for part in value.split(b",")
        )
        selected = _header(agreed.headers, b"sec-websocket-protocol").decode("latin-1") or None
        headers = [*passage.backward(agreed.headers), (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        await self._send(h11.InformationalResponse(status_code=101, headers=headers))
        conversation = passage.conversation(request.target.decode("latin-1"), offered, selected)
        pipes = Pipes(conversation, self._stream, stream)
        try:
            await passage.converse(pipes, self._http.trailing_data[0], server.rest)
        finally:
            by = pipes.ended_by or "recorder"
            conversation.close(by, GOING_AWAY if pipes.closed else None)
            passage.outcomes.lost += by == "server" and not conversation.is_closed


class _Server:
    """A connection to the server, for one request."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)

    @property
    def rest(self) -> bytes:
        """The bytes that have arrived after the head of the answer."""
        return self._http.trailing_data[0]

    async def send(self, event: h11.Event) -> None:
        """Send a part of the request. Ignore a failure: the server may answer before reading every part."""
        with suppress(h11.LocalProtocolError):
            data = self._http.send(event)
            if data:
                with suppress(*GONE):
                    await self._stream.send_all(data)

    async def event(self) -> Any:
        """Return the next event of the answer."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                return h11.ConnectionClosed()
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await self._stream.receive_some(CHUNK)
            except GONE:
                return h11.ConnectionClosed()
            self._http.receive_data(bytes(data))


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((value for each, value in headers if each == name), b"")


def _answer(head: h11.Response, headers: Headers, length: int | None = None) -> h11.Response:
    more = [] if length is None else [(b"Content-Length", b"%d" % length)]
    return h11.Response(status_code=head.status_code, headers=[*headers, *more], reason=head.reason)
