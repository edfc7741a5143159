"""The recording of one WebSocket: the bytes of both directions, read as messages of its protocol.

The protocol is given, or recognised by the subprotocol or the path. Otherwise the first message that belongs
to a protocol decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast
from urllib.parse import parse_qs

import msgspec

from lmos_actors.protocol.td import SUBPROTOCOL

from ._frames import FrameReader
from ._lmos import LmosConversation
from ._omnia import OmniaConversation
from ._relay import RelayConversation
from ._things import OF_OUR_NODES, plain_name
from ._transcript import MISSING

if TYPE_CHECKING:
    from ._transcript import Transcript

Speech: TypeAlias = Literal["lmos", "omnia", "relay"]
Side: TypeAlias = Literal["client", "server"]

HELD: Final = 64
"""Messages that are kept until one shows the protocol."""

AGENT: Final = "agent"
"""The name of a chat agent whose address names none."""


class _Protocol(Protocol):
    def from_client(self, content: str | bytes) -> None: ...
    def from_server(self, content: str | bytes) -> None: ...
    def left(self) -> None: ...


class Conversation:
    """A WebSocket. `offered` are the subprotocols from the client, `selected` is the server's choice."""

    def __init__(
        self,
        transcript: Transcript,
        number: int,
        target: str,
        *,
        speaks: Speech | None,
        offered: tuple[str, ...] = (),
        selected: str | None = None,
    ) -> None:
        self._transcript = transcript
        self._number = number
        self._target = target
        self._offered = offered
        self._selected = selected
        self._protocol: _Protocol | None = None
        self._held: list[tuple[Side, str | bytes | None, int]] = []
        self._readers: dict[Side, FrameReader] = {
            "client": FrameReader(self._from_client, of_client=True),
            "server": FrameReader(self._from_server, of_client=False),
        }
        self._closer: Side | None = None
        if speaks is None and selected == SUBPROTOCOL:
            speaks = "lmos"
        elif speaks is None and (selected == "arc" or target.partition("?")[0].endswith("/arc")):
            speaks = "relay"
        self.speaks = speaks
        transcript.connected(number, target, 101, self.speaks)
        if self.speaks is not None:
            self._begin(self.speaks)

    def _begin(self, speaks: Speech) -> None:
        self.speaks = speaks
        if speaks == "lmos":
            offered, selected = SUBPROTOCOL in self._offered, self._selected == SUBPROTOCOL
            self._protocol = LmosConversation(self._transcript, offered=offered, selected=selected)
        elif speaks == "omnia":
            self._protocol = OmniaConversation(self._transcript, chat_agent(self._target), str(self._number))
        else:
            self._protocol = RelayConversation(self._transcript)
        held, self._held = self._held, []
        for side, content, size in held:
            self._understand(side, content, size)

    def _from_client(self, content: str | bytes | None, size: int) -> None:
        self._take("client", content, size)

    def _from_server(self, content: str | bytes | None, size: int) -> None:
        self._take("server", content, size)

    def _take(self, side: Side, content: str | bytes | None, size: int) -> None:
        if self._protocol is not None:
            self._understand(side, content, size)
            return
        self._held = [*self._held[1 - HELD :], (side, content if size < 1 << 16 else None, size)]
        speaks = spoken_in(content)
        if speaks is not None:
            self._begin(speaks)

    def _understand(self, side: Side, content: str | bytes | None, size: int) -> None:
        assert self._protocol is not None
        if self.speaks != "lmos":
            self._transcript.frame(self._number, side, self._content(content), size)
        if content is None:
            self._transcript.unread += 1
        elif side == "client":
            self._protocol.from_client(content)
        else:
            self._protocol.from_server(content)

    def _content(self, content: str | bytes | None) -> Any:
        """Return the JSON of a frame as it is recorded, without credentials, or MISSING if it has no JSON."""
        try:
            return (
                MISSING if content is None else self._transcript.redaction.frame(msgspec.json.decode(content))
            )
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return MISSING

    def feed(self, side: Side, data: bytes) -> None:
        """Read bytes of one side as they arrive. Raise OSError if they cannot be written."""
        reader = self._readers[side]
        reader.feed(data)
        if reader.is_closed and self._closer is None:
            self._closer = side

    @property
    def is_closed(self) -> bool:
        """Whether a side has sent a Close."""
        return self._closer is not None

    def close(self, by: Side | Literal["recorder"], code: int | None) -> None:
        """Record how the WebSocket has ended: by a Close of one side, or else by `by` with `code`."""
        self._transcript.unread += sum(reader.is_lost for reader in self._readers.values())
        if self._protocol is not None and (self._closer or by) != "server":
            self._protocol.left()
        if self._closer is None:
            self._transcript.closed(self._number, by, code, "")
        else:
            reader = self._readers[self._closer]
            self._transcript.closed(self._number, self._closer, reader.code, reader.reason)


def spoken_in(content: str | bytes | None) -> Speech | None:
    """Return the protocol that a message belongs to, or None if that cannot be recognised."""
    try:
        frame = None if content is None else msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if not isinstance(frame, dict):
        return None
    members = cast("dict[str, Any]", frame)
    if "messageType" in members:
        return "lmos"
    if "to" in members or members.get("type") == "welcome":
        return "relay"
    return "omnia" if isinstance(members.get("type"), str) else None


def chat_agent(target: str) -> str:
    """Return the name of the chat agent in an address of Omnia's protocol."""
    path, _, query = target.partition("?")
    named = parse_qs(query).get("agent")
    if named:
        return plain_name(named[0])
    found = OF_OUR_NODES.search(path)
    last = (
        None if found is None else path[found.start() + len("/agents/") :].removesuffix("/ws").split("/")[-1]
    )
    return plain_name(last) if last else AGENT
