"""The description: how it is served, and its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import (
    agent,
    binding,
    discovery,
    td,
)
from lmos_actors.conformance.inputs import is_array, is_object
from lmos_actors.conformance.session import Chapter
from lmos_actors.conformance.target import (
    ACCEPT,
    WELL_KNOWN,
    is_url,
    on_web,
    sockets_of,
)
from lmos_actors.conformance.wire import read_json
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import SUBPROTOCOL, check, effective_forms, expand, is_uri, resolve, variables_of
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.conformance.session import CaseContext, Run
    from lmos_actors.conformance.wire import HttpAnswer
    from lmos_actors.protocol.td import Finding, Form

DESCRIPTION: Final[Chapter[CaseContext]] = Chapter(needs="a description that can be read")

_MEDIA_TYPES: Final = ("application/td+json", "application/json", "application/ld+json")
_MOVED: Final = (301, 302, 303, 307, 308)
_NOT_THERE: Final = (401, 403, 404, 405, 410)
_SAME: Final = ("content-type", "content-length")  # the same for HEAD and GET; others may change
_TYPICAL: Final = ("@context", "title", "properties", "actions", "events")
_SHOWN: Final = 3  # findings shown in one verdict
_SERVED: Final = "a description that is served"


# --- how it is served


@DESCRIPTION.case(
    "description.served",
    "The description is served as JSON",
    section=discovery("Thing Description Server"),
    expected="200 with Content-Type application/td+json or application/json",
    needs=_SERVED,
)
async def served(context: CaseContext) -> None:
    answer = await context.http("GET", _url(context), headers=(ACCEPT,))
    if answer.status != 200:
        context.fail(f"{answer.status}")
    _media_type(context, answer)


@DESCRIPTION.case(
    "description.head",
    "HEAD of the description is answered as GET is, without a body",
    section=discovery("Thing Description Server"),
    expected="the status and the headers that GET is answered with",
    needs=_SERVED,
)
async def head(context: CaseContext) -> None:
    url = _url(context)
    got = await context.http("GET", url, headers=(ACCEPT,))
    asked = await context.http("HEAD", url, headers=(ACCEPT,))
    if asked.status != got.status:
        context.differs("no-head", f"{asked.status}, where GET is answered with {got.status}")
        return
    for name in _SAME:
        one, other = asked.header(name), got.header(name)
        if one is not None and other is not None and one != other:
            context.differs("no-head", f"{name} is {one!r}, of GET {other!r}")


@DESCRIPTION.case(
    "description.well-known",
    "/.well-known/wot serves one description",
    section=discovery("Well-Known URIs"),
    expected="200 with one description, as application/td+json or application/json, if anything is there",
    needs="something at /.well-known/wot",
)
async def well_known(context: CaseContext) -> None:
    url = on_web(_url(context), WELL_KNOWN)
    answer = await context.http("GET", url, headers=(ACCEPT,))
    location = answer.header("location")
    if answer.status in _MOVED and location is not None:
        answer = await context.http("GET", resolve(url, location), headers=(ACCEPT,))
    if answer.status in _NOT_THERE:
        context.not_offered(f"{WELL_KNOWN} answers {answer.status}")
    if answer.status != 200:
        context.fail(f"{WELL_KNOWN} answers {answer.status}")
    _media_type(context, answer)
    try:
        found = answer.json()
    except ValueError as error:
        context.fail(f"{WELL_KNOWN} is not JSON: {error}")
    if not is_object(found) or not any(word in found for word in _TYPICAL):
        context.fail(f"{WELL_KNOWN} is no description: {answer.text[:100]}")


def _url(context: CaseContext) -> str:
    where = context.target.thing.where
    if not is_url(where):
        context.not_offered(f"its description was read from the file {where}")
    return where


def _media_type(context: CaseContext, answer: HttpAnswer) -> None:
    if answer.media_type not in _MEDIA_TYPES:
        found = answer.header("content-type")
        context.differs("td-media-type", "no Content-Type" if found is None else f"Content-Type: {found}")


# --- its content


def _checked(part: str, key: str) -> Run:
    """Make a case that judges one part of the description."""

    async def run(context: CaseContext) -> None:
        _judge(context, part, key)

    return run


@DESCRIPTION.case(
    "description.readable",
    "The description can be read",
    section=td("5.2 Preliminaries"),
    expected="a JSON object, each name in it once, whose members have the types that TD 1.1 gives them",
)
async def readable(context: CaseContext) -> None:
    thing = context.target.thing
    if thing.problem:
        context.fail(thing.problem)
    try:
        read_json(thing.text)
    except ValueError as error:
        context.fail(error)


DESCRIPTION.add(
    "description.schema",
    "The description follows the rules of TD 1.1",
    _checked("", "td-doubtful"),
    section=td("Appendix B. JSON Schema for TD Instance Validation"),
    expected="a description that the JSON schema of TD 1.1 accepts, without undefined names",
)


@DESCRIPTION.case(
    "description.context",
    "@context names TD 1.1 and LMOS",
    section=agent("@context"),
    expected="an @context of https://www.w3.org/2022/wot/td/v1.1 and https://eclipse.dev/lmos/protocol/v1",
)
async def names_the_context(context: CaseContext) -> None:
    _judge(context, "context", "td-context")
    if "https://eclipse.dev/lmos/protocol/v1" not in _texts(_data(context).get("@context")):
        context.differs("td-context", "https://eclipse.dev/lmos/protocol/v1 is not in it")


@DESCRIPTION.case(
    "description.type",
    "@type names an agent",
    section=agent("@type"),
    expected="an @type of lmos:Agent, or of a tool lmos:Tool",
)
async def kind(context: CaseContext) -> None:
    _judge(context, "type", "td-type", tolerated=False)  # `Agent`, as the table has it, is right too
    found = [each.rpartition(":")[2].rpartition("#")[2] for each in _texts(_data(context).get("@type"))]
    if "Agent" not in found and "Tool" not in found:
        context.differs("td-type", f"@type is {_data(context).get('@type')!r}")


@DESCRIPTION.case(
    "description.id",
    "The id is a URI",
    section=td("5.3.1.1 Thing"),
    expected="an id that is a URI, such as urn:uuid:..., if there is one: it is the thingID of the messages",
    needs="an id",
)
async def identity(context: CaseContext) -> None:
    found = _data(context).get("id")
    if found is None:
        context.not_offered("its description has no id")
    if not isinstance(found, str) or not is_uri(found):
        context.differs("td-id", f"id is {found!r}")


DESCRIPTION.add(
    "description.security",
    "The description names its security",
    _checked("security", "td-security"),
    section=td("5.3.1.1 Thing"),
    expected="security and securityDefinitions; nosec_sc with the scheme nosec if access is open",
)


@DESCRIPTION.case(
    "description.subprotocol",
    "Forms for a WebSocket name the subprotocol lmosprotocol",
    section=binding("WebSocket Protocol Handshake"),
    expected="a form with the subprotocol lmosprotocol for every affordance that has one for a WebSocket",
    needs="a form",
)
async def subprotocol(context: CaseContext) -> None:
    target = context.target
    if not sockets_of(target.readable_part):
        context.fail("no form leads to a WebSocket")
    for name, forms in _forms(context):
        sockets = [form for form in forms if form.href.lower().startswith(("ws:", "wss:"))]
        if sockets and all(form.subprotocol != SUBPROTOCOL for form in sockets):
            found = sockets[0].subprotocol
            context.differs("form-no-subprotocol", f"{name}: {found or 'no subprotocol'}")


DESCRIPTION.add(
    "description.operations",
    "Operations of forms fit their affordances",
    _checked("op", "td-doubtful"),
    section=td("5.3.4.2 Form"),
    expected="of each form an op that its affordance can have: no writeproperty of a readOnly property",
)


@DESCRIPTION.case(
    "description.addresses",
    "Addresses in forms are URIs",
    section=td("5.3.4.2 Form"),
    expected="an href in each form that is a URI, or one when resolved against base",
)
async def addresses(context: CaseContext) -> None:
    _judge(context, "href", "td-doubtful")
    for name, forms in _forms(context):
        for form in forms:
            if not variables_of(form.href) and form.href.lower().startswith(("ws", "http")):
                try:
                    endpoint_of(expand(form.href, {}))
                except ConfigError as error:
                    context.fail(f"{name}: {error}")


def _forms(context: CaseContext) -> Iterator[tuple[str, tuple[Form, ...]]]:
    """Yield each affordance's name and forms, then those of the whole thing."""
    described, target = context.target.readable_part, context.target
    for affordances in (target.properties, target.actions, target.events):
        for name, affordance in affordances.items():
            yield name, effective_forms(described, affordance)
    yield "the thing", effective_forms(described)


