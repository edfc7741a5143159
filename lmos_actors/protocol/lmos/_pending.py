"""The requests and feeds of a consumer, as objects that its session and its host share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from msgspec import UNSET, Struct

from ._dialects import message_type

if TYPE_CHECKING:
    from lmos_actors.errors import LmosActorsError

    from ._messages import (
        InvokeAction,
        ObserveProperty,
        Request,
        SubscribeAllEvents,
        SubscribeEvent,
    )
    from ._streams import Incoming, Outgoing

Kind: TypeAlias = Literal["property", "event", "events"]
Key: TypeAlias = tuple[Kind, str, str]


class TraceMembers(TypedDict, total=False):
    """The members of a message that carry a W3C trace context, as `traceparent="00-..."`."""

    traceparent: str | None
    tracestate: str | None


class RunStatus(Struct, frozen=True):
    """The status of a run, as the answer to a query or a cancel.

    `status` is `pending`, `in progress`, `completed`, `failed`, `cancelled` or a status of the peer's own.
    `progress` and `output` are UNSET if unknown. `cancelled` is set if the run was cancelled, and `reason` is
    why. `waits` is what the run waits for, if the query asked.
    """

    status: str
    progress: Any = UNSET
    output: Any = UNSET
    cancelled: bool = False
    reason: str | None = None
    waits: dict[str, Any] | None = None


class ConsumerRequest(Struct, eq=False):  # made for every request, without a call of Python
    """A request to a thing and its outcome; equal only to itself.

    `request` is the message. `sent`: its frame was taken from the session. `done`: the request has ended with
    `value`, or with `error` if that is not None. `forgotten`: the host no longer waits for an answer. `host`
    belongs to the caller, and the session never reads it.
    """

    request: Request
    whole: SplitRequest | None = None
    host: Any = None
    sent: bool = False
    done: bool = False
    forgotten: bool = False
    value: Any = None
    error: LmosActorsError | None = None

    def __repr__(self) -> str:
        state = "done" if self.done else "sent" if self.sent else "unsent"
        return f"<{self.verb} {self.message_id} {state}>"

    @property
    def thing_id(self) -> str:
        """The thing that the request is for."""
        return self.request.thing_id

    @property
    def message_id(self) -> str:
        """The `messageID` of the request, which its answer names."""
        return self.request.message_id

    @property
    def correlation(self) -> str:
        """The correlation id that its answers carry."""
        return self.request.message_id

    @property
    def verb(self) -> str:
        """The `messageType` of the request, as in the specification's tables."""
        return message_type(self.request)


class SplitRequest(ConsumerRequest, eq=False):
    """One request of the host that is sent in several messages.

    It is answered when all of them are answered, and fails when one of them fails. `request` is the single
    message with the same meaning, and is not sent.
    """

    parts: dict[str, ConsumerRequest] = {}  # open ones
    values: dict[str, Any] = {}


class PendingRun(ConsumerRequest, eq=False):
    """An invocation of an action, with what the consumer knows about its run.

    `status`, `progress`, `output`, `cancelled` and `reason` are the latest known status. `waited`: the thing
    has reported that the run has to wait. `asks`: the latest status reported a question to a person. `inputs`
    has the input streams by parameter. `answer` is the stream of the run's items, None if none was asked for.
    """

    if TYPE_CHECKING:  # at run time the field would move behind the others
        request: InvokeAction  # pyright: ignore[reportIncompatibleVariableOverride] # never another kind
    status: str = "pending"
    waited: bool = False
    asks: bool = False
    progress: Any = UNSET
    output: Any = UNSET
    cancelled: bool = False
    reason: str | None = None
    inputs: dict[str, Outgoing] = {}
    answer: Incoming | None = None
    controls: list[RunControl] = []  # open ones, oldest first

    def standing(self) -> RunStatus:
        """Return the latest status of the run that the consumer has received."""
        return RunStatus(self.status, self.progress, self.output, self.cancelled, self.reason)


class OneWayMessage(ConsumerRequest, eq=False):
    """A one-way message with its `number` on the connection (0 without numbers) and its `size` in bytes."""

    if TYPE_CHECKING:
        request: InvokeAction  # pyright: ignore[reportIncompatibleVariableOverride]
    number: int = 0
    size: int = 0


class RunControl(ConsumerRequest, eq=False, kw_only=True):
    """A query or a cancel of a run. A query about what a request waits for may concern any request."""

    run: ConsumerRequest


class Feed:
    """An observation (`property`) or a subscription to an event (`event`) or to all (`events`).

    `name` is "" for all events. A feed is equal only to itself. `established`: the thing has confirmed the
    feed, or never confirms one. `ended`: no more values will arrive, because of `error` if that is not None.
    """

    __slots__ = ("ended", "error", "established", "kind", "name", "request", "sent")

    def __init__(
        self, kind: Kind, name: str, request: ObserveProperty | SubscribeEvent | SubscribeAllEvents
    ) -> None:
        self.kind: Kind = kind
        self.name = name
        self.request = request
        self.sent = False
        self.established = False
        self.ended = False
        self.error: LmosActorsError | None = None

    def __repr__(self) -> str:
        state = "ended" if self.ended else "established" if self.established else "asked for"
        return f"<{self.kind} {self.name!r} of {self.thing_id} {state}>"

    @property
    def thing_id(self) -> str:
        """The id of the thing that sends the values."""
        return self.request.thing_id

    @property
    def message_id(self) -> str:
        """The `messageID` of the feed's latest request, which its values name."""
        return self.request.message_id

    @property
    def key(self) -> Key:
        """The kind, thing and name of the feed, which no two live feeds of a connection share."""
        return self.kind, self.request.thing_id, self.name
