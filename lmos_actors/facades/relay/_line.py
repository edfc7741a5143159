"""One connection of an agent to a relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lmos_actors.transport import Connection, Ended


class FrameUser(Protocol):
    """The agent: it takes the frames that come, and has those that are to be sent."""

    def take(self, data: bytes) -> None:
        """Take a frame."""
        ...

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent."""
        ...


class Line:
    """A connection, as the handler of the transport."""

    def __init__(self, relay: FrameUser, connection: Connection) -> None:
        self._relay = relay
        self.connection = connection

    def text(self, text: str) -> None:
        """Take a frame of text."""
        self._relay.take(text.encode())

    def binary(self, data: bytes) -> None:
        """Take a frame of bytes: it holds the same."""
        self._relay.take(data)

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent."""
        return self._relay.frames(room)

    def is_behind(self) -> bool:
        """Return False: nothing is held back."""
        return False


def how_ended(ended: Ended) -> str:
    """Return how a connection has ended."""
    code = f" with {ended.code}" if ended.code is not None else ""
    return f"the connection ended{code}: {ended.reason}".rstrip(": ")
