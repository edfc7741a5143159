"""Tools of a model: what can be one, under which name, and what a model gets of it.

A source of tools is a function, a `Tool`, an agent by its ref or its class, some of its actions
(`(ref, Orders.find)`), or a thing that was consumed without a class. Of an agent the actions with one output
become tools, by its class or its description. A chat agent is one tool: the model says something, and gets
the answer. The tools of an MCP server, a ref or `mcp(...)`, become tools. The names are those of the
functions and actions; where two are the same, that of the agent stands before them. The names of an MCP
server are a stranger's: they never take the place of another tool, and get a number where nothing else helps.
`MEMORY_TOOLS` are those of a turn's own user.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import msgspec
import trio

from lmos_actors.actors import STREAM, Action, Agent, Ref, Turn, contract_of
from lmos_actors.bindings import ConsumedThing
from lmos_actors.errors import ActionFailed, AgentDied, AgentError, AgentUnavailable, ToolFailed, text_of
from lmos_actors.facades import ChatAgent, Tool, TurnBegan, TurnDone, tool_of
from lmos_actors.facades.chat import raise_if_not_its_own
from lmos_actors.llm import ToolOffer
from lmos_actors.mcp import McpSource, is_mcp_server, tools_of_server

from ._memory_tools import MemoryTools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.actors import Contract
    from lmos_actors.facades import ChatTurn

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

REPEATS: Final = 2
"""The most repetitions of a request that has not begun."""

RESTART_SECONDS: Final = 10.0
"""Seconds in which an agent that is restarting is waited for."""

FORGET_SECONDS: Final = 1.0
"""Seconds that removing the session of a chat agent may take, also while the caller is cancelled."""

_LOG: Final = logging.getLogger("lmos_actors")

_OTHERS: Final = re.compile(r"[^a-zA-Z0-9_-]")

_NO_NOTE: Final = "Sent as it is, also beyond 2^53."
"""The bounds of integers in schemas, which are for readers with doubles; models would take them for hints."""


@attrs.frozen
class _Named:
    """A tool, and the name of its agent; empty where there is none. A stranger has named a `foreign` one."""

    tool: Tool
    agent: str = ""
    foreign: bool = False


@attrs.frozen
class _ServerTools:
    """The tools of an MCP server, as they were read."""

    name: str
    tools: Sequence[Tool]


def tools_of(sources: Sequence[ToolSource], find: Find | None = None) -> dict[str, Tool]:
    """Return the tools that some sources stand for, by name.

    `find` finds agents that are given by their class. An agent of which nothing is known now, as it has not
    started yet, has no tools. Raises TypeError for what is no source, and for an MCP server, whose tools have
    to be read (`tools_of_server`); ValueError for two functions of the same name.
    """
    return _by_name([each for source in sources for each in _named(source, find)], ())


async def read_tools(
    sources: Sequence[ToolSource], find: Find | None = None, *, taken: Sequence[str] = ()
) -> dict[str, Tool]:
    """Return what `tools_of` does, with the tools of MCP servers, none of which has a name that is `taken`.

    A server that is restarting is waited for; one that does not come back has no tools, which is logged.
    """
    found: list[Any] = list(sources)
    servers = [(place, _server_in(source, find)) for place, source in enumerate(sources)]

    async def read(place: int, server: Ref[Any]) -> None:
        found[place] = _ServerTools(_name_of(server), await _read_from(server))

    if any(server is not None for _, server in servers):
        async with trio.open_nursery() as nursery:
            for place, server in servers:
                if server is not None:
                    nursery.start_soon(read, place, server)
    return _by_name([each for source in found for each in _named(source, find)], taken)


def _by_name(found: Sequence[_Named], taken: Sequence[str]) -> dict[str, Tool]:
    counts: dict[str, int] = {}
    for each in found:
        counts[each.tool.name] = counts.get(each.tool.name, 0) + 1
    tools: dict[str, Tool] = {}
    for each in sorted(found, key=lambda named: named.foreign):
        name = each.tool.name
        if counts[name] > 1 and each.agent:
            name = f"{each.agent}_{name}"
        name = proper_name(name)
        if name in tools or (each.foreign and name in taken):
            if not each.foreign:
                raise ValueError(f"two tools are named {name!r}: use tool_of(..., name=...) for one of them")
            numbered = (f"{name[: LONGEST_NAME - 6]}_{number}" for number in count(2))
            name = next(other for other in numbered if other not in tools and other not in taken)
        tools[name] = each.tool if name == each.tool.name else attrs.evolve(each.tool, name=name)
    return tools


def proper_name(name: str) -> str:
    """Return a name that all providers take: letters, digits, `_` and `-`, 64 at most."""
    return _OTHERS.sub("_", name)[:LONGEST_NAME]


def offer_of(tool: Tool) -> ToolOffer:
    """Return what a model gets of a tool."""
    return ToolOffer(tool.name, tool.description, without_notes(tool.schema))


def without_notes(schema: Any) -> Any:
    """Return a schema without what it says to others than models."""
    if isinstance(schema, dict):
        members: dict[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
        return {
            name: without_notes(each)
            for name, each in members.items()
            if name != "description" or each != _NO_NOTE
        }
    return list(map(without_notes, schema)) if isinstance(schema, list) else schema  # pyright: ignore


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
    """Check what can be known of a source before there is an agent. Raises TypeError."""
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
    elif hasattr(source, "path"):
        hint = "; a sibling stands in the partial of a ChildSpec, and not in a class"
    return TypeError(
        f"a tool is a function, a Tool, an agent's class, a ref or (ref, handle), not {source!r}{hint}"
    )


def _server_in(source: Any, find: Find | None) -> Ref[Any] | None:
    """Return the MCP server that a source is; None for any other source."""
    if isinstance(source, type) and issubclass(source, Agent):
        return _found(source, find) if is_mcp_server(source.__contract__) else None
    if isinstance(source, Ref):
        ref: Ref[Any] = source  # pyright: ignore[reportUnknownVariableType]
        contract = contract_of(ref)
        return ref if contract is not None and is_mcp_server(contract) else None
    return None


async def _read_from(server: Ref[Any]) -> list[Tool]:
    """Return the tools of a server; none if it is not there, and does not come back."""
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
    """Wait until an agent runs that is restarting; return whether it does."""
    with suppress(AgentError), trio.move_on_after(RESTART_SECONDS):
        await ref.ready()
        return True
    return False


def _patient(tool: Tool, ref: Any) -> Tool:
    """Return a tool that waits for an agent that is restarting, as its call has not begun."""

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
            yield _Named(_patient(_untyped_tool(ref, wire, handle), ref), name, foreign=True)
        elif isinstance(handle, Turn | Action) and not op.streams and chats.get(wire) is not handle:
            yield _Named(_patient(tool_of(cast("Any", ref), cast("Any", handle)), ref), name)


ASKED_BY: Final = "asked_by"
"""The member of the metadata of a message that is a tool's: the agents that wait for the answer."""

