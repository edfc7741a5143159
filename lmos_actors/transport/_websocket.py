"""A WebSocket connection after its handshake, at either end: one reader, one writer, and its end.

The task that calls `run` writes; a child task reads. The writer wakes when the handler has frames, for the
heartbeat, and when the reader has noticed something, such as the peer's Close.

While the writer sleeps, nothing is being sent. Then a task that has just queued a message may send it in its
own step (`flush`): that saves a pass of the event loop, which is most of the cost of a short message. Further
messages that this task queues before it waits are left to the writer, which sends them together: many short
messages cost few system calls. Bytes that the stream does not take at once stay in `_rest`, for the writer.
So frames keep the order of the handler, and a cancellation of that task cannot tear a frame, as nothing is
awaited.

The invariants of this file:

- A connection has one end, `_ended`: the first Close, error or break decides its code and reason. A mistake
  of the peer closes it with a code (`on_error`), an exception of the handler with 1011, and `run` raises it.
- After a mistake of the peer, a break or a cancellation nothing more is passed to the handler (`_mute`);
  after our own Close it still gets what the peer sends before its Close. Nothing is sent after our Close
  (`_is_last`).
- `run` returns with the stream closed. If cancelled, it sends Close 1001 and waits for the peer's Close, for
  `close_seconds` at most.
- Memory is bounded: data that waits for the peer is charged to its account, a batch has about `_ROOM` bytes,
  and answers to pings are at most `_PONGS`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio
from trio.lowlevel import checkpoint, current_task
from wsproto.utilities import LocalProtocolError

from lmos_actors._core import SMALL, SPENT

from ._options import Bucket, ConnectionOptions, ConnectionStatistics, Ended, Handler, check_close_code, drop
from ._tcp import DirectStream
from ._wakeup import WakeupPoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Account

    from ._frames import Wire

_ROOM: Final = 65536  # bytes of frames that are taken for one write
_PONGS: Final = 64  # answers to pings that wait; RFC 6455 5.5.3 lets the older ones go
_NO_HALF: Final = 1.0  # seconds to wait for the end of a stream that cannot be half closed
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


class Connection:
    """One WebSocket connection, after its handshake; `connect` and `accept` make them.

    `options`: its limits. `account`: the memory that the peer occupies; a handler charges to it what it keeps
    for the peer. `peer`: its address as text. `target`: path and query of the request. `headers`: the headers
    that the peer sent, names in lower case. `subprotocol`: the subprotocol in use; `offered`: the
    subprotocols that a client offered. The owner of the connection calls `run`, or else `aclose`.
    """

    __slots__ = (
        "_asked_close", "_beat", "_bucket", "_bytes_out", "_codec", "_ended", "_failure", "_flush_by",
        "_handler", "_is_last", "_is_more", "_is_open", "_is_over", "_messages_in", "_messages_out", "_mute",
        "_news", "_owes", "_patience", "_ping_due", "_pinged", "_ponged", "_pongs", "_rest",
        "_scope", "_send_now", "_sending", "_stream", "_take_binary", "_take_text", "_wire", "account",
        "headers", "is_direct", "offered", "options", "peer", "subprotocol", "target",
    )  # fmt: skip

    def __init__(self, wire: Wire, peer: str, options: ConnectionOptions, account: Account) -> None:
        self.peer = peer
        self.account = account
        account.give_way = self._overdrawn
        self.target: str = wire.path or "/"
        self.headers: tuple[tuple[bytes, bytes], ...] = wire.handshake_headers
        self.subprotocol: str | None = wire.subprotocol
        self.offered: tuple[str, ...] = wire.offered
        self._wire = wire
        self._codec = wire.codec
        self._stream = wire.stream
        self.is_direct = isinstance(wire.stream, DirectStream)
        """Whether `flush` may send in its caller's step: over TLS and in memory it never may."""
        self._send_now: Callable[[bytes], int] | None = getattr(wire.stream, "send_now", None)
        self.options = options
        self._handler: Handler | None = None
        self._take_text: Callable[[str], None] = drop
        self._take_binary: Callable[[bytes], None] = drop
        self._bucket: Bucket | None = None
        self._news = WakeupPoint()
        self._scope: trio.CancelScope | None = None
        self._beat = options.heartbeat_seconds  # until the heartbeat is looked at again
        self._patience = options.write_seconds
        self._rest = b""  # what is left of the batch that is being sent
        self._sending = False  # and the stream waits for the peer to take it
        self._is_more = False  # there is likely more than this batch
        self._is_last = False  # nothing may be sent after this batch
        self._is_over = False  # nothing more is to be read
        self._is_open = True  # the stream
        self._owes = False  # answers to what came before the peer's mistake; the writer had nothing else left
        self._mute = False  # nothing more is passed to the handler
        self._pongs: list[bytes] | None = None
        self._ping_due = self._pinged = False
        self._ponged = False  # since the last ping
        self._asked_close: tuple[int, str] | None = None
        self._flush_by: float | None = None
        self._ended: Ended | None = None
        self._failure: Exception | None = None
        self._messages_in = self._messages_out = self._bytes_out = 0

    def statistics(self) -> ConnectionStatistics:
        """Return the counts of messages and bytes in both directions so far."""
        codec = self._codec
        return ConnectionStatistics(self._messages_in, self._messages_out, codec.bytes_in, self._bytes_out)

    def wake(self) -> None:
        """Notify the writer that the handler has frames to send. Never blocks; may be called repeatedly."""
        self._news.wake()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is being sent, and the handler has received everything that has arrived."""
        # the writer sleeps only where nothing is left to send, and is woken by all that asks for a Close
        return (
            self._news.task is not None and self._codec.is_between and self.is_direct and self._ended is None
        )

    def flush(self) -> None:
        """Send the frames that the handler has, in this step if possible.

        Never blocks. While the connection is not quiet, and if the calling task has not waited since it
        flushed this connection, it does what `wake` does: the writer sends the frames, together with those
        that others queue until its turn. Call it from a task of the connection's event loop.
        """
        send = self._send_now
        if send is None or not self.is_quiet:
            self.wake()
            return
        task = current_task()
        flushed = task.custom_sleep_data
        if flushed is self:
            self.wake()
            return
        if flushed is None:
            task.custom_sleep_data = self  # trio empties it whenever the task is woken
        try:
            data = self._messages()  # as it is quiet, neither a control frame nor a Close is due
            sent = send(data) if data else 0
        except (LocalProtocolError, *_GONE) as error:
            self._break(str(error) or "the connection was reset")
            return
        self._bytes_out += sent
        if sent < len(data) or self._is_more:
            self._rest = data[sent:]
            self.wake()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection. Never blocks; repeated calls do nothing.

        Messages that the handler still has are sent first, for `write_seconds` at most, then the Close.
        Messages that the peer sends before its own Close are still accepted, for `close_seconds`. `reason` is
        cut at 123 bytes. Raises ValueError if the code must not be sent in a Close frame.
        """
        check_close_code(code)
        if self._asked_close is None:
            self._asked_close = (code, reason)
            self.wake()

    def ping(self) -> None:
        """Send a ping soon. Never blocks."""
        self._ping_due = True
        self.wake()

    def break_off(self, why: str) -> None:
        """End the connection without a Close, as if the peer were gone. Never blocks."""
        self._break(why)

    @property
    def bytes_in(self) -> int:
        """The number of bytes received so far."""
        return self._codec.bytes_in

    # ---- the life of the connection

    async def run(self, handler: Handler) -> Ended:
        """Carry messages until the connection has ended, and return its end; the stream is then closed.

        Raises the exception of the handler, if there was one; RuntimeError if it was called before. If
        cancelled, it sends Close 1001 and waits for the peer's Close, within `close_seconds`.
        """
        if self._handler is not None or not self._is_open:
            raise RuntimeError("a connection runs once")
        self._handler, self._take_text, self._take_binary = handler, handler.text, handler.binary
        if self.options.messages_per_second is not None:
            self._bucket = Bucket(self.options.messages_per_second, trio.current_time())
        behind = getattr(handler, "is_behind", bool)
        self._wire.begin(self, self.account, self.options.message_seconds, behind)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                await self._write()
                await self._see_out()
                nursery.cancel_scope.cancel()
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure
        assert self._ended is not None
        return self._ended

    async def aclose(self) -> None:
        """Close the stream of a connection that will not run, without a Close."""
        # let go now, not when cycles are collected: of a message that was cut there may be megabytes
        self._handler, self._take_text, self._take_binary, self._rest = None, drop, drop, b""
        self._wire.end()
        self.account.close()
        if self._is_open:
            self._is_open = False
            await trio.aclose_forcefully(self._stream)

    @property
    def messages_in(self) -> int:
        """The number of messages received so far."""
        return self._messages_in

    # ---- events from the reader

    async def _read(self) -> None:
        try:
            await self._wire.read()
        except Exception as error:
            self._fail_with(error)
        self._is_over = True
        if self._ended is None:
            where = " in the middle of a message" if self._codec.is_midway else ""
            self._break(f"the connection ended{where}, without a Close frame")
        self.wake()

    def on_text(self, text: str) -> None:
        if self._mute or (self._bucket is not None and not self._may_spend(self._bucket)):
            return
        self._messages_in += 1
        try:
            self._take_text(text)
        except Exception as error:
            self._fail_with(error)

    def on_binary(self, data: bytes) -> None:
        if self._mute or (self._bucket is not None and not self._may_spend(self._bucket)):
            return
        self._messages_in += 1
        try:
            self._take_binary(data)
        except Exception as error:
            self._fail_with(error)

    def on_ping(self, payload: bytes) -> None:
        self.on_trifle()
        if self._ended is None:
            self._pongs = [*(self._pongs or ())[1 - _PONGS :], self._codec.pong(payload)]
            self.wake()

    def on_pong(self) -> None:
        """Handle a pong, which shows only that the peer is alive."""
        self.on_trifle()
        self._ponged = True

    def on_trifle(self) -> None:
        if self._bucket is not None and not self._mute:
            self._may_spend(self._bucket)

    def _may_spend(self, bucket: Bucket) -> bool:
        if bucket.take(trio.current_time()):
            return True
        self.on_error(1008, f"more than {self.options.messages_per_second} messages a second")
        return False

    def on_close(self, code: int, reason: str) -> None:
        if self._ended is None:
            self._ended = Ended(code, reason, "peer", clean=True)
        else:
            self._ended = attrs.evolve(self._ended, clean=True)
        # RFC 6455 7.1.1: the server ends the stream, and the client waits for that
        self._is_over = not self._codec.client
        self._shorten_patience()

    def on_error(self, code: int, reason: str) -> None:
        """Close with this code: the peer broke a rule, or a handler here failed."""
        self._codec.deaf = self._mute = True
        if self._ended is None:
            self._ended = Ended(code, reason, "us", clean=False)
            self._owes = not self._rest and not self._is_more and self._failure is None  # in the same read
        else:
            self._is_over = True  # our Close is sent, and the peer's cannot be found in the rest
        self._shorten_patience()

    def _overdrawn(self) -> None:
        """Release all memory held for this peer, and close with 1013: the budget of all peers is exceeded.

        In the middle of a frame, break the connection off instead: the rest of the frame would be held until
        the peer has taken it.
        """
        self._codec.deaf = self._mute = True
        self._wire.drop()
        if self._rest:
            self._break(SPENT)
        elif self._ended is None:
            self._ended = Ended(1013, SPENT, "us", clean=False)
            self._shorten_patience()
        on_overdrawn = getattr(self._handler, "overdrawn", None)
        if on_overdrawn is not None:
            on_overdrawn()

    def _break(self, why: str) -> None:
        if self._ended is None:
            self._ended = Ended(None, why, "broken", clean=False)
        elif self._rest or not self._is_last:
            self._ended = attrs.evolve(self._ended, clean=False)  # our answer to its Close was not taken
        self._mute = self._is_last = self._is_over = True
        self._rest = b""
        if self._sending and self._scope is not None:
            self._scope.cancel()
        self.wake()

    def _fail_with(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self.on_error(1011, "")

    def _shorten_patience(self) -> None:
        # what is being sent is waited for no longer than the end is
        self._patience = min(self._patience, self.options.close_seconds)
        if self._sending and self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, trio.current_time() + self._patience)
        self.wake()

    async def _write(self) -> None:
        is_written = False
        while not is_written:
            # one scope from heartbeat to heartbeat: entering one for each wait would cost more than the wait
            with trio.CancelScope(deadline=trio.current_time() + self._beat) as scope:
                self._scope = scope
                is_written = await self._write_on(scope)
            if scope.cancel_called and not is_written:
                self._look_at_the_clock()

    async def _write_on(self, scope: trio.CancelScope) -> bool:
        """Write batches. Return True after the last, or False if the scope's time is up between two waits."""
        batches = 0
        while True:
            if not self._rest:
                if self._is_last:
                    return True
                self._rest = self._batch()
                if not self._rest:
                    if not self._is_last:
                        await self._news.park()
                        batches = 0
                    continue
            try:
                if self._send_now is not None:
                    sent = self._send_now(self._rest)
                    self._bytes_out += sent
                    self._rest = self._rest[sent:]
                if self._rest:
                    if scope.cancel_called:
                        return False
                    await self._send_slowly(scope)
            except _GONE as error:
                self._break(str(error) or "the connection was reset")
            else:
                batches += 1
                if not batches % (4 if self._is_more else 16):  # so many go out between two checkpoints
                    await checkpoint()

    def _look_at_the_clock(self) -> None:
        options = self.options
        if self._sending:
            self._sending = False
            self._break(f"the peer did not take what was sent within {self._patience:g} s")
        elif options.needs_pongs and self._pinged and not self._ponged:
            self._break(f"the peer answered no ping within {options.heartbeat_seconds:g} s")
        elif options.needs_pongs:
            self._pinged = self._ping_due = True
            self._ponged = False
            self._beat = options.heartbeat_seconds
        elif self._codec.heard or self._rest:
            self._codec.heard = self._pinged = False
            self._beat = options.heartbeat_seconds
        elif not self._pinged:
            self._pinged = self._ping_due = True
            self._beat = options.heartbeat_grace
        else:
            self._break(f"the peer sent nothing within {options.heartbeat_grace:g} s after a ping")

    async def _send_slowly(self, scope: trio.CancelScope) -> None:
        self._sending = True
        size = len(self._rest)
        charged = size if size > SMALL else 0
        self.account.charge(charged)
        try:
            with memoryview(self._rest) as view:
                for start in range(0, size, _ROOM):
                    scope.deadline = trio.current_time() + self._patience
                    with view[start : start + _ROOM] as piece:
                        await self._stream.send_all(piece)
                        self._bytes_out += len(piece)
        finally:
            self.account.release(charged)
        self._sending = False
        self._rest = b""
        scope.deadline = trio.current_time() + self._beat

    # ---- what is to be written

    def _batch(self) -> bytes:
        """Return the bytes to be sent next; the last are the Close."""
        self._is_more = False
        data = b""
        try:
            if self._ping_due or self._pongs is not None:
                data = self._asides()
            may_send = self._ended is None or self._owes
            if may_send and (self._asked_close is None or not self._is_flushed()):
                self._owes = False
                data += self._messages()
            return data or self._closing()
        except LocalProtocolError:
            self._break("the connection is closed")  # says wsproto
            return b""

    def _messages(self) -> bytes:
        """Return the frames of the handler's next messages. Raise LocalProtocolError."""
        handler = self._handler
        if handler is None:
            return b""
        try:
            frames = handler.frames(_ROOM)
            data = self._codec.encode(frames) if frames else b""
        except LocalProtocolError:
            raise
        except Exception as error:
            self._fail_with(error)
            return b""
        self._messages_out += len(frames)
        if len(data) >= _ROOM:
            self._is_more = True
        return data

    def _asides(self) -> bytes:
        """Return the control frames that are due: answers to pings, and a ping."""
        found = b""
        if self._pongs is not None:
            found = b"".join(self._pongs)
            self._pongs = None
        if self._ping_due and self._ended is None:
            self._ping_due = False
            found += self._codec.ping()
        return found

    def _is_flushed(self) -> bool:
        """Return whether the time in which the handler may still send, after a requested close, is over."""
        if self._flush_by is None:
            self._flush_by = trio.current_time() + self.options.write_seconds
        return trio.current_time() >= self._flush_by

    def _closing(self) -> bytes:
        if self._ended is None and self._asked_close is not None:
            self._ended = Ended(*self._asked_close, "us", clean=False)
        if self._ended is None:
            return b""
        self._is_last = True
        code = self._ended.code
        return b"" if code is None else self._codec.close(code, self._ended.reason)

    # ---- the end

    async def _see_out(self) -> None:
        """Wait, after our Close, for the peer's Close or for the end of the stream."""
        seconds = self.options.close_seconds
        if self._codec.deaf and not await self._half_closed():
            seconds = min(seconds, _NO_HALF)
        with trio.move_on_after(seconds):
            while not self._is_over:
                await self._news.park()

    async def _half_closed(self) -> bool:
        """Half-close the stream, and return whether that is possible.

        A stream that is closed while the peer still sends is reset, and our Close is lost.
        """
        if not isinstance(self._stream, trio.abc.HalfCloseableStream):
            return False
        try:
            await self._stream.send_eof()
        except _GONE:
            self._is_over = True
        return True

    async def _end(self) -> None:
        """Close the stream in any case; if this task was cancelled, send a Close first."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self.options.close_seconds):
            if self._ended is None and not self._rest:
                await self._say_goodbye()
            is_whole = self._ended is not None and self._ended.by != "broken" and not self._rest
            if is_whole and self._is_open:
                self._is_open = False
                with suppress(*_GONE):
                    await self._stream.aclose()
        await self.aclose()

    async def _say_goodbye(self) -> None:
        self._mute = True
        self._is_over = False
        self._asked_close = self._asked_close or (1001, "")
        try:
            await self._stream.send_all(self._closing())
        except (LocalProtocolError, *_GONE):
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            await self._see_out()
            nursery.cancel_scope.cancel()
