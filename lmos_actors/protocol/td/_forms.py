"""Forms: their defaults, the choice of a form for an operation, and the forms that a node adds.

Defaults follow TD 1.1, 5.4: operations by kind of affordance, and `application/json`. For each affordance a
node adds one form for LMOS over a WebSocket, as kotlin-wot does, and forms for HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from urllib.parse import quote

import attrs

from ._model import ActionAffordance, Description, EventAffordance, Form, PropertyAffordance, Streams
from ._reading import DescriptionError
from ._uris import resolve, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

AnyAffordance: TypeAlias = PropertyAffordance | ActionAffordance | EventAffordance
T = TypeVar("T", PropertyAffordance, ActionAffordance, EventAffordance)

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
OCTETS: Final = "application/octet-stream"
SUBPROTOCOL: Final = "lmosprotocol"

PROPERTY_OPS: Final = ("readproperty", "writeproperty", "observeproperty", "unobserveproperty")
ACTION_OPS: Final = ("invokeaction", "queryaction", "cancelaction")
EVENT_OPS: Final = ("subscribeevent", "unsubscribeevent")
THING_OPS: Final = (
    "readallproperties", "writeallproperties", "readmultipleproperties", "writemultipleproperties",
    "observeallproperties", "unobserveallproperties", "queryallactions", "subscribeallevents",
    "unsubscribeallevents",
)  # fmt: skip

PREFERENCE: Final = (
    SUBPROTOCOL, "wss", "ws", "https", "http", "https+sse", "http+sse", "https+longpoll", "http+longpoll",
)  # fmt: skip
"""Transports of an operation, best first: a subprotocol, a scheme alone, or scheme+subprotocol."""

_METHODS: Final = {
    "writeproperty": "PUT",
    "writeallproperties": "PUT",
    "writemultipleproperties": "PUT",
    "invokeaction": "POST",
    "cancelaction": "DELETE",
}
_PORTS: Final = {
    "ws": ("ws", "http"),
    "http": ("ws", "http"),
    "wss": ("wss", "https"),
    "https": ("wss", "https"),
}


def default_ops(affordance: AnyAffordance) -> tuple[str, ...]:
    """Return the operations of a form that names none (TD 1.1, 5.4). The default never includes observing."""
    if isinstance(affordance, ActionAffordance):
        return ("invokeaction",)
    if isinstance(affordance, EventAffordance):
        return EVENT_OPS
    ops: list[str] = []
    if not affordance.write_only:
        ops.append("readproperty")
    if not affordance.read_only:
        ops.append("writeproperty")
    return tuple(ops)


def effective_forms(description: Description, affordance: AnyAffordance | None = None) -> tuple[Form, ...]:
    """Return the forms of an affordance, or of the whole thing, with all defaults filled in.

    `href` is resolved against `base`, `op` is a tuple, `content_type` and `security` are filled in. A
    template remains a template: see `expand`. An `href` without `base` remains relative.
    """
    forms = (description if affordance is None else affordance).forms or ()
    ops = () if affordance is None else default_ops(affordance)
    return tuple(
        attrs.evolve(
            form,
            href=resolve(description.base, form.href),
            op=form.ops or ops,
            content_type=form.content_type or JSON,
            security=description.security if form.security is None else form.security,
        )
        for form in forms
    )


def choose(forms: Iterable[Form], op: str, preference: Sequence[str] = PREFERENCE) -> Form | None:
    """Return the form to use for an operation, or None if no form has a transport of `preference`.

    `forms` come from `effective_forms`. The first entry of `preference` that any form serves decides, then
    the order of the forms. A form with a subprotocol is never chosen by its scheme alone, because the
    messages on it would be unknown.
    """
    able = [form for form in forms if op in form.ops]
    for way in preference:
        for form in able:
            if way in _ways(form):
                return form
    return None


def _ways(form: Form) -> tuple[str, ...]:
    """Return the entries of a preference that a form matches."""
    scheme = scheme_of(form.href)
    if not form.subprotocol:
        return (scheme,)
    return (form.subprotocol, f"{scheme}+{form.subprotocol}")


def method_of(form: Form, op: str) -> str:
    """Return the HTTP method for an operation.

    It is the form's `htv:methodName`, or the default of the HTTP binding of WoT.
    """
    named = form.extra.get("htv:methodName")
    return named if isinstance(named, str) else _METHODS.get(op, "GET")


# --- the forms that a node adds


def with_forms(description: Description, agent: str, bases: Iterable[str]) -> Description:
    """Return the description, with its forms replaced by those of an agent served at these base URLs.

    A base is `ws://host:port` or the same with `wss`, `http` or `https`; one port serves both protocols. Each
    affordance gets, for each base, a form to `<base>/ws` with the subprotocol `lmosprotocol`, then forms to
    `<base>/agents/<agent>/...`. The thing itself gets forms for operations on all properties, actions
    or events at once.

    The HTTP form of an action that returns a stream uses server-sent events. The content type for an action
    that accepts a stream is JSON lines, or octets. An action that accepts several streams has no HTTP form,
    because a request has only one body. Raise DescriptionError for an invalid base.
    """
    ports = [_port(base) for base in bases]
    properties, actions, events = description.properties, description.actions, description.events
    return attrs.evolve(
        description,
        properties=properties
        and {n: _with(each, ports, agent, n, description) for n, each in properties.items()},
        actions=actions and {n: _with(each, ports, agent, n, description) for n, each in actions.items()},
        events=events and {n: _with(each, ports, agent, n, description) for n, each in events.items()},
        forms=tuple(form for port in ports for form in _of_thing(description, port, agent)) or None,
    )


def _port(base: str) -> tuple[str, str]:
    """Return the URLs of a base for LMOS and for HTTP, both without a final slash."""
    scheme = scheme_of(base)
    _, _, place = base.partition("://")
    if scheme not in _PORTS or not place.strip("/"):
        raise DescriptionError(f"{base!r} is not a base URL: write it like ws://127.0.0.1:8080")
    ws, http = _PORTS[scheme]
    return f"{ws}://{place.rstrip('/')}", f"{http}://{place.rstrip('/')}"


def _with(
    affordance: T, ports: Sequence[tuple[str, str]], agent: str, name: str, description: Description
) -> T:
    flows = description.streams_of(name) if name in (description.actions or {}) else None
    forms = (form for port in ports for form in _of_affordance(affordance, port, agent, name, flows))
    return attrs.evolve(affordance, forms=tuple(forms) or None)


def _of_affordance(
    affordance: AnyAffordance, port: tuple[str, str], agent: str, name: str, flows: Streams | None
) -> Iterator[Form]:
    """Yield the forms of an affordance: LMOS first, then HTTP, with separate forms for subscriptions."""
    ws, http = port
    ops = served_ops(affordance)
    yield lmos_form(ws, ops)
    href = f"{http}/agents/{quote(agent, safe='')}/{_kind(affordance)}/{quote(name, safe='')}"
    if isinstance(affordance, PropertyAffordance):
        asked = tuple(op for op in ops if op in PROPERTY_OPS[:2])
        if asked:
            yield Form(href=href, op=asked, content_type=JSON)
        if len(asked) < len(ops):
            yield from _listening(f"{href}/observable", PROPERTY_OPS[2:])
    elif isinstance(affordance, EventAffordance):
        yield from _listening(href, EVENT_OPS)
    elif flows is not None and flows.input:
        yield from _streaming(href, flows)
    elif flows is not None:
        yield Form(href=href, op=("invokeaction",), content_type=JSON, subprotocol="sse")
    else:
        yield Form(href=href, op=("invokeaction",), content_type=JSON)
        if not affordance.synchronous:  # a synchronous action has no run to query or cancel
            yield _by_method(href, "queryaction", "GET")
            yield _by_method(href, "cancelaction", "DELETE")


def _streaming(href: str, flows: Streams) -> Iterator[Form]:
    """Yield the forms of an action with input streams. A single stream is the body; several have no form."""
    found = list((flows.input or {}).values())
    if len(found) > 1:
        return
    subprotocol = None if flows.output is None else "sse"
    for kind in (LINES, OCTETS) if found[0].content_type == OCTETS else (LINES,):
        yield Form(
            href=href,
            op=("invokeaction",),
            content_type=kind,
            subprotocol=subprotocol,
            response={"contentType": JSON},
        )


def _listening(href: str, ops: tuple[str, ...]) -> Iterator[Form]:
    for subprotocol in ("longpoll", "sse"):
        yield Form(href=href, op=ops, content_type=JSON, subprotocol=subprotocol)


def _by_method(href: str, op: str, method: str) -> Form:
    return Form(href=href, op=(op,), content_type=JSON, extra={"htv:methodName": method})


def _kind(affordance: AnyAffordance) -> str:
    if isinstance(affordance, ActionAffordance):
        return "actions"
    return "events" if isinstance(affordance, EventAffordance) else "properties"


def served_ops(affordance: AnyAffordance) -> tuple[str, ...]:
    """Return the operations that a node serves for an affordance over LMOS."""
    if isinstance(affordance, ActionAffordance):
        return ACTION_OPS
    heard = PROPERTY_OPS[2:] if isinstance(affordance, PropertyAffordance) and affordance.observable else ()
    return (*default_ops(affordance), *heard)


def lmos_form(base: str, ops: Iterable[str]) -> Form:
    """Return the form of a node's LMOS socket, `<base>/ws`; `op` is an array, as kotlin-wot writes it."""
    return Form(href=f"{base.rstrip('/')}/ws", op=tuple(ops), content_type=JSON, subprotocol=SUBPROTOCOL)


