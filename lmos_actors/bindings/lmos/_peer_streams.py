"""How a source's items reach an input stream of a request, over LMOS and over a simulated network.

The request may still wait in line, or have ended with its connection. Then there is no stream, and so no
room. The session counts the credit and keeps track of the end of the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lmos_actors.errors import InvalidInput, LocalProtocolError
from lmos_actors.protocol import lmos

from ..exposure._values import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import trio

    from ._peer_requests import PendingRequest


class InputSession(Protocol):
    """The sender of items of input streams: the session of a connection, or a simulated one."""

    def send(self, stream: Any, item: Any) -> object:
        """Send an item. Raises LocalProtocolError for one that cannot be written, or is too long."""
        ...

    def finish(self, stream: Any, reason: str | None) -> None:
        """End a stream, or break it off for a reason."""
        ...


class StreamConnection(Protocol):
    """The connection that carries a request, as its streams use it."""

    @property
    def session(self) -> InputSession:
        """The session whose credit is spent."""
        ...


def note_flow(
    requests: Mapping[Any, PendingRequest], outcome: lmos.CreditArrived | lmos.StreamStopped
) -> None:
    """Notify the request of a stream that there is room again, or that no more items are wanted."""
    request = requests.get(outcome.run)
    if request is None or outcome.stream.name is None:
        return
    if isinstance(outcome, lmos.CreditArrived):
        request.on_room()
    else:
        request.on_stopped(outcome.stream.name)


class HeldSources:
    """The sources of a request whose run goes on, while they wait for credit; see `UnsentMessage`."""

    __slots__ = ("_request", "affordance", "path")

    def __init__(self, request: PendingRequest) -> None:
        self._request = request
        self.path = request.path
        self.affordance = request.affordance

    def held_sender(self) -> Any:
        """Return None: turns have no sources."""
        return None

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        """Return the tasks that iterate the sources."""
        return self._request.held_sources()


class StreamTarget:
    """The receiver of the items of a source: one input stream of one request; see `ItemTarget`."""

    __slots__ = ("_connection", "_name", "_request")

    def __init__(self, connection: StreamConnection | None, request: PendingRequest, name: str) -> None:
        self._connection = connection
        self._request = request
        self._name = name

    def has_room(self) -> bool:
        """Return whether an item may be sent now, by the credit from the agent's node."""
        stream = self._request.input_stream(self._name)
        return stream is not None and stream.room

    def put(self, item: Any) -> None:
        """Send an item. Raises InvalidInput for one that cannot be written, or is too long."""
        stream = self._request.input_stream(self._name)
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
        """Break the stream off, with a reason that is passed to the handler."""
        self._end(reason)

    def _end(self, reason: str | None) -> None:
        stream = self._request.input_stream(self._name)
        if stream is not None and self._connection is not None:
            self._connection.session.finish(stream, reason)
