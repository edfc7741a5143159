"""HTTP forms of properties, compared with the WebSocket of the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from lmos_actors.conformance.card import http, td
from lmos_actors.conformance.inputs import is_object
from lmos_actors.conformance.session import (
    ABSENT,
    GOOD,
    OF_CLIENT,
    Chapter,
    accepting,
    carry_out,
    first_form,
    forms_for,
    must_be_refused,
    put_back,
    read_by_socket,
    reading_form,
    shown,
    value_of,
    wrong_for,
)
from lmos_actors.conformance.target import HttpForm
from lmos_actors.protocol.td import choose, effective_forms

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, Session

HTTP_PROPERTIES: Final[Chapter[CaseContext]] = Chapter()

_FORM: Final = td("5.3.4.2 Form")
_PROPERTY: Final = td("5.3.1.3 PropertyAffordance")
_READS: Final = "a form for HTTP that reads a property"


@HTTP_PROPERTIES.case(
    "http.read",
    "A property has one value, over HTTP and over the WebSocket",
    section=_PROPERTY,
    expected="200, with the value that a propertyReading has",
    needs=_READS,
)
async def read(context: CaseContext) -> None:
    reading_form(context)
    session = await context.session()
    for name, form in forms_for(context, "properties", "readproperty", context.target.readable()):
        before = await read_by_socket(session, name)
        value = value_of(context, await carry_out(context, form), f"{form.method} of {name}")
        if before is ABSENT or value == before:
            continue
        if await read_by_socket(session, name) == before:
            context.fail(f"{name} is {shown(value)} over HTTP, and {shown(before)} over the WebSocket")


@HTTP_PROPERTIES.case(
    "http.media-type",
    "An answer has the media type of its form",
    section=_FORM,
    expected="a Content-Type that is the contentType of the form, application/json if it has none",
    needs=_READS,
)
async def media_type(context: CaseContext) -> None:
    name, form = reading_form(context)
    answer = await carry_out(context, form)
    wanted = (form.content_type or "application/json").partition(";")[0].strip().lower()
    if answer.status == 200 and answer.media_type != wanted:
        context.differs("http-media-type", f"{name}: {answer.header('content-type')}, not {wanted}")


@HTTP_PROPERTIES.case(
    "http.read-all",
    "All properties are read together",
    section=_FORM,
    expected="200, with an object of every property that can be read",
    needs="a form for HTTP that reads all properties",
)
async def read_all(context: CaseContext) -> None:
    form = choose(effective_forms(context.target.readable_part), "readallproperties", ("https", "http"))
    if form is None:
        context.not_offered("it describes no form for HTTP that reads all properties")
    url = HttpForm(url=form.href, method="GET", content_type=form.content_type or "")
    found = value_of(context, await carry_out(context, url), "GET of all properties")
    wanted = context.target.readable()
    if not isinstance(found, dict):
        context.fail(f"GET of all properties is answered with {shown(found)}")
    missing = [name for name in wanted if name not in found]
    if missing:
        context.fail(f"GET of all properties lacks {', '.join(missing)}")


async def _writable(context: CaseContext) -> tuple[str, HttpForm, Session, Any]:
    """Return a property to write, its form, a session to compare with, and its present value."""
    names = context.target.restorable()
    name, form = first_form(
        context, "properties", "writeproperty", names, "writes a property that can be read"
    )
    session = await context.session()
    return name, form, session, await _value(context, session, name)


async def _value(context: CaseContext, session: Session, name: str) -> Any:
    before = await read_by_socket(session, name)
    if before is ABSENT:
        context.not_offered(f"{name} cannot be read (see properties.read)")
    return before


@HTTP_PROPERTIES.case(
    "http.write",
    "A property is written over HTTP",
    section=_FORM,
    expected="200 or 204 for the current value, which stays",
    needs="a form for HTTP that writes a property",
)
async def write(context: CaseContext) -> None:
    name, form, session, before = await _writable(context)
    answer = await carry_out(context, form, before)
    if answer.status not in GOOD:
        context.fail(f"{form.method} of {name}, with the value that it has, is answered with {answer.status}")
    after = await read_by_socket(session, name)
    if after != before:
        context.fail(f"{name} was {shown(before)}, and is {shown(after)} now")


@HTTP_PROPERTIES.case(
    "http.write-seen",
    "What is written over HTTP is read over the WebSocket",
    section=_FORM,
    expected="the new value in a propertyReading; then the old one is restored",
    needs="a form for HTTP that writes a property",
    unsafe=True,
)
async def write_seen(context: CaseContext) -> None:
    name, form, session, before = await _writable(context)
    change = context.roles.change_of(name, before)
    value = getattr(change, "value", ABSENT)
    if value is ABSENT:
        context.not_run(f"no other value for {name} was found: name one under changes, --hints")
    try:
        answer = await carry_out(context, form, value)
        after = await read_by_socket(session, name)
    finally:
        await put_back(context, session, name, before)
    if answer.status not in GOOD:
        context.not_offered(f"{form.method} of {name} is answered with {answer.status} (see http.write)")
    if after != value:
        context.fail(f"{shown(value)} was written to {name}, and {shown(after)} is read")


@HTTP_PROPERTIES.case(
    "http.read-only",
    "A read-only property is not written",
    section=_PROPERTY,
    expected="405, or another 4xx, and the value stays",
    needs="a form for HTTP that reads a read-only property",
)
async def read_only(context: CaseContext) -> None:
    name, form = first_form(
        context, "properties", "readproperty", context.target.read_only(), "reads a read-only property"
    )
    value = value_of(context, await carry_out(context, form), f"{form.method} of {name}")
    put = HttpForm(url=form.url, method="PUT", content_type=form.content_type)
    must_be_refused(context, await carry_out(context, put, value), f"PUT of the read-only property {name}")


@HTTP_PROPERTIES.case(
    "http.write-only",
    "A write-only property is not revealed",
    section=_PROPERTY,
    expected="405, or another 4xx",
    needs="a form for HTTP that writes a write-only property",
)
async def write_only(context: CaseContext) -> None:
    name, form = first_form(
        context, "properties", "writeproperty", context.target.write_only(), "writes a write-only property"
    )
    answer = await context.http("GET", form.url, headers=accepting(form))
    must_be_refused(context, answer, f"GET of the write-only property {name}")


@HTTP_PROPERTIES.case(
    "http.wrong-value",
    "A value that does not fit is not written",
    section=http("15.5.1"),
    expected="400, or another 4xx, and the old value stays",
    needs="a form for HTTP that writes a property of a certain kind",
    unsafe=True,
)
async def wrong_value(context: CaseContext) -> None:
    names = context.target.restorable()
    for name, form in forms_for(context, "properties", "writeproperty", names):
        wrong = wrong_for(context, context.target.properties[name].schema)
        if wrong is ABSENT:
            continue
        session = await context.session()
        before = await _value(context, session, name)
        try:
            answer = await carry_out(context, form, wrong)
            after = await read_by_socket(session, name)
        finally:
            await put_back(context, session, name, before)
        if after != before:
            context.fail(f"{shown(wrong)} does not fit {name}, and was written")
        must_be_refused(context, answer, f"{form.method} of {name} with {shown(wrong)}")
        return
    context.not_offered("it describes no form for HTTP that writes a property of a certain kind")


# --- unknown properties and methods


@HTTP_PROPERTIES.case(
    "http.unknown",
    "An unknown property is not found",
    section=http("15.5.5"),
    expected="404 for a property that is not in the description",
    needs="a form for HTTP that reads a property, whose address ends in its name",
)
async def unknown(context: CaseContext) -> None:
    name, url = _neighbour(context)
    answer = await context.http("GET", url)
    if answer.status not in (404, 410):
        context.fail(f"GET of {name}, which is not described, is answered with {answer.status}")


@HTTP_PROPERTIES.case(
    "http.problem",
    "Problem details have the status of the answer",
    section=http("15.5"),
    expected="in problem details (RFC 9457), if it has any, the status that the answer has",
    needs="a form for HTTP that reads a property, whose address ends in its name",
)
async def problem(context: CaseContext) -> None:
    _, url = _neighbour(context)
    answer = await context.http("GET", url)
    if answer.media_type != "application/problem+json":
        return
    try:
        details = answer.json()
    except ValueError as error:
        context.fail(f"the problem details are not JSON: {error}")
    status = details.get("status", answer.status) if is_object(details) else None
    if status != answer.status:
        context.fail(f"the answer has the status {answer.status}, and its problem details {shown(status)}")


def _neighbour(context: CaseContext) -> tuple[str, str]:
    """Return a name that no property has, and the URL that such a property would have."""
    for name, form in forms_for(context, "properties", "readproperty", context.target.readable()):
        above, _, last = form.url.rpartition("/")
        if unquote(last) == name:
            missing = context.target.unknown_property()
            return missing, f"{above}/{quote(missing, safe='')}"
    context.not_offered("no form for HTTP that reads a property has an address that ends in its name")


@HTTP_PROPERTIES.case(
    "http.method",
    "An unsupported method is refused",
    section=http("15.5.6"),
    expected="405 with Allow, or another 4xx, or 501, to PATCH of a read-only property",
    needs="a form for HTTP that reads a read-only property",
)
async def method(context: CaseContext) -> None:
    name, form = first_form(
        context, "properties", "readproperty", context.target.read_only(), "reads a read-only property"
    )
    answer = await context.http(
        "PATCH", form.url, headers=((b"Content-Type", b"application/json"),), body=b"{}"
    )
    if answer.status not in (*OF_CLIENT, 501):
        context.fail(f"PATCH of {name} is answered with {answer.status}")
    if answer.status == 405 and answer.header("allow") is None:
        context.differs("no-allow", f"PATCH of {name}")
