"""Several things on one socket: each has its own values, events and changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.session import (
    Chapter,
    cause,
    changing,
    first_change,
    first_event,
    listen,
    observing,
    readings,
    send_and_flush,
    subscribed,
    values_of,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext
    from lmos_actors.conformance.target import Call, Target

SEVERAL_THINGS: Final[Chapter[CaseContext]] = Chapter(section=lmos("Common Message Requirements"))

_SUBSCRIBE: Final = lmos("subscribeEvent")
_NEEDS: Final = "a second thing whose description leads to the same socket"
_EVENT: Final = f"{_NEEDS}, and an event that both have and the same action makes happen"
_PROPERTY: Final = f"{_NEEDS}, and a property that both have and that can be changed"


def _others(context: CaseContext) -> tuple[Target, ...]:
    if not context.target.others:
        context.not_offered("no other thing was found whose description leads to the same socket")
    return tuple(context.target.other(thing) for thing in context.target.others)


async def _with_event(context: CaseContext) -> tuple[Target, str, Call]:
    """Return another thing, an event that both things have, and a call that causes it."""
    others = _others(context)
    for event in context.target.events:
        for other in others:
            if event in other.events:
                call = await context.trigger(event)
                if call.action in other.actions:
                    attrs.evolve(context.roles, target=other).allowed(call)
                    return other, event, call
    context.not_offered("no event that the same action makes happen is common to two things")


def _with_property(context: CaseContext, *, observable: bool) -> tuple[Target, str]:
    """Return another thing, and a property that can be written at both things."""
    names = context.target.restorable()
    for other in _others(context):
        for name in names:
            seen = name in context.target.observable() and name in other.observable()
            if name in other.restorable() and (seen or not observable):
                return other, name
    context.not_offered("no property that can be written is common to two things")


@SEVERAL_THINGS.case(
    "things.each",
    "One connection reaches each thing",
    expected="a propertyReading of each of the things over one connection, by their thingID",
    needs=f"{_NEEDS}, both with a property that can be read",
)
async def each(context: CaseContext) -> None:
    others = [other for other in _others(context) if other.readable()]
    context.roles.readable_property()
    if not others:
        context.not_offered("no other thing has a property that can be read")
    session = await context.session()
    if not await values_of(context, session, context.target.readable()[:1]):
        context.not_offered(f"{context.target.readable()[0]} cannot be read (see properties.read)")
    for target in (*others[:5], context.target):
        received = await session.ask("readProperty", name=target.readable()[0], thing=target.thing.id)
        if received.kind != "propertyReading":
            context.fail(f"{target.thing.id} answers {received}")


@SEVERAL_THINGS.case(
    "things.named",
    "An answer names the thing of its request",
    expected="the thingID of the request in its answer, for requests to two things in turn",
    needs=f"{_NEEDS}, both with a property that can be read",
)
async def named(context: CaseContext) -> None:
    targets = [context.target, *(other for other in _others(context) if other.readable())]
    context.roles.readable_property()
    known, session = [target.thing.id for target in targets], await context.session()
    for target in (*targets[:5], context.target):
        received = await session.ask("readProperty", name=target.readable()[0], thing=target.thing.id)
        if received.thing in known and received.thing != target.thing.id:
            context.fail(f"{target.thing.id} got a request, and the answer names {received.thing}")


@SEVERAL_THINGS.case(
    "things.values",
    "Each thing has its own values",
    expected="a property left as it is when that of the same name of another thing is written",
    needs=_PROPERTY,
    unsafe=True,
)
async def values(context: CaseContext) -> None:
    other, name = _with_property(context, observable=False)
    session = await context.session(thing=other.thing.id)
    async with changing(context, name) as changer:
        before = await values_of(context, session, [name])
        if name in before and same(before[name], changer.value):
            await changer.change()  # so that they are not equal by chance
        value = await changer.change()
        after = await values_of(context, session, [name])
    if not same(before, after) and name in after and same(after[name], value):
        context.fail(
            f"{name} of {context.target.thing.id} was written, and that of {other.thing.id} is the same"
        )


@SEVERAL_THINGS.case(
    "things.events",
    "A subscription to one thing's event brings no event of another thing",
    section=_SUBSCRIBE,
    expected="events of the thing that was subscribed to, and of no other",
    needs=_EVENT,
)
async def events(context: CaseContext) -> None:
    other, event, call = await _with_event(context)
    session, control = (
        await subscribed(context, event),
        await subscribed(context, event, thing=other.thing.id),
    )
    await cause(context, call, thing=other.thing.id)
    await first_event(context, control, event)
    await context.flush(session)
    if await session.event(event, within=0) is not None:
        context.fail(f"{event} of {other.thing.id} came to a subscriber of {context.target.thing.id} only")


@SEVERAL_THINGS.case(
    "things.unsubscribe",
    "Unsubscribing from one thing's event leaves another thing's subscription",
    section=lmos("unsubscribeEvent"),
    expected="the event of one thing, after unsubscribeEvent for that of another",
    needs=_EVENT,
)
async def unsubscribe(context: CaseContext) -> None:
    other, event, call = await _with_event(context)
    control, session = await subscribed(context, event), await subscribed(context, event)
    await listen(context, session, "subscribeEvent", event, thing=other.thing.id)
    await send_and_flush(context, session, "unsubscribeEvent", name=event, thing=other.thing.id)
    await cause(context, call)
    await first_event(context, control, event)
    if await session.event(event) is None:
        context.fail(
            f"{event} of {context.target.thing.id} stopped when that of {other.thing.id} was unsubscribed"
        )


@SEVERAL_THINGS.case(
    "things.changes",
    "An observation of one thing's property brings no change of another thing",
    section=lmos("observeProperty"),
    expected="readings of the thing whose property is observed, and of no other",
    needs=_PROPERTY,
    unsafe=True,
)
async def changes(context: CaseContext) -> None:
    other, name = _with_property(context, observable=True)
    session, control = await observing(context, name), await observing(context, name, thing=other.thing.id)
    async with changing(context, name, await context.session(thing=other.thing.id)) as changer:
        await changer.change()
        await first_change(context, control, name)
        await context.flush(session, but=name)
    if await readings(session, name):
        context.fail(f"a change of {other.thing.id} came to an observer of {context.target.thing.id} only")
