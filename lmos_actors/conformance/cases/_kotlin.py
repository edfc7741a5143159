"""The habits of kotlin-wot's clients. No text demands them: they are for who wants to serve such clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from lmos_actors.conformance.card import Level, kotlin
from lmos_actors.conformance.session import (
    AS_KOTLIN,
    MANDATORY,
    SILENCE,
    Chapter,
    NoAnswer,
    must_be_meant_to_fail,
)
from lmos_actors.conformance.target import NotOffered

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Sent, Talk, Visit

CHAPTER = Chapter()

_CLIENT: Final = kotlin("WebSocketProtocolClient")


def _lacks(visit: Visit, seen: object) -> NoReturn:
    """Say that a server does not suit kotlin-wot's clients: at their level it fails, else it need not."""
    if visit.ground.level is Level.KOTLIN_WOT:
        visit.fail(seen)
    visit.not_offered(f"it does not suit kotlin-wot's clients, which no text demands: {seen}")


async def _asked(visit: Visit, talk: Talk, kind: str, name: str, **members: Any) -> tuple[Sent, Heard]:
    try:
        sent = await talk.send(kind, name=name, correlation=None, **members)
        return sent, await talk.answer(sent)
    except SILENCE as why:
        _lacks(visit, why)


async def _talk(visit: Visit) -> Talk:
    try:
        return await visit.talk(AS_KOTLIN)
    except SILENCE as why:
        _lacks(visit, why)


def _as_read(visit: Visit, heard: Heard, sent: Sent, kind: str, *members: str) -> None:
    """Hold an answer against what the client needs of it: its kind, its members, and whose answer it is."""
    missing = [each for each in ("thingId", "messageId", *members) if each not in heard.data]
    if heard.kind != kind:
        _lacks(visit, heard)
    if missing:
        _lacks(visit, f"{heard.kind} without {', '.join(missing)}: {heard.text[:300]}")
    if heard.data.get("correlationId") != sent.message_id:
        _lacks(
            visit, f"correlationId is {heard.data.get('correlationId')!r}, not the messageId of the request"
        )


@CHAPTER.case(
    "kotlin.read",
    "A property is read as kotlin-wot's clients do it",
    section=_CLIENT,
    expected="a propertyReading with thingId, messageId, property, data, timestamp, and the messageId of the "
    "request as correlationId",
    needs="a property that can be read",
)
async def read(visit: Visit) -> None:
    name = visit.roles.readable_property()
    sent, heard = await _asked(visit, await _talk(visit), "readProperty", name)
    _as_read(visit, heard, sent, "propertyReading", "property", "data", "timestamp")


@CHAPTER.case(
    "kotlin.observe",
    "An observation begins with a reading, as kotlin-wot's clients wait for it",
    section=_CLIENT,
    expected="a propertyReading at once in answer to observeProperty, correlated by the messageId of the "
    "request",
    needs="an observable property",
)
async def observe(visit: Visit) -> None:
    name = visit.roles.observable_property()
    sent, heard = await _asked(visit, await _talk(visit), "observeProperty", name)
    _as_read(visit, heard, sent, "propertyReading", "property", "data", "timestamp")


@CHAPTER.case(
    "kotlin.subscribe",
    "`subscribeevent` is acknowledged",
    section=_CLIENT,
    expected="an acknowledgement with message, correlated by the messageId of the request",
    needs="an event",
)
async def subscribe(visit: Visit) -> None:
    sent, heard = await _asked(visit, await _talk(visit), "subscribeEvent", visit.roles.event())
    _as_read(visit, heard, sent, "acknowledgement", "message")


@CHAPTER.case(
    "kotlin.subscribe-again",
    "`subscribeevent` is acknowledged when it comes again",
    section=_CLIENT,
    expected="an acknowledgement of the second subscribeevent too: kotlin-wot's clients unsubscribe by it",
    needs="an event",
)
async def subscribe_again(visit: Visit) -> None:
    talk, event = await _talk(visit), visit.roles.event()
    try:
        first = await talk.ask("subscribeEvent", name=event, correlation=None)
    except SILENCE as why:
        visit.not_offered(f"{why}: kotlin.subscribe says more")
    if first.kind != "acknowledgement":
        visit.not_offered(f"{first}: kotlin.subscribe says more")
    sent, heard = await _asked(visit, talk, "subscribeEvent", event)
    _as_read(visit, heard, sent, "acknowledgement", "message")


@CHAPTER.case(
    "kotlin.one-status",
    "A run has one actionStatus, with an output",
    section=_CLIENT,
    expected="one actionStatus completed, with the member output even if it is null: kotlin-wot's clients "
    "take the first status for the end, and wait for ever where there is no output",
    needs="an action that may be invoked",
)
async def one_status(visit: Visit) -> None:
    for call in visit.roles.safe_calls()[:8]:
        talk = await _talk(visit)
        sent, heard = await _asked(visit, talk, "invokeAction", call.action, **call.members())
        if heard.kind == "error":
            continue
        _as_read(visit, heard, sent, "actionStatus", "action", "status", "output")
        if heard.status != "completed":
            _lacks(visit, heard)


@CHAPTER.case(
    "kotlin.failure",
    "A run that fails is answered by an error",
    section=_CLIENT,
    expected="an error with texts for type, title, status, detail and instance: kotlin-wot's clients take "
    "any actionStatus for a success, and drop an error that lacks one of them",
    needs="an action that fails, --hints",
)
async def failure(visit: Visit) -> None:
    call = visit.roles.failing_call()
    sent, heard = await _asked(visit, await _talk(visit), "invokeAction", call.action, **call.members())
    must_be_meant_to_fail(visit, call, heard)
    _as_read(visit, heard, sent, "error", *MANDATORY["error"])
    wrong = [each for each in MANDATORY["error"] if not isinstance(heard.data[each], str)]
    if wrong:
        _lacks(visit, f"{', '.join(wrong)} is no text: {heard.text[:300]}")


@CHAPTER.case(
    "kotlin.null-input",
    "null is taken for no input",
    section=kotlin("Messages"),
    expected="an actionStatus completed: kotlin-wot's clients always write the member input, null where "
    "there is none",
    needs="an action without an input that may be invoked",
)
async def null_input(visit: Visit) -> None:
    call = visit.roles.safe_call(input=False)
    _, heard = await _asked(visit, await _talk(visit), "invokeAction", call.action, input=None)
    if heard.status != "completed":
        _lacks(visit, heard)


@CHAPTER.case(
    "kotlin.number-for-time",
    "A time may be a number in a request",
    section=kotlin("Messages"),
    expected="an acknowledgement of a subscribeevent that has lastEvent, a number, as kotlin-wot's clients "
    "write it",
    needs="an event",
)
async def number_for_time(visit: Visit) -> None:
    talk = await _talk(visit)
    try:
        first = await talk.ask("subscribeEvent", name=visit.roles.event(), correlation=None)
        if first.kind != "acknowledgement":
            raise NoAnswer(str(first))
    except SILENCE as why:
        raise NotOffered(f"{why}: kotlin.subscribe says more") from None
    talk = await _talk(visit)
    last = {"lastEvent": 1737399600.520000000}
    sent, heard = await _asked(visit, talk, "subscribeEvent", visit.roles.event(), **last)
    _as_read(visit, heard, sent, "acknowledgement", "message")
