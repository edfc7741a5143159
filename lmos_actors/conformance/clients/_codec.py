"""The judge of a client's frames and Closes, which all protocols over a WebSocket share.

The judge notes errors and passes everything on as if it were right, so that one error does not hide the next.
For example, a frame without a mask is read all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

from lmos_actors.conformance.scripted import (
    MessageConnection,
    Out,
    SendClose,
    SendFrame,
    SendText,
    WebSocketCodec,
    is_close_code,
)
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawFrame,
    Recorder,
    close_payload,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lmos_actors.conformance.card import Kind
    from lmos_actors.conformance.scripted import Timer

    from ._log import ClientNotes, ConnectionLog

_KINDS: Final[dict[int, Kind]] = {
    CONTINUATION: "continuation",
    TEXT: "text",
    BINARY: "binary",
    CLOSE: "close",
    PING: "ping",
    PONG: "pong",
}


class JudgedConnection(MessageConnection, Protocol):
    """A connection whose client is judged; `log` has its traffic."""

    log: ConnectionLog


class JudgingServer(Protocol):
    """The part of a judging server that its connections use: notes, patience and timers."""

    notes: ClientNotes
    random: Random
    patience: float

    def after(self, seconds: float, act: Callable[[], object]) -> Timer:
        """Schedule a call after a number of seconds."""
        ...


@attrs.frozen(kw_only=True)
class Judge:
    """The judge of a connection.

    `text` judges a text message; `binary` returns what is wrong with a binary message, and the key of its
    deviation, or two empty texts. `gone` is called when the connection has ended.
    """

    server: JudgingServer
    recorder: Recorder
    text: Callable[[str], object]
    binary: Callable[[bytes], tuple[str, str]]
    gone: Callable[[], object]


class JudgingCodec(WebSocketCodec):
    """A codec that judges the frames of a client, and sends a ping after the client's first message."""

    connection: JudgedConnection

    def __init__(self, connection: JudgedConnection, judge: Judge) -> None:
        super().__init__(connection)
        self._judge = judge
        self._recorder = judge.recorder
        self._server = judge.server
        self._notes = judge.server.notes
        self._pings: list[bytes] = []
        self._pinged = False
        self._ended = False

    def _wrong(self, what: str, seen: str, key: str = "") -> None:
        self._notes.wrong(what, seen, self.connection.log, key)

    # ---- in

    def on_frame(self, frame: RawFrame) -> None:
        """Judge a frame. A frame without a mask is noted as an error, but accepted."""
        self._recorder.keep(_KINDS.get(frame.opcode, "bytes"), frame.payload, sent=False)
        if self.received_close:
            self._wrong("nothing-after-close", f"a frame of opcode {frame.opcode} after its Close")
            return
        if self.deaf and frame.opcode != CLOSE:
            return
        self._notes.tried("masked")
        if not frame.masked:
            self._wrong("masked", f"a frame of opcode {frame.opcode} without a mask")
        self._notes.tried("frames")
        super().on_frame(attrs.evolve(frame, masked=True))

    def wrong_in(self, frame: RawFrame) -> str:
        """Return what is wrong with the structure of a frame and note it, or return "" if nothing is."""
        wrong = super().wrong_in(frame)
        if wrong and not self.deaf:
            self._wrong("frames", wrong)
        return wrong

    def on_message(self, opcode: int, data: bytes) -> None:
        """Judge a message; after the first one, send a ping."""
        self._notes.tried("text")
        if opcode == BINARY:
            wrong, key = self._judge.binary(data)
            if wrong:
                self._wrong("text", wrong, key)
        else:
            self._text(data)
        super().on_message(opcode, data)
        if not self._pinged:
            self._pinged = True
            self.connection.put(SendFrame(PING, self._server.random.randbytes(8)))

    def _text(self, data: bytes) -> None:
        self._notes.tried("utf-8")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            self._wrong("utf-8", str(error))
            return
        self._judge.text(text)

    def on_pong(self, payload: bytes) -> None:
        """Note a pong: it answers its ping and all earlier pings."""
        if payload in self._pings:
            self._notes.tried("pongs")
            del self._pings[: self._pings.index(payload) + 1]

    def on_close(self, payload: bytes) -> None:
        """Judge a Close."""
        self._pings.clear()
        self._notes.tried("returns-close" if self.said_close else "close")
        self._notes.tried("nothing-after-close")
        if not self.said_close:
            code = int.from_bytes(payload[:2], "big")
            if len(payload) == 1 or (payload and not is_close_code(code)):
                self._wrong("close", f"a Close with {payload[:2].hex()}, which is no code that may be sent")
            try:
                payload[2:].decode()
            except UnicodeDecodeError:
                self._wrong("close", "the reason of a Close is not UTF-8")
        super().on_close(payload)

    def lost(self, *, by_peer: bool) -> None:
        """Judge how the connection has ended."""
        if by_peer and not self.received_close and not self.over and not self.deaf:
            if not self.said_close:
                self._wrong("close", "the stream ended without a Close", "ends-without-close")
            elif not self._ended:
                self._wrong("returns-close", "the stream ended, without a Close in answer")
        self._ended = True
        self._pings.clear()
        super().lost(by_peer=by_peer)
        self._judge.gone()

    # ---- out

    def written(self, out: Out) -> bytes:
        """Return the bytes to send; schedule a check that the client answers a ping or a Close."""
        said_before = self.said_close
        data = super().written(out)
        if data:
            self._keep(out)
        if isinstance(out, SendFrame) and out.opcode == PING and data:
            self._pings.append(out.payload)
            self._server.after(self._server.patience, lambda: self._await_pong(out.payload))
        if self.said_close and not said_before and not self.received_close:
            self._pings.clear()
            self._server.after(self._server.patience, self._await_close)
        return data

    def _keep(self, out: Out) -> None:
        if isinstance(out, SendText):
            self._recorder.keep("text", out.text.encode(), sent=True)
        elif isinstance(out, SendFrame):
            self._recorder.keep(_KINDS[out.opcode], out.payload, sent=True)
        elif isinstance(out, SendClose):
            self._recorder.keep("close", close_payload(out.code, out.reason), sent=True)

    def _await_pong(self, payload: bytes) -> None:
        if payload in self._pings:
            self._pings.remove(payload)
            self._wrong("pongs", f"no pong with {payload.hex()} within {self._server.patience:g} s")

    def _await_close(self) -> None:
        if not self.received_close and not self._ended and not self.deaf:
            self._ended = True
            self._wrong("returns-close", f"no Close within {self._server.patience:g} s")
