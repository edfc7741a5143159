"""Several things on one socket: each has what is its own, and none hears or says what is another's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.session import (
    Chapter,
    changing,
    first_change,
    first_event,
    happen,
    listen,
    observing,
    readings,
    subscribed,
    tell,
    values_of,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Visit
    from lmos_actors.conformance.target import Call, Target

CHAPTER = Chapter()

_COMMON: Final = lmos("Common Message Requirements")
_SUBSCRIBE: Final = lmos("subscribeEvent")
_NEEDS: Final = "a second thing whose description leads to the same socket"
_EVENT: Final = f"{_NEEDS}, and an event that both have and the same action makes happen"
_PROPERTY: Final = f"{_NEEDS}, and a property that both have and that can be changed"


def _others(visit: Visit) -> tuple[Target, ...]:
    if not visit.target.others:
        visit.not_offered("no other thing was found whose description leads to the same socket")
    return tuple(visit.target.other(thing) for thing in visit.target.others)


async def _with_event(visit: Visit) -> tuple[Target, str, Call]:
    """Return another thing, an event that both have, and what makes it happen."""
    others = _others(visit)
    for event in visit.target.events:
        for other in others:
            if event in other.events:
                call = await visit.trigger(event)
                if call.action in other.actions:
                    attrs.evolve(visit.roles, target=other).allowed(call)
                    return other, event, call
    visit.not_offered("no event that the same action makes happen is common to two things")


def _with_property(visit: Visit, *, observable: bool) -> tuple[Target, str]:
    """Return another thing, and a property that both have."""
    names = visit.target.restorable()
    for other in _others(visit):
        for name in names:
            seen = name in visit.target.observable() and name in other.observable()
            if name in other.restorable() and (seen or not observable):
                return other, name
    visit.not_offered("no property that can be written is common to two things")


@CHAPTER.case(
    "things.each",
    "One connection reaches each thing",
    section=_COMMON,
    expected="a propertyReading of each of the things over one connection, as thingID says which is meant",
    needs=f"{_NEEDS}, both with a property that can be read",
)
async def each(visit: Visit) -> None:
    others = [other for other in _others(visit) if other.readable()]
    visit.roles.readable_property()
    if not others:
        visit.not_offered("no other thing has a property that can be read")
    talk = await visit.talk()
    if not await values_of(visit, talk, visit.target.readable()[:1]):
        visit.not_offered(f"{visit.target.readable()[0]} cannot be read: properties.read says more")
    for target in (*others[:5], visit.target):
        heard = await talk.ask("readProperty", name=target.readable()[0], thing=target.thing.id)
        if heard.kind != "propertyReading":
            visit.fail(f"{target.thing.id} answers {heard}")


@CHAPTER.case(
    "things.named",
    "An answer names the thing that was asked",
    section=_COMMON,
    expected="the thingID of the request in its answer, where two things are asked one after the other",
    needs=f"{_NEEDS}, both with a property that can be read",
)
async def named(visit: Visit) -> None:
    targets = [visit.target, *(other for other in _others(visit) if other.readable())]
    visit.roles.readable_property()
    known, talk = [target.thing.id for target in targets], await visit.talk()
    for target in (*targets[:5], visit.target):
        heard = await talk.ask("readProperty", name=target.readable()[0], thing=target.thing.id)
        if heard.thing in known and heard.thing != target.thing.id:
            visit.fail(f"{target.thing.id} was asked, and the answer is in the name of {heard.thing}")


@CHAPTER.case(
    "things.values",
    "Each thing has its own values",
    section=_COMMON,
    expected="a property left as it is when that of the same name of another thing is written",
    needs=_PROPERTY,
    unsafe=True,
)
async def values(visit: Visit) -> None:
    other, name = _with_property(visit, observable=False)
    talk = await visit.talk(thing=other.thing.id)
    async with changing(visit, name) as changer:
        before = await values_of(visit, talk, [name])
        if name in before and same(before[name], changer.value):
            await changer.change()  # so that they are not equal by chance
        value = await changer.change()
        after = await values_of(visit, talk, [name])
    if not same(before, after) and name in after and same(after[name], value):
        visit.fail(f"{name} of {visit.target.thing.id} was written, and that of {other.thing.id} is the same")


@CHAPTER.case(
    "things.events",
    "The event of one thing does not come to who has subscribed to another's",
    section=_SUBSCRIBE,
    expected="events of the thing that was subscribed to, and of no other",
    needs=_EVENT,
)
async def events(visit: Visit) -> None:
    other, event, call = await _with_event(visit)
    talk, control = await subscribed(visit, event), await subscribed(visit, event, thing=other.thing.id)
    await happen(visit, call, thing=other.thing.id)
    await first_event(visit, control, event)
    await visit.settle(talk)
    if await talk.event(event, within=0) is not None:
        visit.fail(f"{event} of {other.thing.id} came to who has subscribed to {visit.target.thing.id} alone")


@CHAPTER.case(
    "things.unsubscribe",
    "Who unsubscribes from one thing's event is still subscribed to another's",
    section=lmos("unsubscribeEvent"),
    expected="the event of one thing, after unsubscribeEvent for that of another",
    needs=_EVENT,
)
async def unsubscribe(visit: Visit) -> None:
    other, event, call = await _with_event(visit)
    control, talk = await subscribed(visit, event), await subscribed(visit, event)
    await listen(visit, talk, "subscribeEvent", event, thing=other.thing.id)
    await tell(visit, talk, "unsubscribeEvent", name=event, thing=other.thing.id)
    await happen(visit, call)
    await first_event(visit, control, event)
    if await talk.event(event) is None:
        visit.fail(
            f"{event} of {visit.target.thing.id} came no more after that of {other.thing.id} was let go"
        )


@CHAPTER.case(
    "things.changes",
    "The change of one thing's property does not come to who observes another's",
    section=lmos("observeProperty"),
    expected="readings of the thing whose property is observed, and of no other",
    needs=_PROPERTY,
    unsafe=True,
)
async def changes(visit: Visit) -> None:
    other, name = _with_property(visit, observable=True)
    talk, control = await observing(visit, name), await observing(visit, name, thing=other.thing.id)
    async with changing(visit, name, await visit.talk(thing=other.thing.id)) as changer:
        await changer.change()
        await first_change(visit, control, name)
        await visit.settle(talk, but=name)
    if await readings(talk, name):
        visit.fail(f"a change of {other.thing.id} came to who observes {visit.target.thing.id} alone")
