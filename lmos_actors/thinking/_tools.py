"""Tools of a model: what can be a tool, what it is called, and how it is described to the model.

A source of tools is a function, a `Tool`, an agent by its ref or its class, some of its actions (`(ref,
Orders.find)`), or a thing that was consumed without a class. The actions of an agent with one output become
tools, by its class or its description; a ref to `Agent` itself, as `self.find(Agent, capability="x")`, leads
to an agent of any class. A chat agent is one tool: the model sends a message, and gets the answer. The tools
of an MCP server, a ref or `mcp(...)`, become tools.

Tools are named like the functions and actions; if two names are the same, the name of the agent is put before
them. The names of an MCP server are not trusted: they never replace the name of another tool. If a name loses
more than punctuation, or would equal another tool's name, a digest is appended, which does not depend on the
order of the tools. `MEMORY_TOOLS` are tools for the memories of the turn's user.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import msgspec
import trio

from lmos_actors._core import schema_complaint
from lmos_actors.actors import STREAM, Action, Agent, Ref, Turn, contract_of
from lmos_actors.bindings import ConsumedThing, look_elsewhere, thing_of
from lmos_actors.errors import ActionFailed, AgentDied, AgentError, AgentUnavailable, ToolFailed, text_of
from lmos_actors.facades import ChatAgent, Tool, TurnBegan, TurnDone, tool_of
from lmos_actors.facades.chat import raise_if_not_its_own
from lmos_actors.llm import ToolOffer
from lmos_actors.mcp import McpSource, McpTool, is_mcp_server, tool_problem, tools_of_server
from lmos_actors.protocol.td import without_notes

from ._memory_tools import MemoryTools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.actors import Contract
    from lmos_actors.facades import ChatTurn
    from lmos_actors.protocol.td import ActionAffordance

ToolSource: TypeAlias = (
    Tool
    | Callable[..., Any]
    | Ref[Any]
    | type[Agent]
    | ConsumedThing
    | McpSource
    | MemoryTools
    | tuple[Any, ...]
)
"""A source of tools: see the essay of this file."""

Find: TypeAlias = Callable[[type[Agent]], Ref[Any]]
"""Finds an agent of a class: `self.find` of an agent."""

LONGEST_NAME: Final = 64
"""Characters of the name of a tool: providers take no more."""

DIGEST: Final = 8
"""Characters of a digest in a name."""

REPEATS: Final = 2
"""The most repetitions of a request that has not begun."""

LOOK_SECONDS: Final = 10.0
"""Seconds to look in directories for an agent whose tools are to be read."""

MOST_ACTIONS: Final = 128
"""Tools of an agent that is known by its description: providers take no more tools in all."""

DESCRIBED_BYTES: Final = 131_072
"""Bytes of the descriptions and schemas of these tools: all of them go with each request to the model."""

FOREIGN_BYTES: Final = 262_144
"""Bytes of the descriptions and schemas of all tools of strangers in one request to a model."""

INPUT: Final = "input"
"""The argument that is the whole input of an action, if that is no object of plainly named members."""

SHOWN: Final = 100
"""Characters of a stranger's name in the log."""

MOST_REASONS: Final = 3

FORGET_SECONDS: Final = 1.0
"""Seconds that removing the session of a chat agent may take, also while the caller is cancelled."""

_LOG: Final = logging.getLogger("lmos_actors")

_OTHERS: Final = re.compile(r"[^a-zA-Z0-9_-]")

_PLAIN_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_ALTERNATIVES: Final = frozenset({"oneOf", "anyOf", "allOf", "not", "if", "enum", "const", "$ref"})
"""Words that providers refuse in the schema of all arguments."""

_NAMED: Final = ("$defs", "definitions")
"""Words for parts of a schema to which its references lead."""


@attrs.frozen
class _Named:
    """A tool, and the name of its agent ("" if it has none); the name of a `foreign` tool is not trusted."""

    tool: Tool
    agent: str = ""
    foreign: bool = False


@attrs.frozen
class _ServerTools:
    """The tools that were read from an MCP server."""

    name: str
    tools: Sequence[Tool]