def _of_thing(description: Description, port: tuple[str, str], agent: str) -> Iterator[Form]:
    ws, http = port
    ops = tuple(_thing_ops(description))
    if ops:
        yield lmos_form(ws, ops)
    href = f"{http}/agents/{quote(agent, safe='')}"
    asked = tuple(op for op in ops if op.endswith("properties") and op != "readmultipleproperties")
    if asked:
        yield Form(href=f"{href}/properties", op=asked, content_type=JSON)
    if any(each.observable for each in (description.properties or {}).values()):
        heard = ("observeallproperties", "unobserveallproperties")
        yield Form(href=f"{href}/properties", op=heard, content_type=JSON, subprotocol="sse")
    if any(description.streams_of(name) is None for name in description.actions or {}):
        yield Form(href=f"{href}/actions", op=("queryallactions",), content_type=JSON)
    if description.events:
        heard = ("subscribeallevents", "unsubscribeallevents")
        yield Form(href=f"{href}/events", op=heard, content_type=JSON, subprotocol="sse")


def _thing_ops(description: Description) -> Iterator[str]:
    """Yield the operations on all properties or events at once for which LMOS or kotlin-wot has messages."""
    properties = (description.properties or {}).values()
    if any(not each.write_only for each in properties):
        yield from ("readallproperties", "readmultipleproperties")
    if any(not each.read_only for each in properties):
        yield from ("writeallproperties", "writemultipleproperties")
    if description.events:
        yield from ("subscribeallevents", "unsubscribeallevents")
