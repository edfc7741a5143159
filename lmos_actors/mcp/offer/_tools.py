"""The tools that agents of one class offer to MCP clients: its actions, and writing its properties.

A tool takes an object, and its structured result is an object, which the protocol demands up to 2025-11-25.
So any other input or output is the only member of an object: `input` or its own name, `result`, or `items`
for a stream. A chat agent has the tool `chat` in place of the actions of conversations, which are streams of
items that only programs understand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import attrs

from lmos_actors.actors import MISSING, STREAM, Agent, describe
from lmos_actors.facades import ChatAgent
from lmos_actors.protocol.td import without_notes

from .._marks import mark_of
from ._content import RESULT, is_content
from ._marked import Marked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmos_actors.actors import Contract, Operation, Property
    from lmos_actors.protocol.td import Description
    from lmos_actors.security import Verb

ToolKind: TypeAlias = Literal["action", "write", "chat"]

ITEMS: Final = "items"
CONTENT: Final = "content"
VALUE: Final = "value"

_OPEN: Final[dict[str, Any]] = {"type": "object"}

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_CHAT_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "content": {**_TEXT, "description": "The message."},
        "session": {
            **_TEXT,
            "description": "The conversation to go on with; without it a new one begins.",
        },
    },
    "required": ["content"],
}
_CHAT_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": _TEXT, "session": _TEXT},
    "required": ["text", "session"],
}


@attrs.frozen
class AgentTool:
    """A tool of the agents of one class.

    `what` is the last part of the tool's name, `key` the operation that it carries out. `lone` is the name of
    the member that holds the whole input, empty if there is no such member. `wrapper` is the same for the
    output, or `CONTENT` if the result itself determines what the client gets.
    """

    what: str
    kind: ToolKind
    key: str
    description: str
    input: dict[str, Any]
    output: dict[str, Any] | None
    lone: str = ""
    wrapper: str = ""
    read_only: bool = False
    idempotent: bool = False

    @property
    def verb(self) -> Verb:
        """The right that the tool needs."""
        return "write" if self.kind == "write" else "invoke"


@attrs.frozen
class AgentOffer:
    """The offer of agents of one class: tools by the last part of their names, properties and events.

    `prompts` and `reads` are actions that are offered as prompts and as resources, by name.
    """

    tools: Mapping[str, AgentTool]
    prompts: Mapping[str, Marked]
    reads: Mapping[str, Marked]
    properties: Mapping[str, str]
    """The description of each readable property, by name."""
    events: Mapping[str, str]


_OFFERS: Final[WeakKeyDictionary[type[Agent], AgentOffer]] = WeakKeyDictionary()


def offer_of(cls: type[Agent]) -> AgentOffer:
    """Return the offer of agents of a class; it is made once."""
    found = _OFFERS.get(cls)
    if found is None:
        found = _OFFERS[cls] = _made(cls)
    return found


def _made(cls: type[Agent]) -> AgentOffer:
    contract, described = cls.__contract__, describe(cls)
    tools = {tool.what: tool for tool in _writes(contract)}
    tools |= {tool.what: tool for tool in _actions(contract, described)}  # an action goes before a write
    properties = {
        name: made.doc or f"The property {name} of {contract.title}."
        for name, made in contract.properties.items()
        if not made.write_only
    }
    events = (described.events or {}).items()
    marked = {
        name: Marked(name, mark, ((described.actions or {})[name].description or ""), contract.table[name])
        for name, handle in contract.actions.items()
        if (mark := mark_of(handle)) is not None
    }
    reads = [each for each in marked.values() if each.mark.uri]
    reads.sort(key=lambda each: "{" in each.mark.uri)  # a template is for what has no URI of its own
    return AgentOffer(
        tools,
        {name: each for name, each in marked.items() if not each.mark.uri},
        {each.name: each for each in reads},
        properties,
        {name: each.description or f"The event {name} of {contract.title}." for name, each in events},
    )


def _actions(contract: Contract, described: Description) -> Iterator[AgentTool]:
    chats = ChatAgent.__contract__.actions
    is_chat = all(contract.actions.get(each) is handle for each, handle in chats.items())
    if is_chat:
        text = contract.doc or f"Chat with {contract.title}."
        yield AgentTool("chat", "chat", "chat", text, _CHAT_INPUT, _CHAT_OUTPUT)
    for name, handle in contract.actions.items():
        op = contract.table[name]
        if op.streams or chats.get(name) is handle or mark_of(handle) is not None:
            continue
        about = (described.actions or {})[name]
        given, lone = _input(op, about.input)
        output, wrapper = _output(op)
        options = handle.options
        yield AgentTool(
            name, "action", name, about.description or "", given, output, lone, wrapper,
            read_only=bool(options.safe), idempotent=bool(options.safe or options.idempotent),
        )  # fmt: skip


def _input(op: Operation, described: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Return the schema of an action's input, and the name of the member that holds all of it, or ""."""
    if op.untyped:
        return _OPEN, ""
    if op.whole:
        schema = without_notes(op.params[0].shape.schema)
        if schema.get("type") == "object":
            return schema, ""
        name = op.params[0].wire_name
        required = [name] if op.params[0].default is MISSING else []
        return {"type": "object", "properties": {name: schema}, "required": required}, name
    found = without_notes(described or {})  # it has the defaults
    return {"type": "object", "properties": {}, **found}, ""


def _output(op: Operation) -> tuple[dict[str, Any] | None, str]:
    """Return the schema of the structured result, or None, and the name of the member with the output."""
    if op.result_shape is None or op.untyped:
        return None, RESULT
    if op.kind != STREAM and is_content(op.result_shape.type):
        return None, CONTENT
    schema = without_notes(op.result_shape.schema)
    if op.kind == STREAM:
        return _one(ITEMS, {"type": "array", "items": schema}), ITEMS
    if schema == {"type": "null"}:
        return None, ""
    return (schema, "") if schema.get("type") == "object" else (_one(RESULT, schema), RESULT)


def _one(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, "required": [name]}


def _writes(contract: Contract) -> Iterator[AgentTool]:
    for name, made in contract.properties.items():
        if not made.read_only:
            yield _write(contract, name, made)


def _write(contract: Contract, name: str, made: Property[Any]) -> AgentTool:
    schema = without_notes(contract.table[f"={name}"].params[0].shape.schema)
    text = f"Set the property {name} of {contract.title}. {made.doc}".strip()
    return AgentTool(
        f"set_{name}", "write", f"={name}", text, _one(VALUE, schema), None, VALUE, idempotent=True
    )
