"""Reading and writing properties."""

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
    from lmos_actors.conformance.session import Heard, Talk, Visit

CHAPTER = Chapter()

_WRITTEN: Final = ("propertyReading", "propertyReadings")
_AFFORDANCE: Final = td("5.3.1.3 PropertyAffordance")
_SCHEMA: Final = td("5.3.2.1 DataSchema")
_BOTH: Final = "a property that can be read and written"
_MOST: Final = 20


@CHAPTER.case(
    "properties.read",
    "Each property can be read",
    section=lmos("readProperty"),
    expected="a propertyReading for each property that is not write-only",
    needs="a property that can be read",
)
async def read(visit: Visit) -> None:
    visit.roles.readable_property()
    talk = await visit.talk()
    for name in visit.target.readable()[:_MOST]:
        heard = await talk.ask("readProperty", name=name)
        if heard.kind != "propertyReading":
            visit.fail(f"{name}: {heard}")


@CHAPTER.case(
    "properties.value",
    "The value of a property fits its schema",
    section=lmos("propertyReading"),
    expected="values that match the data schemas of the description",
    needs="a property that can be read",
)
async def value(visit: Visit) -> None:
    visit.roles.readable_property()
    found = await values_of(visit, await visit.talk(), visit.target.readable())
    if not found:
        visit.not_offered("no property could be read: properties.read says more")
    wrong = [(name, fits(visit.target.properties[name].schema, each)) for name, each in found.items()]
    if told := [f"{name}: {why}" for name, why in wrong if why is not None]:
        visit.fail("; ".join(told))


@CHAPTER.case(
    "properties.write",
    "A property can be written",
    section=lmos("Request-Reply"),
    expected="a propertyReadings, or a propertyReading, in answer to a write of the value that was just read",
    needs=_BOTH,
)
async def write(visit: Visit) -> None:
    talk = await visit.talk()
    for name, old in (await restorable_values(visit, talk)).items():
        heard = await talk.ask("writeProperty", name=name, data=old)
        if heard.kind not in _WRITTEN:
            visit.fail(f"{name}: {heard}")


@CHAPTER.case(
    "properties.write-answer",
    "The answer to a write has the value that was written",
    section=lmos("Request-Reply"),
    expected="the name and the new value in the propertyReading or propertyReadings",
    needs=_BOTH,
)
async def write_answer(visit: Visit) -> None:
    talk = await visit.talk()
    for name, old in (await restorable_values(visit, talk)).items():
        with suppress(NoAnswer):
            heard = await talk.ask("writeProperty", name=name, data=old)
            if heard.kind in _WRITTEN and not same(_written(heard, name), old):
                visit.fail(f"{name}: {old!r} was written, and the answer was {heard}")


def _written(heard: Heard, name: str) -> Any:
    if heard.kind == "propertyReading":
        return heard.value if heard.name in (name, None) else ABSENT
    data = heard.get("data")
    return data.get(name, ABSENT) if is_object(data) else ABSENT


@CHAPTER.case(
    "properties.write-kept",
    "What was written is read afterwards",
    section=lmos("writeProperty"),
    expected="the new value in answer to a readProperty on another connection",
    needs=_BOTH,
    unsafe=True,
)
async def write_kept(visit: Visit) -> None:
    writing, reading = await visit.talk(), await visit.talk()
    tried = False
    for name, old in (await restorable_values(visit, writing)).items():
        try:
            change = visit.roles.change_of(name, old)
        except NotRun:
            continue
        if isinstance(change, NewValue):
            tried = True
            await _held_after_write(visit, writing, reading, name, old, change.value)
    if not tried:
        visit.not_run("no other value for a property was found: name one under changes, --hints")


async def _held_after_write(
    visit: Visit, writing: Talk, reading: Talk, name: str, old: Any, new: Any
) -> None:
    try:
        answer = await writing.ask("writeProperty", name=name, data=new)
        if answer.kind not in _WRITTEN:
            return  # properties.write is about these
        now = await values_of(visit, reading, [name])
        if name in now and not same(now[name], new):
            visit.fail(f"{name}: {new!r} was written, and {now[name]!r} is read")
    finally:
        await put_back(visit, writing, name, old)


@CHAPTER.case(
    "properties.write-wrong",
    "A value that does not fit is refused",
    section=_SCHEMA,
    expected="an error in answer to a write of a value that does not match the data schema",
    needs=f"{_BOTH}, and a schema that some value does not match",
    unsafe=True,
)
async def write_wrong(visit: Visit) -> None:
    talk = await visit.talk()
    tried = False
    for name, old in (await restorable_values(visit, talk)).items():
        try:
            for sample in _wrong(visit, name):
                tried = True
                heard = await talk.ask("writeProperty", name=name, data=sample.value)
                if heard.kind != "error":
                    told = f"{name}: {sample.value!r} ({sample.why}) gave {heard}"
                    visit.differs("takes-wrong-value", told)
        finally:
            await put_back(visit, talk, name, old)
    if not tried:
        visit.not_offered("no property has a schema that a value could be wrong for")


def _wrong(visit: Visit, name: str) -> list[Any]:
    found = samples(visit.target.properties[name].schema, visit.random)
    return [sample for sample in found if sample.kind == "invalid"][:4]


