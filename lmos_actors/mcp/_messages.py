"""JSON-RPC over the streams of a process, one message a line, by streams that the SDK can use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

if TYPE_CHECKING:
    from typing import Self

    from mcp.shared.message import SessionMessage

PIECE: Final = 65_536

ENDS: Final = 256
"""Bytes that are kept of the beginning and of the end of a skipped line."""


@attrs.frozen
class LongLine:
    """A line that is too long; only its beginning and its end are known."""

    beginning: bytes
    end: bytes


class EndlessLine(Exception):
    """Raised if a line that is too long does not end within the bytes that may be skipped."""


class MessageStream:
    """A message stream that the SDK opens and closes. The byte stream below it stays open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: the opener of the byte stream closes it."""


class MessageReader(MessageStream, ABC):
    """The messages in a stream of bytes.

    A line may have `longest` bytes. A longer line is skipped as it arrives, up to `most_skipped` bytes, so
    that memory is bounded. Each byte is searched only once for the end of a line.
    """

    def __init__(self, stream: trio.abc.ReceiveStream, longest: int, most_skipped: float = inf) -> None:
        self._stream = stream
        self._longest = longest
        self._most_skipped = most_skipped
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer that have no end of a line among them

    async def receive(self) -> Any:
        """Return the next message. Raises StopAsyncIteration at the end."""
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> SessionMessage:
        """Return the next message. Raises StopAsyncIteration at the end."""

    async def next_line(self) -> bytes | LongLine | None:
        """Return the next line without its end; None at the end of the stream. Raises EndlessLine."""
        buffer, beginning, skipped = self._buffer, None, 0
        while (end := buffer.find(b"\n", self._searched)) < 0:
            if beginning is None and len(buffer) > self._longest:
                beginning = bytes(buffer[:ENDS])
            if beginning is not None:
                skipped += max(0, len(buffer) - ENDS)
                del buffer[:-ENDS]
                if skipped > self._most_skipped:
                    raise EndlessLine
            self._searched = len(buffer)
            if not await self._read():
                return None
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        self._searched = 0
        return line if beginning is None else LongLine(beginning, line[-ENDS:])

    async def _read(self) -> bool:
        """Read a piece; return False at the end."""
        try:
            piece = await self._stream.receive_some(PIECE)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._buffer += piece
        return bool(piece)
