"""One connection of the scripted server: how it reads and writes messages, spelling, habits."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeGuard, cast

import attrs

from ._thing import (
    ABSENT,
    Json,
    Problem,
    ScriptedThing,
    invalid,
    not_found,
    unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LMOS_ERRORS: Final = "https://eclipse.dev/lmos/protocol/v1/errors/"
MAX_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 64
MOST_WAITING: Final = 20_000
IDS: Final = (("thingID", "thingId"), ("messageID", "messageId"), ("correlationID", "correlationId"))
ABOUT_PROPERTY: Final = ("readProperty", "writeProperty", "observeProperty", "unobserveProperty")
REQUESTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(ABOUT_PROPERTY, ("name",)),
    "writeProperty": ("name", "data"),
    "readAllProperties": (),
    "readMultipleProperties": ("properties",),
    "writeMultipleProperties": ("data",),
    "writeAllProperties": ("data",),
    "invokeAction": ("action",),
    "queryAction": ("action",),
    "cancelAction": ("action",),
    "subscribeEvent": ("event",),
    "unsubscribeEvent": ("event",),
    "subscribeAllEvents": (),
    "unsubscribeAllEvents": (),
    "streamCredit": ("items", "bytes"),
    "streamItem": ("stream",),
    "streamEnd": ("stream",),
}
"""What a consumer says, and the members that each must have beside those of the envelope."""

_TEXTS: Final = ("name", "action", "event")
_NEVER_ANSWERED: Final = ("error", "acknowledgement")


@attrs.frozen
class SendText:
    """A text message goes out."""

    text: str


@attrs.frozen
class SendFrame:
    """A frame goes out as it is."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0


@attrs.frozen
class SendClose:
    """A Close frame goes out; the peer's is waited for."""

    code: int | None = 1000
    reason: str = ""


@attrs.frozen
class Disconnect:
    """The stream ends, without a Close."""


Out: TypeAlias = SendText | SendFrame | SendClose | Disconnect


@attrs.define(eq=False)
class Request:
    """A message of a consumer in the spelling of the tables. `literal`: its type as it was written."""

    kind: str
    literal: str
    message: Json
    thing: ScriptedThing
    id: str
    given: str | None
    size: int = 0

    @property
    def name(self) -> str:
        """The property, action or event that it is about; empty if it is about none."""
        return next((self.message[each] for each in _TEXTS if each in REQUESTS[self.kind]), "")

    @property
    def payload(self) -> Any:
        """Its `input` or `data`, or `ABSENT`."""
        return self.message.get("input" if self.kind == "invokeAction" else "data", ABSENT)


class ServerContext(Protocol):
    """What an endpoint needs of the server."""

    def new_id(self) -> str: ...
    def timestamp(self) -> str: ...
    def thing(self, thing_id: str) -> ScriptedThing | None: ...


