"""One connection of an agent to a relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from lmos_actors.transport import Connection, Ended

FINAL_STATUS: Final = (400, 401, 403, 404)
"""The HTTP statuses with which a relay rejects the agent for good."""

FINAL_CODES: Final = (1008, 4001, 4009)
"""The codes of a close with which it rejects the agent for good."""

LASTING: Final = 30.0
"""Seconds after which a connection counts as good: the pauses then begin anew."""

OVER_RATE: Final = 4029


class FrameUser(Protocol):
    """An agent that handles incoming frames, and has frames to send."""

    def take(self, data: bytes) -> None:
        """Handle an incoming frame."""
        ...

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent."""
        ...


class Line:
    """A connection to a relay, as a handler for the transport."""

    def __init__(self, relay: FrameUser, connection: Connection) -> None:
        self._relay = relay
        self.connection = connection

    def text(self, text: str) -> None:
        """Handle a text frame from the relay."""
        self._relay.take(text.encode())

    def binary(self, data: bytes) -> None:
        """Handle a binary frame from the relay, which is read like text."""
        self._relay.take(data)

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent."""
        return self._relay.frames(room)

    def is_behind(self) -> bool:
        """Return False, as reading from the relay never pauses."""
        return False


def how_ended(ended: Ended) -> str:
    """Return a text on how a connection has ended."""
    code = f" with {ended.code}" if ended.code is not None else ""
    return f"the connection ended{code}: {ended.reason}".rstrip(": ")
