"""Subscriptions: each occurrence of an event reaches each subscriber once, and no other connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import fits, same
from lmos_actors.conformance.session import (
    Chapter,
    EventTrial,
    cause,
    events,
    first_event,
    listen,
    must_accept,
    send_and_flush,
    subscribed,
)
from lmos_actors.protocol.td import SUBPROTOCOL

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent


_EVENT: Final = lmos("event")
_PATTERN: Final = lmos("Publish-Subscribe")
_SUBSCRIBE: Final = lmos("subscribeEvent")
_NEEDS: Final = "an event that an action which may be invoked makes happen"

EVENTS: Final[Chapter[CaseContext]] = Chapter(needs=_NEEDS)


@EVENTS.case(
    "events.delivered",
    "An event reaches its subscriber",
    section=_PATTERN,
    expected="no error in answer to subscribeEvent, and a message `event` when the event has happened",
)
async def delivered(context: CaseContext) -> None:
    event = context.roles.event()
    call, session = await context.trigger(event), await context.session()
    await must_accept(context, session, "subscribeEvent", name=event)
    await cause(context, call)
    if await session.event(event) is None:
        context.fail(f"{call.action} was invoked, and no {event} came")


# --- the message


async def _one(context: CaseContext) -> tuple[str, ReceivedMessage]:
    """Cause an event, and return its name and its message. Raises NotOffered if none arrives."""
    trial = await EventTrial.begin(context)
    return trial.event, await trial.cause()


@EVENTS.case(
    "events.members",
    "An event has its name and its data",
    section=_EVENT,
    expected="the members event, a text, and data in each message `event`, beside those of every message",
)
async def members(context: CaseContext) -> None:
    _, received = await _one(context)
    context.judge(received, "member-missing", "member-type", members=("event", "data"))


@EVENTS.case(
    "events.data",
    "The data of an event matches its schema",
    section=_EVENT,
    expected="data that matches the schema in the description of the event",
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
    "An event has the time at which it happened",
    section=_EVENT,
    expected="a timestamp, a date-time of RFC 9557, in each message `event`",
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
)
async def correlation(context: CaseContext) -> None:
    sent, received = await _correlated(context, wanted=True)
    if received.correlation == sent.message_id:
        seen = f"the correlationID is that messageID, not {sent.correlation!r}"
        context.differs("event-by-messageID", seen)
    elif received.correlation != sent.correlation:
        context.fail(
            f"the correlationID is {received.correlation!r}, that of subscribeEvent {sent.correlation!r}"
        )


@EVENTS.case(
    "events.correlation-by-message",
    "Without a correlationID an event carries the messageID of its subscription",
    section=_EVENT,
    expected="a correlationID, which is mandatory in `event`: the messageID is the only other identifier of "
    "a subscription",
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
    await cause(context, call)
    return sent, await first_event(context, session, event)


# --- how often, and to which connections


@EVENTS.case(
    "events.once",
    "An event that happens once comes once",
    section=_PATTERN,
    expected="one message `event` for one occurrence",
)
async def once(context: CaseContext) -> None:
    trial = await EventTrial.begin(context)
    first = await trial.cause()
    await context.flush(trial.control)
    for received in await events(trial.control, trial.event):
        if same(received.data.get("data"), first.data.get("data")):
            fix = f"if {trial.call.action} makes it happen twice, name another under triggers, --hints"
            context.fail(f"{trial.event} came twice with the same data; {fix}")


@EVENTS.case(
    "events.each",
    "An event comes each time that it happens",
    section=_PATTERN,
    expected="a message `event` whenever the event occurs: at least five for five occurrences shortly after "
    "one another",
)
async def each(context: CaseContext) -> None:
    trial = await EventTrial.begin(context)
    await trial.cause(times=5)
    for number in range(1, 5):
        why = f"{trial.call.action} was invoked five times, and {number} of {trial.event} came"
        await trial.must_reach(trial.control, why)


@EVENTS.case(
    "events.two-subscribers",
    "An event reaches each of two subscribers",
    section=_PATTERN,
    expected="the `event` message on both connections that have subscribed",
)
async def two_subscribers(context: CaseContext) -> None:
    event = context.roles.event()
    call = await context.trigger(event)
    sessions = [await subscribed(context, event), await subscribed(context, event)]
    await cause(context, call)
    received = [await session.event(event) for session in sessions]
    if received == [None, None]:
        context.not_offered(f"{event} reaches no subscriber (see events.delivered)")
    if None in received:
        context.fail(f"{event} came to the {'second' if received[0] is None else 'first'} subscriber alone")


@EVENTS.case(
    "events.not-subscribed",
    "No event comes without a subscription",
    section=_PATTERN,
    expected="messages `event` to subscribers only",
)
async def not_subscribed(context: CaseContext) -> None:
    trial, idle = await EventTrial.begin(context), await context.session()
    await context.flush(idle)
    await trial.cause()
    await trial.must_not_reach(idle, f"{trial.event} came over a connection that has subscribed to nothing")


@EVENTS.case(
    "events.other-event",
    "A subscription to one event brings no other event",
    section=_SUBSCRIBE,
    expected="events of the name that was subscribed to, and of no other",
    needs="two events, one of which an action that may be invoked makes happen",
)
async def other_event(context: CaseContext) -> None:
    others = [name for name in context.target.events if name != context.roles.event()]
    if not others:
        context.not_offered("it describes no second event")
    trial, subject = await EventTrial.begin(context), await subscribed(context, others[0])
    await trial.cause()
    await trial.must_not_reach(subject, f"{trial.event} came to a subscriber of {others[0]} only")


@EVENTS.case(
    "events.twice-subscribed",
    "Subscribing again does not double the events",
    section=_SUBSCRIBE,
    expected="one message `event` for each occurrence, though the same subscription, with the same "
    "correlationID, was requested twice; whether the second is refused is left open",
)
async def twice_subscribed(context: CaseContext) -> None:
    trial, session = await EventTrial.begin(context), await context.session()
    event, same_for_both = trial.event, session.new_id()
    await listen(context, session, "subscribeEvent", event, correlation=same_for_both)
    await send_and_flush(context, session, "subscribeEvent", name=event, correlation=same_for_both)
    await trial.cause()
    await session.event(event)
    await context.flush(trial.control)
    await context.flush(session)
    wanted, found = 1 + len(await events(trial.control, event)), 1 + len(await events(session, event))
    if found > wanted:
        context.fail(f"{found} of {event} came, and {wanted} for a single subscription")


# --- unsubscribing


@EVENTS.case(
    "events.unsubscribe",
    "After unsubscribeEvent no more events come",
    section=lmos("unsubscribeEvent"),
    expected="no message `event` once unsubscribeEvent has been processed",
)
async def unsubscribe(context: CaseContext) -> None:
    trial = await EventTrial.begin(context)
    session = await subscribed(context, trial.event)
    await send_and_flush(context, session, "unsubscribeEvent", name=trial.event)
    await trial.cause()
    await trial.must_not_reach(session, f"{trial.event} came after unsubscribeEvent")


@EVENTS.case(
    "events.resubscribe",
    "A new subscription works after unsubscribeEvent",
    section=_SUBSCRIBE,
    expected="events after the second subscribeEvent as after the first",
)
async def resubscribe(context: CaseContext) -> None:
    trial = await EventTrial.begin(context)
    event, session = trial.event, trial.control
    await trial.cause()
    for kind in ("unsubscribeEvent", "subscribeEvent"):
        await send_and_flush(context, session, kind, name=event)
        await events(session, event)
    await cause(context, trial.call)
    await trial.must_reach(session, f"{event} came before unsubscribeEvent, and not after a new subscription")


@EVENTS.case(
    "events.gone-subscriber",
    "A lost subscriber harms no other",
    section=_PATTERN,
    expected="the `event` message to a subscriber, though the connection of an earlier one was cut",
)
async def gone_subscriber(context: CaseContext) -> None:
    event = context.roles.event()
    await context.trigger(event)
    gone = await subscribed(context, event)
    trial = await EventTrial.begin(context)
    await trial.cause()
    await events(trial.control, trial.event)
    await gone.socket.cut()
    await cause(context, trial.call)
    why = f"no {trial.event} came to a subscriber once another's connection had been cut"
    await trial.must_reach(trial.control, why)


# --- all events


def _needs_op(context: CaseContext, op: str) -> None:
    """End the case unless a form of the whole thing offers an operation over LMOS."""
    for form in context.target.readable_part.forms or ():
        if op in form.ops and form.subprotocol == SUBPROTOCOL:
            return
    context.not_offered(f"no form of the thing has the op {op} and the subprotocol {SUBPROTOCOL}")


@EVENTS.case(
    "events.all",
    "subscribeAllEvents subscribes to every event",
    section=lmos("subscribeAllEvents"),
    expected="the `event` message on a connection that has sent subscribeAllEvents",
    needs=f"{_NEEDS}, and a form with the op subscribeallevents",
)
async def all_events(context: CaseContext) -> None:
    _needs_op(context, "subscribeallevents")
    trial, session = await EventTrial.begin(context), await context.session()
    await must_accept(context, session, "subscribeAllEvents")
    await trial.cause()
    await trial.must_reach(session, f"{trial.event} did not come after subscribeAllEvents")


@EVENTS.case(
    "events.unsubscribe-all",
    "After unsubscribeAllEvents no more events come",
    section=lmos("unsubscribeAllEvents"),
    expected="no message `event` once unsubscribeAllEvents has been processed, whether the events were "
    "subscribed to all at once or one by one",
    needs=f"{_NEEDS}, and a form with the op unsubscribeallevents",
)
async def unsubscribe_all(context: CaseContext) -> None:
    _needs_op(context, "unsubscribeallevents")
    trial = await EventTrial.begin(context)
    subjects = {"one by one": await subscribed(context, trial.event), "all at once": await context.session()}
    await send_and_flush(context, subjects["all at once"], "subscribeAllEvents")
    for session in subjects.values():
        await send_and_flush(context, session, "unsubscribeAllEvents")
    await trial.cause()
    for how, session in subjects.items():
        why = f"{trial.event}, subscribed to {how}, came after unsubscribeAllEvents"
        await trial.must_not_reach(session, why)