def tools_of(sources: Sequence[ToolSource], find: Find | None = None) -> dict[str, Tool]:
    """Return the tools of the given sources, by name.

    `find` finds agents that are given by their class. An agent that is not known now, because it has not
    started yet, has no tools. Raise TypeError for an object that is not a source, and for an MCP server,
    whose tools have to be read (`tools_of_server`); ValueError for two functions of the same name.
    """
    return _by_name([each for source in sources for each in _named(source, find)], ())


async def read_tools(
    sources: Sequence[ToolSource], find: Find | None = None, *, taken: Sequence[str] = ()
) -> dict[str, Tool]:
    """Return the tools of `tools_of` and those of MCP servers, which never have a name in `taken`.

    A server that is restarting is waited for; if it does not become available, it has no tools, and this is
    logged. The agent of a ref to any `Agent` is looked up in the directories, if it has not been found yet.
    """
    found: list[Any] = list(sources)
    servers = [(place, _server_in(source, find)) for place, source in enumerate(sources)]

    async def read(place: int, server: Ref[Any]) -> None:
        found[place] = _ServerTools(_name_of(server), await _read_from(server))

    refs: list[Ref[Any]] = [each for each in sources if isinstance(each, Ref)]
    unknown = [each for each in refs if contract_of(each) is None]
    if unknown or any(server is not None for _, server in servers):
        async with trio.open_nursery() as nursery:
            for place, server in servers:
                if server is not None:
                    nursery.start_soon(read, place, server)
            for ref in unknown:
                nursery.start_soon(_look_for, ref)
    return _by_name([each for source in found for each in _named(source, find)], taken)


def _by_name(found: Sequence[_Named], taken: Sequence[str]) -> dict[str, Tool]:
    counts = Counter(each.tool.name for each in found)
    wanted = [
        (
            f"{each.agent}_{each.tool.name}" if counts[each.tool.name] > 1 and each.agent else each.tool.name,
            each,
        )
        for each in sorted(found, key=lambda named: named.foreign)
    ]
    several = Counter([*taken, *(proper_name(name) for name, _ in wanted)])
    tools: dict[str, Tool] = {}
    room, left_out = FOREIGN_BYTES, list[str]()
    for whole, each in wanted:
        name = proper_name(whole)
        if each.foreign and (room := room - _size(each.tool)) < 0:
            left_out.append(f"{whole[:SHOWN]!r}: all tools of others have more than {FOREIGN_BYTES} bytes")
            continue
        if each.foreign and several[name] > 1:
            digested = (_digested(f"{whole}#{number}" if number else whole) for number in count())
            name = next(other for other in digested if other not in tools and other not in taken)
        elif name in tools:
            raise ValueError(f"two tools are named {name!r}: use tool_of(..., name=...) for one of them")
        tools[name] = each.tool if name == each.tool.name else attrs.evolve(each.tool, name=name)
    _tell_left_out("a request to a model", left_out)
    return tools


def proper_name(name: str) -> str:
    """Return a name that all providers accept: at most 64 letters, digits, `_` and `-`.

    A longer name, or a name that is not ASCII, is reduced to the allowed characters, and a digest is
    appended.
    """
    plain = _OTHERS.sub("_", name)
    return plain if name.isascii() and len(plain) <= LONGEST_NAME else _digested(name)


def _digested(name: str) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
    plain = _OTHERS.sub("_", name)[: LONGEST_NAME - DIGEST - 1].strip("_")
    return f"{plain or 'tool'}_{digest}"


def offer_of(tool: Tool) -> ToolOffer:
    """Return the description of a tool that is offered to a model."""
    return ToolOffer(tool.name, tool.description, without_notes(tool.schema))


# ---- sources


