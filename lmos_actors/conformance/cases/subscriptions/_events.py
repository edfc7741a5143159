"""Subscriptions: an event comes to who has subscribed to it, as often as it happens, and to nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import fits, same
from lmos_actors.conformance.session import (
    Chapter,
    events,
    first_event,
    happen,
    listen,
    subscribed,
    tell,
)
from lmos_actors.protocol.td import SUBPROTOCOL

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent

EVENTS = Chapter()

_EVENT: Final = lmos("event")
_PATTERN: Final = lmos("Publish-Subscribe")
_NEEDS: Final = "an event that an action which may be invoked makes happen"


@EVENTS.case(
    "events.delivered",
    "An event comes to who has subscribed to it",
    section=_PATTERN,
    expected="no error in answer to subscribeEvent, and a message `event` when the event has happened",
    needs=_NEEDS,
)
async def delivered(context: CaseContext) -> None:
    event = context.roles.event()
    call, session = await context.trigger(event), await context.session()
    _, received = await tell(context, session, "subscribeEvent", name=event)
    if received is not None and received.kind == "error":
        context.fail(f"subscribeEvent is answered by {received}")
    await happen(context, call)
    if await session.event(event) is None:
        context.fail(f"{call.action} was invoked, and no {event} came")


async def _one(context: CaseContext) -> tuple[str, ReceivedMessage]:
    """Get an event. Raises NotOffered where none comes."""
    event = context.roles.event()
    call, session = await context.trigger(event), await subscribed(context, event)
    await happen(context, call)
    return event, await first_event(context, session, event)


@EVENTS.case(
    "events.members",
    "An event has its name and its data",
    section=_EVENT,
    expected="the members event, a text, and data in each message `event`, beside those of every message",
    needs=_NEEDS,
)
async def members(context: CaseContext) -> None:
    _, received = await _one(context)
    context.judge(received, "member-missing", "member-type", members=("event", "data"))


@EVENTS.case(
    "events.data",
    "The data of an event fits its schema",
    section=_EVENT,
    expected="data as the description of the event has it",
    needs=f"{_NEEDS}, and a schema for its data",
)
async def data(context: CaseContext) -> None:
    schemas = {name: each.data for name, each in context.target.events.items()}
    if not any(schemas.values()):
        context.not_offered("no event has a schema for its data")
    event, received = await _one(context)
    wrong = fits(schemas[event] or {}, received.data.get("data"))
    if wrong is not None:
        context.fail(f"data of {event}: {wrong}")


@EVENTS.case(
    "events.timestamp",
    "An event says when it happened",
    section=_EVENT,
    expected="a timestamp, a date-time of RFC 9557, in each message `event`",
    needs=_NEEDS,
)
async def timestamp(context: CaseContext) -> None:
    _, received = await _one(context)
    keys = ("member-missing", "member-type", "time-number", "time-format")
    context.judge(received, *keys, members=("timestamp",))


@EVENTS.case(
    "events.correlation",
    "An event carries the correlationID of its subscription",
    section=_EVENT,
    expected="the correlationID of the subscribeEvent as that of each of its events",
    needs=_NEEDS,
)
async def correlation(context: CaseContext) -> None:
    sent, received = await _correlated(context, wanted=True)
    if received.correlation == sent.message_id:
        context.differs(
            "event-by-messageID", f"the correlationID is that messageID, not {sent.correlation!r}"
        )
    elif received.correlation != sent.correlation:
        context.fail(
            f"the correlationID is {received.correlation!r}, that of subscribeEvent {sent.correlation!r}"
        )


@EVENTS.case(
    "events.correlation-by-message",
    "Without a correlationID an event carries the messageID of its subscription",
    section=_EVENT,
    expected="a correlationID, which is mandatory in `event`: there is no other identifier of a subscription "
    "that has none than its messageID",
    needs=_NEEDS,
)
async def correlation_by_message(context: CaseContext) -> None:
    sent, received = await _correlated(context, wanted=False)
    if received.correlation is None:
        context.differs("event-uncorrelated", "the event has no correlationID")
    elif received.correlation != sent.message_id:
        context.fail(f"the correlationID is {received.correlation!r}, the messageID was {sent.message_id!r}")


async def _correlated(context: CaseContext, *, wanted: bool) -> tuple[Sent, ReceivedMessage]:
    event = context.roles.event()
    call, session = await context.trigger(event), await context.session()
    given = session.new_id() if wanted else None
    sent = await listen(context, session, "subscribeEvent", event, correlation=given)
    await happen(context, call)
    return sent, await first_event(context, session, event)


@EVENTS.case(
    "events.once",
    "An event that happens once comes once",
    section=_PATTERN,
    expected="one message `event` for what has happened once",
    needs=_NEEDS,
)
async def once(context: CaseContext) -> None:
    event = context.roles.event()
    call, session = await context.trigger(event), await subscribed(context, event)
    await happen(context, call)
    first = await first_event(context, session, event)
    await context.flush(session)
    for received in await events(session, event):
        if same(received.data.get("data"), first.data.get("data")):
            fix = f"if {call.action} makes it happen twice, name another under triggers, --hints"
            context.fail(f"{event} came twice with the same data; {fix}")


@EVENTS.case(
    "events.each",
    "An event comes each time that it happens",
    section=_PATTERN,
    expected="a message `event` whenever the event occurs: at least five for five times, one shortly after "
    "the other",
    needs=_NEEDS,
)
async def each(context: CaseContext) -> None:
    event = context.roles.event()
    call, session = await context.trigger(event), await subscribed(context, event)
    await happen(context, call, times=5)
    await first_event(context, session, event)
    for number in range(1, 5):
        if await session.event(event) is None:
            context.fail(f"{call.action} was invoked five times, and {number} of {event} came")


@EVENTS.case(
    "events.two-subscribers",
    "An event comes to each of two subscribers",
    section=_PATTERN,
    expected="the `event` message on both connections that have subscribed",
    needs=_NEEDS,
)
async def two_subscribers(context: CaseContext) -> None:
    event = context.roles.event()
    call = await context.trigger(event)
    talks = [await subscribed(context, event), await subscribed(context, event)]
    await happen(context, call)
    received = [await session.event(event) for session in talks]
    if received == [None, None]:
        context.not_offered(f"{event} comes to nobody: events.delivered says more")
    if None in received:
        context.fail(f"{event} came to the {'second' if received[0] is None else 'first'} subscriber alone")


@EVENTS.case(
    "events.not-subscribed",
    "No event comes to who has not subscribed",
    section=_PATTERN,
    expected="messages `event` for subscribers, and for nobody else",
    needs=_NEEDS,
)
async def not_subscribed(context: CaseContext) -> None:
    event = context.roles.event()
    call, idle, control = (
        await context.trigger(event),
        await context.session(),
        await subscribed(context, event),
    )
    await context.flush(idle)
    await happen(context, call)
    await first_event(context, control, event)
    await context.flush(idle)
    received = await idle.event(within=0)
    if received is not None:
        context.fail(f"{received} came over a connection that has subscribed to nothing")


@EVENTS.case(
    "events.other-event",
    "Who has subscribed to one event is told no other",
    section=lmos("subscribeEvent"),
    expected="events of the name that was subscribed to, and of no other",
    needs="two events, one of which an action that may be invoked makes happen",
)
async def other_event(context: CaseContext) -> None:
    event = context.roles.event()
    others = [name for name in context.target.events if name != event]
    if not others:
        context.not_offered("it describes no second event")
    call, subject = await context.trigger(event), await subscribed(context, others[0])
    control = await subscribed(context, event)
    await happen(context, call)
    await first_event(context, control, event)
    await context.flush(subject)
    if await subject.event(event, within=0) is not None:
        context.fail(f"{event} came to who has subscribed to {others[0]} alone")


@EVENTS.case(
    "events.twice-subscribed",
    "Subscribing again does not double the events",
    section=lmos("subscribeEvent"),
    expected="one message `event` for each occurrence, though the same subscription, with the same "
    "correlationID, was asked for twice; whether the second is refused is left open",
    needs=_NEEDS,
)
async def twice_subscribed(context: CaseContext) -> None:
    event = context.roles.event()
    call, control, session = (
        await context.trigger(event),
        await subscribed(context, event),
        await context.session(),
    )
    same_for_both = session.new_id()
    await listen(context, session, "subscribeEvent", event, correlation=same_for_both)
    await tell(context, session, "subscribeEvent", name=event, correlation=same_for_both)
    await happen(context, call)
    await first_event(context, control, event)
    await session.event(event)
    await context.flush(control)
    await context.flush(session)
    wanted, found = 1 + len(await events(control, event)), 1 + len(await events(session, event))
    if found > wanted:
        context.fail(f"{found} of {event} came, and {wanted} to who has subscribed once")


@EVENTS.case(
    "events.unsubscribe",
    "After unsubscribeEvent no more events come",
    section=lmos("unsubscribeEvent"),
    expected="no message `event` after unsubscribeEvent has been taken in",
    needs=_NEEDS,
)
async def unsubscribe(context: CaseContext) -> None:
    event = context.roles.event()
    call, control = await context.trigger(event), await subscribed(context, event)
    session = await subscribed(context, event)
    await tell(context, session, "unsubscribeEvent", name=event)
    await happen(context, call)
    await first_event(context, control, event)
    await context.flush(session)
    if await session.event(event, within=0) is not None:
        context.fail(f"{event} came after unsubscribeEvent")


@EVENTS.case(
    "events.resubscribe",
    "After unsubscribeEvent one can subscribe again",
    section=lmos("subscribeEvent"),
    expected="events after the second subscribeEvent as after the first",
    needs=_NEEDS,
)
async def resubscribe(context: CaseContext) -> None:
    event = context.roles.event()
    call, session = await context.trigger(event), await subscribed(context, event)
    await happen(context, call)
    await first_event(context, session, event)
    await tell(context, session, "unsubscribeEvent", name=event)
    await events(session, event)
    await tell(context, session, "subscribeEvent", name=event)
    await events(session, event)
    await happen(context, call)
    if await session.event(event) is None:
        context.fail(
            f"{event} came before it was unsubscribed from, and not after it was subscribed to again"
        )


@EVENTS.case(
    "events.gone-subscriber",
    "A subscriber that has gone harms no other",
    section=_PATTERN,
    expected="the `event` message to a subscriber, though the connection of an earlier one was cut",
    needs=_NEEDS,
)
async def gone_subscriber(context: CaseContext) -> None:
    event = context.roles.event()
    call, gone = await context.trigger(event), await subscribed(context, event)
    session = await subscribed(context, event)
    await happen(context, call)
    await first_event(context, session, event)
    await events(session, event)
    await gone.socket.cut()
    await happen(context, call)
    if await session.event(event) is None:
        context.fail(f"no {event} came to a subscriber once another's connection had been cut")


def _needs_op(context: CaseContext, op: str) -> None:
    """End the case unless a form of the whole thing names an operation for LMOS."""
    for form in context.target.readable_part.forms or ():
        if op in form.ops and form.subprotocol == SUBPROTOCOL:
            return
    context.not_offered(f"no form of the thing has the op {op} and the subprotocol {SUBPROTOCOL}")


@EVENTS.case(
    "events.all",
    "subscribeAllEvents subscribes to every event",
    section=lmos("subscribeAllEvents"),
    expected="the `event` message to who has sent subscribeAllEvents",
    needs=f"{_NEEDS}, and a form with the op subscribeallevents",
)
async def all_events(context: CaseContext) -> None:
    _needs_op(context, "subscribeallevents")
    event = context.roles.event()
    call, control, session = (
        await context.trigger(event),
        await subscribed(context, event),
        await context.session(),
    )
    _, received = await tell(context, session, "subscribeAllEvents")
    if received is not None and received.kind == "error":
        context.fail(f"subscribeAllEvents is answered by {received}")
    await happen(context, call)
    await first_event(context, control, event)
    if await session.event(event) is None:
        context.fail(f"{event} did not come to who has subscribed to all events")


@EVENTS.case(
    "events.unsubscribe-all",
    "After unsubscribeAllEvents no more events come",
    section=lmos("unsubscribeAllEvents"),
    expected="no message `event` after unsubscribeAllEvents has been taken in, whether the events were "
    "subscribed to all at once or one by one",
    needs=f"{_NEEDS}, and a form with the op unsubscribeallevents",
)
async def unsubscribe_all(context: CaseContext) -> None:
    _needs_op(context, "unsubscribeallevents")
    event = context.roles.event()
    call, control = await context.trigger(event), await subscribed(context, event)
    subjects = {"one by one": await subscribed(context, event), "all at once": await context.session()}
    await tell(context, subjects["all at once"], "subscribeAllEvents")
    for session in subjects.values():
        await tell(context, session, "unsubscribeAllEvents")
    await happen(context, call)
    await first_event(context, control, event)
    for how, session in subjects.items():
        await context.flush(session)
        if await session.event(event, within=0) is not None:
            context.fail(f"{event}, subscribed to {how}, came after unsubscribeAllEvents")
