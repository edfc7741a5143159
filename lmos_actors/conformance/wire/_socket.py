"""The client side of an open WebSocket, which reads on demand and can send any frame."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from lmos_actors.conformance.card import Traffic

from ._frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameReader,
    FrameTooLong,
    RawFrame,
    accept_of,
    close_payload,
    write_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lmos_actors.conformance.card import Kind

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"
Record: TypeAlias = "Callable[[Traffic], None]"

_SHOWN: Final = 2_000
_MOST_BYTES: Final = 16 << 20  # read on one connection, so that no server can fill the memory
_MOST_FRAMES: Final = 20_000
_SENDING: Final = 10.0  # seconds in which the other side has to accept what is sent
_KINDS: Final[dict[int, Kind]] = {
    CONTINUATION: "continuation",
    TEXT: "text",
    BINARY: "binary",
    CLOSE: "close",
    PING: "ping",
    PONG: "pong",
}
LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


def why(error: BaseException) -> str:
    """Return why a stream has ended."""
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__


@attrs.frozen
class ConnectionEnd:
    """The end of a connection.

    `code` is the code of the other side's Close, 1005 if the Close was empty, and None without a Close.
    """

    code: int | None
    reason: str = ""

    def __str__(self) -> str:
        if self.code is None:
            return f"the connection ended without a Close ({self.reason or 'end of the stream'})"
        return f"the connection was closed with {self.code}{f' {self.reason!r}' if self.reason else ''}"


class ConnectionGone(Exception):
    """The connection ended while something was being sent or awaited."""

    def __init__(self, gone: ConnectionEnd) -> None:
        self.gone = gone
        super().__init__(str(gone))


@attrs.frozen(kw_only=True)
class Handshake:
    """The server's answer to an upgrade."""

    status: int
    headers: tuple[tuple[str, str], ...]
    key: str

    def header(self, name: str) -> str | None:
        """Return a header, with several values joined by commas; None if there is none."""
        found = [value for each, value in self.headers if each == name.lower()]
        return ", ".join(found) if found else None

    @property
    def accept(self) -> str:
        """The value that `Sec-WebSocket-Accept` must have."""
        return accept_of(self.key)


