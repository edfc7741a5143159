"""Rules for the handshake and the messages of clients, each judged independently."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.scripted import (
    ABOUT_PROPERTY,
    ABSENT,
    IDS,
    REQUESTS,
    Problem,
    is_deep,
    is_object,
)
from lmos_actors.conformance.session import UUID4
from lmos_actors.conformance.wire import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.conformance.scripted import Json, RequestHead, ScriptedThing

    from ._log import ClientNotes, ConnectionLog

_ANSWERS: Final = ("error", "acknowledgement")  # a client may send them, and need not
_OPS: Final = {"readProperty": "writeOnly", "writeProperty": "readOnly"}
_REMEMBERED: Final = 100_000  # messages that are remembered
_KEY: Final = re.compile(r"[A-Za-z0-9+/]{22}==")


class MessageRules:
    """The judge of the text messages of one connection. `things`: the described things, by their ids."""

    def __init__(
        self, notes: ClientNotes, log: ConnectionLog, things: dict[str, ScriptedThing], used: dict[str, str]
    ) -> None:
        self._notes = notes
        self._log = log
        self._things = things
        self._used = used  # ids of messages, by their content; of all connections

    def judge(self, text: str) -> None:
        """Judge a message."""
        message = self._read(text)
        if message is None or is_deep(message):
            return
        kind = self._kind(message)
        self._members(message, kind)
        self._spelling(message, kind)
        self._ids(message)
        self._fresh(message)
        thing = self._thing(message)
        if thing is not None and kind in REQUESTS:
            self._use(message, kind, thing)

    def _wrong(self, what: str, seen: str, key: str = "") -> None:
        self._notes.wrong(what, seen, self._log, key)

    def _read(self, text: str) -> Json | None:
        self._notes.tried("json")
        twice: list[str] = []

        def keep(pairs: list[tuple[str, Any]]) -> Json:
            names = [name for name, _ in pairs]
            twice.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
            return dict(pairs)

        try:
            found = read_json(text, keep)
        except ValueError as error:
            self._wrong("json", f"not JSON: {error}: {text[:100]!r}")
            return None
        if not is_object(found):
            self._wrong("json", f"no object: {text[:100]!r}")
            return None
        for name in twice:
            self._wrong("json", f"{name} is there twice", "member-twice")
        return found

    def _kind(self, message: Json) -> str:
        literal = message.get("messageType")
        if not isinstance(literal, str):
            return ""  # judged by `members`
        self._notes.tried("types")
        if literal == "subscribeevent":
            self._wrong("types", "a message subscribeevent", "subscribeevent")
            return "subscribeEvent"
        if literal not in REQUESTS and literal not in _ANSWERS:
            self._wrong("types", f"{literal!r} is no type of a consumer's message")
        return literal

    def _members(self, message: Json, kind: str) -> None:
        self._notes.tried("members")
        for member in ("messageType", "thingID", "messageID", *REQUESTS.get(kind, ())):
            found = _get(message, member, kind)
            text = member not in ("data", "properties", "items", "bytes", "stream")
            if found is ABSENT or (text and found is None):
                self._wrong("members", f"{kind or 'a message'} has no {member}")
            elif text and not isinstance(found, str):
                self._wrong("members", f"{member} is {_shown(found)}, not a text")

    def _spelling(self, message: Json, kind: str) -> None:
        self._notes.tried("spelling")
        for one, other in IDS:
            if other in message:
                self._wrong("spelling", f"{other} stands for {one}", "ids-spelled-Id")
        if kind in ABOUT_PROPERTY and "property" in message:
            self._wrong("spelling", "property stands for name", "names-spelled-property")
        if kind.startswith("write") and "value" in message:
            self._wrong("spelling", "value stands for data")

    def _ids(self, message: Json) -> None:
        self._notes.tried("ids")
        for member in ("messageID", "correlationID"):
            found = _get(message, member)
            if isinstance(found, str) and not UUID4.fullmatch(found):
                self._wrong("ids", f"{member} is {_shown(found)}", "id-no-uuid")

    def _fresh(self, message: Json) -> None:
        found = _get(message, "messageID")
        if not isinstance(found, str):
            return
        self._notes.tried("fresh-ids")
        content = {key: value for key, value in message.items() if key not in ("attempt", "remaining")}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        before = self._used.get(found)
        if before is not None and before != digest:
            self._wrong("fresh-ids", f"messageID {found} was used for another message before")
        if len(self._used) >= _REMEMBERED:
            del self._used[next(iter(self._used))]
        self._used[found] = digest

    def _thing(self, message: Json) -> ScriptedThing | None:
        found = _get(message, "thingID")
        if not isinstance(found, str):
            return None
        self._notes.tried("thing-id")
        if found not in self._things:
            self._wrong("thing-id", f"thingID is {_shown(found)}, which no description here has")
        return self._things.get(found)

    def _use(self, message: Json, kind: str, thing: ScriptedThing) -> None:
        """Compare a request with the description."""
        for path, name, group in _named(message, kind):
            self._notes.tried("offered")
            described = getattr(thing, group).get(name)
            if described is None:
                self._wrong("offered", f"{kind} names {name!r}, which {thing.name} does not have")
                continue
            for word in (_OPS.get(kind, ""), "readOnly" if path else ""):
                if described.get(word):
                    self._wrong("offered", f"{kind} of {name!r}, which is {word}")
            if kind == "observeProperty" and not described.get("observable"):
                self._wrong("offered", f"{kind} of {name!r}, which is not observable")
            if kind.startswith("write"):
                value = _get(message, "data", kind)
                self._fits(thing, described, value[name] if path else value, kind, name)
        action = message.get("action")
        if kind == "invokeAction" and isinstance(action, str) and action in thing.actions:
            self._input(thing, action, message.get("input", ABSENT))

    def _fits(self, thing: ScriptedThing, schema: Json, value: Any, kind: str, name: str) -> None:
        if value is ABSENT:
            return
        self._notes.tried("input")
        try:
            thing.check(schema, value, "$")
        except Problem as problem:
            self._wrong("input", f"{kind} of {name!r}: {problem.detail}")

    def _input(self, thing: ScriptedThing, action: str, value: Any) -> None:
        self._notes.tried("input")
        try:
            thing.check_input(action, value)
        except Problem as problem:
            self._wrong("input", f"invokeAction of {action!r}: {problem.detail}")


def _named(message: Json, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield each name in a message, with its place ("" or "data") and its group of affordances."""
    name = _get(message, "name", kind)
    if kind in ABOUT_PROPERTY and isinstance(name, str):
        yield "", name, "properties"
    data = _get(message, "data", kind)
    if kind in ("writeMultipleProperties", "writeAllProperties") and is_object(data):
        for each in data:
            yield "data", each, "properties"
    for member, group in (("action", "actions"), ("event", "events")):
        found = message.get(member)
        if member in REQUESTS[kind] and isinstance(found, str):
            yield "", found, group