def _data(context: CaseContext) -> dict[str, Any]:
    thing = context.target.thing
    if not thing.data:
        context.not_offered("its description cannot be read: see description.readable")
    return thing.data


def _judge(context: CaseContext, part: str, key: str, *, tolerated: bool = True) -> None:
    """Fail for errors in a part of the description, and note lesser findings as deviations."""
    thing = context.target.thing
    data = _data(context)
    if data.get("base") is None and is_url(thing.where):
        data = {**data, "base": thing.where}  # RFC 3986, 5.1.3
    found = [each for each in check(data) if _part_of(each) == part]
    if part == "" and thing.description is None:
        context.not_offered("its description cannot be read: see description.readable")
    errors = [str(each) for each in found if each.severity == "error"]
    if errors:
        context.fail(
            "; ".join([*errors[:_SHOWN], *([f"and {len(errors) - _SHOWN} more"] if errors[_SHOWN:] else [])])
        )
    for each in found[:_SHOWN]:
        if tolerated or not each.tolerated:
            context.differs(key, str(each))


def _part_of(finding: Finding) -> str:
    """Return the part of the description that a finding is about, or "" if no other case judges it."""
    place = finding.place
    first, last = (place[0], place[-1]) if place else ("", "")
    if "op" in place[-2:] or last == "observable":
        return "op"
    if last in ("href", "base"):
        return "href"
    if last == "subprotocol" or "a subprotocol" in finding.message:
        return "subprotocol"
    message = finding.message
    if "@context does not define" in message:
        return "context"
    if first in ("@context", "@type", "id"):
        return str(first).removeprefix("@")
    return (
        "security" if first in ("security", "securityDefinitions") or message.startswith("security") else ""
    )


def _texts(value: object) -> list[str]:
    """Return a text, or all texts in an array, and in the values of objects in it."""
    if isinstance(value, str):
        return [value]
    if is_object(value):
        return [each for each in value.values() if isinstance(each, str)]
    if is_array(value):
        return [text for each in value for text in _texts(each)]
    return []
