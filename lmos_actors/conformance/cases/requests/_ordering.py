"""Order and concurrency: requests are carried out in their order, and long runs delay nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.inputs import fits, is_object, same
from lmos_actors.conformance.session import (
    SILENCE,
    Chapter,
    NoAnswer,
    changing,
    events,
    observing,
    readings,
    subscribed,
)
from lmos_actors.conformance.target import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage

ORDERING: Final[Chapter[CaseContext]] = Chapter(section=lmos("One Request-Multiple Responses"))

_REPLY: Final = lmos("Request-Reply")
_SLOW: Final = "an action that takes a while, --hints, and a property that can be read"
_MANY: Final = 50
_EVENTS: Final = 5


@ORDERING.case(
    "ordering.pipelined",
    "Fifty requests at once are all answered",
    section=_REPLY,
    expected="an answer to each of fifty readProperty that are sent without waiting in between",
    needs="a property that can be read",
)
async def pipelined(context: CaseContext) -> None:
    name, session = context.roles.readable_property(), await context.session()
    first = await session.ask("readProperty", name=name)
    if first.kind != "propertyReading":
        context.not_offered(f"{name} cannot be read (see properties.read)")
    sent = [await session.send("readProperty", name=name) for _ in range(_MANY)]
    for each in sent:
        session.forget(each)
    answered = 0
    while answered < _MANY:
        received = await session.next()
        if received is None:
            context.fail(f"{answered} of {_MANY} requests were answered")
        answered += received.kind in ("propertyReading", "error")


@ORDERING.case(
    "ordering.write-then-read",
    "A written value is read by the next message",
    section=lmos("writeProperty"),
    expected="the value that was written in answer to the readProperty sent right behind its writeProperty, "
    "without waiting in between",
    needs="a property that can be read and written",
    unsafe=True,
)
async def write_then_read(context: CaseContext) -> None:
    name, session = context.roles.writable_property(), await context.session()
    async with changing(context, name) as changer:
        before, after = changer.value, await changer.change()
        for value in (before, after):
            write = await session.send("writeProperty", name=name, data=value)
            read = await session.send("readProperty", name=name)
            try:
                received = await session.answer(read)
            except NoAnswer:
                context.not_offered("answers cannot be distinguished (see correlation.*)")
            session.forget(write)
            if not same(received.value, value):
                context.differs(
                    "out-of-order", f"{value!r} was written, and read behind it {received.value!r}"
                )


@ORDERING.case(
    "ordering.changes",
    "An observer gets the changes in their order",
    expected="readings in the order in which the values were written, the last one with the last of them; "
    "older ones may be left out",
    needs="an observable property that can be changed",
    unsafe=True,
)
async def changes(context: CaseContext) -> None:
    name, written, seen_values = context.roles.changeable_property(), list[Any](), list[Any]()
    session = await observing(context, name)
    async with changing(context, name) as changer:
        for _ in range(4):
            written.append(await changer.change())
        while not (seen_values and same(seen_values[-1], written[-1])):
            received = await session.reading(name)
            if received is None:
                break
            seen_values.append(received.value)
        await context.flush(session, but=name)
        seen_values += [received.value for received in await readings(session, name)]
    if not seen_values:
        context.not_offered("changes do not reach observers (see observe.change)")
    if not _in_order(seen_values, written):
        context.fail(f"the values were {written!r}, in this order, and the readings had {seen_values!r}")


def _in_order(seen_values: Sequence[Any], written: Sequence[Any]) -> bool:
    """Return whether the seen values are a subsequence of the written ones, with the same last value."""
    place = 0
    for value in seen_values:
        while place < len(written) and not same(value, written[place]):
            place += 1
        if place == len(written):
            return False
    return same(seen_values[-1], written[-1])


@ORDERING.case(
    "ordering.events",
    "Events come in the order in which they happened",
    section=lmos("event"),
    expected="messages `event` in the order of the invocations, one after the other, that made them happen, "
    "as far as their data and their timestamps tell",
    needs="an event that an action which may be invoked makes happen",
)
async def events_in_order(context: CaseContext) -> None:
    event = context.roles.event()
    call, session, asking = (
        await context.trigger(event),
        await subscribed(context, event),
        await context.session(),
    )
    marks = [f"conformance-{number}" for number in range(_EVENTS)]
    for mark in marks:
        with suppress(*SILENCE):
            await context.invoke(asking, _marked(context, call, mark))
    received: list[ReceivedMessage] = []
    while len(received) < _EVENTS and (one := await session.event(event)) is not None:
        received.append(one)
    if not received:
        context.not_offered(f"{event} does not reach its subscriber (see events.delivered)")
    await context.flush(session)
    received += await events(session, event)
    seen_values = [
        mark for each in received for mark in marks if f'"{mark}"' in json.dumps(each.data.get("data"))
    ]
    if seen_values != sorted(seen_values):
        context.fail(f"the invocations were numbered from 0, and their events came as {seen_values!r}")
    times = [time for each in received if (time := _time(each)) is not None]
    if times != sorted(times):
        context.fail(f"the timestamps are {[each.isoformat() for each in times]!r}, in this order")


def _marked(context: CaseContext, call: Call, mark: str) -> Call:
    """Return a call with a mark in place of one text in its input; unchanged if the schema allows none."""
    schema = context.target.actions[call.action].input if call.action in context.target.actions else None
    if is_object(call.input):
        for key, value in call.input.items():
            changed = {**call.input, key: mark}
            if isinstance(value, str) and fits(schema or {}, changed) is None:
                return Call(action=call.action, input=changed)
    return call


def _time(received: ReceivedMessage) -> datetime | None:
    value = received.data.get("timestamp")
    with suppress(ValueError):
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        return found if found is not None and found.tzinfo is not None else None
    return None


@ORDERING.case(
    "ordering.slow-run",
    "A long run does not delay later requests",
    expected="an answer to readProperty while an action that was invoked before goes on",
    needs=_SLOW,
)
async def slow_run(context: CaseContext) -> None:
    name, call = context.roles.readable_property(), context.roles.slow_call()
    session = await context.session()
    run = await session.begin(call)
    read = await session.send("readProperty", name=name)
    session.forget(run)
    try:
        await session.answer(read)
    except NoAnswer as error:
        context.differs("held-up", f"while {call.action} goes on, there is {error}")


@ORDERING.case(
    "ordering.slow-elsewhere",
    "A long run does not delay other connections",
    expected="an answer to readProperty while an action goes on that was invoked over another connection",
    needs=_SLOW,
)
async def slow_elsewhere(context: CaseContext) -> None:
    name, call = context.roles.readable_property(), context.roles.slow_call()
    busy, session = await context.session(), await context.session()
    await context.flush(session)
    await busy.begin(call)
    with suppress(NoAnswer):
        await busy.next(within=context.patience / 4)
    await session.ask("readProperty", name=name)
