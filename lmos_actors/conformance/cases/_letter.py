"""What is in the messages of a thing, member by member."""

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
    leave,
    one_of_each,
    restorable_values,
)
from lmos_actors.conformance.target import NotOffered, NotRun

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Visit
    from lmos_actors.conformance.target import Call

CHAPTER = Chapter()

_COMMON: Final = lmos("Common Message Requirements")
_READABLE: Final = "a property that can be read"
_INVOCABLE: Final = "an action that may be invoked"
_OWN: Final = ("thingID", "messageID", "messageType")


def _members(visit: Visit, heard: Heard) -> None:
    """Judge that what must be there is there, and is a text where it has to be one."""
    members = tuple(member for member in (*_OWN, *MANDATORY[heard.kind]) if not _elsewhere(heard, member))
    visit.judge(heard, "member-missing", members=members)
    visit.judge(heard, "member-type", members=(*members, "correlationID", "message"))


def _elsewhere(heard: Heard, member: str) -> bool:
    return heard.kind == "error" and member == "status"


@CHAPTER.case(
    "letter.reading",
    "A propertyReading has its members",
    section=lmos("propertyReading"),
    expected="thingID, messageID, messageType, name, value and timestamp",
    needs=_READABLE,
)
async def reading(visit: Visit) -> None:
    _members(visit, (await a_reading(visit))[1])


@CHAPTER.case(
    "letter.readings",
    "A propertyReadings has its members",
    section=lmos("propertyReadings"),
    expected="thingID, messageID, messageType, data, an object of values, and timestamp",
    needs="a property that can be read and written",
)
async def readings(visit: Visit) -> None:
    talk = await visit.talk()
    values = await restorable_values(visit, talk)
    try:
        heard = await talk.ask("writeMultipleProperties", data=values)
    except SILENCE as why:
        visit.not_offered(f"{why}: properties.write-multiple says more")
    if heard.kind != "propertyReadings":
        visit.not_offered(f"{heard}: properties.write-multiple says more")
    _members(visit, heard)


@CHAPTER.case(
    "letter.status",
    "An actionStatus has its members",
    section=lmos("actionStatus"),
    expected="thingID, messageID, messageType, action and status",
    needs=_INVOCABLE,
)
async def status(visit: Visit) -> None:
    _members(visit, (await a_status(visit))[1])


@CHAPTER.case(
    "letter.error",
    "An error has its members",
    section=lmos("error"),
    expected="thingID, messageID, messageType, type, title, status, detail and instance, all of them texts",
)
async def error(visit: Visit) -> None:
    _, heard = await an_error(visit)
    _members(visit, heard)
    visit.judge(heard, "member-missing", members=("status",))


@CHAPTER.case(
    "letter.error-status",
    "The status of an error is an HTTP status, as a text",
    section=lmos("error"),
    expected='a status such as "404", not the number 404',
)
async def error_status(visit: Visit) -> None:
    visit.judge((await an_error(visit))[1], "error-status")


@CHAPTER.case(
    "letter.error-uri",
    "The type and instance of an error are URI references",
    section=lmos("error"),
    expected="URI references without blanks in type and instance",
)
async def error_uri(visit: Visit) -> None:
    visit.judge((await an_error(visit))[1], "error-uri")


@CHAPTER.case(
    "letter.about",
    "An answer says what it is about",
    section=lmos("actionStatus"),
    expected="in a propertyReading the name of the property that was read, in an actionStatus the action "
    "that was invoked",
    needs=f"{_READABLE}, or {_INVOCABLE}",
)
async def about(visit: Visit) -> None:
    for sent, heard in await one_of_each(visit):
        if heard.kind != "error" and heard.name not in (sent.name, None):
            visit.fail(f"{sent.kind} of {sent.name!r} was answered by {heard}")


@CHAPTER.case(
    "letter.thing",
    "The thingID of an answer is that of the thing",
    section=_COMMON,
    expected="the id of the description, a URI, as thingID in each answer",
)
async def thing(visit: Visit) -> None:
    for _, heard in await one_of_each(visit):
        if isinstance(heard.thing, str) and heard.thing != visit.target.thing.id:
            visit.fail(f"the thingID of {heard.kind} is {heard.thing!r}, not {visit.target.thing.id!r}")
        visit.judge(heard, "thing-no-uri")


@CHAPTER.case(
    "letter.message-id",
    "A messageID is a UUID of version 4",
    section=_COMMON,
    expected="a messageID such as 79057736-3e0e-4dc3-b139-a33051901ee2 in each answer",
)
async def message_id(visit: Visit) -> None:
    for _, heard in await one_of_each(visit):
        visit.judge(heard, "id-no-uuid", members=("messageID",))


@CHAPTER.case(
    "letter.own-message-id",
    "The messageID of an answer is its own",
    section=_COMMON,
    expected="in each answer a messageID that is neither that of the request nor that of another answer",
)
async def own_message_id(visit: Visit) -> None:
    seen: list[str] = []
    for _ in range(2):
        for sent, heard in await one_of_each(visit):
            if heard.message_id == sent.message_id:
                visit.fail(f"{heard.kind} has the messageID of the request")
            if heard.message_id in seen:
                visit.fail(f"two messages have the messageID {heard.message_id!r}")
            if isinstance(heard.message_id, str):
                seen.append(heard.message_id)


@CHAPTER.case(
    "letter.timestamp",
    "A timestamp is a date-time of RFC 9557",
    section=_COMMON,
    expected="a timestamp such as 2026-01-31T08:15:00.250Z in a propertyReading",
    needs=_READABLE,
)
async def timestamp(visit: Visit) -> None:
    visit.judge((await a_reading(visit))[1], "time-number", "time-format")


@CHAPTER.case(
    "letter.status-word",
    "The status of a run is one of the words listed",
    section=lmos("actionStatus"),
    expected="pending, in progress, completed or failed",
    needs=_INVOCABLE,
)
async def status_word(visit: Visit) -> None:
    await _judge_words(visit, visit.roles.safe_call())
    with suppress(NotOffered, NotRun):
        await _judge_words(visit, visit.roles.failing_call())
    if not visit.ground.speech.is_kotlin:
        with suppress(NotOffered, NotRun):
            await _judge_words(visit, visit.roles.slow_call())


async def _judge_words(visit: Visit, call: Call) -> None:
    try:
        talk = await visit.talk()
        sent = await talk.send("invokeAction", name=call.action, **call.members())
        heard = await talk.answer(sent)
        if not heard.is_final:
            await leave(talk, sent)
    except SILENCE:
        return
    visit.judge(heard, "status-word")
    if heard.kind == "actionStatus":
        visit.judge(heard, "member-type", members=("status",))


@CHAPTER.case(
    "letter.member-twice",
    "No member is in a message twice",
    section=lmos("Common Message Members Table"),
    expected="each member once: readers of JSON differ in which of two they take",
)
async def member_twice(visit: Visit) -> None:
    for _, heard in await one_of_each(visit):
        visit.judge(heard, "member-twice")
