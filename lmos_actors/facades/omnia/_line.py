"""One connection of a client: its received frames, which wait to be taken, and their meaning."""

from __future__ import annotations

import binascii
import math
from base64 import b64decode
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import trio
from msgspec import UNSET

from lmos_actors.errors import ActionFailed, ConnectFailed, OutcomeUnknown
from lmos_actors.protocol import OMNIA, omnia, spoken_in
from lmos_actors.protocol.omnia import ClientConnection, MediaFrame, UnknownFrame, Unreadable

from ..chat import ChatPart, MediaPiece, TextChunk, ToolCalled, ToolReturned, TurnDone

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.protocol.omnia import ServerSaid
    from lmos_actors.transport import Connection

ChatEvent: TypeAlias = TextChunk | ToolCalled | ToolReturned | MediaPiece | TurnDone

BEHIND: Final = 256
"""Number of items waiting for a reader beyond which the server is read more slowly."""

OVERHEAD: Final = 1_024
"""Bytes of memory that an item takes beside its text."""

BEHIND_BYTES: Final = 4 << 20
"""Bytes of waiting items beyond which the server is read more slowly."""

FLOOD_BYTES: Final = 64 << 20
"""Bytes of waiting items at which the connection is closed."""

GREETING: Final = 30.0
"""Seconds after the first message of a new conversation within which a server has to send a frame."""


class Line:
    """One connection: a handler for the transport, and a queue of the frames for the turn in progress."""

    def __init__(
        self,
        url: str,
        connection: Connection,
        session: str | None,
        frame: Callable[[str], object],
    ) -> None:
        self._url = url
        self.connection = connection
        self.wire = ClientConnection(session_id=session, wake=connection.wake)
        self.said: deque[ServerSaid | MediaPiece] = deque()
        self._sizes: deque[int] = deque()  # of the frames of `said`
        self._bytes = 0
        self.came = trio.Event()
        self.announced = trio.Event()
        """Set when a session was announced unasked, or the connection has ended."""
        self.why: str | None = None
        """Why the connection has ended; None while it stands."""
        self._frame = frame
        self._greeted_by = math.inf
        self._is_understood = False  # a frame of this protocol has come
        self._stranger: str | None = None  # what the server speaks instead

    def text(self, text: str) -> None:
        self._frame(text)
        said = self.wire.receive(text)
        if not isinstance(said.message, UnknownFrame | Unreadable):
            self._is_understood = True
        elif not self._is_understood:
            spoken = spoken_in(text)
            self._stranger = None if spoken == OMNIA else spoken
        self._take(said, len(text))
        if self.wire.is_announced:
            self.announced.set()

    def binary(self, data: bytes) -> None:
        frame = self.wire.receive_binary(data)
        if isinstance(frame, MediaFrame):
            self._is_understood = True
            mime_type = frame.info.mime_type or ""
            piece = MediaPiece(frame.media_id, frame.sequence, frame.payload, mime_type, frame.is_last)
            self._take(piece, len(data))

    def _take(self, said: ServerSaid | MediaPiece, size: int) -> None:
        self.said.append(said)
        size += OVERHEAD
        self._sizes.append(size)
        self._bytes += size
        self.came.set()
        if self._bytes > FLOOD_BYTES:
            self.connection.close(1013, "too much waits to be read")

    def frames(self, room: int) -> list[bytes]:
        return self.wire.frames(room)

    def is_behind(self) -> bool:
        return len(self.said) >= BEHIND or self._bytes >= BEHIND_BYTES

    def put_back(self, said: ServerSaid | MediaPiece) -> None:
        """Put a frame back, so that it is taken next."""
        self.said.appendleft(said)
        self._sizes.appendleft(0)

    async def run(self) -> None:
        """Send and receive frames until the connection has ended."""
        try:
            ended = await self.connection.run(self)
            code = f" with {ended.code}" if ended.code is not None else ""
            self.why = f"the connection ended{code}: {ended.reason}".rstrip(": ")
        finally:
            self.why = self.why or "the connection was given up"
            self.came.set()
            self.announced.set()

    def expect_greeting(self) -> None:
        """From now on, reject a server that sends nothing of this protocol for `GREETING` seconds."""
        if not self._is_understood:
            self._greeted_by = trio.current_time() + GREETING

    async def next(self) -> ServerSaid | MediaPiece | None:
        """Wait for the next frame; return None once the connection has ended and all frames were taken.

        Raise ConnectFailed if the server speaks another protocol.
        """
        with trio.move_on_at(math.inf if self._is_understood else self._greeted_by) as waiting:
            while not self.said:
                if self.why is not None:
                    return None
                self.came = trio.Event()
                await self.came.wait()
        if self._stranger is not None:
            raise self._leave(f"it speaks {self._stranger}, not {OMNIA}")
        if waiting.cancelled_caught and not self.said:
            raise self._leave(f"nothing of {OMNIA} came within {GREETING:g} s")
        await trio.lowlevel.checkpoint_if_cancelled()
        self._bytes -= self._sizes.popleft()
        return self.said.popleft()

    def _leave(self, why: str) -> ConnectFailed:
        """Close the connection to a server of another protocol, and return the error to raise."""
        self.why = why
        self.connection.close()
        return ConnectFailed(self._url, why)


def event_of(said: ServerSaid) -> ChatEvent | None:
    """Return the item of an answer that a frame contains; None for any other frame."""
    message = said.message
    if isinstance(message, omnia.MediaChunk):
        return _piece(message.media_chunk)
    if isinstance(message, omnia.Chunk):
        parts = parts_of(message.parts)
        return TextChunk(message.content or "", parts, "user" if message.role == "user" else "agent")
    if isinstance(message, omnia.ToolCall):
        call = message.tool_call
        is_object = isinstance(call.arguments, dict)
        arguments = cast("dict[str, Any]", call.arguments) if is_object else {}
        return ToolCalled(call.id, call.name, arguments, False, call.consent_message, call.categories or [])
    if isinstance(message, omnia.ToolResult):
        outcome = message.tool_result
        result = None if outcome.result is UNSET else outcome.result
        return ToolReturned(outcome.id, result, outcome.error)
    return None


def _piece(piece: omnia.MediaPiece) -> MediaPiece | None:
    try:
        data = b64decode(piece.data, validate=True)
    except binascii.Error:
        return None  # as other frames that cannot be read
    return MediaPiece(piece.media_id, piece.sequence, data, piece.mime_type, piece.is_last)


def parts_of(parts: list[omnia.Part] | None) -> list[ChatPart]:
    """Return the parts of known types; ignore all others."""
    found: list[ChatPart] = []
    for part in parts or ():
        try:
            found.append(msgspec.convert(msgspec.to_builtins(part), ChatPart))
        except msgspec.ValidationError:
            continue
    return found


def failure_of(message: omnia.ErrorFrame, url: str) -> ActionFailed | OutcomeUnknown:
    """Return the exception for an error that the server at a URL reported."""
    if message.error.code == omnia.OUTCOME_UNKNOWN:
        return OutcomeUnknown(url, message.error.message)
    return ActionFailed({"code": message.error.code, "message": message.error.message})
