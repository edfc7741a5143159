"""One-way messages and items of input streams, which leave a simulated connection under credit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from lmos_actors.bindings import plain
from lmos_actors.errors import InvalidInput, LocalProtocolError
from lmos_actors.protocol.lmos import Credit, written

if TYPE_CHECKING:
    from lmos_actors.bindings import PendingRequest, SentTell

    from ._requests import Served, StreamIn

TELLS: Final = Credit(items=256, bytes=262_144)
"""The credit for one-way messages to one agent: how many may be on their way, or wait there."""


@attrs.define(eq=False)
class Told:
    """The one-way messages to one agent: those that are on their way or wait there."""

    open: dict[Served, SentTell] = attrs.field(factory=dict["Served", "SentTell"])
    size: int = 0

    @property
    def has_credit(self) -> bool:
        """Whether one more may be sent."""
        return len(self.open) < TELLS.items and self.size < TELLS.bytes


class ItemSender(Protocol):
    """The connection that carries the items of input streams."""

    def stream(self, request: PendingRequest, name: str) -> StreamIn | None:
        """Return an input stream of a request that has been sent, None where there is none."""
        ...

    def send_input(self, stream: StreamIn, text: bytes) -> None:
        """Send an item."""
        ...

    def end_input(self, stream: StreamIn, reason: str | None) -> None:
        """Send the end of a stream; with a reason it is broken off."""
        ...


class Items:
    """The receiver of the items of a source: one input stream of one request; see `ItemTarget`."""

    __slots__ = ("_name", "_peer", "_request")

    def __init__(self, peer: ItemSender, request: PendingRequest, name: str) -> None:
        self._peer = peer
        self._request = request
        self._name = name

    def has_room(self) -> bool:
        """Return whether an item may be sent now."""
        stream = self._peer.stream(self._request, self._name)
        return stream is not None and stream.credit > 0

    def put(self, item: Any) -> None:
        """Send an item. Raises InvalidInput for one that cannot be written."""
        stream = self._peer.stream(self._request, self._name)
        if stream is None:
            return
        stream.credit -= 1
        try:
            text = bytes(item) if stream.binary else written(plain(item))
        except LocalProtocolError as error:
            raise InvalidInput(str(error), f"$.{self._name}") from None
        self._peer.send_input(stream, text)

    def finish(self) -> None:
        """End the stream."""
        self._end(None)

    def break_off(self, reason: str) -> None:
        """Break the stream off, for a reason that the handler gets to see."""
        self._end(reason)

    def _end(self, reason: str | None) -> None:
        stream = self._peer.stream(self._request, self._name)
        if stream is not None:
            self._peer.end_input(stream, reason)