class Recorder:
    """The record of a connection's traffic. `number`: the connection's number; `began`: the case's start."""

    def __init__(self, record: Record, number: int, began: float) -> None:
        self._record, self._number, self._began = record, number, began

    def keep(self, kind: Kind, payload: bytes, *, sent: bool) -> None:
        """Record a frame."""
        if kind in ("binary", "bytes"):
            shown = payload[: _SHOWN // 2].hex()
        elif kind == "close" and len(payload) >= 2:
            shown = f"{int.from_bytes(payload[:2], 'big')} {payload[2:].decode(errors='replace')}".rstrip()
        else:
            shown = payload[: _SHOWN * 4].decode(errors="replace")[:_SHOWN]
        self.note(kind, shown, len(payload), sent=sent)

    def note(self, kind: Kind, text: str, size: int, *, sent: bool) -> None:
        """Record a text with the current time."""
        at = trio.current_time() - self._began
        self._record(
            Traffic(at=at, sent=sent, connection=self._number, kind=kind, text=text[:_SHOWN], size=size)
        )


class Socket:
    """An open connection.

    The socket runs no task: pings and Closes are answered while a caller waits for frames. `answers_pings`
    and `returns_close` turn these answers on or off.
    """

    def __init__(
        self, stream: trio.abc.Stream, handshake: Handshake, recorder: Recorder, random: Random
    ) -> None:
        self.handshake = handshake
        self.answers_pings = True
        self.returns_close = True
        self.gone: ConnectionEnd | None = None
        self.frames: list[RawFrame] = []  # frames that came, in their order
        self._stream = stream
        self._recorder = recorder
        self._random = random
        self._reader = FrameReader()
        self._waiting: list[RawFrame] = []
        self._parts: list[bytes] = []
        self._opcode = TEXT
        self._said_close = False
        self._came = 0  # bytes

    # --- out

    async def send_frame(
        self,
        opcode: int,
        payload: bytes = b"",
        *,
        fin: bool = True,
        rsv: int = 0,
        masked: bool = True,
        width: int | None = None,
        claims: int | None = None,
    ) -> None:
        """Send a frame of any shape. Raises ConnectionGone."""
        key = self._random.randbytes(4) if masked else None
        self._recorder.keep(_KINDS.get(opcode, "bytes"), payload, sent=True)
        self._said_close |= opcode == CLOSE
        await self._send(write_frame(opcode, payload, fin=fin, rsv=rsv, key=key, width=width, claims=claims))

    async def send_text(self, text: str) -> None:
        """Send a text in one frame. Raises ConnectionGone."""
        await self.send_frame(TEXT, text.encode("utf-8", "surrogatepass"))

    async def send_bytes(self, data: bytes) -> None:
        """Send any bytes, even if they do not form a frame. Raises ConnectionGone."""
        self._recorder.keep("bytes", data, sent=True)
        await self._send(data)

    async def close(self, code: int | None = 1000, reason: str = "") -> None:
        """Send a Close. Raises ConnectionGone."""
        await self.send_frame(CLOSE, close_payload(code, reason))

    async def _send(self, data: bytes) -> None:
        with trio.move_on_after(_SENDING) as sending:
            try:
                await self._stream.send_all(data)
            except LOST as error:
                raise ConnectionGone(self._went(None, why(error))) from None
        if sending.cancelled_caught:
            raise ConnectionGone(self._went(None, f"it took nothing more for {_SENDING:g} s"))

    # --- in

    async def next_frame(self, within: float) -> RawFrame | None:
        """Wait for the next frame of any kind; return None if none arrives within `within` seconds.

        Raises ConnectionGone once the stream has ended. A Close is answered before it is returned.
        """
        with trio.move_on_after(within):
            while not self._waiting:
                await self._read()
        if not self._waiting:
            return None
        frame = self._waiting.pop(0)
        await self._react(frame)
        return frame

    async def next_message(self, within: float) -> str | bytes | None:
        """Wait for the next text or binary message; return None if none arrives within `within` seconds.

        A message may consist of several frames. Raises ConnectionGone if the other side has ended the
        connection.
        """
        deadline = trio.current_time() + within
        while (frame := await self.next_frame(max(0.0, deadline - trio.current_time()))) is not None:
            if frame.opcode == CLOSE:
                raise ConnectionGone(self._closing(frame))
            if frame.is_control:
                continue
            if frame.opcode != CONTINUATION:
                self._parts, self._opcode = [], frame.opcode
            self._parts.append(frame.payload)
            if frame.fin:
                whole, self._parts = b"".join(self._parts), []
                return whole if self._opcode == BINARY else whole.decode("utf-8", "replace")
        return None

    async def end(self, within: float) -> ConnectionEnd | None:
        """Wait for the end of the connection; return None if it does not end within `within` seconds.

        Other frames are answered and dropped. The result is the other side's Close if there was one, or else
        the end of the stream.
        """
        with trio.move_on_after(within):
            while self.gone is None or self.gone.code is not None:
                try:
                    frame = self._waiting.pop(0) if self._waiting else None
                    if frame is None:
                        await self._read()
                    elif frame.opcode == CLOSE:
                        await self._react(frame)
                        return self._closing(frame)
                    else:
                        await self._react(frame)
                except ConnectionGone as gone:
                    return gone.gone
        return self.gone

    async def stream_end(self, within: float) -> bool:
        """Wait for the end of the TCP stream; return whether it ended within `within` seconds."""
        with trio.move_on_after(within):
            while True:
                try:
                    await self._read()
                except ConnectionGone:
                    return True
        return False

    async def _read(self) -> None:
        if self.gone is not None and self.gone.code is None:
            raise ConnectionGone(self.gone)
        try:
            data = await self._stream.receive_some(65536)
        except LOST as error:
            raise ConnectionGone(self._went(None, why(error))) from None
        if not data:
            raise ConnectionGone(self._went(None, ""))
        self._take(bytes(data))

    def _take(self, data: bytes) -> None:
        try:
            found = self._reader.feed(data)
        except FrameTooLong as error:
            raise ConnectionGone(self._went(None, str(error))) from None
        for frame in found:
            self._recorder.keep(_KINDS.get(frame.opcode, "bytes"), frame.payload, sent=False)
        self.frames += found
        self._waiting += found
        self._came += len(data)
        if self._came > _MOST_BYTES or len(self.frames) > _MOST_FRAMES:
            limit_text = f"the kit reads no more than {_MOST_FRAMES} frames and {_MOST_BYTES >> 20} MiB"
            raise ConnectionGone(self._went(None, limit_text))

    def read_on(self, data: bytes) -> None:
        """Process the bytes that were received right after the handshake."""
        with suppress(ConnectionGone):  # the next caller that waits gets the error
            self._take(data)

    async def _react(self, frame: RawFrame) -> None:
        with suppress(ConnectionGone):  # the next caller that reads gets the error
            if frame.opcode == PING and self.answers_pings:
                await self.send_frame(PONG, frame.payload)
            elif frame.opcode == CLOSE and self.returns_close and not self._said_close:
                await self.send_frame(CLOSE, frame.payload[:2])

    def _closing(self, frame: RawFrame) -> ConnectionEnd:
        code = int.from_bytes(frame.payload[:2], "big") if len(frame.payload) >= 2 else 1005
        self.gone = ConnectionEnd(code, frame.payload[2:].decode(errors="replace"))
        return self.gone

    def _went(self, code: int | None, reason: str) -> ConnectionEnd:
        if self.gone is None:
            self.gone = ConnectionEnd(code, reason)
            self._recorder.note("end", str(self.gone), 0, sent=False)
        return self.gone

    async def aclose(self) -> None:
        """Send a Close if none was sent, and close the stream without waiting for the other side's Close."""
        if self.gone is None and not self._said_close:
            with trio.move_on_after(0.5), suppress(ConnectionGone):
                await self.close()
        await trio.aclose_forcefully(self._stream)

    async def cut(self) -> None:
        """End the stream without a Close."""
        self._recorder.note("end", "the kit cuts the connection", 0, sent=True)
        await trio.aclose_forcefully(self._stream)
