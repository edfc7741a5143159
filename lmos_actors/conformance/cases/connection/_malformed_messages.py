"""Messages that are not as they should be, and messages that only look so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

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
    from collections.abc import Iterable

    from lmos_actors.conformance.session import CaseContext, Session

MALFORMED_MESSAGES = Chapter()

_COMMON: Final = lmos("Common Message Members Table")
_ERROR: Final = lmos("error")
_TYPES: Final = lmos("LMOS Message Types")
_SOFTLY: Final = "an error with the status 400, and the connection stays"
_LEVELS: Final = 20_000
_DIGITS: Final = 20_000
_TRACE: Final = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=BleGNlZWRzIHRohbCBwbGVhc3VyZS4",
}
_LIMITED: Final = (1008, 1009)


def _request(session: Session, kind: str = "readProperty", **members: Any) -> dict[str, Any]:
    """Return a request as plain data, with an id that correlates too."""
    message_id = session.new_id()
    text = session.text(kind, message_id=message_id, correlation=message_id, **members)
    data: dict[str, Any] = json.loads(text)
    return data


def _without(data: dict[str, Any], *words: str) -> str:
    """Leave out the members that begin so, however they are spelt."""
    return json.dumps({name: value for name, value in data.items() if not name.startswith(words)})


async def _all(context: CaseContext, rows: Iterable[MalformedMessage], session: Session) -> None:
    for bad in rows:
        session = await judge_malformed(context, session, bad)


# --- what is no message


@MALFORMED_MESSAGES.case(
    "frames.not-json", "What is no JSON is answered by an error", section=_ERROR, expected=_SOFTLY
)
async def not_json(context: CaseContext) -> None:
    session = await context.session()
    whole = session.text("readProperty", name=context.target.unknown_property())
    rows = (
        MalformedMessage(what="half a message", text=whole[: len(whole) // 2], has_id=False),
        MalformedMessage(what="a word that is no JSON", text="hello", has_id=False),
        MalformedMessage(what="a message with a comma too many", text=f"{whole[:-1]},}}", has_id=False),
    )
    await _all(context, rows, session)


@MALFORMED_MESSAGES.case(
    "frames.no-object", "JSON that is no object is answered by an error", section=_ERROR, expected=_SOFTLY
)
async def no_object(context: CaseContext) -> None:
    session = await context.session()
    whole = session.text("readProperty", name=context.target.unknown_property())
    texts = {"an array": f"[{whole}]", "a text": '"hello"', "a number": "42", "null": "null", "true": "true"}
    await _all(
        context,
        [MalformedMessage(what=what, text=text, has_id=False) for what, text in texts.items()],
        session,
    )


@MALFORMED_MESSAGES.case(
    "frames.empty", "An empty message is answered by an error", section=_ERROR, expected=_SOFTLY
)
async def empty(context: CaseContext) -> None:
    rows = (
        MalformedMessage(what="an empty message", text="", has_id=False),
        MalformedMessage(what="an empty object", text="{}", has_id=False),
    )
    await _all(context, rows, await context.session())


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


@MALFORMED_MESSAGES.case(
    "frames.no-type",
    "A message without messageType is answered by an error",
    section=_COMMON,
    expected=_SOFTLY,
)
async def no_type(context: CaseContext) -> None:
    session = await context.session()
    text = _without(_request(session, name=context.target.unknown_property()), "messageType")
    await judge_malformed(context, session, MalformedMessage(what="a message without messageType", text=text))


@MALFORMED_MESSAGES.case(
    "frames.no-thing",
    "A message without thingID is answered",
    section=_COMMON,
    expected="an error, and the connection stays; an answer, where it is clear which thing is meant",
)
async def no_thing(context: CaseContext) -> None:
    session = await context.session()
    text = _without(_request(session, name=context.target.unknown_property()), "thing")
    await judge_malformed(
        context, session, MalformedMessage(what="a message without thingID", text=text, only_error=False)
    )


@MALFORMED_MESSAGES.case(
    "frames.no-id", "A message without messageID is answered by an error", section=_COMMON, expected=_SOFTLY
)
async def no_id(context: CaseContext) -> None:
    session = await context.session()
    text = _without(_request(session, name=context.target.unknown_property()), "messageI", "correlation")
    await judge_malformed(
        context, session, MalformedMessage(what="a message without messageID", text=text, has_id=False)
    )


@MALFORMED_MESSAGES.case(
    "frames.no-name",
    "A request that names nothing is answered by an error",
    section=lmos("readProperty"),
    expected=f"for a property, an action and an event that is not named {_SOFTLY}",
)
async def no_name(context: CaseContext) -> None:
    session = await context.session()
    rows = [
        MalformedMessage(what=f"{kind} without {member}", text=json.dumps(_request(session, kind)))
        for kind, member in (
            ("readProperty", "name"),
            ("invokeAction", "action"),
            ("subscribeEvent", "event"),
        )
    ]
    await _all(context, rows, session)


@MALFORMED_MESSAGES.case(
    "frames.member-types",
    "Members of a wrong type are answered by an error",
    section=_COMMON,
    expected=f"for members that are no texts {_SOFTLY}",
)
async def member_types(context: CaseContext) -> None:
    session = await context.session()
    whole = _request(session, name=context.target.unknown_property())
    rows: list[MalformedMessage] = []
    for word, value in (
        ("messageType", 7),
        ("thing", {}),
        ("messageI", [1]),
        ("name", {"a": 1}),
        ("name", None),
    ):
        member = next((each for each in whole if each.startswith(word)), session.dialect.names)
        text = json.dumps({**whole, member: value})
        rows.append(
            MalformedMessage(what=f"{member}: {json.dumps(value)}", text=text, has_id=word != "messageI")
        )
    await _all(context, rows, session)


# --- types


@MALFORMED_MESSAGES.case(
    "frames.unknown-type",
    "A type of message that nobody has defined is answered by an error",
    section=_TYPES,
    expected=_SOFTLY,
)
async def unknown_type(context: CaseContext) -> None:
    session = await context.session()
    rows = [
        MalformedMessage(what=f"the messageType {kind!r}", text=json.dumps(_request(session, kind)))
        for kind in ("noSuchType", "")
    ]
    await _all(context, rows, session)


@MALFORMED_MESSAGES.case(
    "frames.thing-types",
    "Types of message that only things send do no harm",
    section=_TYPES,
    expected="an error or nothing, and the connection stays",
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
    """Send what a server need not be able to read; that it says so by an error, or closes, is right too."""
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
    "A message that contradicts itself is answered",
    section=_COMMON,
    expected="an error, or an answer by one of the two spellings, and the connection stays",
)
async def two_spellings(context: CaseContext) -> None:
    session = await context.session()
    whole = _request(session, name=context.target.unknown_property())
    other = "thingId" if session.dialect.ids == "ID" else "thingID"
    text = json.dumps({**whole, other: context.target.unknown_thing()})
    await _odd(context, text, "a message with two thingIDs that differ", session)


@MALFORMED_MESSAGES.case(
    "frames.duplicate-member",
    "A member that is there twice does no harm",
    section=_COMMON,
    expected="an error, or an answer by one of the two, and the connection stays",
)
async def duplicate_member(context: CaseContext) -> None:
    session = await context.session()
    text = json.dumps(_request(session, name=context.target.unknown_property()))
    await _odd(
        context, f'{text[:-1]}, "{session.dialect.names}": "other"}}', "a member that is there twice", session
    )


@MALFORMED_MESSAGES.case(
    "frames.nesting",
    "Deep nesting does no harm",
    section=_ERROR,
    expected="an answer, by an error too, or a Close with 1008 or 1009; and the server goes on",
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
    expected="an answer, by an error too, or a Close with 1008 or 1009; and the server goes on",
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
    expected="an answer, by an error too, and the connection stays",
)
async def surrogate(context: CaseContext) -> None:
    session = await context.session()
    await _odd(
        context, json.dumps(_request(session, name="\ud800")), "half of a surrogate pair in a name", session
    )


@MALFORMED_MESSAGES.case(
    "frames.unknown-members",
    "Members that nobody has defined are passed over",
    section=_COMMON,
    expected="an answer, as without them",
)
async def unknown_members(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        await session.socket.send_text(f'{text[:-1]}, "example:extra": {{"a": [1, null]}}}}')

    await must_be_read(
        context, "a request with a member of another's", send, refusal="refuses-unknown-members"
    )


@MALFORMED_MESSAGES.case(
    "frames.trace-members",
    "traceparent and tracestate are members of every message",
    section=_COMMON,
    expected="an answer, as without them",
)
async def trace_members(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        await session.socket.send_text(json.dumps(json.loads(text) | _TRACE))

    await must_be_read(context, "a request with traceparent and tracestate", send)


@MALFORMED_MESSAGES.case(
    "frames.white-space",
    "White space and the order of members have no meaning",
    section=_COMMON,
    expected="the usual answer to a request on several lines, whose messageType comes last",
)
async def white_space(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        data = dict(reversed(json.loads(text).items()))
        data["messageType"] = data.pop("messageType")
        lines = json.dumps(data, indent="\t").replace("\n", "\r\n")
        await session.socket.send_text(f" \r\n{lines}\n\t ")

    await must_be_read(context, "a request on several lines, its messageType last,", send)


@MALFORMED_MESSAGES.case(
    "frames.escapes",
    "Characters may be escaped",
    section=_COMMON,
    expected="the usual answer to a request with \\u escapes in the name of a member and in its messageType",
)
async def escapes(context: CaseContext) -> None:
    async def send(session: Session, text: str) -> None:
        text = text.replace("messageType", "message\\u0054ype").replace("readProperty", "read\\u0050roperty")
        await session.socket.send_text(text)

    await must_be_read(context, "a request with escaped characters", send)
