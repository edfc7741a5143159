"""WebSocket frames: a decoder that limits the size of whole messages, and the connection that reads them.

wsproto sets no limit on messages: `LimitedDecoder` refuses a message by the lengths in its frame headers,
before the payload is stored.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from trio import BrokenResourceError, CancelScope, ClosedResourceError, current_time, move_on_after
from trio.lowlevel import checkpoint
from trio_websocket import WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import (
    CloseReason,
    FrameDecoder,
    FrameProtocol,
    Opcode,
    ParseFailed,
)
from wsproto.utilities import RemoteProtocolError

from ._incoming import IncomingMessage
from ._masks import masked
from ._network import detail_of, has_detail

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    import trio
    from wsproto.events import Event

    from lmos_actors._core import Account

    from ._masks import Masks
    from ._options import FrameListener


class LimitedDecoder(FrameDecoder):
    """A decoder that refuses a message as soon as a frame header announces more bytes than are allowed."""

    def __init__(self, client: bool, limit: int) -> None:
        super().__init__(client)
        self._limit = limit
        self._size = 0  # bytes that the message in progress has claimed

    def parse_header(self) -> bool:
        if not super().parse_header():
            return False
        if self.header is not None and not self.header.opcode.iscontrol():
            size = self.header.payload_len
            size += self._size if self.header.opcode is Opcode.CONTINUATION else 0
            self._size = 0 if self.header.fin else size
            if size > self._limit:
                raise ParseFailed(f"a message has {self._limit} bytes at most", CloseReason.MESSAGE_TOO_BIG)
        return True


# --- frames of RFC 6455 inside trio-websocket's connection
#
# This is the one file that uses private names of trio-websocket and wsproto. What it adds to them: most
# frames are coded here, past their decoder, with the same verdicts; messages are limited in bytes, as soon
# as a frame's header claims too many; nothing is sent from the reader; and an error goes to the listener,
# which closes the connection.

OPEN: Final = ConnectionState.OPEN
_LIVE: Final = (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING)
_TEXT, _BINARY = _DATA = 0x81, 0x82
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_READ: Final = 66_560  # a piece of 64 KiB comes in one read, with the heads of its frame
_STRETCH: Final = 64  # frames that are taken in before others have a turn
_BREAK: Final = RejectData(data=b"")  # an event that no open connection has: to tell of the end of a stretch

DETAIL_SECONDS: Final = 1.0
"""Seconds to wait for the reason of a refusal, whose status is known by then."""

DETAIL_BYTES: Final = 8192

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"


class ServerText(bytes):
    """A text encoded as the whole frame that a server sends, shared by the connections of many clients.

    A server's frames have no mask (RFC 6455 section 5.1), so a text has the same bytes for all clients.
    """


def server_text(text: bytes) -> ServerText:
    """Return the frame of a UTF-8 text, to be sent over any number of a server's connections."""
    return ServerText(FrameProtocol(client=False, extensions=[]).send_data(text.decode(), fin=True))


