"""Malformed messages, and messages that are unusual but correct."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmos_actors.conformance.card import lmos, rfc6455
from lmos_actors.conformance.session import (
    Chapter,
    MalformedMessage,
    answers,
    judge_malformed,
    must_answer,
    must_be_read,
    must_be_there,
    must_end,
    note_close,
)
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.conformance.card import Section
    from lmos_actors.conformance.session import CaseContext, Session

    Messages: TypeAlias = Callable[[CaseContext, Session], Iterator[MalformedMessage]]
    Rewrite: TypeAlias = Callable[[str], str]

MALFORMED_MESSAGES: Final[Chapter[CaseContext]] = Chapter()

_COMMON: Final = lmos("Common Message Members Table")
_ERROR: Final = lmos("error")
_TYPES: Final = lmos("LMOS Message Types")
_SOFTLY: Final = "an error with the status 400, and the connection stays open"
_LEVELS: Final = 20_000
_DIGITS: Final = 20_000
_TRACE: Final = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=BleGNlZWRzIHRohbCBwbGVhc3VyZS4",
}
_LIMITED: Final = (1008, 1009)


def _request(session: Session, kind: str = "readProperty", **members: Any) -> dict[str, Any]:
    """Return a request as plain data; its id is also its correlationID."""
    message_id = session.new_id()
    text = session.text(kind, message_id=message_id, correlation=message_id, **members)
    data: dict[str, Any] = json.loads(text)
    return data


def _without(data: dict[str, Any], *words: str) -> str:
    """Return a message as JSON, without the members whose names begin with one of these words."""
    return json.dumps({name: value for name, value in data.items() if not name.startswith(words)})


def _unreadable(
    id: str, title: str, section: Section, expected: str = _SOFTLY
) -> Callable[[Messages], Messages]:
    """Add a case of unreadable messages; they share a connection as long as it stays open."""

    def add(messages: Messages) -> Messages:
        async def run(context: CaseContext) -> None:
            session = await context.session()
            for bad in messages(context, session):
                session = await judge_malformed(context, session, bad)

        MALFORMED_MESSAGES.add(id, title, run, section=section, expected=expected)
        return messages

    return add


# --- what is no message


@_unreadable("frames.not-json", "Text that is not JSON is answered by an error", _ERROR)
def not_json(context: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    whole = session.text("readProperty", name=context.target.unknown_property())
    yield MalformedMessage(what="half a message", text=whole[: len(whole) // 2], has_id=False)
    yield MalformedMessage(what="a word that is not JSON", text="hello", has_id=False)
    yield MalformedMessage(what="a message with an extra comma", text=f"{whole[:-1]},}}", has_id=False)


@_unreadable("frames.no-object", "JSON that is no object is answered by an error", _ERROR)
def no_object(context: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    whole = session.text("readProperty", name=context.target.unknown_property())
    texts = {"an array": f"[{whole}]", "a text": '"hello"', "a number": "42", "null": "null", "true": "true"}
    for what, text in texts.items():
        yield MalformedMessage(what=what, text=text, has_id=False)


@_unreadable("frames.empty", "An empty message is answered by an error", _ERROR)
def empty(_: CaseContext, __: Session) -> Iterator[MalformedMessage]:
    yield MalformedMessage(what="an empty message", text="", has_id=False)
    yield MalformedMessage(what="an empty object", text="{}", has_id=False)


@MALFORMED_MESSAGES.case(
    "frames.not-utf8",
    "A text that is not UTF-8 ends the connection",
    section=rfc6455("8.1"),
    expected="a Close with 1007, or the end of the connection",
)
async def not_utf8(context: CaseContext) -> None:
    session = await context.session()
    text = session.text("readProperty", name="@").encode().replace(b"@", b"\xc3\x28")
    await session.socket.send_frame(1, text)
    await must_end(context, session, "a text that is not UTF-8", 1007, 1005, None)
    await must_be_there(context, "a text that is not UTF-8")


# --- members that are missing or wrong


@_unreadable("frames.no-type", "A message without messageType is answered by an error", _COMMON)
def no_type(context: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    text = _without(_request(session, name=context.target.unknown_property()), "messageType")
    yield MalformedMessage(what="a message without messageType", text=text)


@_unreadable(
    "frames.no-thing",
    "A message without thingID is answered",
    _COMMON,
    "an error, and the connection stays open; an answer, where it is clear which thing is meant",
)
def no_thing(context: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    text = _without(_request(session, name=context.target.unknown_property()), "thing")
    yield MalformedMessage(what="a message without thingID", text=text, only_error=False)


@_unreadable("frames.no-id", "A message without messageID is answered by an error", _COMMON)
def no_id(context: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    text = _without(_request(session, name=context.target.unknown_property()), "messageI", "correlation")
    yield MalformedMessage(what="a message without messageID", text=text, has_id=False)


@_unreadable(
    "frames.no-name",
    "A request without a name is answered by an error",
    lmos("readProperty"),
    f"for a property, an action and an event without a name {_SOFTLY}",
)
def no_name(_: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    members = {"readProperty": "name", "invokeAction": "action", "subscribeEvent": "event"}
    for kind, member in members.items():
        yield MalformedMessage(what=f"{kind} without {member}", text=json.dumps(_request(session, kind)))


@_unreadable(
    "frames.member-types",
    "Members of a wrong type are answered by an error",
    _COMMON,
    f"for members that are no texts {_SOFTLY}",
)
def member_types(context: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    whole = _request(session, name=context.target.unknown_property())
    wrong: tuple[tuple[str, Any], ...]
    wrong = (("messageType", 7), ("thing", {}), ("messageI", [1]), ("name", {"a": 1}), ("name", None))
    for word, value in wrong:
        member = next((each for each in whole if each.startswith(word)), session.dialect.names)
        what, text = f"{member}: {json.dumps(value)}", json.dumps({**whole, member: value})
        yield MalformedMessage(what=what, text=text, has_id=word != "messageI")


# --- types


@_unreadable("frames.unknown-type", "A message of an unknown type is answered by an error", _TYPES)
def unknown_type(_: CaseContext, session: Session) -> Iterator[MalformedMessage]:
    for kind in ("noSuchType", ""):
        yield MalformedMessage(what=f"the messageType {kind!r}", text=json.dumps(_request(session, kind)))


@MALFORMED_MESSAGES.case(
    "frames.thing-types",
    "Message types that only things send do no harm",
    section=_TYPES,
    expected="an error or nothing, and the connection stays open",
)
async def thing_types(context: CaseContext) -> None:
    session = await context.session()
    for kind in ("propertyReading", "actionStatus", "event", "error"):
        what = f"a message of the type {kind}"
        try:
            await session.socket.send_text(json.dumps(_request(session, kind) | _of_things(kind)))
            if not await answers(context, session):
                context.fail(f"after {what} nothing is answered on the connection")
        except ConnectionGone as ended:
            note_close(context, ended.gone, what)
            session = await context.session()


def _of_things(kind: str) -> dict[str, Any]:
    time = {"timestamp": "2025-01-20T19:00:00Z"}
    error = {"type": "about:blank", "title": "no", "status": "500", "detail": "no", "instance": "urn:x:1"}
    members: dict[str, dict[str, Any]] = {
        "propertyReading": {"name": "x", "value": 1, **time},
        "actionStatus": {"action": "x", "status": "completed"},
        "event": {"event": "x", "data": 1, **time},
        "error": error,
    }
    return members[kind]


# --- JSON that is unusual


async def _odd(context: CaseContext, text: str, what: str, session: Session) -> None:
    """Send something that a server need not be able to read: an answer, an error or a Close is right."""
    try:
        await session.socket.send_text(text)
        if await session.next() is None:
            context.fail(f"{what} is not answered")
    except ConnectionGone as ended:
        note_close(context, ended.gone, what, *_LIMITED)
        session = await context.session()
    await must_answer(context, session, what)


@MALFORMED_MESSAGES.case(
    "frames.two-spellings",
    "A contradictory message is answered",
    section=_COMMON,
    expected="an error, or an answer by one of the two spellings, and the connection stays open",
)
async def two_spellings(context: CaseContext) -> None:
    session = await context.session()
    whole = _request(session, name=context.target.unknown_property())
    other = "thingId" if session.dialect.ids == "ID" else "thingID"
    text = json.dumps({**whole, other: context.target.unknown_thing()})
    await _odd(context, text, "a message with two thingIDs that differ", session)


@MALFORMED_MESSAGES.case(
    "frames.duplicate-member",
    "A duplicate member does no harm",
    section=_COMMON,
    expected="an error, or an answer by one of the two, and the connection stays open",
)
async def duplicate_member(context: CaseContext) -> None:
    session = await context.session()
    text = json.dumps(_request(session, name=context.target.unknown_property()))
    await _odd(context, f'{text[:-1]}, "{session.dialect.names}": "other"}}', "a duplicate member", session)


@MALFORMED_MESSAGES.case(
    "frames.nesting",
    "Deep nesting does no harm",
    section=_ERROR,
    expected="an answer, by an error too, or a Close with 1008 or 1009; and the server keeps working",
)
async def nesting(context: CaseContext) -> None:
    session = await context.session()
    text = json.dumps(_request(session, "writeProperty", name=context.target.unknown_property()))
    text = f'{text[:-1]}, "data": {"[" * _LEVELS}{"]" * _LEVELS}}}'
    await _odd(context, text, f"a value nested {_LEVELS} levels deep", session)


@MALFORMED_MESSAGES.case(
    "frames.huge-number",
    "Huge numbers do no harm",
    section=_ERROR,
    expected="an answer, by an error too, or a Close with 1008 or 1009; and the server keeps working",
)
async def huge_number(context: CaseContext) -> None:
    for number, what in (
        ("1e999999", "the number 1e999999"),
        ("9" * _DIGITS, f"a number of {_DIGITS} digits"),
    ):
        session = await context.session()
        text = json.dumps(_request(session, "writeProperty", name=context.target.unknown_property()))
        await _odd(context, f'{text[:-1]}, "data": {number}}}', what, session)


@MALFORMED_MESSAGES.case(
    "frames.surrogate",
    "Half of a surrogate pair does no harm",
    section=_ERROR,
    expected="an answer, by an error too, and the connection stays open",
)
async def surrogate(context: CaseContext) -> None:
    session = await context.session()
    await _odd(
        context, json.dumps(_request(session, name="\ud800")), "half of a surrogate pair in a name", session
    )


# --- JSON that must be read


def _readable(
    id: str, title: str, what: str, expected: str, *, refusal: str | None = None
) -> Callable[[Rewrite], Rewrite]:
    """Add a case of a request that is written in another form and must be answered as usual."""

    def add(rewrite: Rewrite) -> Rewrite:
        async def send(session: Session, text: str) -> None:
            await session.socket.send_text(rewrite(text))

        async def run(context: CaseContext) -> None:
            await must_be_read(context, what, send, refusal=refusal)

        MALFORMED_MESSAGES.add(id, title, run, section=_COMMON, expected=expected)
        return rewrite

    return add


@_readable(
    "frames.unknown-members",
    "Unknown members are ignored",
    "a request with an unknown member",
    "an answer, as without them",
    refusal="refuses-unknown-members",
)
def unknown_members(text: str) -> str:
    return f'{text[:-1]}, "example:extra": {{"a": [1, null]}}}}'


@_readable(
    "frames.trace-members",
    "traceparent and tracestate are members of every message",
    "a request with traceparent and tracestate",
    "an answer, as without them",
)
def trace_members(text: str) -> str:
    return json.dumps(json.loads(text) | _TRACE)


@_readable(
    "frames.white-space",
    "White space and the order of members have no meaning",
    "a request on several lines, its messageType last,",
    "the usual answer to a request on several lines, whose messageType comes last",
)
def white_space(text: str) -> str:
    data = dict(reversed(json.loads(text).items()))
    data["messageType"] = data.pop("messageType")
    lines = json.dumps(data, indent="\t").replace("\n", "\r\n")
    return f" \r\n{lines}\n\t "


@_readable(
    "frames.escapes",
    "Characters may be escaped",
    "a request with escaped characters",
    "the usual answer to a request with \\u escapes in the name of a member and in its messageType",
)
def escapes(text: str) -> str:
    return text.replace("messageType", "message\\u0054ype").replace("readProperty", "read\\u0050roperty")
