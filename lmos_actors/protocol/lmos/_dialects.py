"""The dialect of a peer: learnt from its messages, removed on the way in, applied on the way out.

A dialect has two kinds of spelling (`thingID` or `thingId`; `name` with `value`, or `property` with `data`)
and, separate from them, habits. docs/reference/lmos-dialects.md has the table.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from lmos_actors.errors import hint_at

from ._messages import MESSAGES, ActionStatus, Base, Request, SubscribeEvent
from ._problems import UNSUPPORTED, Problem, invalid
from ._times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._messages import Message

Ids: TypeAlias = Literal["ID", "Id"]
Names: TypeAlias = Literal["name", "property"]
Habits: TypeAlias = Literal["spec", "kotlin-wot"]

LOWER: Final = "subscribeevent"
"""The spelling of `subscribeEvent` in kotlin-wot."""

_STATUSES = {
    "in progress": "in progress",
    "inprogress": "in progress",
    "running": "in progress",
    "canceled": "cancelled",
    "cancelled": "cancelled",
    "pending": "pending",
    "completed": "completed",
    "failed": "failed",
}
FINAL: Final = ("completed", "failed", "cancelled")


def canonical_status(text: str) -> str:
    """Return the canonical name of the status of a run.

    The names are `pending`, `in progress` (also `running`, `inProgress`, `in_progress`), `completed`,
    `failed` and `cancelled` (also `canceled`), in any case. Any other name is returned unchanged.
    """
    if text in _STATUSES or len(text) > 20:
        return _STATUSES.get(text, text)
    return _STATUSES.get(text.lower().replace(" ", "").replace("_", "").replace("-", ""), text)


class Dialect:
    """The spelling and habits of the peer of one connection, updated by the messages received.

    `ids` and `names` are None until a frame has shown them. `habits` is `spec` or `kotlin-wot`.
    """

    __slots__ = ("_decided", "habits", "ids", "is_thing", "names", "subscribing")

    def __init__(self, habits: Habits, *, decided: bool, is_thing: bool) -> None:
        self.ids: Ids | None = None
        self.names: Names | None = None
        self.habits: Habits = habits
        self.subscribing = LOWER if habits == "kotlin-wot" else "subscribeEvent"
        self._decided = decided
        self.is_thing = is_thing

    @classmethod
    def of_thing(cls, offered: bool) -> Dialect:
        """Return a server's dialect: `offered` is whether the peer offered `lmosprotocol`.

        If it did not, its first frame decides the habits.
        """
        return cls("spec", decided=offered, is_thing=True)

    @classmethod
    def of_consumer(cls, selected: bool, habits: Literal["auto", "spec", "kotlin-wot"] = "auto") -> Dialect:
        """Return a client's dialect. `auto` is `spec` if the server selected `lmosprotocol`, else
        `kotlin-wot`.

        Raise ValueError for other habits.
        """
        if habits == "auto":
            habits = "spec" if selected else "kotlin-wot"
        if habits not in ("spec", "kotlin-wot"):
            raise ValueError(f"habits must be 'auto', 'spec' or 'kotlin-wot', not {habits!r}")
        return cls(habits, decided=True, is_thing=False)

    @property
    def written_ids(self) -> Ids:
        """The spelling of ids that the peer has shown, or until then the spelling that its habits suggest."""
        return self.ids or ("ID" if self.habits == "spec" else "Id")

    @property
    def written_names(self) -> Names:
        """The spelling of properties that the peer has shown, or until then the one its habits suggest."""
        return self.names or ("name" if self.habits == "spec" else "property")

    def literal(self, message: Message) -> str:
        """Return the `messageType` of a message as the peer writes it. Acknowledgements repeat this text."""
        if isinstance(message, SubscribeEvent):
            return self.subscribing
        return message_type(message)

    def learn(self, ids: Ids | None, names: Names | None, kind: str) -> bool:
        """Learn the spellings that a frame of type `kind` shows, if any; return whether anything was new."""
        before = (self.ids, self.names, self.habits, self.subscribing)
        if self.ids is None:
            self.ids = ids
        if self.names is None:
            self.names = names
        if self.is_thing:
            self._learn_habits(ids, names, kind)
        return before != (self.ids, self.names, self.habits, self.subscribing)

    def _learn_habits(self, ids: Ids | None, names: Names | None, kind: str) -> None:
        if not self._decided and ids is not None:
            self._decided = True
            self.habits = "kotlin-wot" if ids == "Id" else "spec"
        if kind in (LOWER, "subscribeEvent"):
            self.subscribing = kind
        if kind == LOWER or (names == "property" and kind in _REQUESTS):
            self._decided = True
            self.habits = "kotlin-wot"


def message_type(message: Message) -> str:
    """Return the `messageType` of a message as in the specification's tables."""
    tag = message.__struct_config__.tag
    return tag if isinstance(tag, str) else ""


class Shape(Struct, frozen=True):
    """The members of one type of message, as the tolerant path needs them."""

    struct: type[Any]
    members: dict[str, str]  # every spelling that is read, to the one of the struct
    payloads: tuple[str, ...]  # where null is a value
    aliases: tuple[tuple[str, str], ...]
    named: bool
    timed: bool
    fault: bool
    subscribes: bool


_ALIASES = {"thingId": "thingID", "messageId": "messageID", "correlationId": "correlationID"}


