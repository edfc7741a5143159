"""The frames of one WebSocket at the scripted server's side: the rules of RFC 6455, without any I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameReader,
    FrameTooLong,
    RawFrame,
    close_payload,
    write_frame,
)

from ._messages import (
    MAX_BYTES,
    Disconnect,
    Out,
    SendClose,
    SendFrame,
    SendText,
)

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

_KNOWN: Final = (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)
_CODES: Final = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014)


def is_close_code(code: int) -> bool:
    """Return whether a code is allowed in a Close."""
    return code in _CODES or 3000 <= code <= 4999


class MessageConnection(Protocol):
    """The part of a connection that its codec uses.

    Output is queued in `out`, and `wake` is called after each addition.
    """

    out: deque[Out]
    wake: Callable[[], object]

    def put(self, out: Out) -> None:
        """Queue something to be sent."""

    def text(self, text: str) -> None:
        """Handle a text message."""

    def binary(self, data: bytes) -> None:
        """Handle a binary message."""

    def lost(self) -> None:
        """Note that the stream is over."""


class WebSocketCodec:
    """The codec between a connection's messages and bytes.

    `over` is true once nothing more will be written, so that the stream can be closed.
    """

    def __init__(self, connection: MessageConnection) -> None:
        self.connection = connection
        self.said_close = False
        self.received_close = False
        self.over = False
        self.deaf = False  # the peer broke the rules: nothing but its Close is heard
        self._reader = FrameReader(MAX_BYTES + 14)
        self._parts = bytearray()
        self._opcode = 0

    # ---- in

    def receive(self, data: bytes) -> None:
        """Handle bytes that have arrived."""
        try:
            frames = self._reader.feed(data)
        except FrameTooLong:
            self.on_violation(1009, f"a message has {MAX_BYTES} bytes at most")
            return
        for frame in frames:
            self.on_frame(frame)

    def on_frame(self, frame: RawFrame) -> None:
        """Handle a frame."""
        if self.received_close or (self.deaf and frame.opcode != CLOSE):
            return
        wrong = self.wrong_in(frame)
        if wrong:
            self.on_violation(1002, wrong)
        elif frame.opcode == PING:
            self.on_ping(frame.payload)
        elif frame.opcode == PONG:
            self.on_pong(frame.payload)
        elif frame.opcode == CLOSE:
            self.received_close = True
            self.on_close(frame.payload)
        else:
            self.on_part(frame)

    def wrong_in(self, frame: RawFrame) -> str:
        """Return what is wrong with a frame, or "" if nothing is."""
        if not frame.masked:
            return "a frame of a client is masked"
        if frame.rsv:
            return "a reserved bit is set"
        if frame.opcode not in _KNOWN:
            return f"the opcode {frame.opcode} is reserved"
        if frame.is_control and (not frame.fin or len(frame.payload) > 125):
            return "a control frame is whole, and has 125 bytes at most"
        if frame.opcode == CONTINUATION and not self._opcode:
            return "nothing is to be continued"
        if frame.opcode in (TEXT, BINARY) and self._opcode:
            return "the message before is not whole"
        return ""

    def on_part(self, frame: RawFrame) -> None:
        """Handle a message, or a part of one."""
        self._opcode = frame.opcode or self._opcode
        self._parts += frame.payload
        if len(self._parts) > MAX_BYTES:
            self.on_violation(1009, f"a message has {MAX_BYTES} bytes at most")
        elif frame.fin:
            data, opcode = bytes(self._parts), self._opcode
            self._parts, self._opcode = bytearray(), 0
            self.on_message(opcode, data)

    def on_message(self, opcode: int, data: bytes) -> None:
        """Handle a whole message."""
        if opcode == BINARY:
            self.connection.binary(data)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.on_violation(1007, "a text that is not UTF-8")
            return
        self.connection.text(text)

    def on_violation(self, code: int, reason: str) -> None:
        """Close the connection, as the peer broke the rules."""
        self.deaf = True
        self.connection.put(SendClose(code, reason))

    def on_ping(self, payload: bytes) -> None:
        """Answer a ping."""
        self.connection.put(SendFrame(PONG, payload))

    def on_pong(self, payload: bytes) -> None:
        """Handle a pong."""

    def on_close(self, payload: bytes) -> None:
        """Answer a Close frame, with the same code if it may be sent."""
        code = int.from_bytes(payload[:2], "big") if len(payload) > 1 else None
        try:
            payload[2:].decode()
        except UnicodeDecodeError:
            code = 1007
        if len(payload) == 1 or (code is not None and not is_close_code(code)):
            code = 1002
        self.connection.put(SendClose(code))

    # ---- out

    def written(self, out: Out) -> bytes:
        """Return the bytes to send, which are empty after a Close frame."""
        if self.said_close or self.over:
            return b""
        if isinstance(out, SendText):
            return self.frames_of(out.text)
        if isinstance(out, SendFrame):
            self.said_close = out.opcode == CLOSE
            return write_frame(out.opcode, out.payload, fin=out.fin, rsv=out.rsv)
        if isinstance(out, SendClose):
            self.said_close = True
            return write_frame(CLOSE, close_payload(out.code, out.reason))
        assert isinstance(out, Disconnect)
        self.over = True
        return b""

    def frames_of(self, text: str) -> bytes:
        """Return the frames of a text message."""
        return write_frame(TEXT, text.encode())

    def lost(self, *, by_peer: bool) -> None:
        """Note that the stream is over; `by_peer` is False if the server was cancelled."""
        self.connection.lost()

    def is_done(self) -> bool:
        """Return whether the stream must be closed now."""
        return self.over or (self.said_close and self.received_close)