def _get(message: Json, member: str, kind: str = "") -> Any:
    others = dict(IDS)
    if kind in ABOUT_PROPERTY:
        others["name"] = "property"
    if kind.startswith("write"):
        others["data"] = "value"
    return message.get(member, message.get(others.get(member, member), ABSENT))


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:100]


def judge_handshake(head: RequestHead, notes: ClientNotes, log: ConnectionLog) -> None:
    """Judge a request for a WebSocket."""
    notes.tried("handshake")
    for wrong in _handshake(head):
        notes.wrong("handshake", wrong, log)


def judge_subprotocol(head: RequestHead, notes: ClientNotes, log: ConnectionLog) -> None:
    """Judge the subprotocols that a request for a WebSocket offers."""
    notes.tried("subprotocol")
    offered = head.words("sec-websocket-protocol")
    if "lmosprotocol" not in offered:
        notes.wrong("subprotocol", f"offered: {', '.join(offered) or 'none'}", log, "no-subprotocol")


def _handshake(head: RequestHead) -> Iterator[str]:
    if head.method != "GET":
        yield f"the method is {head.method}"
    if not head.header("host"):
        yield "there is no Host"
    if [word.lower() for word in head.words("upgrade")] != ["websocket"]:
        yield f"Upgrade is {head.header('upgrade')!r}"
    if "upgrade" not in [word.lower() for word in head.words("connection")]:
        yield f"Connection is {head.header('connection')!r}"
    if head.header("sec-websocket-version") != "13":
        yield f"Sec-WebSocket-Version is {head.header('sec-websocket-version')!r}"
    key = head.header("sec-websocket-key") or ""
    try:
        sound = bool(_KEY.fullmatch(key)) and len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        sound = False
    if not sound:
        yield f"Sec-WebSocket-Key is {key!r}"