def _named(source: Any, find: Find | None) -> Iterator[_Named]:
    if isinstance(source, Tool):
        yield _Named(source)
    elif isinstance(source, _ServerTools):
        yield from (_Named(tool, source.name, foreign=True) for tool in source.tools)
    elif isinstance(source, MemoryTools):
        raise TypeError("MEMORY_TOOLS is for the tools of a ThinkingAgent: give memory_tools(memories)")
    elif isinstance(source, McpSource):
        raise TypeError("mcp(...) is for the tools of a ThinkingAgent: start McpServer, and give its ref")
    elif _server_in(source, find) is not None:
        raise TypeError("the tools of an MCP server are read: await tools_of_server(ref)")
    elif isinstance(source, type) and issubclass(source, Agent):
        yield from _of_agent(_found(source, find), source.__contract__)
    elif isinstance(source, Ref):
        ref: Ref[Any] = source  # pyright: ignore[reportUnknownVariableType]
        yield from _of_agent(ref, contract_of(ref))
    elif isinstance(source, ConsumedThing):
        yield from _of_thing(source)
    elif isinstance(source, tuple) and len(source) > 1:  # pyright: ignore[reportUnknownArgumentType]
        parts: tuple[Any, ...] = source  # pyright: ignore[reportUnknownVariableType]
        first, *handles = parts
        ref = _found(first, find) if isinstance(first, type) else first
        yield from (_Named(_patient(tool_of(ref, handle), ref), _name_of(ref)) for handle in handles)
    elif callable(cast("object", source)) and not isinstance(source, type):
        yield _Named(tool_of(cast("Any", source)))
    else:
        raise _no_source(source)


def check_source(source: Any) -> None:
    """Check a source as far as possible before there is an agent. Raises TypeError."""
    is_class = isinstance(source, type)
    if isinstance(source, Tool | Ref | ConsumedThing) or (is_class and issubclass(source, Agent)):
        return
    if isinstance(source, tuple) and len(source) > 1:  # pyright: ignore[reportUnknownArgumentType]
        return
    if is_class or not callable(cast("object", source)):
        raise _no_source(source)
    tool_of(cast("Any", source))


def _no_source(source: Any) -> TypeError:
    hint = ""
    if hasattr(source, "options"):
        hint = "; write the class and the action: (Orders, Orders.find)"
    elif isinstance(source, type):
        hint = "; an agent's class is a subclass of Agent"
    elif hasattr(source, "refer"):
        hint = "; what was found is a tool by its ref: found.ref(Agent)"
    elif hasattr(source, "path"):
        hint = "; a sibling stands in the partial of a ChildSpec, and not in a class"
    return TypeError(
        f"a tool is a function, a Tool, an agent's class, a ref or (ref, handle), not {source!r}{hint}"
    )


def _server_in(source: Any, find: Find | None) -> Ref[Any] | None:
    """Return the MCP server if a source is one, or None for any other source."""
    if isinstance(source, type) and issubclass(source, Agent):
        return _found(source, find) if is_mcp_server(source.__contract__) else None
    if isinstance(source, Ref):
        ref: Ref[Any] = source  # pyright: ignore[reportUnknownVariableType]
        contract = contract_of(ref)
        return ref if contract is not None and is_mcp_server(contract) else None
    return None


async def _look_for(ref: Ref[Any]) -> None:
    """Look in directories for an agent whose tools are known only from its description."""
    with suppress(AgentError), trio.move_on_after(LOOK_SECONDS):
        await look_elsewhere(ref)


async def _read_from(server: Ref[Any]) -> list[Tool]:
    """Return the tools of a server, or none if the server does not become available."""
    why: AgentError | None = None
    for _ in range(REPEATS):
        try:
            return [_patient(tool, server) for tool in await tools_of_server(server)]
        except AgentError as error:
            why = error
        if not await is_back(server):
            break
    logging.getLogger("lmos_actors").warning("no tools of the MCP server %s: %s", server.path, why)
    return []


def _found(cls: Any, find: Find | None) -> Ref[Any]:
    if find is None:
        raise TypeError(
            f"{cls.__name__} is a class: give find=self.find, or the ref self.find({cls.__name__})"
        )
    return find(cls)


async def is_back(ref: Ref[Any]) -> bool:
    """Wait for at most 10 s until a restarting agent runs; return whether it runs."""
    with suppress(AgentError), trio.move_on_after(10.0):
        await ref.ready()
        return True
    return False