ASKERS: Final[ContextVar[tuple[str, ...]]] = ContextVar("askers", default=())
"""The thinking agents that wait for the turn in progress, itself the last: what goes along with a question.

Each has a budget of its own, so agents that have each other as tools would ask one another without an end.
"""

MOST_ASKERS: Final = 8


def askers_of(turn: ChatTurn) -> tuple[str, ...]:
    """Return the agents that wait for the answer to a message; what comes from outside may be anything."""
    said: Any = turn.metadata.get(ASKED_BY)
    return tuple(each for each in said if isinstance(each, str)) if isinstance(said, list) else ()  # pyright: ignore


def chat_tool(ref: Ref[Any], name: str, contract: Contract) -> Tool:
    """Return a chat agent as a tool: a conversation of one message, of which nothing is kept."""

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


def _untyped_tool(ref: Ref[Any], name: str, handle: Any) -> Tool:
    """Return an action of an agent that is known by its names: it takes any object."""
    return _tool(name, "", {"type": "object"}, partial(_invoke, ref, handle))


async def _invoke(ref: Any, handle: Any, given: Mapping[str, Any]) -> Any:
    return await ref.invoke(handle, **given)


def _of_thing(thing: ConsumedThing) -> Iterator[_Named]:
    """Return the actions of a description with one output. Raises TypeError for a thing without one."""
    described = thing.description
    if described is None:
        raise TypeError(f"{thing!r} has no description that says what it can do: consume it by its URL")
    name = proper_name(described.title or thing.path)
    for wire, action in (described.actions or {}).items():
        if described.streams_of(wire) is None:
            schema = action.input or {"type": "object"}
            call = partial(_invoke_thing, thing, wire, has_input=action.input is not None)
            tool = _tool(wire, action.description or "", schema, call)
            again = bool(action.safe or action.idempotent)
            yield _Named(attrs.evolve(tool, repeatable=again, agent=thing.path), name, foreign=True)


async def _invoke_thing(thing: ConsumedThing, name: str, given: Mapping[str, Any], *, has_input: bool) -> Any:
    return await (thing.invoke(name, dict(given)) if has_input else thing.invoke(name))


def _tool(name: str, description: str, schema: dict[str, Any], invoke: Callable[..., Any]) -> Tool:
    """Return a tool whose arguments are checked where they go."""

    async def call(given: Mapping[str, Any]) -> Any:
        try:
            return msgspec.to_builtins(await invoke(given), str_keys=True)
        except ActionFailed as error:
            raise ToolFailed(name, str(error)) from error
        except BaseException as error:  # noqa: ASYNC103 -- what is of trio goes on
            raise_if_not_its_own(error)
            raise ToolFailed(name, f"{type(error).__name__}: {text_of(error)}") from error

    return Tool(name, description, schema, call)
