"""Agents that are offered to MCP clients, and ways to be such a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
from mcp import Client, MCPError
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from trio.testing import memory_stream_pair

from lmos_actors import ActionFailed, Agent, Event, Progress, Property, action, event, open_node, prop
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.mcp import serve_mcp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node
    from lmos_actors.mcp import McpOptions


class Place(msgspec.Struct):
    """A place on a map."""

    name: str
    height: float | None = None


class Marks:
    """Where the runs of an agent are."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.seconds = seconds
        """For how long `finish` runs."""
        self.began = trio.Event()
        self.ended = trio.Event()


class Weather(Agent):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius", doc="The unit of temperatures.")
    count: Property[int] = prop(default=0, read_only=True)
    password: Property[str] = prop(default="", write_only=True)
    asked: Event[str] = event(doc="Somebody has asked.")

    marks: Any = attrs.field(factory=Marks)

    @action(idempotent=True)
    async def forecast(self, progress: Progress[float], city: str, days: int = 1) -> str:
        """Forecast the weather of a city."""
        self.count += 1
        self.asked.emit(city)
        progress.report(0.25)
        await trio.sleep(0.01)
        progress.report(0.5)
        await trio.sleep(0.01)
        return f"{city}: sunny for {days} days, 25 degrees {self.units}"

    @action(safe=True)
    def look(self, name: str) -> Place:
        """Find a place."""
        return Place(name, 60.5)

    @action(safe=True)
    def places(self) -> list[Place]:
        return [Place("Bonn")]

    @action
    def move(self, place: Place) -> None:
        """Move the station."""

    @action
    async def hours(self, most: int) -> AsyncIterator[int]:
        """Count the hours."""
        for hour in range(most):
            yield hour

    @action
    async def hear(self, sounds: AsyncIterator[bytes]) -> int:
        """Take a stream, which no tool can."""
        return 0

    @action
    def refuse(self) -> None:
        raise ActionFailed({"code": "FULL", "detail": "no seat is left"})

    @action
    def crash(self) -> None:
        raise RuntimeError("the password is 4711")

    @action
    def large(self, size: int) -> str:
        return "x" * size

    @action
    async def wait(self) -> None:
        """Wait for ever."""
        self.marks.began.set()
        try:
            await trio.sleep_forever()
        finally:
            self.marks.ended.set()

    @action(on_disconnect="finish")
    async def finish(self) -> None:
        self.marks.began.set()
        await trio.sleep(self.marks.seconds)
        self.marks.ended.set()


class Hidden(Agent, private=True):
    """No peer may reach it."""

    @action
    def secret(self) -> str:
        return "secret"


class Support(ChatAgent):
    """You are talked to by users."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        """Repeat it."""
        for word in ("You said ", turn.text, f", {len(turn.history)} before."):
            yield word


class LineTransport:
    """The client's side of `serve_mcp`, as a transport of the SDK."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self._stream = stream

    async def __aenter__(self) -> tuple[Any, Any]:
        return self, self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def send(self, item: SessionMessage) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            await self._stream.send_all(text.encode() + b"\n")

    def __aiter__(self) -> AsyncGenerator[SessionMessage]:
        return self._messages()

    async def _messages(self) -> AsyncGenerator[SessionMessage]:
        buffer = b""
        while piece := await self._stream.receive_some():
            *lines, buffer = (buffer + bytes(piece)).split(b"\n")
            for line in lines:
                yield SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))


@asynccontextmanager
async def lines_of(
    node: Node, options: McpOptions | None = None
) -> AsyncIterator[trio.StapledStream[Any, Any]]:
    """A pair of streams to a node, as its one client has it."""
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_mcp, node, theirs, theirs, options)
        yield ours
        await ours.aclose()


@asynccontextmanager
async def client_of(
    node: Node, options: McpOptions | None = None, *, mode: Any = "legacy", **more: Any
) -> AsyncIterator[Client]:
    """A client of the official SDK on such streams."""
    async with lines_of(node, options) as stream, Client(LineTransport(stream), mode=mode, **more) as client:
        yield client


@asynccontextmanager
async def offered(*agents: type[Agent], **options: Any) -> AsyncIterator[Node]:
    """A node with agents."""
    async with open_node(**options) as node:
        for cls in agents or (Weather,):
            await node.start(cls)
        yield node


async def error_of(call: Any) -> MCPError:
    """Return the error that a request is answered by."""
    try:
        answer = await call
    except MCPError as error:
        return error
    raise AssertionError(f"no error, but {answer}")


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return "".join(each.text for each in result.content)
