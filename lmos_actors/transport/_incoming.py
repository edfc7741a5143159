"""Messages of an open WebSocket connection on their way to its owner: joined parts, pings, and the Close.

Incomplete messages are charged to the account of the connection.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from wsproto.events import Event

    from lmos_actors._core import Account

    from ._options import FrameListener

PIECE: Final = 65_536
"""Bytes after which small parts of a message are joined into one piece."""

LARGE: Final = 4_096
"""Bytes from which a part is a piece by itself: joining it first would only copy it once more."""


class MessageParts:
    """A message that arrives in parts, stored in pieces that are never moved.

    If each message had one growing buffer, the buffers of many connections would leave gaps behind as they
    grow, and take twice as much memory as they have bytes.
    """

    __slots__ = ("_last", "_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []
        self._last = bytearray()
        self.size = 0

    def add(self, part: bytes | bytearray) -> None:
        """Add the next part of the message."""
        size = len(part)
        self.size += size
        if size >= LARGE:
            if self._last:
                self._end_piece()
            self._pieces.append(part)
            return
        self._last += part
        if len(self._last) >= PIECE:
            self._end_piece()

    def _end_piece(self) -> None:
        self._pieces.append(bytes(self._last))
        self._last = bytearray()

    def whole(self) -> bytes:
        """Return the complete message, joined from its pieces."""
        return b"".join((*self._pieces, self._last))


class IncomingMessage:
    """The parts of a message that arrives in fragments, or in several reads.

    The complete message has to arrive within `seconds`; `is_behind` is provided by the handler. These
    attributes are not in the wire, which already has thirty: with more it would take another kilobyte.
    """

    __slots__ = ("_account", "_parts", "is_behind", "seconds")

    def __init__(
        self,
        account: Account | None = None,
        seconds: float = inf,
        is_behind: Callable[[], bool] = bool,
    ) -> None:
        self._account = account
        self._parts: MessageParts | None = None
        self.seconds = seconds
        self.is_behind = is_behind

    def drop(self) -> None:
        """Release the parts of a message in progress."""
        parts, self._parts = self._parts, None
        if parts is not None and self._account is not None:
            self._account.release(parts.size)

    def take(self, event: Event, owner: FrameListener, *, is_live: bool) -> None:
        """Pass an event to the owner; `is_live`: the peer has not sent its Close."""
        if type(event) is BytesMessage or type(event) is TextMessage:
            self._take_message(event, owner)
        elif isinstance(event, Ping):
            owner.on_ping(bytes(event.payload))
        elif isinstance(event, Pong):
            owner.on_pong()
        elif isinstance(event, CloseConnection):
            # wsproto reports errors by the same event, and then the state is as before
            callback = owner.on_error if is_live else owner.on_close
            callback(int(event.code), event.reason or "")

    def _take_message(self, event: BytesMessage | TextMessage, owner: FrameListener) -> None:
        data: Any = event.data
        is_text = type(event) is TextMessage
        parts = self._parts
        if parts is None and event.message_finished:
            callback: Any = owner.on_text if is_text else owner.on_binary
            callback(data if is_text else bytes(data))
            return
        if parts is None:
            parts = self._parts = MessageParts()
        part = data.encode() if is_text else data
        if not event.message_finished:
            parts.add(part)
            if self._account is not None:
                self._account.charge(len(part))  # which may be too much: then `drop` is called
            if event.frame_finished and not data:
                owner.on_trifle()
            return
        self.drop()
        parts.add(part)
        whole = parts.whole()
        if is_text:
            owner.on_text(whole.decode())
        else:
            owner.on_binary(whole)