def _patient(tool: Tool, ref: Any) -> Tool:
    """Return a tool that waits for a restarting agent and calls it again, if its call had not begun."""

    async def call(given: Mapping[str, Any]) -> Any:
        for _ in range(REPEATS):
            try:
                return await tool.call(given)
            except ToolFailed as error:
                cause = error.__cause__
                unbegun = isinstance(cause, AgentUnavailable | AgentDied) and not cause.started
                if not unbegun or not await is_back(ref):
                    raise
        return await tool.call(given)

    return attrs.evolve(tool, call=call, agent=str(ref.path))


def _name_of(ref: Any) -> str:
    return str(ref.path).rpartition("/")[2]


def _of_agent(ref: Ref[Any], contract: Contract | None) -> Iterator[_Named]:
    if contract is None and (thing := thing_of(ref)) is not None:
        yield from _of_thing(thing)
        return
    if contract is None:
        _LOG.warning("%r offers no tools to a model: nothing is known of it, as it does not run", ref)
        return
    name = _name_of(ref)
    chats = ChatAgent.__contract__.actions
    if all(contract.actions.get(each) is handle for each, handle in chats.items()):
        yield _Named(chat_tool(ref, proper_name(name), contract), name)
    for wire, handle in contract.actions.items():
        op = contract.table[wire]
        if op.untyped and op.kind != STREAM:
            # nothing is known of its input, so it takes any object
            tool = _tool(wire, "", {"type": "object"}, partial(_invoke, ref, handle))
            yield _Named(_patient(tool, ref), name, foreign=True)
        elif isinstance(handle, Turn | Action) and not op.streams and chats.get(wire) is not handle:
            yield _Named(_patient(tool_of(cast("Any", ref), cast("Any", handle)), ref), name)


ASKED_BY: Final = "asked_by"
"""The member of the metadata of a tool's message: the agents that wait for the answer."""

ASKERS: Final[ContextVar[tuple[str, ...]]] = ContextVar("askers", default=())
"""The thinking agents that wait for the turn in progress, its own agent last; a question carries them along.

Each has a budget of its own, so agents that have each other as tools would ask one another without an end.
"""


def askers_of(turn: ChatTurn) -> tuple[str, ...]:
    """Return the agents that wait for the answer to a message, or () if its metadata is not valid."""
    said: Any = turn.metadata.get(ASKED_BY)
    return tuple(each for each in said if isinstance(each, str)) if isinstance(said, list) else ()  # pyright: ignore


def chat_tool(ref: Ref[Any], name: str, contract: Contract) -> Tool:
    """Return a chat agent as a tool: a conversation of one message, which is not kept."""

    async def ask(message: str) -> str:
        session = answer = ""
        try:
            askers = ASKERS.get()
            metadata = {ASKED_BY: list(askers)} if askers else None
            async with ref.stream(ChatAgent.chat, message, metadata=metadata) as items:
                async for item in items:
                    if isinstance(item, TurnBegan):
                        session = item.session
                    elif isinstance(item, TurnDone):
                        answer = item.text
        finally:
            with trio.move_on_after(FORGET_SECONDS, shield=True), suppress(AgentError):
                if session:
                    await ref.invoke(ChatAgent.forget, session)
        return answer

    doc = contract.doc or f"Ask {contract.title}."
    return attrs.evolve(tool_of(ask, name=name), description=doc, agent=str(ref.path))


async def _invoke(ref: Any, handle: Any, given: Mapping[str, Any]) -> Any:
    return await ref.invoke(handle, **given)


def _of_thing(thing: ConsumedThing) -> Iterator[_Named]:
    """Yield a tool for each action of a thing that has one output. Raise TypeError without a description.

    Actions that cannot be offered are left out and logged, because the description is not trusted.
    """
    described = thing.description
    if described is None:
        raise TypeError(f"{thing!r} has no description that says what it can do: consume it by its URL")
    name, room = proper_name(described.title or thing.path), DESCRIBED_BYTES
    actions = {w: each for w, each in (described.actions or {}).items() if described.streams_of(w) is None}
    left_out = [f"all after the first {MOST_ACTIONS}"] if len(actions) > MOST_ACTIONS else []
    for wire, action in islice(actions.items(), MOST_ACTIONS):
        tool, problem, size = _described(thing, wire, action)
        problem = problem or (f"all have more than {DESCRIBED_BYTES} bytes" if size > room else None)
        if problem is None:
            room -= size
            yield _Named(tool, name, foreign=True)
        else:
            left_out.append(f"{wire[:SHOWN]!r}: {problem}")
    _tell_left_out(repr(thing.path[:SHOWN]), left_out)


