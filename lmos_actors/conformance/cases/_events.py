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
    from lmos_actors.conformance.session import Heard, Sent, Visit

CHAPTER = Chapter()

_EVENT: Final = lmos("event")
_PATTERN: Final = lmos("Publish-Subscribe")
_NEEDS: Final = "an event that an action which may be invoked makes happen"


@CHAPTER.case(
    "events.delivered",
    "An event comes to who has subscribed to it",
    section=_PATTERN,
    expected="no error in answer to subscribeEvent, and a message `event` when the event has happened",
    needs=_NEEDS,
)
async def delivered(visit: Visit) -> None:
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await visit.talk()
    _, heard = await tell(visit, talk, "subscribeEvent", name=event)
    if heard is not None and heard.kind == "error":
        visit.fail(f"subscribeEvent is answered by {heard}")
    await happen(visit, call)
    if await talk.event(event) is None:
        visit.fail(f"{call.action} was invoked, and no {event} came")


async def _one(visit: Visit) -> tuple[str, Heard]:
    """Get an event. Raises NotOffered where none comes."""
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await subscribed(visit, event)
    await happen(visit, call)
    return event, await first_event(visit, talk, event)


@CHAPTER.case(
    "events.members",
    "An event has its name and its data",
    section=_EVENT,
    expected="the members event, a text, and data in each message `event`, beside those of every message",
    needs=_NEEDS,
)
async def members(visit: Visit) -> None:
    _, heard = await _one(visit)
    visit.judge(heard, "member-missing", "member-type", members=("event", "data"))


@CHAPTER.case(
    "events.data",
    "The data of an event fits its schema",
    section=_EVENT,
    expected="data as the description of the event has it",
    needs=f"{_NEEDS}, and a schema for its data",
)
async def data(visit: Visit) -> None:
    schemas = {name: each.data for name, each in visit.target.events.items()}
    if not any(schemas.values()):
        visit.not_offered("no event has a schema for its data")
    event, heard = await _one(visit)
    wrong = fits(schemas[event] or {}, heard.data.get("data"))
    if wrong is not None:
        visit.fail(f"data of {event}: {wrong}")


@CHAPTER.case(
    "events.timestamp",
    "An event says when it happened",
    section=_EVENT,
    expected="a timestamp, a date-time of RFC 9557, in each message `event`",
    needs=_NEEDS,
)
async def timestamp(visit: Visit) -> None:
    _, heard = await _one(visit)
    keys = ("member-missing", "member-type", "time-number", "time-format")
    visit.judge(heard, *keys, members=("timestamp",))


@CHAPTER.case(
    "events.correlation",
    "An event carries the correlationID of its subscription",
    section=_EVENT,
    expected="the correlationID of the subscribeEvent as that of each of its events",
    needs=_NEEDS,
)
async def correlation(visit: Visit) -> None:
    sent, heard = await _correlated(visit, wanted=True)
    if heard.correlation == sent.message_id:
        visit.differs("event-by-messageID", f"the correlationID is that messageID, not {sent.correlation!r}")
    elif heard.correlation != sent.correlation:
        visit.fail(f"the correlationID is {heard.correlation!r}, that of subscribeEvent {sent.correlation!r}")


@CHAPTER.case(
    "events.correlation-by-message",
    "Without a correlationID an event carries the messageID of its subscription",
    section=_EVENT,
    expected="a correlationID, which is mandatory in `event`: there is no other identifier of a subscription "
    "that has none than its messageID",
    needs=_NEEDS,
)
async def correlation_by_message(visit: Visit) -> None:
    sent, heard = await _correlated(visit, wanted=False)
    if heard.correlation is None:
        visit.differs("event-uncorrelated", "the event has no correlationID")
    elif heard.correlation != sent.message_id:
        visit.fail(f"the correlationID is {heard.correlation!r}, the messageID was {sent.message_id!r}")


async def _correlated(visit: Visit, *, wanted: bool) -> tuple[Sent, Heard]:
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await visit.talk()
    given = talk.new_id() if wanted else None
    sent = await listen(visit, talk, "subscribeEvent", event, correlation=given)
    await happen(visit, call)
    return sent, await first_event(visit, talk, event)