@CHAPTER.case(
    "properties.write-wrong-kept",
    "A refused write changes nothing",
    section=lmos("error"),
    expected="the old value in answer to a readProperty, after a write was answered by an error",
    needs=f"{_BOTH}, and a schema that some value does not match",
    unsafe=True,
)
async def write_wrong_kept(visit: Visit) -> None:
    talk = await visit.talk()
    refused = False
    for name, old in (await restorable_values(visit, talk)).items():
        for sample in _wrong(visit, name):
            try:
                heard = await talk.ask("writeProperty", name=name, data=sample.value)
                now = await values_of(visit, talk, [name])
            finally:
                await put_back(visit, talk, name, old)
            if heard.kind == "error":
                refused = True
                if name in now and not same(now[name], old):
                    visit.fail(f"{name}: {sample.value!r} was refused, and {now[name]!r} is read")
    if not refused:
        visit.not_offered("no write was refused: properties.write-wrong says more")


@CHAPTER.case(
    "properties.write-multiple",
    "Several properties can be written at once",
    section=lmos("writeMultipleProperties"),
    expected="a propertyReadings with the values, in answer to a write of the values that were just read",
    needs="properties that can be read and written, and the operation writemultipleproperties in a form of "
    "the thing",
)
async def write_multiple(visit: Visit) -> None:
    talk = await visit.talk()
    old = await restorable_values(visit, talk)
    heard = await _ask_all(visit, talk, "writeMultipleProperties", "writemultipleproperties", data=old)
    _hold_all(visit, heard, old)


@CHAPTER.case(
    "properties.read-all",
    "All properties can be read at once",
    section=_AFFORDANCE,
    expected="a propertyReadings with all properties that can be read, and none that is write-only; the "
    "text has no message for it, and kotlin-wot's readAllProperties is tried",
    needs="an answer to kotlin-wot's readAllProperties",
)
async def read_all(visit: Visit) -> None:
    visit.roles.readable_property()
    talk = await visit.talk()
    heard = await _ask_all(visit, talk, "readAllProperties", "readallproperties")
    known = await values_of(visit, talk, visit.target.readable())
    _hold_all(visit, heard, dict.fromkeys(known, ABSENT))
    secret = [name for name in visit.target.write_only() if name in heard.data["data"]]
    if secret:
        visit.fail(f"{', '.join(secret)} is write-only, and given away")


@CHAPTER.case(
    "properties.read-multiple",
    "Several properties can be read at once",
    section=_AFFORDANCE,
    expected="a propertyReadings with the properties asked for, and no others; the text has no message for "
    "it, and kotlin-wot's readMultipleProperties is tried",
    needs="an answer to kotlin-wot's readMultipleProperties",
)
async def read_multiple(visit: Visit) -> None:
    visit.roles.readable_property()
    talk = await visit.talk()
    names = list(await values_of(visit, talk, visit.target.readable()))[:2]
    heard = await _ask_all(visit, talk, "readMultipleProperties", "readmultipleproperties", properties=names)
    _hold_all(visit, heard, dict.fromkeys(names, ABSENT))
    more = [name for name in heard.data["data"] if name not in names]
    if more:
        visit.fail(f"{', '.join(names)} was asked for, and {', '.join(more)} came as well")


async def _ask_all(visit: Visit, talk: Talk, kind: str, op: str, **members: Any) -> Heard:
    """Ask for several properties at once; that it cannot be done only counts if it is said to be possible."""
    is_in_text = kind == "writeMultipleProperties"
    offered = is_in_text and is_offered(visit.target.readable_part.forms, op)
    why_not = f"no form of the thing has {op}" if is_in_text else f"no text has a message for {op}"
    try:
        heard = await talk.ask(kind, **members)
    except (NoAnswer, ConnectionGone) as why:
        if offered:
            raise
        visit.not_offered(f"{why_not}, and {why}")
    if heard.kind != "propertyReadings":
        if offered:
            visit.fail(heard)
        visit.not_offered(f"{why_not}, and the answer was {heard}")
    return heard


def _hold_all(visit: Visit, heard: Heard, wanted: dict[str, Any]) -> None:
    data = heard.get("data")
    if not is_object(data):
        visit.fail(f"data is no object: {heard}")
    if missing := [name for name in wanted if name not in data]:
        visit.fail(f"{', '.join(missing)} is not in data: {heard}")
    for name, value in wanted.items():
        if value is not ABSENT and not same(data[name], value):
            visit.fail(f"{name}: {value!r} was written, and the answer was {heard}")


@CHAPTER.case(
    "properties.read-only",
    "A read-only property is not written",
    section=_SCHEMA,
    expected="an error in answer to a writeProperty for a property with readOnly",
    needs="a read-only property",
)
async def read_only(visit: Visit) -> None:
    visit.roles.read_only_property()
    talk = await visit.talk()
    for name, old in (await values_of(visit, talk, visit.target.read_only())).items():
        heard = await talk.ask("writeProperty", name=name, data=old)
        if heard.kind != "error":
            visit.fail(f"{name}: {heard}")


@CHAPTER.case(
    "properties.write-only",
    "A write-only property is not read",
    section=_SCHEMA,
    expected="an error in answer to a readProperty for a property with writeOnly",
    needs="a write-only property",
)
async def write_only(visit: Visit) -> None:
    visit.roles.write_only_property()
    talk = await visit.talk()
    for name in visit.target.write_only()[:_MOST]:
        heard = await talk.ask("readProperty", name=name)
        if heard.kind != "error":
            visit.fail(f"{name}: {heard}")