class MessageEndpoint:
    """Reads messages, and writes them as the peer spells them.

    What is to go out is in `out`, and `wake` is called for it. A server that is wrong somewhere is a
    subclass that overrides one of the methods.
    """

    def __init__(self, context: ServerContext, *, offered: bool, at: ScriptedThing, fixed: bool) -> None:
        self.context = context
        self.at = at
        self.fixed = fixed
        self.offered = offered
        self.out: deque[Out] = deque()
        self.wake: Callable[[], object] = _nothing
        self.over = False
        self.ids = ""
        self.names = ""
        self.habits = "spec"

    # ---- what goes out

    @property
    def kotlin(self) -> bool:
        """Whether the peer has the habits of kotlin-wot."""
        return self.habits == "kotlin-wot"

    def put(self, out: Out) -> None:
        """Queue something to be sent."""
        if self.over:
            return
        if len(self.out) >= MOST_WAITING:  # it takes nothing
            self.out.clear()
            out = Disconnect()
        self.out.append(out)
        self.wake()

    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        """Send a message and return its text. Every message is sent by this method."""
        text = dumped(self.spelled(self.message(kind, thing_id, correlation, members)))
        self.put(SendText(text))
        return text

    def message(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> Json:
        """Make a whole message, in the spelling of the tables."""
        message: Json = {"messageType": kind, "thingID": thing_id, "messageID": self.new_id()}
        if correlation is not None or self.kotlin:
            message["correlationID"] = correlation
        return {**message, **members}

    def spelled(self, message: Json) -> Json:
        """Spell a message as the peer does."""
        changed: dict[str, str] = {}
        if (self.ids or ("Id" if self.kotlin else "ID")) == "Id":
            changed.update(IDS)
        if (self.names or ("property" if self.kotlin else "name")) == "property":
            changed.update({"name": "property", "value": "data"} if "name" in message else {})
        return {changed.get(member, member): value for member, value in message.items()}

    def new_id(self) -> str:
        """Make an id for a message."""
        return self.context.new_id()

    def timestamp(self) -> Any:
        """Return the time as messages tell it."""
        return self.context.timestamp()

    def correlation(self, request: Request) -> str | None:
        """Return what an answer to a request is correlated by."""
        return request.id if request.given is None else request.given

    def answer(self, request: Request, kind: str, members: Json) -> None:
        """Answer a request."""
        self.send(kind, request.thing.id, self.correlation(request), members)

    def refuse(self, request: Request, problem: Problem) -> None:
        """Answer a request by an error."""
        about_run = request.kind in ("queryAction", "cancelAction")
        correlation = request.id if about_run and self.kotlin else self.correlation(request)
        more = {"inReplyTo": request.id} if about_run else {}
        self.send_error(request.thing.id, problem, correlation, more)

    def send_error(self, thing_id: str, problem: Problem, correlation: str | None, more: Json) -> None:
        """Send an error."""
        self.send("error", thing_id, correlation, {**self.error(problem), **more})

    def error(self, problem: Problem) -> Json:
        """Return the members of an error."""
        return {
            "type": problem.type,
            "title": problem.title,
            "status": str(problem.status),
            "detail": problem.detail,
            "instance": LMOS_ERRORS + self.new_id(),
            **problem.more,
        }

    # ---- what comes in

    def text(self, text: str) -> None:
        """Take a text message."""
        if self.over:
            return
        if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
            self.put(SendClose(1009, f"a message has {MAX_BYTES} bytes at most"))
            return
        message: Json = {}
        try:
            message = parsed(text)
            self.adapt_to_peer(message)
            request = self.request(message)
            request.size = len(text)
        except Problem as problem:
            self.on_unreadable(message, problem)
            return
        self.take(request)

    def binary(self, data: bytes) -> None:
        """Take a binary message: an item of a stream that is not open is late, anything else is none."""
        if len(data) < 12 or data[0] != 1 or not any(data[4:8]):
            self.put(SendClose(1003, "text messages, and items of streams"))

    def take(self, request: Request) -> None:
        """Carry a request out."""
        raise NotImplementedError

    def on_unreadable(self, message: Json, problem: Problem) -> None:
        """Answer what is no valid message for this server; `message` is empty if it is not even JSON."""
        if message.get("messageType") in _NEVER_ANSWERED:
            return
        thing_id, own, given = (_text_of(message, both) for both in IDS)
        about_run = message.get("messageType") in ("queryAction", "cancelAction")
        more = {"inReplyTo": own} if about_run and own else {}
        self.send_error(thing_id or self.at.id, problem, given or own, more)

    def adapt_to_peer(self, message: Json) -> None:
        """Adopt the spelling and the habits of the peer from a message, so that it can read the answers."""
        kind = message.get("messageType")
        if not self.ids and any(one in message or other in message for one, other in IDS):
            self.ids = "ID" if any(one in message for one, _ in IDS) else "Id"
            if not self.offered and self.ids == "Id":
                self.habits = "kotlin-wot"
        if not self.names and kind in ABOUT_PROPERTY and _names(message):
            self.names = "name" if "name" in message else "property"
        if kind == "subscribeevent" or (kind in ABOUT_PROPERTY and "property" in message):
            self.habits = "kotlin-wot"

    def request(self, message: Json) -> Request:
        """Make a request of a message. Raises Problem."""
        literal = message.get("messageType")
        if not isinstance(literal, str):
            raise invalid("messageType: a text is needed", "$.messageType")
        kind = "subscribeEvent" if literal == "subscribeevent" else literal
        unified_message = unified(message, kind)
        if not isinstance(unified_message.get("messageID"), str) or not unified_message["messageID"]:
            raise invalid("messageID: a text is needed", "$.messageID")
        given = unified_message.get("correlationID")
        if given is not None and not isinstance(given, str):
            raise invalid("correlationID: a text is needed", "$.correlationID")
        thing_id = unified_message.get("thingID") or (self.at.id if self.fixed else None)
        if not isinstance(thing_id, str):
            raise invalid("thingID: a text is needed", "$.thingID")
        if kind not in REQUESTS:
            raise unsupported(literal)
        self.check_members(kind, unified_message)
        thing = self.context.thing(thing_id)
        if thing is None:
            raise not_found("thing", thing_id)
        return Request(kind, literal, unified_message, thing, unified_message["messageID"], given or None)

    def check_members(self, kind: str, message: Json) -> None:
        """Raise Problem if a member of a request is missing or of a wrong type."""
        for member in REQUESTS[kind]:
            if member not in message or (member in _TEXTS and not isinstance(message[member], str)):
                raise invalid(f"{member}: a text is needed", f"$.{member}")
        data = message.get("data")
        if kind in ("writeMultipleProperties", "writeAllProperties") and not is_object(data):
            raise invalid("data: an object is needed", "$.data")
        names = message.get("properties")
        if kind == "readMultipleProperties" and not is_texts(names):
            raise invalid("properties: an array of texts is needed", "$.properties")


def _nothing() -> None:
    """Do nothing."""


def _names(message: Json) -> list[str]:
    return [each for each in ("name", "property") if each in message]


def _text_of(message: Json, spellings: tuple[str, str]) -> str | None:
    found = (message.get(each) for each in spellings)
    return next((each for each in found if isinstance(each, str) and each), None)


def unified(message: Json, kind: str) -> Json:
    """Return a message in the spelling of the tables. Raises Problem where two spellings differ."""
    both = list(IDS)
    if kind in ABOUT_PROPERTY:
        both.append(("name", "property"))
    if kind.startswith("write"):
        both.append(("data", "value"))
    unified_message = dict(message)
    for one, other in both:
        if other in unified_message:
            found = unified_message.pop(other)
            if unified_message.setdefault(one, found) != found:
                raise invalid(f"{one} and {other} are not the same", f"$.{other}")
    return unified_message


def parsed(text: str) -> Json:
    """Read a JSON object. Raises Problem."""
    try:
        found = json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise invalid(f"not JSON: {error}"[:500]) from None
    if not is_object(found):
        raise invalid("a message is a JSON object")
    if is_deep(found):
        raise invalid(f"over {MAX_DEPTH} levels of nesting")
    return found


def dumped(message: Json) -> str:
    """Write a JSON object; what UTF-8 has no form for is escaped."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":"))
    return text


def is_object(value: object) -> TypeGuard[Json]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_texts(value: object) -> TypeGuard[list[str]]:
    """Return whether a JSON value is an array of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


def no_number(word: str) -> Any:
    """Refuse what JSON has no word for."""
    raise ValueError(f"{word} is no JSON number")


def is_deep(value: Json) -> bool:
    """Return whether a JSON value is nested more deeply than is taken."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return True


def _inner(value: Json | list[Any]) -> list[Any]:
    values = list(value.values()) if isinstance(value, dict) else value
    return [each for each in values if isinstance(each, dict | list)]
