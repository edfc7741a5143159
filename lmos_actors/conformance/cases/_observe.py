"""Observations: who observes a property is told what it becomes, once for each change, and nobody else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import fits, same
from lmos_actors.conformance.session import (
    ABSENT,
    Chapter,
    changing,
    first_change,
    observing,
    readings,
    tell,
    values_of,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Visit

CHAPTER = Chapter()

_OBSERVE: Final = lmos("observeProperty")
_UPDATES: Final = lmos("One Request-Multiple Responses")
_NEEDS: Final = "an observable property"
_CHANGES: Final = "an observable property that can be changed"


@CHAPTER.case(
    "observe.starts",
    "A property can be observed",
    section=_OBSERVE,
    expected="no error in answer to observeProperty; whether a first reading comes is left open",
    needs=_NEEDS,
)
async def starts(visit: Visit) -> None:
    name, talk = visit.roles.observable_property(), await visit.talk()
    _, heard = await tell(visit, talk, "observeProperty", name=name)
    if heard is not None and heard.kind == "error":
        visit.fail(f"observeProperty is answered by {heard}")


@CHAPTER.case(
    "observe.first-reading",
    "The first reading of an observation, if there is one, says what the property is",
    section=_OBSERVE,
    expected="a propertyReading of the property that is observed, with the value that it has, or none before "
    "it changes",
    needs=_NEEDS,
)
async def first_reading(visit: Visit) -> None:
    name, talk = visit.roles.observable_property(), await visit.talk()
    before = await values_of(visit, talk, [name])
    _, heard = await tell(visit, talk, "observeProperty", name=name)
    after = await values_of(visit, await visit.talk(), [name])
    if heard is None or heard.kind != "propertyReading":
        return
    if heard.name not in (name, None):
        visit.fail(f"{name} is observed, and the first reading is of {heard.name!r}")
    wrong = fits(visit.target.properties[name].schema, None if heard.value is ABSENT else heard.value)
    if heard.value is not ABSENT and wrong is not None:
        visit.fail(f"the first reading does not fit the schema of {name}: {wrong}")
    steady = name in before and name in after and same(before[name], after[name])
    if steady and not same(heard.value, before[name]):
        visit.fail(f"{name} is {before[name]!r}, and the first reading says {heard.value!r}")


@CHAPTER.case(
    "observe.unknown",
    "Observing what is not there is an error",
    section=lmos("error"),
    expected="an error in answer to observeProperty for a property that the description does not have",
)
async def unknown(visit: Visit) -> None:
    talk = await visit.talk()
    visit.expect(await talk.ask("observeProperty", name=visit.target.unknown_property()), "error")


@CHAPTER.case(
    "observe.change",
    "Who observes a property is told what it becomes",
    section=_UPDATES,
    expected="a propertyReading with the new value, when the property was changed over another connection",
    needs=_CHANGES,
    unsafe=True,
)
async def change(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    async with changing(visit, name) as changer:
        talk = await observing(visit, name)
        value = await changer.change()
        heard = await talk.reading(name)
        if heard is None:
            visit.fail(f"{name} was changed to {value!r}, and nobody told of it")
        await visit.settle(talk, but=name)
        told = [heard, *await readings(talk, name)]
        if not any(same(each.value, value) for each in told):
            visit.fail(f"{name} was changed to {value!r}, and the reading says {told[-1].value!r}")


@CHAPTER.case(
    "observe.own-change",
    "Who observes a property is told of its own changes too",
    section=_UPDATES,
    expected="a propertyReading when the property was changed over the same connection, beside the answer to "
    "what changed it",
    needs=_CHANGES,
    unsafe=True,
)
async def own_change(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    talk, control = await observing(visit, name), await observing(visit, name)
    async with changing(visit, name, talk) as changer:
        value = await changer.change()
        await first_change(visit, control, name)
        heard = await talk.reading(name)
    if heard is None:
        visit.differs(
            "own-change-untold", f"{name} was changed to {value!r}, and others alone are told of it"
        )


@CHAPTER.case(
    "observe.correlation",
    "The readings of an observation carry its correlationID",
    section=lmos("propertyReading"),
    expected="the correlationID of observeProperty in the readings that it brings, as in those that answer "
    "readProperty",
    needs=_CHANGES,
    unsafe=True,
)
async def correlation(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    async with changing(visit, name) as changer:
        talk = await visit.talk()
        given = talk.new_id()
        sent, _ = await tell(visit, talk, "observeProperty", name=name, correlation=given)
        await readings(talk, name)
        await changer.change()
        heard = await first_change(visit, talk, name)
    if heard.correlation is None or heard.correlation == sent.message_id:
        visit.differs(
            "observation-uncorrelated", f"the correlationID is {heard.correlation!r}, not {given!r}"
        )
    elif heard.correlation != given:
        visit.fail(f"the correlationID is {heard.correlation!r}, and that of the observation {given!r}")


@CHAPTER.case(
    "observe.two-observers",
    "Each of two observers is told",
    section=_UPDATES,
    expected="a propertyReading on both connections that observe the property",
    needs=_CHANGES,
    unsafe=True,
)
async def two_observers(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    async with changing(visit, name) as changer:
        talks = [await observing(visit, name), await observing(visit, name)]
        await changer.change()
        heard = [await talk.reading(name) for talk in talks]
    if heard == [None, None]:
        visit.not_offered("a change comes to nobody who observes: observe.change says more")
    if None in heard:
        visit.fail(f"the change came to the {'second' if heard[0] is None else 'first'} observer alone")


@CHAPTER.case(
    "observe.not-observing",
    "Nobody is told who does not observe",
    section=_UPDATES,
    expected="readings for those who observe the property or ask for it, and for nobody else",
    needs=_CHANGES,
    unsafe=True,
)
async def not_observing(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    async with changing(visit, name) as changer:
        idle, control = await visit.talk(), await observing(visit, name)
        await visit.settle(idle, but=name)
        await changer.change()
        await first_change(visit, control, name)
        await visit.settle(idle, but=name)
    for heard in idle.heard:  # also what was taken for an answer
        if heard.kind == "propertyReading" and heard.name == name:
            visit.fail(f"{heard} came over a connection that observes nothing")


@CHAPTER.case(
    "observe.twice",
    "Observing again does not double the readings",
    section=_OBSERVE,
    expected="one propertyReading for each change, though the same observation, with the same correlationID, "
    "was asked for twice; whether the second is refused is left open",
    needs=_CHANGES,
    unsafe=True,
)
async def twice(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    async with changing(visit, name) as changer:
        control, given = await observing(visit, name), (await visit.talk()).new_id()
        talk = await observing(visit, name, correlation=given)
        await tell(visit, talk, "observeProperty", name=name, correlation=given)
        await readings(talk, name)
        await changer.change()
        await first_change(visit, control, name)
        await talk.reading(name)
        await visit.settle(control, but=name)
        await visit.settle(talk, but=name)
        wanted, found = 1 + len(await readings(control, name)), 1 + len(await readings(talk, name))
    if found > wanted:
        visit.fail(f"{found} readings came, and {wanted} to who observes once")


@CHAPTER.case(
    "observe.unobserve",
    "After unobserveProperty no more readings come",
    section=lmos("unobserveProperty"),
    expected="no propertyReading of a change after unobserveProperty has been taken in",
    needs=_CHANGES,
    unsafe=True,
)
async def unobserve(visit: Visit) -> None:
    name = visit.roles.changeable_property()
    async with changing(visit, name) as changer:
        control, talk = await observing(visit, name), await observing(visit, name)
        await tell(visit, talk, "unobserveProperty", name=name)
        await readings(talk, name)
        await changer.change()
        await first_change(visit, control, name)
        await visit.settle(talk, but=name)
    if await readings(talk, name):
        visit.fail(f"a change of {name} came after unobserveProperty")
