"""Requests in progress over a simulated network, and the return of their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from lmos_actors.protocol.lmos import Credit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmos_actors.actors import Runtime, Seats, TraceMembers
    from lmos_actors.bindings import SentTell, SharedValues, WaitingTells

HEAD: Final = 320
"""Approximate bytes of an LMOS message beside its payload."""


class Word(msgspec.Struct, frozen=True):
    """The kind of a request."""

    word: str


KINDS: Final[Mapping[str, Word]] = {
    verb: Word(word)
    for verb, word in {
        "invoke": "invoke",
        "read": "read",
        "read all": "read_all",
        "write": "write",
        "write many": "write_many",
        "property": "observe",
        "event": "subscribe",
        "events": "subscribe_all",
    }.items()
}
"""The kinds of requests, by the verbs of operations and by the kinds of subscriptions."""


class ServedTell(msgspec.Struct, eq=False):
    """A one-way message on its way and at its agent: both the message and the request object of a server.

    It has only the members that it needs: very many of them are under way at a time.
    """

    target: Any  # the slot or the pool
    verb: Word
    name: str
    text: bytes = b""  # the payload as JSON, empty where there is none
    trace: TraceMembers = {}
    weight: int = HEAD  # about the bytes of memory that it takes
    told: SentTell | None = None  # what its sender has checked, where it is a one-way message
    open: bool = True
    has_come: bool = False
    host: Any = None  # the request of the caller that it carries
    data: Any = UNSET
    streams: dict[str, StreamIn] | None = None

    @property
    def message(self) -> ServedTell:
        """The message that contained the request, which is this object."""
        return self

    @property
    def is_plain(self) -> bool:
        """Whether it has neither a key nor a deadline."""
        return True

    @property
    def tell(self) -> int | None:
        """The number of a one-way message, None for a request that expects an answer."""
        return None if self.told is None else 0

    @property
    def input(self) -> Any:
        """The payload, under the name that it has in a request of an action."""
        return self.data

    @property
    def inputs(self) -> dict[str, StreamIn]:
        """The input streams of the request, by parameter."""
        return self.streams or {}

    @property
    def action(self) -> str:
        """The name of the action."""
        return self.name


class Served(ServedTell, eq=False):
    """A request that expects an answer."""

    remaining: float | None = None
    message_id: str = ""
    is_attempt: bool = False
    key: str | None = None
    items: int | None = None  # that may still be sent, where it has a credit
    status: str = "pending"
    reason: str | None = None
    is_cancelled: bool = False
    repeated_by: Served | None = None  # the newest attempt of the same request
    outcome: bytes | Exception | None = None  # the answer, where it is remembered
    far: Any = None
    listening: Any = None
    also: tuple[Any, ...] = ()

    @property
    def is_plain(self) -> bool:
        return self.key is None and self.remaining is None


class StreamIn(msgspec.Struct, eq=False):
    """One input stream of a request, at both ends of the line."""

    name: str
    content_type: str
    binary: bool
    served: Any = None
    host: Any = None
    credit: int = 0  # items that its source may still send

    @property
    def room(self) -> bool:
        """Whether the source may send an item now."""
        return self.credit > 0


class Heard(msgspec.Struct, eq=False):
    """One observation or subscription that the agent's node has accepted."""

    served: Served
    name: str
    ended: bool = False


TELLS: Final = Credit(items=256, bytes=262_144)
"""The credit for one-way messages to one agent: how many may be under way or wait there."""


class Back(Protocol):
    """The caller's end. `go_back` calls another of its methods after the delay of the line.

    A message that goes back may get lost.
    """

    @property
    def rt(self) -> Runtime: ...
    @property
    def source(self) -> str: ...
    def go_back(self, size: int, arrive: Callable[[], object], served: ServedTell | None = None) -> None: ...
    def answered(self, served: Served, text: bytes) -> None: ...
    def refused(self, served: ServedTell, error: Exception) -> None: ...
    def report(
        self,
        served: ServedTell,
        status: str,
        progress: Any,
        question: dict[str, Any] | UnsetType | None = UNSET,
    ) -> None: ...
    def item(self, served: Served, text: bytes) -> None: ...
    def credited(self, begun: Sequence[ServedTell]) -> None: ...
    def confirmed(self, served: Served, text: bytes | None) -> None: ...
    def value(self, served: Served, text: bytes, trace: TraceMembers) -> None: ...
    def gap(self, served: Served, reason: str, missed: int | None) -> None: ...
    def stream_credited(self, stream: StreamIn, items: int) -> None: ...
    def stopped(self, stream: StreamIn) -> None: ...


class NodeLimits(msgspec.Struct, eq=False):
    """The limits that all connections of one network share at the receiving ends."""

    seats: Seats
    waiting: WaitingTells
    sharing: SharedValues
    generation: str
    attempts: dict[str, Served] = msgspec.field(default_factory=dict[str, Served])
    """Requests that their callers may repeat, by id."""