@CHAPTER.case(
    "events.once",
    "An event that happens once comes once",
    section=_PATTERN,
    expected="one message `event` for what has happened once",
    needs=_NEEDS,
)
async def once(visit: Visit) -> None:
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await subscribed(visit, event)
    await happen(visit, call)
    first = await first_event(visit, talk, event)
    await visit.settle(talk)
    for heard in await events(talk, event):
        if same(heard.data.get("data"), first.data.get("data")):
            fix = f"if {call.action} makes it happen twice, name another under triggers, --hints"
            visit.fail(f"{event} came twice with the same data; {fix}")


@CHAPTER.case(
    "events.each",
    "An event comes each time that it happens",
    section=_PATTERN,
    expected="a message `event` whenever the event occurs: at least five for five times, one shortly after "
    "the other",
    needs=_NEEDS,
)
async def each(visit: Visit) -> None:
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await subscribed(visit, event)
    await happen(visit, call, times=5)
    await first_event(visit, talk, event)
    for number in range(1, 5):
        if await talk.event(event) is None:
            visit.fail(f"{call.action} was invoked five times, and {number} of {event} came")


@CHAPTER.case(
    "events.two-subscribers",
    "An event comes to each of two subscribers",
    section=_PATTERN,
    expected="the `event` message on both connections that have subscribed",
    needs=_NEEDS,
)
async def two_subscribers(visit: Visit) -> None:
    event = visit.roles.event()
    call = await visit.trigger(event)
    talks = [await subscribed(visit, event), await subscribed(visit, event)]
    await happen(visit, call)
    heard = [await talk.event(event) for talk in talks]
    if heard == [None, None]:
        visit.not_offered(f"{event} comes to nobody: events.delivered says more")
    if None in heard:
        visit.fail(f"{event} came to the {'second' if heard[0] is None else 'first'} subscriber alone")


@CHAPTER.case(
    "events.not-subscribed",
    "No event comes to who has not subscribed",
    section=_PATTERN,
    expected="messages `event` for subscribers, and for nobody else",
    needs=_NEEDS,
)
async def not_subscribed(visit: Visit) -> None:
    event = visit.roles.event()
    call, idle, control = await visit.trigger(event), await visit.talk(), await subscribed(visit, event)
    await visit.settle(idle)
    await happen(visit, call)
    await first_event(visit, control, event)
    await visit.settle(idle)
    heard = await idle.event(within=0)
    if heard is not None:
        visit.fail(f"{heard} came over a connection that has subscribed to nothing")


@CHAPTER.case(
    "events.other-event",
    "Who has subscribed to one event is told no other",
    section=lmos("subscribeEvent"),
    expected="events of the name that was subscribed to, and of no other",
    needs="two events, one of which an action that may be invoked makes happen",
)
async def other_event(visit: Visit) -> None:
    event = visit.roles.event()
    others = [name for name in visit.target.events if name != event]
    if not others:
        visit.not_offered("it describes no second event")
    call, subject = await visit.trigger(event), await subscribed(visit, others[0])
    control = await subscribed(visit, event)
    await happen(visit, call)
    await first_event(visit, control, event)
    await visit.settle(subject)
    if await subject.event(event, within=0) is not None:
        visit.fail(f"{event} came to who has subscribed to {others[0]} alone")


@CHAPTER.case(
    "events.twice-subscribed",
    "Subscribing again does not double the events",
    section=lmos("subscribeEvent"),
    expected="one message `event` for each occurrence, though the same subscription, with the same "
    "correlationID, was asked for twice; whether the second is refused is left open",
    needs=_NEEDS,
)
async def twice_subscribed(visit: Visit) -> None:
    event = visit.roles.event()
    call, control, talk = await visit.trigger(event), await subscribed(visit, event), await visit.talk()
    same_for_both = talk.new_id()
    await listen(visit, talk, "subscribeEvent", event, correlation=same_for_both)
    await tell(visit, talk, "subscribeEvent", name=event, correlation=same_for_both)
    await happen(visit, call)
    await first_event(visit, control, event)
    await talk.event(event)
    await visit.settle(control)
    await visit.settle(talk)
    wanted, found = 1 + len(await events(control, event)), 1 + len(await events(talk, event))
    if found > wanted:
        visit.fail(f"{found} of {event} came, and {wanted} to who has subscribed once")


