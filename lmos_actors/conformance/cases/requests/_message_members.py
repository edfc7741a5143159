"""Members of a thing's messages, compared with the tables of the specification."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import (
    MANDATORY,
    SILENCE,
    Chapter,
    a_reading,
    a_status,
    an_error,
    cancel_run,
    one_of_each,
    restorable_values,
)
from lmos_actors.conformance.target import NotOffered, NotRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Run
    from lmos_actors.conformance.target import Call

MESSAGE_MEMBERS: Final[Chapter[CaseContext]] = Chapter()

_COMMON: Final = lmos("Common Message Requirements")
_READABLE: Final = "a property that can be read"
_INVOCABLE: Final = "an action that may be invoked"
_OWN: Final = ("thingID", "messageID", "messageType")


def _members(context: CaseContext, received: ReceivedMessage) -> None:
    """Check that the mandatory members are present, and are texts where they have to be."""
    members = tuple(
        member for member in (*_OWN, *MANDATORY[received.kind]) if not _elsewhere(received, member)
    )
    context.judge(received, "member-missing", members=members)
    context.judge(received, "member-type", members=(*members, "correlationID", "message"))


def _elsewhere(received: ReceivedMessage, member: str) -> bool:
    return received.kind == "error" and member == "status"


async def _reading(context: CaseContext) -> list[ReceivedMessage]:
    return [(await a_reading(context))[1]]


async def _error(context: CaseContext) -> list[ReceivedMessage]:
    return [(await an_error(context))[1]]


async def _each(context: CaseContext) -> list[ReceivedMessage]:
    return [received for _, received in await one_of_each(context)]


def _judged(
    get: Callable[[CaseContext], Awaitable[list[ReceivedMessage]]],
    *keys: str,
    members: tuple[str, ...] | None = None,
) -> Run:
    """Make a case in which one message or several are judged, by these deviations alone."""

    async def run(context: CaseContext) -> None:
        for received in await get(context):
            context.judge(received, *keys, members=members)

    return run


@MESSAGE_MEMBERS.case(
    "letter.reading",
    "A propertyReading has its members",
    section=lmos("propertyReading"),
    expected="thingID, messageID, messageType, name, value and timestamp",
    needs=_READABLE,
)
async def reading(context: CaseContext) -> None:
    _members(context, (await a_reading(context))[1])


@MESSAGE_MEMBERS.case(
    "letter.readings",
    "A propertyReadings has its members",
    section=lmos("propertyReadings"),
    expected="thingID, messageID, messageType, data, an object of values, and timestamp",
    needs="a property that can be read and written",
)
async def readings(context: CaseContext) -> None:
    session = await context.session()
    values = await restorable_values(context, session)
    with context.left_to("properties.write-multiple", SILENCE):
        received = await session.ask("writeMultipleProperties", data=values)
    _members(context, context.prerequisite(received, "propertyReadings", "properties.write-multiple"))


@MESSAGE_MEMBERS.case(
    "letter.status",
    "An actionStatus has its members",
    section=lmos("actionStatus"),
    expected="thingID, messageID, messageType, action and status",
    needs=_INVOCABLE,
)
async def status(context: CaseContext) -> None:
    _members(context, (await a_status(context))[1])


@MESSAGE_MEMBERS.case(
    "letter.error",
    "An error has its members",
    section=lmos("error"),
    expected="thingID, messageID, messageType, type, title, status, detail and instance, all of them texts",
)
async def error(context: CaseContext) -> None:
    _, received = await an_error(context)
    _members(context, received)
    context.judge(received, "member-missing", members=("status",))


MESSAGE_MEMBERS.add(
    "letter.error-status",
    "The status of an error is an HTTP status, as a text",
    _judged(_error, "error-status"),
    section=lmos("error"),
    expected='a status such as "404", not the number 404',
)


MESSAGE_MEMBERS.add(
    "letter.error-uri",
    "The type and instance of an error are URI references",
    _judged(_error, "error-uri"),
    section=lmos("error"),
    expected="URI references without blanks in type and instance",
)


@MESSAGE_MEMBERS.case(
    "letter.about",
    "An answer names its subject",
    section=lmos("actionStatus"),
    expected="in a propertyReading the name of the property that was read, in an actionStatus the action "
    "that was invoked",
    needs=f"{_READABLE}, or {_INVOCABLE}",
)
async def about(context: CaseContext) -> None:
    for sent, received in await one_of_each(context):
        if received.kind != "error" and received.name not in (sent.name, None):
            context.fail(f"{sent.kind} of {sent.name!r} was answered by {received}")


@MESSAGE_MEMBERS.case(
    "letter.thing",
    "The thingID of an answer is that of the thing",
    section=_COMMON,
    expected="the id of the description, a URI, as thingID in each answer",
)
async def thing(context: CaseContext) -> None:
    for _, received in await one_of_each(context):
        if isinstance(received.thing, str) and received.thing != context.target.thing.id:
            context.fail(
                f"the thingID of {received.kind} is {received.thing!r}, not {context.target.thing.id!r}"
            )
        context.judge(received, "thing-no-uri")


MESSAGE_MEMBERS.add(
    "letter.message-id",
    "A messageID is a UUID of version 4",
    _judged(_each, "id-no-uuid", members=("messageID",)),
    section=_COMMON,
    expected="a messageID such as 79057736-3e0e-4dc3-b139-a33051901ee2 in each answer",
)


@MESSAGE_MEMBERS.case(
    "letter.own-message-id",
    "The messageID of an answer is its own",
    section=_COMMON,
    expected="in each answer a messageID that is neither that of the request nor that of another answer",
)
async def own_message_id(context: CaseContext) -> None:
    seen: list[str] = []
    for _ in range(2):
        for sent, received in await one_of_each(context):
            if received.message_id == sent.message_id:
                context.fail(f"{received.kind} has the messageID of the request")
            if received.message_id in seen:
                context.fail(f"two messages have the messageID {received.message_id!r}")
            if isinstance(received.message_id, str):
                seen.append(received.message_id)


MESSAGE_MEMBERS.add(
    "letter.timestamp",
    "A timestamp is a date-time of RFC 9557",
    _judged(_reading, "time-number", "time-format"),
    section=_COMMON,
    expected="a timestamp such as 2026-01-31T08:15:00.250Z in a propertyReading",
    needs=_READABLE,
)


@MESSAGE_MEMBERS.case(
    "letter.status-word",
    "The status of a run is one of the words listed",
    section=lmos("actionStatus"),
    expected="pending, in progress, completed or failed",
    needs=_INVOCABLE,
)
async def status_word(context: CaseContext) -> None:
    await _judge_words(context, context.roles.safe_call())
    with suppress(NotOffered, NotRun):
        await _judge_words(context, context.roles.failing_call())
    if not context.shared.dialect.is_kotlin:
        with suppress(NotOffered, NotRun):
            await _judge_words(context, context.roles.slow_call())


async def _judge_words(context: CaseContext, call: Call) -> None:
    try:
        session = await context.session()
        sent = await session.begin(call)
        received = await session.answer(sent)
        if not received.is_final:
            await cancel_run(session, sent)
    except SILENCE:
        return
    context.judge(received, "status-word")
    if received.kind == "actionStatus":
        context.judge(received, "member-type", members=("status",))


MESSAGE_MEMBERS.add(
    "letter.member-twice",
    "No member is duplicated in a message",
    _judged(_each, "member-twice"),
    section=lmos("Common Message Members Table"),
    expected="each member once: JSON parsers differ in which of two they use",
)
