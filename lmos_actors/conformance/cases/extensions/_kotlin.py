"""Habits of kotlin-wot's clients, beyond any specification, for servers that support such clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from lmos_actors.conformance.card import Level, kotlin
from lmos_actors.conformance.session import (
    AS_KOTLIN,
    MANDATORY,
    SILENCE,
    Chapter,
    must_be_meant_to_fail,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Run, Sent, Session
    from lmos_actors.conformance.target import Call

KOTLIN: Final[Chapter[CaseContext]] = Chapter(section=kotlin("WebSocketProtocolClient"))

_MESSAGES: Final = kotlin("Messages")
_READING: Final = ("property", "data", "timestamp")


def _lacks(context: CaseContext, seen: object) -> NoReturn:
    """End the case because a server does not suit kotlin-wot's clients.

    At the level of kotlin-wot the case fails; at other levels it is not offered.
    """
    if context.shared.options.level is Level.KOTLIN_WOT:
        context.fail(seen)
    context.not_offered(f"it does not suit kotlin-wot's clients, which no text demands: {seen}")


async def _session(context: CaseContext) -> Session:
    try:
        return await context.session(AS_KOTLIN)
    except SILENCE as why:
        _lacks(context, why)


async def _ask(
    context: CaseContext, session: Session, kind: str, name: str, **members: Any
) -> tuple[Sent, ReceivedMessage]:
    try:
        sent = await session.send(kind, name=name, correlation=None, **members)
        return sent, await session.answer(sent)
    except SILENCE as why:
        _lacks(context, why)


async def _invoke(
    context: CaseContext, session: Session, call: Call, **members: Any
) -> tuple[Sent, ReceivedMessage]:
    return await _ask(context, session, "invokeAction", call.action, **{**call.members(), **members})


def _expect(context: CaseContext, received: ReceivedMessage, sent: Sent, kind: str, *members: str) -> None:
    """End the case unless an answer has what the client needs: its kind, its members, the request's id."""
    missing = [each for each in ("thingId", "messageId", *members) if each not in received.data]
    if received.kind != kind:
        _lacks(context, received)
    if missing:
        _lacks(context, f"{received.kind} without {', '.join(missing)}: {received.text[:300]}")
    found = received.data.get("correlationId")
    if found != sent.message_id:
        _lacks(context, f"correlationId is {found!r}, not the messageId of the request")


async def _acknowledged_once(context: CaseContext, session: Session) -> None:
    """End the case unless a first `subscribeEvent` is acknowledged."""
    with context.left_to("kotlin.subscribe", SILENCE):
        first = await session.ask("subscribeEvent", name=context.roles.event(), correlation=None)
    context.prerequisite(first, "acknowledgement", "kotlin.subscribe")


def _answered(kind: str, name: Callable[[CaseContext], str], answer: str, *members: str) -> Run:
    """Make a case of one request, whose answer must be the one that the client waits for."""

    async def run(context: CaseContext) -> None:
        about = name(context)
        sent, received = await _ask(context, await _session(context), kind, about)
        _expect(context, received, sent, answer, *members)

    return run


KOTLIN.add(
    "kotlin.read",
    "A property is read as kotlin-wot's clients do it",
    _answered(
        "readProperty", lambda context: context.roles.readable_property(), "propertyReading", *_READING
    ),
    expected="a propertyReading with thingId, messageId, property, data, timestamp, and the messageId of the "
    "request as correlationId",
    needs="a property that can be read",
)
KOTLIN.add(
    "kotlin.observe",
    "An observation begins with a reading, as kotlin-wot's clients wait for it",
    _answered(
        "observeProperty", lambda context: context.roles.observable_property(), "propertyReading", *_READING
    ),
    expected="a propertyReading at once in answer to observeProperty, correlated by the messageId of the "
    "request",
    needs="an observable property",
)
KOTLIN.add(
    "kotlin.subscribe",
    "`subscribeevent` is acknowledged",
    _answered("subscribeEvent", lambda context: context.roles.event(), "acknowledgement", "message"),
    expected="an acknowledgement with message, correlated by the messageId of the request",
    needs="an event",
)


@KOTLIN.case(
    "kotlin.subscribe-again",
    "A repeated `subscribeevent` is acknowledged",
    expected="an acknowledgement of the second subscribeevent too: kotlin-wot's clients unsubscribe by it",
    needs="an event",
)
async def subscribe_again(context: CaseContext) -> None:
    session, event = await _session(context), context.roles.event()
    await _acknowledged_once(context, session)
    sent, received = await _ask(context, session, "subscribeEvent", event)
    _expect(context, received, sent, "acknowledgement", "message")


@KOTLIN.case(
    "kotlin.one-status",
    "A run has one actionStatus, with an output",
    expected="one actionStatus completed, with the member output even if it is null: kotlin-wot's clients "
    "take the first status for the end, and wait forever if there is no output",
    needs="an action that may be invoked",
)
async def one_status(context: CaseContext) -> None:
    for call in context.roles.safe_calls()[:8]:
        sent, received = await _invoke(context, await _session(context), call)
        if received.kind == "error":
            continue
        _expect(context, received, sent, "actionStatus", "action", "status", "output")
        if received.status != "completed":
            _lacks(context, received)


@KOTLIN.case(
    "kotlin.failure",
    "A run that fails is answered by an error",
    expected="an error with texts for type, title, status, detail and instance: kotlin-wot's clients take "
    "any actionStatus for a success, and drop an error that lacks one of them",
    needs="an action that fails, --hints",
)
async def failure(context: CaseContext) -> None:
    call = context.roles.failing_call()
    sent, received = await _invoke(context, await _session(context), call)
    must_be_meant_to_fail(context, call, received)
    _expect(context, received, sent, "error", *MANDATORY["error"])
    wrong = [each for each in MANDATORY["error"] if not isinstance(received.data[each], str)]
    if wrong:
        _lacks(context, f"{', '.join(wrong)} is no text: {received.text[:300]}")


@KOTLIN.case(
    "kotlin.null-input",
    "null is taken for no input",
    section=_MESSAGES,
    expected="an actionStatus completed: kotlin-wot's clients always write the member input, null where "
    "there is none",
    needs="an action without an input that may be invoked",
)
async def null_input(context: CaseContext) -> None:
    call = context.roles.safe_call(input=False)
    _, received = await _invoke(context, await _session(context), call, input=None)
    if received.status != "completed":
        _lacks(context, received)


@KOTLIN.case(
    "kotlin.number-for-time",
    "A time may be a number in a request",
    section=_MESSAGES,
    expected="an acknowledgement of a subscribeevent that has lastEvent, a number, as kotlin-wot's clients "
    "write it",
    needs="an event",
)
async def number_for_time(context: CaseContext) -> None:
    await _acknowledged_once(context, await _session(context))
    session, last = await _session(context), {"lastEvent": 1737399600.520000000}
    sent, received = await _ask(context, session, "subscribeEvent", context.roles.event(), **last)
    _expect(context, received, sent, "acknowledgement", "message")
