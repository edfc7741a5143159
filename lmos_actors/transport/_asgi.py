"""One HTTP request and its answer: h11 on the side of the stream, an ASGI application on the other side.

The stream is read ahead by one bounded piece, so that a client that leaves is noticed at once; its request is
then cancelled. The lifespan protocol is not supported: the code that mounts an application starts and ends
it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import h11
import trio
from trio.lowlevel import ParkingLot, checkpoint, checkpoint_if_cancelled, current_task

from lmos_actors._core import SMALL, SPENT, weight

from ._head import Head, Headers, Refused, malformed

if TYPE_CHECKING:
    from lmos_actors._core import Account

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_AHEAD: Final = 65536  # bytes read before the application asks for them, and bytes written at once
_CLOSE: Final = (b"connection", b"close")
RETRY: Final = ((b"Retry-After", b"1"),)
_CONTINUE: Final = h11.InformationalResponse(status_code=100, headers=[])


class ClientLeft(OSError):
    """Raised if the client is gone or accepts no more data; the rest of the answer is dropped."""


@attrs.frozen(kw_only=True)
class HttpLimits:
    """The limits of one request: bytes of its body, seconds to wait for it and for each 64 KiB written.

    For a body that is read as a stream, `silence_seconds` for its next piece replaces the first two limits.
    `stamp` returns the headers with the time of an answer.
    """

    max_body_bytes: int
    body_seconds: float
    silence_seconds: float
    write_seconds: float
    stamp: Callable[[], Headers]


@attrs.frozen(kw_only=True)
class ExchangeOutcome:
    """The outcome of an exchange.

    `rest` is the data after the request, None if the connection is to be closed. `answered` is whether any
    data was sent, or the client is gone. `unread`: a part of the body may still be on its way.
    """

    rest: bytes | None = None
    refused: Refused | None = None
    failure: Exception | None = None
    answered: bool = True
    unread: bool = False


def scope_of(head: Head, peer: str, server: tuple[str, int], *, secure: bool) -> Scope:
    """Return the ASGI scope of a request: its head, its client, and the address at which it arrived."""
    host, _, port = peer.rpartition(":")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": head.version,
        "method": head.method.upper(),
        "scheme": "https" if secure else "http",
        "path": head.path,
        "raw_path": head.raw_path.encode("ascii"),
        "query_string": head.query.encode("ascii"),
        "root_path": "",
        "headers": list(head.headers),
        "client": (host.strip("[]"), int(port)) if port.isdecimal() else None,
        "server": server,
        "state": {},
    }


class Exchange:
    """One request, from the end of its head to the end of its answer.

    A client that ends its side of the stream before it is answered counts as having left, because it cannot
    be distinguished from a client that is gone.

    If the request has a body, the application finds this object in the scope's state, as `exchange`: see
    `stream`.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        head: Head,
        rest: bytes,
        limits: HttpLimits,
        is_last: Callable[[], bool],
        account: Account,
    ) -> None:
        self._account = account
        self._held = 0  # bytes that are charged to it
        self._stream = stream
        self._http = head.http
        self._limits = limits
        self._is_last = is_last  # asked when the answer begins
        self._chunked = head.chunked  # how a chunked body ends is where parsers differ: nothing after it
        self._ahead = bytearray(rest)
        self._arrived = ParkingLot()
        self._room = ParkingLot()
        self._writing = trio.Lock()
        self._scope = trio.CancelScope()
        self._gone = False
        self._torn = False  # a write was left half done
        self._whole = not head.chunked and not head.length  # the request's body has been read
        self._told = False  # the application knows that
        self._received = 0
        self._patience = limits.body_seconds
        self._length = head.length
        self._is_stream = False
        self._empty_answer = head.method == "HEAD"
        self._response: h11.Response | None = None
        self._begun = self._answered = False
        self._refused: Refused | None = None
        if self._whole:
            self._http.next_event()

    async def run(self, app: App, scope: Scope) -> ExchangeOutcome:
        """Let the application answer. If it raises an `Exception`, that is part of the outcome."""
        failure: Exception | None = None
        give_way, self._account.give_way = self._account.give_way, self._overdrawn
        if len(self._ahead) > SMALL:
            self.hold(len(self._ahead))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_ahead)
            try:
                with self._scope:
                    await app(scope, self.receive, self.send)
            except ClientLeft:
                pass  # it is no failure of the application
            except ExceptionGroup as group:
                failure = group.split(ClientLeft)[1]
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel()
        self._account.give_way = give_way
        self._account.release(self._held)
        if failure is None and not (self._answered or self._gone or self._refused):
            failure = RuntimeError("the application returned before its answer was whole")
        is_done = (self._http.our_state, self._http.their_state) == (h11.DONE, h11.DONE)
        is_reusable = is_done and failure is None and not (self._gone or self._torn or self._refused)
        return ExchangeOutcome(
            rest=self._http.trailing_data[0] + self._ahead if is_reusable else None,
            refused=self._refused,
            failure=failure,
            answered=self._begun or self._gone,
            unread=not self._whole and not self._gone,
        )

    def hold(self, size: int) -> None:
        """Charge the account for bytes that are held until the exchange has ended."""
        self._held += size
        self._account.charge(size)

    def stream(self) -> None:
        """Allow a body of any length: from now on only its pauses and its bytes in memory are limited."""
        self._is_stream = True

    def keep(self, size: int) -> None:
        """Record how many bytes of a streamed body the application holds now."""
        held = len(self._ahead) + size
        if held > self._held:
            self.hold(held - self._held)
        else:
            self._account.release(self._held - held)
            self._held = held

    def _overdrawn(self) -> None:
        self._refuse(Refused(503, SPENT, "memory", RETRY))

    async def _read_ahead(self) -> None:
        while not self._gone:
            while len(self._ahead) >= _AHEAD:
                await self._room.park()
            data = await received(self._stream)
            self._ahead += data
            self.hold(len(data))
            self._gone = not data
            self._arrived.unpark_all()
        if not self._answered:
            self._scope.cancel()

    async def receive(self) -> Message:
        """Return the next piece of the body, or `http.disconnect` if the client left: ASGI's `receive`."""
        await checkpoint()
        if not self._told:
            found = await self._next_piece()
            if found is not None:
                return found
        while not (self._gone or self._answered or self._refused):
            await self._arrived.park()
        await checkpoint()  # ends the application here, but for what it has shielded
        return {"type": "http.disconnect"}

    async def _next_piece(self) -> Message | None:
        if not self._is_stream and self._length > self._limits.max_body_bytes:
            self._refuse(too_long(self._limits.max_body_bytes))
            return None
        while True:
            try:
                body = self._parsed()
            except h11.RemoteProtocolError:
                self._refuse(malformed("the body is not framed as it says"))
                return None
            if not self._is_stream and self._received > self._limits.max_body_bytes:
                self._refuse(too_long(self._limits.max_body_bytes))
                return None
            if body or self._whole:
                self._told = self._whole
                return {"type": "http.request", "body": body, "more_body": not self._whole}
            if not await self._more():
                return None

    def _parsed(self) -> bytes:
        """Return the part of the body that has arrived, up to a limit."""
        parts: list[bytes] = []
        for _ in range(0 if self._whole else 64):  # events, as a chunk may be one byte
            event = self._http.next_event()
            if isinstance(event, h11.Data):
                data = bytes(event.data)
                parts.append(data)
                self._received += len(data)
                if self._received > SMALL and not self._is_stream:
                    self.hold(weight(data))
            elif isinstance(event, h11.EndOfMessage):
                self._whole = True
                break
            elif not self._ahead:
                break
            else:
                self._http.receive_data(bytes(self._ahead))
                self._ahead.clear()
                self._room.unpark_all()
        return b"".join(parts)

    async def _more(self) -> bool:
        """Wait for more of the body; return False if there will be no more."""
        if self._ahead:
            return True
        async with self._writing:
            if self._http.they_are_waiting_for_100_continue and not self._begun:
                await self._send(self._http.send(_CONTINUE))
        limits, started = self._limits, trio.current_time()
        with trio.move_on_after(limits.silence_seconds if self._is_stream else self._patience) as late:
            while not (self._ahead or self._gone or self._answered):
                await self._arrived.park()
        self._patience -= trio.current_time() - started
        if late.cancelled_caught and self._is_stream:
            silence = f"nothing of the body has come for {limits.silence_seconds:g} s"
            self._refuse(Refused(408, silence, "slow body"))
        elif late.cancelled_caught:
            self._refuse(Refused(408, f"no body within {limits.body_seconds:g} s", "slow body"))
        return bool(self._ahead)

    def _refuse(self, refused: Refused) -> None:
        self._refused = refused
        self._scope.cancel()

    async def send(self, message: Message) -> None:
        """Send the next part of the answer, and wait while the client does not read it: ASGI's `send`."""
        kind = message["type"]
        if kind == "http.response.start" and self._response is None:
            status, headers = message["status"], message.get("headers", ())
            own = [(bytes(name), bytes(value)) for name, value in headers]
            if self._chunked or not self._whole or self._is_last():
                own.append(_CLOSE)
            if b"date" not in [name.lower() for name, _ in own]:
                own += self._limits.stamp()
            self._response = h11.Response(status_code=status, headers=own)
            self._empty_answer = self._empty_answer or status in (204, 304)
        elif kind == "http.response.body" and self._response is not None and not self._answered:
            task, more = current_task(), message.get("more_body", False)
            if more and task.custom_sleep_data is not self and not self._writing.locked():
                await checkpoint_if_cancelled()
                self._writing.acquire_nowait()
            else:
                await self._writing.acquire()  # lets others run, where this task has not waited meanwhile
            try:
                await self._send(*self._encoded(self._response, message.get("body", b""), more=more))
            finally:
                self._writing.release()
            task.custom_sleep_data = self  # trio empties it whenever the task is woken
            await checkpoint_if_cancelled()
        else:
            raise RuntimeError(f"{kind!r} is not what is to be sent now")

    def _encoded(self, response: h11.Response, body: bytes, *, more: bool) -> list[bytes]:
        """Encode a part of the answer, with the head before the first part.

        A small part is sent as one piece; a large body is not copied, as it may wait long for its client.
        """
        parts: list[bytes] = []
        if not self._begun:
            parts.append(self._http.send(response))
        if body and not self._empty_answer:
            parts.append(self._http.send(h11.Data(data=bytes(body))))
        if not more:
            parts.append(self._http.send(h11.EndOfMessage()))
        self._begun = True
        self._answered = not more
        return [part for part in parts if part] if len(body) > SMALL else [b"".join(parts)]

    async def _send(self, *parts: bytes) -> None:
        if not self._torn and not self._gone:
            self._torn = True
            length = sum(map(len, parts))
            size = length if length > SMALL else 0
            self._account.charge(size)
            try:
                for part in parts:
                    if not await write_within(self._stream, part, self._limits.write_seconds):
                        break  # it was not written in time, or the client is gone
                else:
                    self._torn = False
                    return
            finally:
                self._account.release(size)
        self._gone = True
        self._arrived.unpark_all()
        self._scope.cancel()
        await checkpoint()  # as in `receive`
        raise ClientLeft("the client has left")


def too_long(limit: int) -> Refused:
    return Refused(413, f"the body is over {limit} bytes", "too large")


async def received(stream: trio.abc.Stream) -> bytes:
    """Wait for the next bytes; return none if the peer has ended its side or is gone."""
    try:
        return bytes(await stream.receive_some(_AHEAD))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""


async def write_within(stream: trio.abc.Stream, data: bytes, seconds: float) -> bool:
    """Send data. Return False if the peer is gone, or does not take a piece of 64 KiB within `seconds`."""
    try:
        send_now = getattr(stream, "send_now", None) if data else None
        view = memoryview(data)[0 if send_now is None else send_now(data) :]  # mostly nothing is left
        for start in range(0, len(view), _AHEAD):
            with trio.move_on_after(seconds) as late:
                await stream.send_all(view[start : start + _AHEAD])
            if late.cancelled_caught:
                return False
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return True
