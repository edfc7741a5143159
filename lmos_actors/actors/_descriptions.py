"""The Agent or Tool Description of an agent class, made from its hints and docstrings.

A description made here lists what the agent offers, but no forms; the server adds the forms.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final, get_origin

import msgspec

from lmos_actors.protocol.td import (
    AGENT_TYPE,
    EXTENSIONS_PREFIX,
    JSON,
    TOOL_TYPE,
    Description,
    default_context,
    is_uri,
    load,
)

from ._agent import Agent
from .messages._operation import GATED, MISSING, STREAM, TURN
from .messages._request_keys import KEPT_ANSWERS, KEPT_BYTES, KEPT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .declaration._affordances import Event, Property
    from .declaration._contract import Contract
    from .messages._operation import Operation, Parameter
    from .values import Shape

BYTES: Final = "application/octet-stream"
NO_SECURITY: Final = "nosec_sc"


def check_id(id: object) -> str | None:
    """Return why a text cannot be an agent's id, which has to be a URI, or None if it can."""
    if isinstance(id, str) and is_uri(id):
        return None
    return f"must be a URI, such as urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10, not {id!r}"


def describe(cls: type[Agent], *, id: str | None = None) -> Description:
    """Return the Agent Description of a class, or its Tool Description with `tool=True`, without forms.

    The title is the name of the class; descriptions come from docstrings, `doc=` and `Meta`. Types are TD
    data schemas, names are the wire names. `id` is the URI of the thing, if it is known. Security is `nosec`;
    a server that requires credentials declares that in what it serves. Secret defaults are left out. (LMOS
    Agent Description Format; Thing Description 1.1.)

    Raises:
        TypeError: the class is no agent class.
        DescriptionError: the `Meta` of a type, or the `id`, cannot be part of a description.
    """
    contract = _contract_of(cls)
    about, tool = contract.options.about, bool(contract.options.tool)
    # the class's own docstring, or else the docstring of the nearest base that is an agent class
    docs = (vars(part).get("__doc__") for part in cls.__mro__[: cls.__mro__.index(Agent)])
    description = next((inspect.cleandoc(doc) for doc in docs if doc), None)
    affordances = {
        "properties": {name: _property(contract, name) for name in contract.properties},
        "actions": {name: _action(cls, contract, name) for name in contract.actions},
        "events": {name: _event(made) for name, made in contract.events.items()},
    }
    return load(
        {
            **(about.members() if about is not None else {}),
            "@context": default_context(),
            "@type": _types(TOOL_TYPE if tool else AGENT_TYPE, about.types if about is not None else ()),
            **_said(id=id, title=contract.title, description=description),
            **_extensions(contract),
            "securityDefinitions": {NO_SECURITY: {"scheme": "nosec"}},
            "security": NO_SECURITY,
            **{kind: each for kind, each in affordances.items() if each},
        }
    )


def _contract_of(cls: Any) -> Contract:
    if not isinstance(cls, type) or not issubclass(cls, Agent) or cls is Agent:
        raise TypeError(f"describe takes an agent class, not {cls!r}")
    return cls.__contract__


def _types(kind: str, more: Iterable[str]) -> str | list[str]:
    types = list(dict.fromkeys((kind, *more)))
    return types if len(types) > 1 else kind


def _extensions(contract: Contract) -> dict[str, Any]:
    """Return our own members, all for the thing: kotlin-wot refuses actions with unknown members."""
    table = {name: contract.table[name] for name in contract.actions}
    streams = {name: flows for name, op in table.items() if (flows := _flows(op))}
    progress = {name: op.progress.schema for name, op in table.items() if op.progress is not None}
    offers = ["streams"] if streams else []
    answers = {"seconds": KEPT_SECONDS, "count": KEPT_ANSWERS, "bytes": KEPT_BYTES}
    found: dict[str, Any] = {"offers": offers, "progress": progress, "streams": streams}
    found["answers"] = answers if contract.state is not None else None
    return {f"{EXTENSIONS_PREFIX}:{name}": value for name, value in found.items() if value}


