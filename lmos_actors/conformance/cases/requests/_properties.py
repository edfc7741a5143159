"""Reads and writes of properties."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import lmos, td
from lmos_actors.conformance.inputs import fits, is_object, same, samples
from lmos_actors.conformance.session import (
    ABSENT,
    Chapter,
    NoAnswer,
    is_offered,
    put_back,
    restorable_values,
    values_of,
)
from lmos_actors.conformance.target import NewValue, NotRun
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Session

PROPERTIES: Final[Chapter[CaseContext]] = Chapter()

_WRITTEN: Final = ("propertyReading", "propertyReadings")
_AFFORDANCE: Final = td("5.3.1.3 PropertyAffordance")
_SCHEMA: Final = td("5.3.2.1 DataSchema")
_BOTH: Final = "a property that can be read and written"
_MOST: Final = 20


@PROPERTIES.case(
    "properties.read",
    "Each property can be read",
    section=lmos("readProperty"),
    expected="a propertyReading for each property that is not write-only",
    needs="a property that can be read",
)
async def read(context: CaseContext) -> None:
    context.roles.readable_property()
    session = await context.session()
    for name in context.target.readable()[:_MOST]:
        received = await session.ask("readProperty", name=name)
        if received.kind != "propertyReading":
            context.fail(f"{name}: {received}")


@PROPERTIES.case(
    "properties.value",
    "The value of a property matches its schema",
    section=lmos("propertyReading"),
    expected="values that match the data schemas of the description",
    needs="a property that can be read",
)
async def value(context: CaseContext) -> None:
    context.roles.readable_property()
    found = await values_of(context, await context.session(), context.target.readable())
    if not found:
        context.not_offered("no property could be read (see properties.read)")
    wrong = [(name, fits(context.target.properties[name].schema, each)) for name, each in found.items()]
    if wrong_values := [f"{name}: {why}" for name, why in wrong if why is not None]:
        context.fail("; ".join(wrong_values))


@PROPERTIES.case(
    "properties.write",
    "A property can be written",
    section=lmos("Request-Reply"),
    expected="a propertyReadings, or a propertyReading, in answer to a write of the value that was just read",
    needs=_BOTH,
)
async def write(context: CaseContext) -> None:
    session = await context.session()
    for name, old in (await restorable_values(context, session)).items():
        received = await session.ask("writeProperty", name=name, data=old)
        if received.kind not in _WRITTEN:
            context.fail(f"{name}: {received}")


@PROPERTIES.case(
    "properties.write-answer",
    "The answer to a write has the value that was written",
    section=lmos("Request-Reply"),
    expected="the name and the new value in the propertyReading or propertyReadings",
    needs=_BOTH,
)
async def write_answer(context: CaseContext) -> None:
    session = await context.session()
    for name, old in (await restorable_values(context, session)).items():
        with suppress(NoAnswer):
            received = await session.ask("writeProperty", name=name, data=old)
            if received.kind in _WRITTEN and not same(_written(received, name), old):
                context.fail(f"{name}: {old!r} was written, and the answer was {received}")


def _written(received: ReceivedMessage, name: str) -> Any:
    if received.kind == "propertyReading":
        return received.value if received.name in (name, None) else ABSENT
    data = received.get("data")
    return data.get(name, ABSENT) if is_object(data) else ABSENT


@PROPERTIES.case(
    "properties.write-kept",
    "A written value is read afterwards",
    section=lmos("writeProperty"),
    expected="the new value in answer to a readProperty on another connection",
    needs=_BOTH,
    unsafe=True,
)
async def write_kept(context: CaseContext) -> None:
    writing, reading = await context.session(), await context.session()
    tried = False
    for name, old in (await restorable_values(context, writing)).items():
        try:
            change = context.roles.change_of(name, old)
        except NotRun:
            continue
        if isinstance(change, NewValue):
            tried = True
            await _held_after_write(context, writing, reading, name, old, change.value)
    if not tried:
        context.not_run("no other value for a property was found: name one under changes, --hints")


async def _held_after_write(
    context: CaseContext, writing: Session, reading: Session, name: str, old: Any, new: Any
) -> None:
    try:
        answer = await writing.ask("writeProperty", name=name, data=new)
        if answer.kind not in _WRITTEN:
            return  # judged by properties.write
        now = await values_of(context, reading, [name])
        if name in now and not same(now[name], new):
            context.fail(f"{name}: {new!r} was written, and {now[name]!r} is read")
    finally:
        await put_back(context, writing, name, old)


@PROPERTIES.case(
    "properties.write-wrong",
    "A value that does not match the schema is refused",
    section=_SCHEMA,
    expected="an error in answer to a write of a value that does not match the data schema",
    needs=f"{_BOTH}, and a schema that some value does not match",
    unsafe=True,
)
async def write_wrong(context: CaseContext) -> None:
    session = await context.session()
    tried = False
    for name, old in (await restorable_values(context, session)).items():
        try:
            for sample in _wrong(context, name):
                tried = True
                received = await session.ask("writeProperty", name=name, data=sample.value)
                if received.kind != "error":
                    message = f"{name}: {sample.value!r} ({sample.why}) gave {received}"
                    context.differs("takes-wrong-value", message)
        finally:
            await put_back(context, session, name, old)
    if not tried:
        context.not_offered("no property has a schema that restricts its values")


def _wrong(context: CaseContext, name: str) -> list[Any]:
    found = samples(context.target.properties[name].schema, context.random)
    return [sample for sample in found if sample.kind == "invalid"][:4]


@PROPERTIES.case(
    "properties.write-wrong-kept",
    "A refused write changes nothing",
    section=lmos("error"),
    expected="the old value in answer to a readProperty, after a write was answered by an error",
    needs=f"{_BOTH}, and a schema that some value does not match",
    unsafe=True,
)
async def write_wrong_kept(context: CaseContext) -> None:
    session = await context.session()
    refused = False
    for name, old in (await restorable_values(context, session)).items():
        for sample in _wrong(context, name):
            try:
                received = await session.ask("writeProperty", name=name, data=sample.value)
                now = await values_of(context, session, [name])
            finally:
                await put_back(context, session, name, old)
            if received.kind == "error":
                refused = True
                if name in now and not same(now[name], old):
                    context.fail(f"{name}: {sample.value!r} was refused, and {now[name]!r} is read")
    if not refused:
        context.not_offered("no write was refused (see properties.write-wrong)")


@PROPERTIES.case(
    "properties.write-multiple",
    "Several properties can be written at once",
    section=lmos("writeMultipleProperties"),
    expected="a propertyReadings with the values, in answer to a write of the values that were just read",
    needs="properties that can be read and written, and the operation writemultipleproperties in a form of "
    "the thing",
)
async def write_multiple(context: CaseContext) -> None:
    session = await context.session()
    old = await restorable_values(context, session)
    received = await _ask_all(
        context, session, "writeMultipleProperties", "writemultipleproperties", data=old
    )
    _hold_all(context, received, old)


@PROPERTIES.case(
    "properties.read-all",
    "All properties can be read at once",
    section=_AFFORDANCE,
    expected="a propertyReadings with all properties that can be read, and none that is write-only; the "
    "text has no message for it, and kotlin-wot's readAllProperties is tried",
    needs="an answer to kotlin-wot's readAllProperties",
)
async def read_all(context: CaseContext) -> None:
    context.roles.readable_property()
    session = await context.session()
    received = await _ask_all(context, session, "readAllProperties", "readallproperties")
    known = await values_of(context, session, context.target.readable())
    _hold_all(context, received, dict.fromkeys(known, ABSENT))
    secret = [name for name in context.target.write_only() if name in received.data["data"]]
    if secret:
        context.fail(f"{', '.join(secret)} is write-only, and was read")


@PROPERTIES.case(
    "properties.read-multiple",
    "Several properties can be read at once",
    section=_AFFORDANCE,
    expected="a propertyReadings with the requested properties, and no others; the text has no message for "
    "it, and kotlin-wot's readMultipleProperties is tried",
    needs="an answer to kotlin-wot's readMultipleProperties",
)
async def read_multiple(context: CaseContext) -> None:
    context.roles.readable_property()
    session = await context.session()
    names = list(await values_of(context, session, context.target.readable()))[:2]
    received = await _ask_all(
        context, session, "readMultipleProperties", "readmultipleproperties", properties=names
    )
    _hold_all(context, received, dict.fromkeys(names, ABSENT))
    more = [name for name in received.data["data"] if name not in names]
    if more:
        context.fail(f"{', '.join(names)} was requested, and {', '.join(more)} came as well")


async def _ask_all(
    context: CaseContext, session: Session, kind: str, op: str, **members: Any
) -> ReceivedMessage:
    """Send a request about several properties. If no form offers the operation, a refusal is no failure."""
    is_in_text = kind == "writeMultipleProperties"
    offered = is_in_text and is_offered(context.target.readable_part.forms, op)
    why_not = f"no form of the thing has {op}" if is_in_text else f"no text has a message for {op}"
    try:
        received = await session.ask(kind, **members)
    except (NoAnswer, ConnectionGone) as why:
        if offered:
            raise
        context.not_offered(f"{why_not}, and {why}")
    if received.kind != "propertyReadings":
        if offered:
            context.fail(received)
        context.not_offered(f"{why_not}, and the answer was {received}")
    return received


def _hold_all(context: CaseContext, received: ReceivedMessage, wanted: dict[str, Any]) -> None:
    data = received.get("data")
    if not is_object(data):
        context.fail(f"data is no object: {received}")
    if missing := [name for name in wanted if name not in data]:
        context.fail(f"{', '.join(missing)} is not in data: {received}")
    for name, value in wanted.items():
        if value is not ABSENT and not same(data[name], value):
            context.fail(f"{name}: {value!r} was written, and the answer was {received}")


@PROPERTIES.case(
    "properties.read-only",
    "A read-only property is not written",
    section=_SCHEMA,
    expected="an error in answer to a writeProperty for a property with readOnly",
    needs="a read-only property",
)
async def read_only(context: CaseContext) -> None:
    context.roles.read_only_property()
    session = await context.session()
    for name, old in (await values_of(context, session, context.target.read_only())).items():
        received = await session.ask("writeProperty", name=name, data=old)
        if received.kind != "error":
            context.fail(f"{name}: {received}")


@PROPERTIES.case(
    "properties.write-only",
    "A write-only property is not read",
    section=_SCHEMA,
    expected="an error in answer to a readProperty for a property with writeOnly",
    needs="a write-only property",
)
async def write_only(context: CaseContext) -> None:
    context.roles.write_only_property()
    session = await context.session()
    for name in context.target.write_only()[:_MOST]:
        received = await session.ask("readProperty", name=name)
        if received.kind != "error":
            context.fail(f"{name}: {received}")
