"""Extensions of lmos_actors in members of messages: acknowledgements, gaps, deadlines, progress."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import fits
from lmos_actors.conformance.session import (
    ABSENT,
    SILENCE,
    Chapter,
    EventTrial,
    NoAnswer,
    Session,
    first_event,
    listen,
    must_accept,
    send_and_flush,
)
from lmos_actors.conformance.target import NotOffered, NotRun

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage
    from lmos_actors.conformance.target import Call

MEMBERS: Final[Chapter[CaseContext]] = Chapter()

_ACKS: Final = extension("Members, Acknowledgements")
_DEADLINES: Final = extension("Members, Deadlines")


def needs(context: CaseContext, word: str) -> None:
    """End the case unless an extension is offered and the dialect supports extensions."""
    context.offers(word)
    if context.shared.dialect.is_kotlin:
        context.not_offered("a consumer with the habits of kotlin-wot gets no extensions")


@MEMBERS.case(
    "extension.announced",
    "The handshake announces what the description offers",
    section=extension("Announcement"),
    expected="the words of lmosx:offers in the field LMOS-Extensions of the answer to the handshake",
    needs="lmosx:offers",
)
async def announced(context: CaseContext) -> None:
    if not context.target.offers:
        context.not_offered("the description has no lmosx:offers")
    field = (await context.socket()).handshake.header("lmos-extensions")
    words = frozenset(word.strip() for word in (field or "").split(",")) - {""}
    if words != context.target.offers:
        offered = ", ".join(sorted(context.target.offers))
        context.fail(f"LMOS-Extensions: {field}, and lmosx:offers has {offered}")


def outcome(received: ReceivedMessage) -> tuple[Any, ...]:
    """Return the parts of a final answer that must be the same if the request is repeated."""
    output = received.data.get("output")
    return received.kind, received.status, received.data.get("type"), output


# --- acknowledgements


async def _acknowledged(context: CaseContext, session: Session, kind: str, name: str | None = None) -> None:
    sent = await session.send(kind, name=name, ack=True)
    try:
        received = context.expect(await session.answer(sent), "acknowledgement")
    except NoAnswer:
        context.fail(f"{kind} with ack: true is not acknowledged")
    if received.data.get("message") != kind:
        context.fail(f"{kind} is acknowledged with the message {received.data.get('message')!r}")
    if received.correlation != sent.correlation:
        context.fail(f"{kind} is acknowledged with the correlationID {received.correlation!r}, not its own")


@MEMBERS.case(
    "extension.ack",
    "subscribeEvent is acknowledged on request",
    section=_ACKS,
    expected="an acknowledgement with the message subscribeEvent and its correlationID, for ack: true",
    needs="lmosx:offers with acks, and an event",
)
async def ack(context: CaseContext) -> None:
    needs(context, "acks")
    await _acknowledged(context, await context.session(), "subscribeEvent", context.roles.event())


@MEMBERS.case(
    "extension.ack-each",
    "Every request that LMOS leaves unanswered is acknowledged on request",
    section=_ACKS,
    expected="an acknowledgement of subscribeAllEvents, unsubscribeEvent, unsubscribeAllEvents and "
    "unobserveProperty, in answer to ack: true",
    needs="lmosx:offers with acks, and an event",
)
async def ack_each(context: CaseContext) -> None:
    needs(context, "acks")
    event, session = context.roles.event(), await context.session()
    await _acknowledged(context, session, "subscribeAllEvents")
    await _acknowledged(context, session, "unsubscribeAllEvents")
    await listen(context, session, "subscribeEvent", event)
    await _acknowledged(context, session, "unsubscribeEvent", event)
    if context.target.observable():
        name = context.target.observable()[0]
        await listen(context, session, "observeProperty", name)
        await _acknowledged(context, session, "unobserveProperty", name)


@MEMBERS.case(
    "extension.ack-first",
    "A subscription is acknowledged before its first event",
    section=_ACKS,
    expected="the acknowledgement before any `event` of the subscription",
    needs="lmosx:offers with acks, and an event that an action which may be invoked makes happen",
)
async def ack_first(context: CaseContext) -> None:
    needs(context, "acks")
    event = context.roles.event()
    call, session = await context.trigger(event), await context.session()
    sent = await session.send("subscribeEvent", name=event, ack=True)
    run = await session.begin(call)
    noted = await first_event(context, session, event)
    with suppress(*SILENCE):
        await session.final(run)
    with context.left_to("extension.ack"):
        received = await session.answer(sent)
    if received.kind == "acknowledgement" and received.number > noted.number:
        context.fail("the event came before the acknowledgement of its subscription")


@MEMBERS.case(
    "extension.ack-refused",
    "A failed request is not acknowledged",
    section=_ACKS,
    expected="no acknowledgement of a subscribeEvent with ack: true for an event that the description does "
    "not have",
    needs="lmosx:offers with acks",
)
async def ack_refused(context: CaseContext) -> None:
    needs(context, "acks")
    session = await context.session()
    sent = await session.send("subscribeEvent", name=context.target.unknown_event(), ack=True)
    with suppress(NoAnswer):
        await session.answer(sent)
    session.forget(sent)
    await context.flush(session)
    for received in session.received:
        if received.kind == "acknowledgement":
            context.fail(received)


@MEMBERS.case(
    "extension.unasked",
    "A consumer that requests no extension gets none",
    section=extension("What others see"),
    expected="no acknowledgement of subscribeEvent and unsubscribeEvent without ack: true",
    needs="lmosx:offers with acks, and an event",
)
async def unasked(context: CaseContext) -> None:
    needs(context, "acks")
    event, session = context.roles.event(), await context.session()
    await send_and_flush(context, session, "subscribeEvent", name=event)
    await send_and_flush(context, session, "unsubscribeEvent", name=event)
    for received in session.received:
        if received.kind == "acknowledgement":
            context.fail(received)


@MEMBERS.case(
    "extension.gaps",
    "A subscription may request gaps",
    section=extension("Members, Gaps"),
    expected="the same events for a subscription with gaps: true as for one without",
    needs="lmosx:offers with gaps, and an event that an action which may be invoked makes happen",
)
async def gaps(context: CaseContext) -> None:
    needs(context, "gaps")
    trial, session = await EventTrial.begin(context), await context.session()
    await must_accept(context, session, "subscribeEvent", name=trial.event, gaps=True)
    await trial.cause()
    await trial.must_reach(session, f"no {trial.event} came to a subscription with gaps: true")


# --- deadlines


@MEMBERS.case(
    "extension.deadline",
    "A run ends at its deadline",
    section=_DEADLINES,
    expected="an error of the type deadline-exceeded when the `remaining` seconds of invokeAction are over",
    needs="lmosx:offers with deadlines, and an action that takes a while, --hints",
)
async def deadline(context: CaseContext) -> None:
    needs(context, "deadlines")
    call, session = context.roles.slow_call(), await context.session()
    sent = await session.begin(call, remaining=0.2)
    received = await session.final(sent)
    if received.kind != "error" or not str(received.data.get("type")).endswith("#deadline-exceeded"):
        context.fail(received)


@MEMBERS.case(
    "extension.deadline-left",
    "A deadline does not affect a run that is in time",
    section=_DEADLINES,
    expected="the same answer with `remaining` of 30 seconds as without it, from an action that is quick",
    needs="lmosx:offers with deadlines, and an action that may be invoked",
)
async def deadline_left(context: CaseContext) -> None:
    needs(context, "deadlines")
    call, session = context.roles.safe_call(), await context.session()
    with context.left_to("actions.completed"):
        without = await context.invoke(session, call)
    received = await context.invoke(session, call, remaining=30)
    if outcome(received)[:2] != outcome(without)[:2]:
        context.fail(received)


# --- progress


@MEMBERS.case(
    "extension.progress",
    "The progress of a run matches its schema",
    section=extension("Members, Progress"),
    expected="a `progress` that fits lmosx:progress in an actionStatus `in progress` without output",
    needs="an action that may be invoked and has lmosx:progress",
)
async def progress(context: CaseContext) -> None:
    call, session = _progressing(context), await context.session()
    schema = context.target.readable_part.progress_of(call.action) or {}
    sent, noted = await session.begin(call), False
    with suppress(NoAnswer):
        while not noted and not (received := await session.answer(sent)).is_final:
            noted = received.get("progress") is not ABSENT and received.get("output") is ABSENT
            wrong = fits(schema, received.get("progress")) if noted else None
            if wrong is not None:
                context.fail(f"progress of {call.action}: {wrong}")
    if not noted:
        context.not_offered(f"{call.action} reported no progress within {context.patience:g} s")


def _progressing(context: CaseContext) -> Call:
    """Return a call of an action that reports progress, if possible one that takes a while.

    Ends the case if there is no such action, or if it may not be invoked.
    """
    described = context.target.readable_part
    names = [name for name in context.target.actions if described.progress_of(name) is not None]
    if not names:
        context.not_offered("no action has lmosx:progress")
    if context.shared.dialect.is_kotlin:
        context.not_offered("a consumer with the habits of kotlin-wot gets no extensions")
    with suppress(NotOffered, NotRun):
        call = context.roles.slow_call()
        if call.action in names:
            return call
    for name in names:
        if context.shared.options.allow_unsafe or name in context.target.safe_actions():
            return context.roles.call(name)
    context.not_run(f"{names[0]} is not safe: --allow-unsafe lets it be invoked")