def _said(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


# ---- affordances


def _property(contract: Contract, name: str) -> dict[str, Any]:
    made: Property[Any] = contract.properties[name]
    shape = contract.table[f"={name}"].params[0].shape
    observable = made.observable and not made.write_only
    return {
        **shape.schema,
        **_said(description=made.doc or None),
        **_said(readOnly=made.read_only or None, writeOnly=made.write_only or None),
        **_said(observable=observable or None),
    }


def _event(made: Event[Any]) -> dict[str, Any]:
    shape = made.shape
    assert shape is not None
    # the `Meta` of the outermost type counts, not the one of its class
    metadata = shape.type.__metadata__ if get_origin(shape.type) is Annotated else ()
    metas = (word.description for word in metadata if isinstance(word, msgspec.Meta))
    annotated = next((description for description in metas if description), None)
    return {**_said(description=made.doc or annotated), "data": shape.schema}


def _action(cls: type[Agent], contract: Contract, name: str) -> dict[str, Any]:
    op, options = contract.table[name], contract.actions[name].options
    synchronous = options.synchronous
    if synchronous is None and op.kind in (TURN, GATED) and not op.postpone:
        synchronous = True  # a turn that need not wait: its answer is the result
    return {
        **_said(description=_action_doc(cls, contract.actions[name])),
        **_said(input=_input(op)),
        **_output(op),
        "safe": options.safe,
        "idempotent": options.idempotent,
        **_said(synchronous=synchronous),
    }


def _action_doc(cls: type[Agent], handle: Any) -> str | None:
    """Return the docstring of an action, or else that of the nearest function that the action overrides."""
    name = handle.__wrapped__.__name__
    overridden = (vars(part).get(name) for part in cls.__mro__)
    # any other value, `None` among them, answers `__doc__` with the docstring of its class
    functions = (
        each
        for each in overridden
        if inspect.isfunction(each) or inspect.isfunction(getattr(each, "__wrapped__", None))
    )
    docs = (handle.__doc__, *(fn.__doc__ for fn in functions))
    return next((inspect.cleandoc(doc) for doc in docs if doc), None)


def _input(op: Operation) -> dict[str, Any] | None:
    """Return the schema of the input, an object keyed by parameter names; None without parameters."""
    if op.whole:
        return _parameter(op.params[0])
    params = [p for p in op.params if not p.is_stream]
    if not params:
        return None
    required = [p.wire_name for p in params if p.default is MISSING]
    return {
        "type": "object",
        "properties": {p.wire_name: _parameter(p) for p in params},
        **_said(required=required or None),
    }


def _parameter(p: Parameter) -> dict[str, Any]:
    if p.default is MISSING or p.shape.secrecy:
        return p.shape.schema
    return {**p.shape.schema, "default": msgspec.to_builtins(p.default, order="deterministic")}


def _output(op: Operation) -> dict[str, Any]:
    """Return the schema of the result, if there is one; items of a stream are described with the thing."""
    shape = op.result_shape
    assert shape is not None
    return {} if op.kind == STREAM or shape.schema == {"type": "null"} else {"output": shape.schema}


def _flows(op: Operation) -> dict[str, Any]:
    """Describe the streams of an action: its inputs by parameter, and its output."""
    inputs = {op.params[place].wire_name: _stream(op.params[place].shape) for place in op.streams}
    output = _stream(op.result_shape) if op.kind == STREAM and op.result_shape is not None else None
    return _said(input=inputs or None, output=output)


def _stream(shape: Shape[Any]) -> dict[str, Any]:
    """Describe the items of a stream: raw bytes, or else JSON with a schema."""
    if shape.schema.get("contentEncoding") == "base64":
        return {"contentType": shape.schema.get("contentMediaType", BYTES)}
    return {"contentType": JSON, "schema": shape.schema}
