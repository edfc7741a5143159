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
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent, Session

KOTLIN = Chapter()

_CLIENT: Final = kotlin("WebSocketProtocolClient")


def _lacks(context: CaseContext, seen: object) -> NoReturn:
    """Record that a server does not suit kotlin-wot's clients: a failure at their level alone."""
    if context.shared.level is Level.KOTLIN_WOT:
        context.fail(seen)
    context.not_offered(f"it does not suit kotlin-wot's clients, which no text demands: {seen}")


async def _asked(
    context: CaseContext, session: Session, kind: str, name: str, **members: Any
) -> tuple[Sent, ReceivedMessage]:
    try:
        sent = await session.send(kind, name=name, correlation=None, **members)
        return sent, await session.answer(sent)
    except SILENCE as why:
        _lacks(context, why)


async def _session(context: CaseContext) -> Session:
    try:
        return await context.session(AS_KOTLIN)
    except SILENCE as why:
        _lacks(context, why)


def _as_read(context: CaseContext, received: ReceivedMessage, sent: Sent, kind: str, *members: str) -> None:
    """Hold an answer against what the client needs of it: its kind, its members, and whose answer it is."""
    missing = [each for each in ("thingId", "messageId", *members) if each not in received.data]
    if received.kind != kind:
        _lacks(context, received)
    if missing:
        _lacks(context, f"{received.kind} without {', '.join(missing)}: {received.text[:300]}")
    if received.data.get("correlationId") != sent.message_id:
        _lacks(
            context,
            f"correlationId is {received.data.get('correlationId')!r}, not the messageId of the request",
        )


@KOTLIN.case(
    "kotlin.read",
    "A property is read as kotlin-wot's clients do it",
    section=_CLIENT,
    expected="a propertyReading with thingId, messageId, property, data, timestamp, and the messageId of the "
    "request as correlationId",
    needs="a property that can be read",
)
async def read(context: CaseContext) -> None:
    name = context.roles.readable_property()
    sent, received = await _asked(context, await _session(context), "readProperty", name)
    _as_read(context, received, sent, "propertyReading", "property", "data", "timestamp")


@KOTLIN.case(
    "kotlin.observe",
    "An observation begins with a reading, as kotlin-wot's clients wait for it",
    section=_CLIENT,
    expected="a propertyReading at once in answer to observeProperty, correlated by the messageId of the "
    "request",
    needs="an observable property",
)
async def observe(context: CaseContext) -> None:
    name = context.roles.observable_property()
    sent, received = await _asked(context, await _session(context), "observeProperty", name)
    _as_read(context, received, sent, "propertyReading", "property", "data", "timestamp")


@KOTLIN.case(
    "kotlin.subscribe",
    "`subscribeevent` is acknowledged",
    section=_CLIENT,
    expected="an acknowledgement with message, correlated by the messageId of the request",
    needs="an event",
)
async def subscribe(context: CaseContext) -> None:
    sent, received = await _asked(context, await _session(context), "subscribeEvent", context.roles.event())
    _as_read(context, received, sent, "acknowledgement", "message")


@KOTLIN.case(
    "kotlin.subscribe-again",
    "`subscribeevent` is acknowledged when it comes again",
    section=_CLIENT,
    expected="an acknowledgement of the second subscribeevent too: kotlin-wot's clients unsubscribe by it",
    needs="an event",
)
async def subscribe_again(context: CaseContext) -> None:
    session, event = await _session(context), context.roles.event()
    try:
        first = await session.ask("subscribeEvent", name=event, correlation=None)
    except SILENCE as why:
        context.not_offered(f"{why}: kotlin.subscribe says more")
    if first.kind != "acknowledgement":
        context.not_offered(f"{first}: kotlin.subscribe says more")
    sent, received = await _asked(context, session, "subscribeEvent", event)
    _as_read(context, received, sent, "acknowledgement", "message")


@KOTLIN.case(
    "kotlin.one-status",
    "A run has one actionStatus, with an output",
    section=_CLIENT,
    expected="one actionStatus completed, with the member output even if it is null: kotlin-wot's clients "
    "take the first status for the end, and wait for ever where there is no output",
    needs="an action that may be invoked",
)
async def one_status(context: CaseContext) -> None:
    for call in context.roles.safe_calls()[:8]:
        session = await _session(context)
        sent, received = await _asked(context, session, "invokeAction", call.action, **call.members())
        if received.kind == "error":
            continue
        _as_read(context, received, sent, "actionStatus", "action", "status", "output")
        if received.status != "completed":
            _lacks(context, received)


@KOTLIN.case(
    "kotlin.failure",
    "A run that fails is answered by an error",
    section=_CLIENT,
    expected="an error with texts for type, title, status, detail and instance: kotlin-wot's clients take "
    "any actionStatus for a success, and drop an error that lacks one of them",
    needs="an action that fails, --hints",
)
async def failure(context: CaseContext) -> None:
    call = context.roles.failing_call()
    sent, received = await _asked(
        context, await _session(context), "invokeAction", call.action, **call.members()
    )
    must_be_meant_to_fail(context, call, received)
    _as_read(context, received, sent, "error", *MANDATORY["error"])
    wrong = [each for each in MANDATORY["error"] if not isinstance(received.data[each], str)]
    if wrong:
        _lacks(context, f"{', '.join(wrong)} is no text: {received.text[:300]}")


@KOTLIN.case(
    "kotlin.null-input",
    "null is taken for no input",
    section=kotlin("Messages"),
    expected="an actionStatus completed: kotlin-wot's clients always write the member input, null where "
    "there is none",
    needs="an action without an input that may be invoked",
)
async def null_input(context: CaseContext) -> None:
    call = context.roles.safe_call(input=False)
    _, received = await _asked(context, await _session(context), "invokeAction", call.action, input=None)
    if received.status != "completed":
        _lacks(context, received)


@KOTLIN.case(
    "kotlin.number-for-time",
    "A time may be a number in a request",
    section=kotlin("Messages"),
    expected="an acknowledgement of a subscribeevent that has lastEvent, a number, as kotlin-wot's clients "
    "write it",
    needs="an event",
)
async def number_for_time(context: CaseContext) -> None:
    session = await _session(context)
    try:
        first = await session.ask("subscribeEvent", name=context.roles.event(), correlation=None)
        if first.kind != "acknowledgement":
            raise NoAnswer(str(first))
    except SILENCE as why:
        raise NotOffered(f"{why}: kotlin.subscribe says more") from None
    session = await _session(context)
    last = {"lastEvent": 1737399600.520000000}
    sent, received = await _asked(context, session, "subscribeEvent", context.roles.event(), **last)
    _as_read(context, received, sent, "acknowledgement", "message")