@CHAPTER.case(
    "events.unsubscribe",
    "After unsubscribeEvent no more events come",
    section=lmos("unsubscribeEvent"),
    expected="no message `event` after unsubscribeEvent has been taken in",
    needs=_NEEDS,
)
async def unsubscribe(visit: Visit) -> None:
    event = visit.roles.event()
    call, control = await visit.trigger(event), await subscribed(visit, event)
    talk = await subscribed(visit, event)
    await tell(visit, talk, "unsubscribeEvent", name=event)
    await happen(visit, call)
    await first_event(visit, control, event)
    await visit.settle(talk)
    if await talk.event(event, within=0) is not None:
        visit.fail(f"{event} came after unsubscribeEvent")


@CHAPTER.case(
    "events.resubscribe",
    "After unsubscribeEvent one can subscribe again",
    section=lmos("subscribeEvent"),
    expected="events after the second subscribeEvent as after the first",
    needs=_NEEDS,
)
async def resubscribe(visit: Visit) -> None:
    event = visit.roles.event()
    call, talk = await visit.trigger(event), await subscribed(visit, event)
    await happen(visit, call)
    await first_event(visit, talk, event)
    await tell(visit, talk, "unsubscribeEvent", name=event)
    await events(talk, event)
    await tell(visit, talk, "subscribeEvent", name=event)
    await events(talk, event)
    await happen(visit, call)
    if await talk.event(event) is None:
        visit.fail(f"{event} came before it was unsubscribed from, and not after it was subscribed to again")


@CHAPTER.case(
    "events.gone-subscriber",
    "A subscriber that has gone harms no other",
    section=_PATTERN,
    expected="the `event` message to a subscriber, though the connection of an earlier one was cut",
    needs=_NEEDS,
)
async def gone_subscriber(visit: Visit) -> None:
    event = visit.roles.event()
    call, gone = await visit.trigger(event), await subscribed(visit, event)
    talk = await subscribed(visit, event)
    await happen(visit, call)
    await first_event(visit, talk, event)
    await events(talk, event)
    await gone.socket.cut()
    await happen(visit, call)
    if await talk.event(event) is None:
        visit.fail(f"no {event} came to a subscriber once another's connection had been cut")


def _needs_op(visit: Visit, op: str) -> None:
    """End the case unless a form of the whole thing names an operation for LMOS."""
    for form in visit.target.readable_part.forms or ():
        if op in form.ops and form.subprotocol == SUBPROTOCOL:
            return
    visit.not_offered(f"no form of the thing has the op {op} and the subprotocol {SUBPROTOCOL}")


@CHAPTER.case(
    "events.all",
    "subscribeAllEvents subscribes to every event",
    section=lmos("subscribeAllEvents"),
    expected="the `event` message to who has sent subscribeAllEvents",
    needs=f"{_NEEDS}, and a form with the op subscribeallevents",
)
async def all_events(visit: Visit) -> None:
    _needs_op(visit, "subscribeallevents")
    event = visit.roles.event()
    call, control, talk = await visit.trigger(event), await subscribed(visit, event), await visit.talk()
    _, heard = await tell(visit, talk, "subscribeAllEvents")
    if heard is not None and heard.kind == "error":
        visit.fail(f"subscribeAllEvents is answered by {heard}")
    await happen(visit, call)
    await first_event(visit, control, event)
    if await talk.event(event) is None:
        visit.fail(f"{event} did not come to who has subscribed to all events")


@CHAPTER.case(
    "events.unsubscribe-all",
    "After unsubscribeAllEvents no more events come",
    section=lmos("unsubscribeAllEvents"),
    expected="no message `event` after unsubscribeAllEvents has been taken in, whether the events were "
    "subscribed to all at once or one by one",
    needs=f"{_NEEDS}, and a form with the op unsubscribeallevents",
)
async def unsubscribe_all(visit: Visit) -> None:
    _needs_op(visit, "unsubscribeallevents")
    event = visit.roles.event()
    call, control = await visit.trigger(event), await subscribed(visit, event)
    subjects = {"one by one": await subscribed(visit, event), "all at once": await visit.talk()}
    await tell(visit, subjects["all at once"], "subscribeAllEvents")
    for talk in subjects.values():
        await tell(visit, talk, "unsubscribeAllEvents")
    await happen(visit, call)
    await first_event(visit, control, event)
    for how, talk in subjects.items():
        await visit.settle(talk)
        if await talk.event(event, within=0) is not None:
            visit.fail(f"{event}, subscribed to {how}, came after unsubscribeAllEvents")
