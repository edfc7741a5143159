"""Rules for what clients of relays send: handshakes, registrations and messages, judged independently."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard
from urllib.parse import parse_qs, urlsplit

from lmos_actors.conformance.scripted import is_object
from lmos_actors.conformance.wire import read_json

if TYPE_CHECKING:
    from lmos_actors.conformance.clients import ClientNotes, ConnectionLog
    from lmos_actors.conformance.scripted import RequestHead

Frame: TypeAlias = dict[str, Any]

RELAY: Final = "relay"
SIZE: Final = 64 << 10
"""Bytes of a message that the hub takes, and announces."""

_FOLLOWING: Final = ("subscribe", "unsubscribe")


class Invalid(Exception):
    """A frame that the hub refuses, with the reason in words."""


def is_texts(value: Any) -> TypeGuard[list[str]]:
    """Return whether something is an array of texts."""
    items: list[Any] = value if isinstance(value, list) else [None]  # pyright: ignore[reportUnknownVariableType]
    return all(isinstance(each, str) for each in items)


class FrameRules:
    """The judge of the messages of one connection. `id` is the id in its agent's welcome.

    `limited`: the hub announces a maximum size. `demands_payloads`: commands need a payload, as on the
    reference relay.
    """

    def __init__(
        self,
        notes: ClientNotes,
        log: ConnectionLog,
        id: str,
        *,
        limited: bool = True,
        demands_payloads: bool = False,
    ) -> None:
        self.id = id
        """The id in the agent's welcome."""
        self.others: dict[str, str] = {}
        """Ids of others, and the cases in which the agent may have taken them for its own."""
        self.sent: dict[str, None] = {}
        """The ids of the newest messages that the client was sent."""
        self._notes = notes
        self._log = log
        self._limited = limited
        self._demands_payloads = demands_payloads

    def judge(self, text: str) -> Frame:
        """Judge a message, and return its content. Raises Invalid for a message that no hub understands."""
        self._size(text)
        frame = self._read(text)
        to = self._to(frame)
        self._payload(frame, is_command=RELAY in to)
        self._from(frame)
        self._own_members(frame)
        self._types(frame)
        if RELAY in to:
            self._command(frame)
        elif frame.get("type") == "answer":
            self._answer(frame)
        return frame

    def _wrong(self, what: str, seen: str, key: str = "") -> None:
        self._notes.wrong(what, seen, self._log, key)

    def _size(self, text: str) -> None:
        if not self._limited:
            return
        self._notes.tried("size")
        size = len(text.encode())
        if size > SIZE:
            self._wrong("size", f"a message of {size} bytes")

    def _read(self, text: str) -> Frame:
        self._notes.tried("json")
        try:
            found = read_json(text)
        except ValueError as error:
            self._wrong("json", f"not JSON: {error}: {text[:100]!r}")
            raise Invalid("no JSON") from None
        if not is_object(found):
            self._wrong("json", f"no object: {text[:100]!r}")
            raise Invalid("no object")
        return found

    def _to(self, frame: Frame) -> list[str]:
        self._notes.tried("to")
        to = frame.get("to")
        if not is_texts(to) or not to:
            self._wrong("to", f"`to` is {_shown(to)}" if "to" in frame else "there is no `to`")
            raise Invalid("`to` is no array of ids")
        return to

    def _payload(self, frame: Frame, *, is_command: bool) -> None:
        self._notes.tried("payload")
        if "payload" in frame or (is_command and not self._demands_payloads):
            return
        self._wrong("payload", f"no payload: {_shown(frame)}")
        raise Invalid("there is no payload")

    def _from(self, frame: Frame) -> None:
        self._notes.tried("from")
        for case in self.others.values():
            self._notes.tried(case)
        if "from" not in frame or frame["from"] == self.id:
            return
        sender = frame["from"]
        case = self.others.get(sender, "from") if isinstance(sender, str) else "from"
        self._wrong(case, f"`from` is {_shown(sender)}, and the welcome named {self.id}")
        if case == "from":
            raise Invalid("`from` is another agent")

    def _own_members(self, frame: Frame) -> None:
        self._notes.tried("own-members")
        for name in ("id", "ts"):
            if name in frame:
                self._wrong("own-members", f"{name} is {_shown(frame[name])}", "relay-client-decides")

    def _types(self, frame: Frame) -> None:
        self._notes.tried("types")
        for name in ("type", "ref"):
            if name in frame and not isinstance(frame[name], str):
                self._wrong("types", f"{name} is {_shown(frame[name])}")

    def _command(self, frame: Frame) -> None:
        if frame.get("type") not in _FOLLOWING:
            return
        self._notes.tried("commands")
        payload = frame.get("payload")
        if not is_object(payload) or not is_texts(payload.get("agents")):
            self._wrong("commands", f"{frame['type']} with {_shown(payload)}")
            raise Invalid("`agents` is no array of ids")

    def _answer(self, frame: Frame) -> None:
        self._notes.tried("answer")
        ref = frame.get("ref")
        if not isinstance(ref, str) or ref not in self.sent:
            self._wrong("answer", f"ref is {_shown(ref)}, which is the id of no message that was sent to it")


def wrong_in_binary(data: bytes) -> tuple[str, str]:
    """Return what is wrong with a binary message, and the key of its deviation.

    Only a JSON object has a key, since relays accept it. For all other data the key is "".
    """
    try:
        found = read_json(data)
    except ValueError:
        return f"a binary message {data[:40].hex()}", ""
    if is_object(found):
        return "a message in a binary frame", "relay-client-binary"
    return f"a binary message {data[:40].hex()}", ""


def tokens_in(head: RequestHead) -> tuple[str, str]:
    """Return the tokens in the header and in the URL, each "" if it is missing."""
    scheme, _, shown = (head.header("authorization") or "").partition(" ")
    asked = parse_qs(urlsplit(head.target).query).get("token", [""])[0]
    return shown.strip() if scheme.lower() == "bearer" else "", asked


def judge_credentials(head: RequestHead, notes: ClientNotes, log: ConnectionLog) -> None:
    """Judge how a request for a WebSocket presents its token."""
    in_header, in_address = tokens_in(head)
    notes.tried("credentials")
    if not in_header and not in_address:
        notes.wrong("credentials", "no token is shown", log)
    elif in_header and in_address and in_header != in_address:
        notes.wrong("credentials", "the header has one token, and the address another", log)


def judge_registration(body: bytes, notes: ClientNotes, log: ConnectionLog) -> str | None:
    """Judge the body of a registration, and return the requested id. Raises Invalid."""
    notes.tried("register")
    try:
        found = read_json(body or b"{}")
    except ValueError:
        notes.wrong("register", f"the body is no JSON: {body[:100]!r}", log)
        raise Invalid("no JSON") from None
    wanted = found.get("agent_id") if is_object(found) else None
    if not is_object(found) or not isinstance(wanted, str | None):
        notes.wrong("register", f"the body is {body[:100]!r}", log)
        raise Invalid("no object with an agent_id")
    return wanted


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:100]