class FrameCodec(WSConnection):
    """wsproto's connection, with short cuts for whole texts and binary frames once it is open.

    Before `begin` it does the handshake, and stores the bytes that follow. After that a complete,
    well-formed, unfragmented frame of text or bytes goes straight to `sink`. Of a binary frame that is not
    there in full, each received part becomes an event at once, like wsproto's; wsproto itself would copy each
    byte four times more. wsproto decodes any other frame, byte by byte as it arrives, so that invalid UTF-8
    is found before a text has ended; after that frame the short cuts are used again. Without `fast` wsproto
    decodes all frames.
    """

    def __init__(self, kind: ConnectionType, *, limit: int, fast: bool, masks: Masks) -> None:
        super().__init__(kind)
        self.bytes_in = 0
        self.heard = False  # whether anything came since this was last unset
        self.deaf = False  # drop what comes
        self.is_between = False
        """Whether no message is in progress, as far as that is known at once; see `is_midway`."""
        self._sink: FrameListener | None = None
        self._limit = limit
        self._fast = fast
        self._masks = masks
        self._mask_bit = 0 if self.client else 0x80
        self._buffer = b""
        self._at: int = 0
        self._left: int = 0  # bytes still to come of a frame that is not taken as a whole
        self._is_ours = False  # that frame: binary, and not wsproto's
        self._key = b""  # the mask of that frame's next bytes, if it is masked
        self._stretch = 0  # frames since the last break
        self._fragments = False  # inside a fragmented message
        self._failed = False

    def receive_body(self, data: bytes | None) -> None:
        """Process a part of the body of an answer other than 101 (None: its end); see `events`."""
        whole, self._buffer = self._buffer + (data or b""), b""
        if whole:  # to h11 nothing is the end
            super().receive_data(whole)
        if data is None:
            super().receive_data(None)

    # ---- out

    def encode(self, frames: list[bytes]) -> bytes:
        """Return the frames of some messages: plain `bytes` are a text in UTF-8, subclasses are binary.

        A `ServerText` is a frame already, and is not changed.
        """
        if len(frames) == 1 and type(frames[0]) is ServerText:
            return frames[0]
        if not self._fast:
            return b"".join([self._by_wsproto(frame) for frame in frames])
        parts: list[bytes] = []
        masks = self._masks if self.client else None
        bit = 0 if masks is None else 0x80
        for frame in frames:
            if type(frame) is bytes:
                first = _TEXT
            elif type(frame) is ServerText:
                parts.append(frame)
                continue
            else:
                first = _BINARY
            size = len(frame)
            if size < 126:
                parts.append(bytes((first, bit | size)))
            elif size < 65536:
                parts.append(bytes((first, bit | 126, size >> 8, size & 0xFF)))
            else:
                parts.append(bytes((first, bit | 127)) + size.to_bytes(8, "big"))
            if masks is None:
                parts.append(frame)
            else:
                key = masks(4)
                parts += (key, masked(frame, key))
        return b"".join(parts)

    def _by_wsproto(self, frame: bytes) -> bytes:
        if type(frame) is ServerText:
            return frame
        is_text = type(frame) is bytes
        return self.send(TextMessage(data=frame.decode()) if is_text else BytesMessage(data=bytes(frame)))

    def ping(self) -> bytes:
        """Return a ping without a payload.

        `ping`, `pong` and `close` raise wsproto's LocalProtocolError once the connection is closed.
        """
        return self._control(Ping())

    def pong(self, payload: bytes) -> bytes:
        """Return the answer to a ping, with the ping's payload."""
        return self._control(Pong(payload=payload))

    def close(self, code: int, reason: str) -> bytes:
        """Return a Close frame, after which nothing may be sent.

        For 1005 the frame has no code. A reason that is too long is cut.
        """
        if code == CloseReason.NO_STATUS_RCVD:
            return self._control(CloseConnection(code=CloseReason.NO_STATUS_RCVD))
        text = reason.encode("utf-8", "replace").decode()
        return self._control(CloseConnection(code=code, reason=text or None))

    def _control(self, event: Ping | Pong | CloseConnection) -> bytes:
        data = bytes(self.send(event))
        if not self.client or not self._fast:
            return data
        key = self._masks(4)
        return data[:2] + key + masked(masked(data[6:], data[2:6]), key)

    # ---- in

    def receive_data(self, data: bytes | None) -> None:
        """Process received bytes; `events` yields what they contained."""
        if data is None or self.deaf:
            return
        self.heard = True
        self.is_between = False
        self.bytes_in += len(data)
        if self.connection is not None and not self._fast and self._sink is not None:
            super().receive_data(data)
            return
        data = self._buffer[self._at :] + data
        self._at = self._stretch = 0
        if self.connection is None:
            end = _HEAD_END.search(data)
            if end is not None or len(data) >= _READ:
                # no byte more than the head: wsproto would keep the rest in a buffer of its own
                cut = end.end() if end is not None else len(data)
                super().receive_data(data[:cut])
                data = data[cut:]
        self._buffer = data

    def take(self, data: bytes) -> bool:
        """Process received bytes. Return True if all went to the sink, else `events` yields the rest.

        This combines `receive_data` and `events` in one step for the most frequent case of an open
        connection: only whole texts and binary frames, with nothing before or after them.
        """
        connection, sink = self.connection, self._sink
        state = None if connection is None else connection.state
        if state is ConnectionState.CLOSED:
            return False
        is_plain = state is OPEN and self._fast and not (self._left or self._buffer or self._failed)
        if sink is None or not is_plain or self.deaf:
            self.receive_data(data)
            return False
        self.heard = True
        self.is_between = False
        self.bytes_in += len(data)
        self._buffer, self._at, self._stretch = data, 0, 0
        return not self._whole_frames(sink, is_open=True)

    @property
    def is_midway(self) -> bool:
        """Whether a message has begun to arrive but is not complete."""
        if self._at < len(self._buffer) or self.connection is None:
            return bool(self._buffer)
        if self._is_ours:
            return True
        frames = self.connection._proto  # pyright: ignore[reportPrivateUsage]
        decoder, messages = frames._frame_decoder, frames._message_decoder  # pyright: ignore[reportPrivateUsage]
        return decoder.header is not None or len(decoder.buffer) > 0 or messages.opcode is not None

    def begin(self, sink: FrameListener) -> None:
        """Start receiving frames: whole texts and binary frames go to `sink`, all else to `events`."""
        connection = self.connection
        if connection is None:
            raise RuntimeError("the handshake is not over")
        connection._events = cast("Any", ())  # pyright: ignore[reportPrivateUsage]
        decoder = LimitedDecoder(self.client, self._limit)
        connection._proto._frame_decoder = decoder  # pyright: ignore[reportPrivateUsage]
        self._sink = sink
        self.heard = False
        self.is_between = self._fast and not self._buffer
        del self.handshake  # several kB, not needed any more
        if not self._fast:
            connection.receive_data(self._buffer)
            self._buffer = b""

    def end(self) -> None:
        """Release the buffers and the listener; this object must not be used any more."""
        self.deaf, self._sink, self.connection = True, None, None
        self._buffer, self._at = b"", 0

    def events(self) -> Generator[Event]:
        """Yield the received events one by one, as handling one may change the next."""
        if self._sink is None:
            yield from super().events()
        elif self._fast:
            yield from self._open_events(self._sink)
        elif self.connection is not None and not self.deaf:
            for number, event in enumerate(self.connection.events(), 1):
                yield event
                if not number % _STRETCH:
                    yield _BREAK

    def _open_events(self, sink: FrameListener) -> Generator[Event]:
        connection = self.connection
        while connection is not None:
            if self._failed or self.deaf or connection.state not in _LIVE:
                self._buffer, self._at = b"", 0
                return
            if self._stretch >= _STRETCH:
                self._stretch = 0
                yield _BREAK
            elif self._left:
                self._stretch += 1
                if not (yield from self._slow_frame()):
                    return
            elif not self._whole_frames(sink, is_open=connection.state is OPEN):
                return

    def _slow_frame(self) -> Generator[Event, None, bool]:
        chunk = self._buffer[self._at : self._at + self._left]
        if not chunk:
            self._buffer, self._at = b"", 0  # nothing is kept while the rest is waited for
            return False
        self._at += len(chunk)
        self._left -= len(chunk)
        if self._is_ours:
            self._is_ours = self._left > 0
            if self._key:
                turn = len(chunk) % 4
                chunk, self._key = masked(chunk, self._key), self._key[turn:] + self._key[:turn]
            is_whole = not self._is_ours
            yield BytesMessage(data=chunk, frame_finished=is_whole, message_finished=is_whole)
            return True
        connection = self.connection
        assert connection is not None
        connection.receive_data(chunk)
        for event in connection.events():
            self._failed = type(event) is CloseConnection and connection.state in _LIVE
            yield event
        return True

    def _whole_frames(self, sink: FrameListener, *, is_open: bool) -> bool:
        """Pass whole frames to the sink. Return True if decoding can go on, False if bytes lack."""
        buffer, at, end = self._buffer, self._at, len(self._buffer)
        fast = is_open and not self._fragments
        while end - at >= 2:
            mask_bit, size = buffer[at + 1] & 0x80, buffer[at + 1] & 0x7F
            start = at + (6 if mask_bit else 2) + (0 if size < 126 else 2 if size == 126 else 8)
            if end < start:
                break
            minimal = True
            if size == 126:
                size = (buffer[at + 2] << 8) | buffer[at + 3]
                minimal = size > 125
            elif size == 127:
                size = int.from_bytes(buffer[at + 2 : at + 10], "big")
                minimal = size > 65535
            stop = start + size
            fits = fast and minimal and mask_bit == self._mask_bit and size <= self._limit
            kind = buffer[at]
            if fits and stop <= end and kind in _DATA:
                payload = buffer[start:stop]
                if mask_bit:
                    payload = masked(payload, buffer[start - 4 : start])
                try:
                    text = payload.decode() if kind == _TEXT else None
                except UnicodeDecodeError:
                    pass  # wsproto will find it too, and say 1007
                else:
                    at, self._at, self.is_between = stop, stop, stop == end  # first: the sink may send
                    if text is None:
                        sink.on_binary(payload)
                    else:
                        sink.on_text(text)
                    self._stretch += 1
                    if self.deaf or self._stretch >= _STRETCH:
                        return True
                    continue
            self._begin_frame(buffer[at:start], size, is_ours=fits and kind == _BINARY and size > 0)
            return True
        if at == end:
            self._buffer, self._at = b"", 0
            self.is_between = not self._fragments
        return False

    def _begin_frame(self, head: bytes, size: int, *, is_ours: bool) -> None:
        """Begin a frame that is not taken as a whole; with `is_ours`, consume its head at once."""
        self._is_ours = is_ours
        self._left = size
        if is_ours:
            self._at += len(head)
            self._key = head[-4:] if self._mask_bit else b""
            return
        self._left += len(head)
        if not head[0] & 0x08:
            self._fragments = not head[0] & 0x80


