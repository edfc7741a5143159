"""What a description offers beyond LMOS: acknowledgements, gaps, deadlines, repeated requests."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import fits
from lmos_actors.conformance.session import (
    ABSENT,
    SILENCE,
    Chapter,
    NoAnswer,
    Talk,
    first_event,
    happen,
    listen,
    subscribed,
    tell,
)
from lmos_actors.conformance.target import NotOffered, NotRun

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Visit
    from lmos_actors.conformance.target import Call

CHAPTER = Chapter()

_ACKS: Final = extension("Members, Acknowledgements")
_DEADLINES: Final = extension("Members, Deadlines")


def needs(visit: Visit, word: str) -> None:
    """End the case unless an extension is offered, to such as the kit is now."""
    visit.offers(word)
    if visit.ground.speech.is_kotlin:
        visit.not_offered("a consumer with the habits of kotlin-wot is told nothing beyond LMOS")


@CHAPTER.case(
    "extension.announced",
    "The handshake announces what the description offers",
    section=extension("Announcement"),
    expected="the words of lmosx:offers in the field LMOS-Extensions of the answer to the handshake",
    needs="lmosx:offers",
)
async def announced(visit: Visit) -> None:
    if not visit.target.offers:
        visit.not_offered("the description has no lmosx:offers")
    field = (await visit.socket()).handshake.header("lmos-extensions")
    words = frozenset(word.strip() for word in (field or "").split(",")) - {""}
    if words != visit.target.offers:
        offered = ", ".join(sorted(visit.target.offers))
        visit.fail(f"LMOS-Extensions: {field}, and lmosx:offers has {offered}")


def outcome(heard: Heard) -> tuple[Any, ...]:
    """Return what of a final answer has to be the same when the same is asked again."""
    output = heard.data.get("output")
    return heard.kind, heard.status, heard.data.get("type"), output


# --- acknowledgements


async def _acknowledged(visit: Visit, talk: Talk, kind: str, name: str | None = None) -> None:
    sent = await talk.send(kind, name=name, ack=True)
    try:
        heard = visit.expect(await talk.answer(sent), "acknowledgement")
    except NoAnswer:
        visit.fail(f"{kind} with ack: true is not acknowledged")
    if heard.data.get("message") != kind:
        visit.fail(f"{kind} is acknowledged with the message {heard.data.get('message')!r}")
    if heard.correlation != sent.correlation:
        visit.fail(f"{kind} is acknowledged with the correlationID {heard.correlation!r}, not its own")


@CHAPTER.case(
    "extension.ack",
    "subscribeEvent is acknowledged where that is wanted",
    section=_ACKS,
    expected="an acknowledgement with the message subscribeEvent and its correlationID, for ack: true",
    needs="lmosx:offers with acks, and an event",
)
async def ack(visit: Visit) -> None:
    needs(visit, "acks")
    await _acknowledged(visit, await visit.talk(), "subscribeEvent", visit.roles.event())


@CHAPTER.case(
    "extension.ack-each",
    "Every request that LMOS leaves unanswered is acknowledged where that is wanted",
    section=_ACKS,
    expected="an acknowledgement of subscribeAllEvents, unsubscribeEvent, unsubscribeAllEvents and "
    "unobserveProperty, in answer to ack: true",
    needs="lmosx:offers with acks, and an event",
)
async def ack_each(visit: Visit) -> None:
    needs(visit, "acks")
    event, talk = visit.roles.event(), await visit.talk()
    await _acknowledged(visit, talk, "subscribeAllEvents")
    await _acknowledged(visit, talk, "unsubscribeAllEvents")
    await listen(visit, talk, "subscribeEvent", event)
    await _acknowledged(visit, talk, "unsubscribeEvent", event)
    if visit.target.observable():
        name = visit.target.observable()[0]
        await listen(visit, talk, "observeProperty", name)
        await _acknowledged(visit, talk, "unobserveProperty", name)


@CHAPTER.case(
    "extension.ack-first",
    "A subscription is acknowledged before its first event",
    section=_ACKS,
    expected="the acknowledgement before any `event` of the subscription",
    needs="lmosx:offers with acks, and an event that an action which may be invoked makes happen",
)
async def ack_first(visit: Visit) -> None:
    needs(visit, "acks")
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await visit.talk()
    sent = await talk.send("subscribeEvent", name=event, ack=True)
    run = await talk.send("invokeAction", name=call.action, **call.members())
    told = await first_event(visit, talk, event)
    with suppress(*SILENCE):
        await talk.final(run)
    try:
        heard = await talk.answer(sent)
    except NoAnswer:
        visit.not_offered("subscribeEvent is not acknowledged: extension.ack says more")
    if heard.kind == "acknowledgement" and heard.number > told.number:
        visit.fail("the event came before the acknowledgement of its subscription")


@CHAPTER.case(
    "extension.ack-refused",
    "What fails is not acknowledged",
    section=_ACKS,
    expected="no acknowledgement of a subscribeEvent with ack: true for an event that the description does "
    "not have",
    needs="lmosx:offers with acks",
)
async def ack_refused(visit: Visit) -> None:
    needs(visit, "acks")
    talk = await visit.talk()
    sent = await talk.send("subscribeEvent", name=visit.target.unknown_event(), ack=True)
    with suppress(NoAnswer):
        await talk.answer(sent)
    talk.forget(sent)
    await visit.settle(talk)
    for heard in talk.heard:
        if heard.kind == "acknowledgement":
            visit.fail(heard)


@CHAPTER.case(
    "extension.unasked",
    "Who asks for nothing beyond LMOS gets nothing of it",
    section=extension("What others see"),
    expected="no acknowledgement of subscribeEvent and unsubscribeEvent without ack: true",
    needs="lmosx:offers with acks, and an event",
)
async def unasked(visit: Visit) -> None:
    needs(visit, "acks")
    event, talk = visit.roles.event(), await visit.talk()
    await tell(visit, talk, "subscribeEvent", name=event)
    await tell(visit, talk, "unsubscribeEvent", name=event)
    for heard in talk.heard:
        if heard.kind == "acknowledgement":
            visit.fail(heard)


@CHAPTER.case(
    "extension.gaps",
    "A subscription may ask for gaps",
    section=extension("Members, Gaps"),
    expected="the same events for a subscription with gaps: true as for one without",
    needs="lmosx:offers with gaps, and an event that an action which may be invoked makes happen",
)
async def gaps(visit: Visit) -> None:
    needs(visit, "gaps")
    event = visit.roles.event()
    call, control, talk = await visit.trigger(event), await subscribed(visit, event), await visit.talk()
    _, heard = await tell(visit, talk, "subscribeEvent", name=event, gaps=True)
    if heard is not None and heard.kind == "error":
        visit.fail(f"subscribeEvent with gaps: true is answered by {heard}")
    await happen(visit, call)
    await first_event(visit, control, event)
    if await talk.event(event) is None:
        visit.fail(f"no {event} came to who has subscribed with gaps: true")


# --- deadlines


@CHAPTER.case(
    "extension.deadline",
    "A run ends when its time is over",
    section=_DEADLINES,
    expected="an error of the type deadline-exceeded when the `remaining` seconds of invokeAction are over",
    needs="lmosx:offers with deadlines, and an action that takes a while, --hints",
)
async def deadline(visit: Visit) -> None:
    needs(visit, "deadlines")
    call, talk = visit.roles.slow_call(), await visit.talk()
    sent = await talk.send("invokeAction", name=call.action, remaining=0.2, **call.members())
    heard = await talk.final(sent)
    if heard.kind != "error" or not str(heard.data.get("type")).endswith("#deadline-exceeded"):
        visit.fail(heard)


@CHAPTER.case(
    "extension.deadline-left",
    "A run that is in time is not hurt by its deadline",
    section=_DEADLINES,
    expected="the same answer with `remaining` of 30 seconds as without it, from an action that is quick",
    needs="lmosx:offers with deadlines, and an action that may be invoked",
)
async def deadline_left(visit: Visit) -> None:
    needs(visit, "deadlines")
    call, talk = visit.roles.safe_call(), await visit.talk()
    try:
        without = await visit.invoke(talk, call)
    except NoAnswer:
        visit.not_offered(f"{call.action} is not answered: actions.completed says more")
    heard = await visit.invoke(talk, call, remaining=30)
    if outcome(heard)[:2] != outcome(without)[:2]:
        visit.fail(heard)


# --- progress


@CHAPTER.case(
    "extension.progress",
    "What a run says of its progress fits its schema",
    section=extension("Members, Progress"),
    expected="a `progress` that fits lmosx:progress in an actionStatus `in progress` without output",
    needs="an action that may be invoked and has lmosx:progress",
)
async def progress(visit: Visit) -> None:
    call, talk = _progressing(visit), await visit.talk()
    schema = visit.target.readable_part.progress_of(call.action) or {}
    sent, told = await talk.send("invokeAction", name=call.action, **call.members()), False
    with suppress(NoAnswer):
        while not told and not (heard := await talk.answer(sent)).is_final:
            told = heard.get("progress") is not ABSENT and heard.get("output") is ABSENT
            wrong = fits(schema, heard.get("progress")) if told else None
            if wrong is not None:
                visit.fail(f"progress of {call.action}: {wrong}")
    if not told:
        visit.not_offered(f"{call.action} said nothing of its progress within {visit.ground.patience:g} s")


def _progressing(visit: Visit) -> Call:
    """Return the call of an action that says how far it is: one that takes a while, if there is one."""
    described = visit.target.readable_part
    names = [name for name in visit.target.actions if described.progress_of(name) is not None]
    if not names:
        visit.not_offered("no action has lmosx:progress")
    if visit.ground.speech.is_kotlin:
        visit.not_offered("a consumer with the habits of kotlin-wot is told nothing beyond LMOS")
    with suppress(NotOffered, NotRun):
        call = visit.roles.slow_call()
        if call.action in names:
            return call
    for name in names:
        if visit.ground.allow_unsafe or name in visit.target.safe_actions():
            return visit.roles.call(name)
    visit.not_run(f"{names[0]} is not safe: --allow-unsafe lets it be invoked")
