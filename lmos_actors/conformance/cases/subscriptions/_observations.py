"""Observations: each new value of a property reaches each observer once, and no other connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import fits, same
from lmos_actors.conformance.session import (
    ABSENT,
    Chapter,
    changing,
    first_change,
    must_accept,
    observing,
    readings,
    send_and_flush,
    values_of,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext

OBSERVATIONS: Final[Chapter[CaseContext]] = Chapter(needs="an observable property that can be changed")

_OBSERVE: Final = lmos("observeProperty")
_UPDATES: Final = lmos("One Request-Multiple Responses")
_NEEDS: Final = "an observable property"


@OBSERVATIONS.case(
    "observe.starts",
    "A property can be observed",
    section=_OBSERVE,
    expected="no error in answer to observeProperty; whether a first reading comes is left open",
    needs=_NEEDS,
)
async def starts(context: CaseContext) -> None:
    name, session = context.roles.observable_property(), await context.session()
    await must_accept(context, session, "observeProperty", name=name)


@OBSERVATIONS.case(
    "observe.first-reading",
    "The first reading of an observation, if there is one, has the value of the property",
    section=_OBSERVE,
    expected="a propertyReading of the observed property with its current value, or none before it changes",
    needs=_NEEDS,
)
async def first_reading(context: CaseContext) -> None:
    name, session = context.roles.observable_property(), await context.session()
    before = await values_of(context, session, [name])
    _, received = await send_and_flush(context, session, "observeProperty", name=name)
    after = await values_of(context, await context.session(), [name])
    if received is None or received.kind != "propertyReading":
        return
    if received.name not in (name, None):
        context.fail(f"{name} is observed, and the first reading is of {received.name!r}")
    wrong = fits(context.target.properties[name].schema, None if received.value is ABSENT else received.value)
    if received.value is not ABSENT and wrong is not None:
        context.fail(f"the first reading does not fit the schema of {name}: {wrong}")
    steady = name in before and name in after and same(before[name], after[name])
    if steady and not same(received.value, before[name]):
        context.fail(f"{name} is {before[name]!r}, and the first reading has {received.value!r}")


@OBSERVATIONS.case(
    "observe.unknown",
    "Observing an unknown property is an error",
    section=lmos("error"),
    expected="an error in answer to observeProperty for a property that the description does not have",
    needs="",
)
async def unknown(context: CaseContext) -> None:
    session = await context.session()
    context.expect(await session.ask("observeProperty", name=context.target.unknown_property()), "error")


@OBSERVATIONS.case(
    "observe.change",
    "An observer gets the new value of a property",
    section=_UPDATES,
    expected="a propertyReading with the new value, when the property was changed over another connection",
    unsafe=True,
)
async def change(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    async with changing(context, name) as changer:
        session = await observing(context, name)
        value = await changer.change()
        received = await session.reading(name)
        if received is None:
            context.fail(f"{name} was changed to {value!r}, and no reading came")
        await context.flush(session, but=name)
        seen = [received, *await readings(session, name)]
        if not any(same(each.value, value) for each in seen):
            context.fail(f"{name} was changed to {value!r}, and the reading has {seen[-1].value!r}")


@OBSERVATIONS.case(
    "observe.own-change",
    "An observer gets readings of its own changes too",
    section=_UPDATES,
    expected="a propertyReading when the property was changed over the same connection, beside the answer to "
    "what changed it",
    unsafe=True,
)
async def own_change(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    session, control = await observing(context, name), await observing(context, name)
    async with changing(context, name, session) as changer:
        value = await changer.change()
        await first_change(context, control, name)
        received = await session.reading(name)
    if received is None:
        seen = f"{name} was changed to {value!r}, and only other observers got a reading"
        context.differs("own-change-untold", seen)


@OBSERVATIONS.case(
    "observe.correlation",
    "The readings of an observation carry its correlationID",
    section=lmos("propertyReading"),
    expected="the correlationID of observeProperty in the readings that it brings, as in those that answer "
    "readProperty",
    unsafe=True,
)
async def correlation(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    async with changing(context, name) as changer:
        session = await context.session()
        given = session.new_id()
        sent, _ = await send_and_flush(context, session, "observeProperty", name=name, correlation=given)
        await readings(session, name)
        await changer.change()
        received = await first_change(context, session, name)
    if received.correlation is None or received.correlation == sent.message_id:
        context.differs(
            "observation-uncorrelated", f"the correlationID is {received.correlation!r}, not {given!r}"
        )
    elif received.correlation != given:
        context.fail(f"the correlationID is {received.correlation!r}, and that of the observation {given!r}")


@OBSERVATIONS.case(
    "observe.two-observers",
    "A change reaches each of two observers",
    section=_UPDATES,
    expected="a propertyReading on both connections that observe the property",
    unsafe=True,
)
async def two_observers(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    async with changing(context, name) as changer:
        sessions = [await observing(context, name), await observing(context, name)]
        await changer.change()
        received = [await session.reading(name) for session in sessions]
    if received == [None, None]:
        context.not_offered("a change reaches no observer (see observe.change)")
    if None in received:
        context.fail(f"the change came to the {'second' if received[0] is None else 'first'} observer alone")


@OBSERVATIONS.case(
    "observe.not-observing",
    "No reading comes without an observation",
    section=_UPDATES,
    expected="readings only to observers of the property, and in answer to requests",
    unsafe=True,
)
async def not_observing(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    async with changing(context, name) as changer:
        idle, control = await context.session(), await observing(context, name)
        await context.flush(idle, but=name)
        await changer.change()
        await first_change(context, control, name)
        await context.flush(idle, but=name)
    for received in idle.received:  # also what was taken for an answer
        if received.kind == "propertyReading" and received.name == name:
            context.fail(f"{received} came over a connection that observes nothing")


@OBSERVATIONS.case(
    "observe.twice",
    "Observing again does not double the readings",
    section=_OBSERVE,
    expected="one propertyReading for each change, though the same observation, with the same correlationID, "
    "was requested twice; whether the second is refused is left open",
    unsafe=True,
)
async def twice(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    async with changing(context, name) as changer:
        control, given = await observing(context, name), (await context.session()).new_id()
        session = await observing(context, name, correlation=given)
        await send_and_flush(context, session, "observeProperty", name=name, correlation=given)
        await readings(session, name)
        await changer.change()
        await first_change(context, control, name)
        await session.reading(name)
        await context.flush(control, but=name)
        await context.flush(session, but=name)
        wanted, found = 1 + len(await readings(control, name)), 1 + len(await readings(session, name))
    if found > wanted:
        context.fail(f"{found} readings came, and {wanted} for a single observation")


@OBSERVATIONS.case(
    "observe.unobserve",
    "After unobserveProperty no more readings come",
    section=lmos("unobserveProperty"),
    expected="no propertyReading of a change once unobserveProperty has been processed",
    unsafe=True,
)
async def unobserve(context: CaseContext) -> None:
    name = context.roles.changeable_property()
    async with changing(context, name) as changer:
        control, session = await observing(context, name), await observing(context, name)
        await send_and_flush(context, session, "unobserveProperty", name=name)
        await readings(session, name)
        await changer.change()
        await first_change(context, control, name)
        await context.flush(session, but=name)
    if await readings(session, name):
        context.fail(f"a change of {name} came after unobserveProperty")