class NotUpgraded(Exception):
    """Raised if the server answered the handshake with something other than 101; `detail` is its reason.

    `retry_in` is the number of seconds in its `Retry-After` header; None if there is no such header, or if it
    contains a date or is malformed.
    """

    def __init__(self, status: int, detail: str = "", retry_in: float | None = None) -> None:
        self.status = status
        self.detail = detail
        self.retry_in = retry_in
        super().__init__(status)


class Wire(WebSocketConnection):
    """trio-websocket's connection: its handshake and its reader, with every event passed on at once.

    It has no channel for messages and sends nothing but the handshake; only its owner writes to it after
    that.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        codec: FrameCodec,
        *,
        host: str | None = None,
        target: str | None = None,
        subprotocols: Iterable[str] = (),
        headers: Headers = (),
    ) -> None:
        super().__init__(
            stream,
            codec,
            host=host,
            path=target,
            client_subprotocols=subprotocols,
            client_extra_headers=list(headers),
            message_queue_size=0,
            receive_buffer_size=_READ,
        )
        self._send_channel.close()
        self._recv_channel.close()
        self.stream = stream
        self.codec = codec
        self.offered: tuple[str, ...] = tuple(subprotocols)
        self._owner: FrameListener | None = None
        self._incoming = IncomingMessage()

    # ---- the handshake

    async def request(self) -> None:
        """Request the upgrade and wait for it. Raises NotUpgraded, EOFError, and what wsproto raises."""
        assert self._initial_request is not None
        await self._stream.send_all(self.codec.send(self._initial_request))
        self._initial_request = None
        while not self._open_handshake.is_set():
            data = await self._stream.receive_some(_READ)
            if not data:
                raise EOFError("the server closed the connection")
            self.codec.receive_data(bytes(data))
            for event in self.codec.events():
                if isinstance(event, AcceptConnection):
                    await self._handle_accept_connection_event(event)
                elif isinstance(event, RejectConnection):
                    detail = await self._detail(event)
                    after = [value for name, value in event.headers if name.lower() == b"retry-after"]
                    is_number = len(after) == 1 and after[0].isdigit() and len(after[0]) < 10  # and no date
                    raise NotUpgraded(event.status_code, detail, float(after[0]) if is_number else None)

    async def _detail(self, refused: RejectConnection) -> str:
        """Return the reason in the body of a refusal; the body came with its head or follows at once."""
        kinds = (value for name, value in refused.headers if name.lower() == b"content-type")
        kind = next(kinds, b"").decode("latin-1")
        if not has_detail(kind):
            return ""
        body, is_whole = b"", not refused.has_body
        data: bytes | None = b""
        with move_on_after(DETAIL_SECONDS), suppress(BrokenResourceError, RemoteProtocolError):
            while not is_whole and len(body) <= DETAIL_BYTES:
                self.codec.receive_body(data)
                for event in self.codec.events():
                    if isinstance(event, RejectData):
                        body, is_whole = body + bytes(event.data), event.body_finished
                if not is_whole:
                    data = bytes(await self._stream.receive_some(_READ)) or None
        return detail_of(kind, body)

    def read_request(self, head: bytes) -> Request:
        """Parse the head of an upgrade, and store the bytes after it. Raises what wsproto raises."""
        self.codec.receive_data(head)
        found = [event for event in self.codec.events() if isinstance(event, Request)]
        if not found:
            raise ValueError("the head of the request is not complete")
        self.offered = tuple(found[0].subprotocols)
        self._handshake_headers = tuple(found[0].extra_headers)
        self._path = found[0].target
        return found[0]

    async def answer(self, request: Request, subprotocol: str | None, headers: Headers) -> None:
        """Answer an upgrade request with 101."""
        self._subprotocol = subprotocol
        accept = AcceptConnection(subprotocol=subprotocol, extra_headers=list(headers))
        await self._stream.send_all(self.codec.send(accept))
        self._open_handshake.set()

    # ---- the open connection

    def begin(
        self, owner: FrameListener, account: Account, message_seconds: float, is_behind: Callable[[], bool]
    ) -> None:
        """Pass events to the listener from now on; nothing is read before this call.

        While `is_behind` returns True, reading waits until other tasks have had their turns. The memory of a
        message in progress is charged to `account`; the whole message has to arrive within `message_seconds`.
        """
        self._owner, self._incoming = owner, IncomingMessage(account, message_seconds, is_behind)
        self.codec.begin(owner)
        # memory of an idle connection that the reader does not need
        del self._send_channel, self._recv_channel, self._pings, self._connection_proposal, self._stream_lock
        del self._open_handshake, self._close_handshake, self._for_testing_peer_closed_connection

    def drop(self) -> None:
        """Release the parts of an incomplete message."""
        self._incoming.drop()

    def end(self) -> None:
        """Release the owner, and the parts of an incomplete message."""
        self.drop()
        self._owner, self._incoming = None, IncomingMessage()
        self.codec.end()

    async def read(self) -> None:
        """Read until the stream ends or the caller cancels.

        This replaces trio-websocket's own reader, which needs a table of handlers per connection and a step
        per event.
        """
        codec, owner = self.codec, self._owner
        assert owner is not None
        data: bytes | bytearray | None
        size = _READ
        midway: tuple[int, float] | None = None  # which message is in progress, and until when that may be
        is_taken = False  # all that came: there are no events
        while True:
            event: Event | None = None
            for event in () if is_taken else codec.events():
                if event is _BREAK:
                    await _give_way(self._incoming.is_behind)
                else:
                    is_live = type(event) is not CloseConnection or codec.state in _LIVE
                    self._incoming.take(event, owner, is_live=is_live)
            event = data = None  # else each connection that waits would keep what it read last
            if codec.is_between or codec.deaf or not codec.is_midway:
                midway = None
            elif midway is None or midway[0] != owner.messages_in:
                midway = owner.messages_in, current_time() + self._incoming.seconds
            try:
                if midway is None:
                    data = await self.stream.receive_some(size)
                else:
                    data = await self._received_by(midway[1], owner, size)
            except (BrokenResourceError, ClosedResourceError):
                return
            if data is None:
                continue
            if not data:
                return
            # larger only after a full one: most allocators ask the system for so much, each time
            size = _READ if len(data) < _READ else 262_144
            is_taken = codec.take(bytes(data))

    async def _received_by(
        self, deadline: float, owner: FrameListener, size: int
    ) -> bytes | bytearray | None:
        """Wait for more of a message in progress. If that takes too long, report it and return None."""
        with CancelScope(deadline=deadline):
            return await self.stream.receive_some(size)
        self.drop()
        owner.on_error(1008, f"a message has to come within {self._incoming.seconds:g} s")
        return None


async def _give_way(is_behind: Callable[[], bool]) -> None:
    """Let other tasks handle received data before more is read, so that TCP slows its sender down.

    The wait is limited, because those tasks may themselves wait for the next data.
    """
    for _ in range(64):
        await checkpoint()
        if not is_behind():
            return