def _tell_left_out(what: str, left_out: Sequence[str]) -> None:
    if left_out:
        more = f"; and {len(left_out) - MOST_REASONS} more" if len(left_out) > MOST_REASONS else ""
        reasons = "; ".join(left_out[:MOST_REASONS])
        _LOG.warning("left out of the tools of %s: %s%s", what, reasons, more)


def _size(tool: Tool) -> int:
    return len(tool.description) + len(msgspec.json.encode(tool.schema))


def _described(thing: ConsumedThing, wire: str, action: ActionAffordance) -> tuple[Tool, str | None, int]:
    """Return a tool for an action, the reason to leave it out (or None), and its size in bytes.

    Input that is not an object becomes a single argument.
    """
    given = None if action.input is None else _json_schema(action.input)
    is_whole = given is None or _is_plain_object(given)
    schema: dict[str, Any] = {**(given or {}), "type": "object"}
    if not is_whole:
        named: dict[str, Any] = {word: schema[word] for word in _NAMED if word in schema}
        schema = {"type": "object", "properties": {INPUT: given}, "required": [INPUT], **named}
    written = msgspec.json.encode(schema).decode()
    claim = McpTool(wire, action.description or action.title or "", written)

    async def invoke(arguments: Mapping[str, Any]) -> Any:
        if given is None:
            return await thing.invoke(wire)
        return await thing.invoke(wire, dict(arguments) if is_whole else arguments[INPUT])

    tool = _patient(_tool(wire, claim.description, schema, invoke, written), thing)
    again, agent = bool(action.safe or action.idempotent), f"{thing.id} at {thing.url}"
    offered = attrs.evolve(tool, repeatable=again, agent=agent)
    return offered, tool_problem(claim), len(claim.description.encode()) + len(written)


def _is_plain_object(schema: dict[str, Any]) -> bool:
    """Return whether every provider accepts this schema as the schema of all arguments."""
    names: Any = schema.get("properties")
    kind = schema.get("type", "object" if names else None)
    is_plain = not isinstance(names, dict) or all(map(_PLAIN_NAME.fullmatch, names))  # pyright: ignore
    return kind == "object" and is_plain and _ALTERNATIVES.isdisjoint(schema)


def _json_schema(schema: Any) -> Any:
    """Convert a data schema of TD 1.1 to JSON Schema, which uses another keyword for items by position."""
    if isinstance(schema, dict):
        members: dict[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
        found: dict[str, Any] = {}
        for word, each in members.items():
            if word in ("properties", *_NAMED) and isinstance(each, dict):  # names, which mean nothing here
                parts: dict[str, Any] = each  # pyright: ignore[reportUnknownVariableType]
                found[word] = {name: _json_schema(part) for name, part in parts.items()}
            elif word in ("const", "default", "enum", "examples"):
                found[word] = each
            else:
                is_by_place = word == "items" and isinstance(each, list)
                found["prefixItems" if is_by_place else word] = _json_schema(each)
        return found
    return list(map(_json_schema, schema)) if isinstance(schema, list) else schema  # pyright: ignore


def _tool(
    name: str, description: str, schema: dict[str, Any], invoke: Callable[..., Any], checked: str = ""
) -> Tool:
    """Return a tool; `checked`, if given, is the JSON text of an argument schema that was checked already."""

    async def call(given: Mapping[str, Any]) -> Any:
        wrong = schema_complaint(checked, dict(given))
        if wrong is not None:
            raise ToolFailed(name, f"its arguments are not right: {wrong}")
        try:
            return msgspec.to_builtins(await invoke(given), str_keys=True)
        except ActionFailed as error:
            raise ToolFailed(name, str(error)) from error
        except BaseException as error:  # noqa: ASYNC103 -- trio's own exceptions pass
            raise_if_not_its_own(error)
            raise ToolFailed(name, f"{type(error).__name__}: {text_of(error)}") from error

    return Tool(name, description, schema, call)
