"""The way of a source's items into an input stream of a request over LMOS.

The request may still wait in line, or have ended with its connection: then there is no stream, and so no
room. The session counts the credit and knows when the stream is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.errors import InvalidInput, LocalProtocolError
from lmos_actors.protocol import lmos

from ..exposure._values import plain

if TYPE_CHECKING:
    from ._peer_connection import PeerConnection
    from ._peer_requests import PendingRequest


class StreamTarget:
    """Where the items of a source go: one input stream of one request; see `ItemTarget`."""

    __slots__ = ("_connection", "_name", "_request")

    def __init__(self, connection: PeerConnection | None, request: PendingRequest, name: str) -> None:
        self._connection = connection
        self._request = request
        self._name = name

    def _stream(self) -> lmos.Outgoing | None:
        run = self._request.pending
        return run.inputs.get(self._name) if isinstance(run, lmos.PendingRun) else None

    def has_room(self) -> bool:
        """Return whether an item may be sent now: under the credit that the agent's node has given."""
        stream = None if self._request.ended else self._stream()
        return stream is not None and stream.room

    def put(self, item: Any) -> None:
        """Send an item. Raises InvalidInput for one that cannot be written, or is too long."""
        stream = None if self._request.ended else self._stream()
        if stream is None or self._connection is None:
            return
        try:
            self._connection.session.send(stream, item if stream.binary else plain(item))
        except LocalProtocolError as error:
            raise InvalidInput(str(error), f"$.{self._name}") from None

    def finish(self) -> None:
        """End the stream."""
        self._end(None)

    def break_off(self, reason: str) -> None:
        """Break the stream off, for a reason that the handler gets to see."""
        self._end(reason)

    def _end(self, reason: str | None) -> None:
        stream = None if self._request.ended else self._stream()
        if stream is not None and self._connection is not None:
            self._connection.session.finish(stream, reason)