def _shape(struct: type[Base]) -> Shape:
    fields = msgspec.structs.fields(struct)
    names = [field.encode_name for field in fields]
    members = {name: name for name in ("messageType", *names)} | _ALIASES
    if "name" in names:
        members["property"] = "name"
    for one, other in (("value", "data"), ("data", "value")):
        if one in names and "stream" not in names:
            members[other] = one
    return Shape(
        struct=struct,
        members=members,
        payloads=tuple(field.encode_name for field in fields if field.type is Any),
        aliases=tuple((alias, name) for alias, name in members.items() if alias != name),
        named="name" in names,
        timed="timestamp" in names,
        fault="instance" in names,
        subscribes=struct is SubscribeEvent,
    )


SHAPES: Final[dict[Any, Shape]] = {kind: _shape(struct) for kind, struct in MESSAGES.items()}
SHAPES[LOWER] = SHAPES["subscribeEvent"]
_REQUESTS = tuple(str(struct.__struct_config__.tag) for struct in Request.__args__)
NAMED: Final = frozenset(shape.struct for shape in SHAPES.values() if shape.named)
"""The messages that show how a peer spells properties."""

_FAULT = {"type": "about:blank", "title": "Error", "status": "500", "detail": "", "instance": ""}
NUMBERS = (int, float)


def spelling_of(raw: dict[str, Any], shape: Shape | None) -> tuple[Ids | None, Names | None]:
    """Return the spellings that a frame shows; if it mixes two, the one in the specification's tables."""
    ids: Ids | None = None
    if "thingID" in raw or "messageID" in raw or "correlationID" in raw:
        ids = "ID"
    elif "thingId" in raw or "messageId" in raw or "correlationId" in raw:
        ids = "Id"
    if shape is None or not shape.named:
        return ids, None
    return ids, "name" if "name" in raw else "property" if "property" in raw else None


def normalize_spelling(raw: dict[str, Any], shape: Shape) -> Problem | None:
    """Rename a frame's members to the spelling of its struct, in place. Return a problem if they conflict."""
    for alias, name in shape.aliases:
        if alias in raw:
            value = raw.pop(alias)
            if name in raw and (type(raw[name]) is not type(value) or raw[name] != value):
                return invalid(f"{alias!r} has another value than {name!r}", f"$.{alias}")
            raw[name] = value
    if shape.subscribes:
        raw["messageType"] = "subscribeEvent"
    return None


def normalize(raw: dict[str, Any], shape: Shape) -> dict[str, Any] | Problem:
    """Return the members for a frame's struct, or the problem with them.

    Members that are null are left out, except payloads, for which null is a value.
    """
    members, payloads = shape.members, shape.payloads
    fields = {
        key: value for key, value in raw.items() if key in members and (value is not None or key in payloads)
    }
    if shape.timed and "timestamp" in fields:
        try:
            time = fields["timestamp"]
            fields["timestamp"] = time if isinstance(time, datetime) else parse_time(time)
        except ValueError as error:
            return invalid(str(error), "$.timestamp")
    if not shape.fault:
        return fields
    # an `error` is completed: dropping one because it says too little would leave its request unanswered
    status = fields.get("status")
    if isinstance(status, int | float) and not isinstance(status, bool):
        text = f"{status:.0f}" if isinstance(status, float) else str(status)
        fields["status"] = text[:20]
    return {**_FAULT, **fields}


def make_speller(dialect: Dialect) -> Callable[[Message], dict[str, Any]]:
    """Return a function from messages to plain data, `messageType` first, in the current dialect."""
    kotlin = dialect.habits == "kotlin-wot"
    low, by_property = dialect.written_ids == "Id", dialect.written_names == "property"
    habitual = (ActionStatus,) if dialect.is_thing else (ActionStatus, SubscribeEvent)

    def spell(message: Message) -> dict[str, Any]:
        raw = _builtins(message)
        if kotlin and "correlationID" not in raw:
            raw["correlationID"] = None
        if low:
            raw["thingId"] = raw.pop("thingID")
            raw["messageId"] = raw.pop("messageID")
            if "correlationID" in raw:
                raw["correlationId"] = raw.pop("correlationID")
        if by_property and "name" in raw:
            raw["property"] = raw.pop("name")
            if "value" in raw:
                raw["data"] = raw.pop("value")
        if kotlin and type(message) in habitual:
            if raw["messageType"] == "subscribeEvent":
                raw["messageType"] = LOWER
            elif raw["status"] in FINAL or canonical_status(raw["status"]) in FINAL:
                raw.setdefault("output", None)  # its client hangs on a final status without `output`
        return raw

    return spell


def _builtins(message: Message) -> dict[str, Any]:
    """Return a message as plain data. A `data` or `value` that is already JSON text is left unchanged."""
    encoded: dict[str, Any] = {
        name: value
        for name in ("data", "value")
        if type(value := getattr(message, name, None)) is msgspec.Raw
    }
    if encoded:
        message = msgspec.structs.replace(message, **dict.fromkeys(encoded))
    raw: dict[str, Any] = msgspec.to_builtins(message)
    return raw | encoded


def unsupported(kind: str, known: Iterable[str] = ()) -> Problem:
    """Return the problem of a message type that is unknown, or not supported here."""
    return Problem(
        type=UNSUPPORTED,
        title="Unsupported Message Type",
        status=400,
        detail=f"messages of type {kind[:100]!r} are not supported{hint_at(kind, known)}",
        path="$.messageType",
    )
