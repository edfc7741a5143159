"""A reader of a WebSocket that is passed on: it turns the bytes of one direction into messages.

It uses bounded memory. It stops reading at bytes that it cannot read, and at an extension that both sides use
and that it does not support, such as compression. Other code passes the bytes on in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wsproto.events import Event

LONGEST: Final = 4 << 20
"""Characters or bytes of a message that is read; of a longer one only its size is known."""


class FrameReader:
    """A reader of one direction of a WebSocket: the client's with `of_client`, else the server's.

    `take` is called with each message and its size, with None in place of a message that was too long. Once
    the peer has closed, `code` and `reason` are from its Close.
    """

    def __init__(self, take: Callable[[str | bytes | None, int], None], *, of_client: bool) -> None:
        self._take = take
        self._connection: Connection | None = Connection(
            ConnectionType.SERVER if of_client else ConnectionType.CLIENT
        )
        self._parts: list[str] | list[bytes] = []
        self._size = 0
        self.is_closed = False
        self.is_lost = False
        """Whether something came that is no WebSocket frame."""
        self.code: int | None = None
        self.reason = ""

    def feed(self, data: bytes) -> None:
        """Read bytes as they arrive."""
        if self._connection is None:
            return
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                self._take_event(event, self._connection)
        except (LocalProtocolError, RemoteProtocolError):
            self.is_lost, self._connection = True, None

    def _take_event(self, event: Event, connection: Connection) -> None:
        if isinstance(event, TextMessage | BytesMessage):
            self._add(event)
        elif isinstance(event, CloseConnection):
            self._connection = None
            if connection.state is ConnectionState.OPEN:
                self.is_lost = True
            else:
                self.is_closed, self.code, self.reason = True, event.code, event.reason or ""

    def _add(self, event: TextMessage | BytesMessage) -> None:
        self._size += len(event.data)
        if self._size <= LONGEST:
            self._parts.append(event.data)  # type: ignore[arg-type] # of one kind throughout a message
        else:
            self._parts = []
        if event.message_finished:
            parts, size = self._parts, self._size
            self._parts, self._size = [], 0
            empty: str | bytes = "" if isinstance(event, TextMessage) else b""
            self._take(empty.join(parts) if size <= LONGEST else None, size)  # type: ignore[arg-type]
