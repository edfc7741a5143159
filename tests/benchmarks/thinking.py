"""Agents that think: many conversations at once in one process, with a scripted model and a tool."""

from __future__ import annotations

import gc
from contextlib import AsyncExitStack, aclosing
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import open_node
from lmos_actors.facades import ChatAgent, ChatTurn, TextChunk
from lmos_actors.llm import Model, ModelEnd, ModelRequest, TextDelta, ToolRequest, UserMessage
from lmos_actors.thinking import ThinkingAgent
from tests.benchmarks.wire import resident

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from lmos_actors import Ref
    from lmos_actors.llm import ModelItem

CONVERSATIONS = 1_000
PIECE = TextDelta("a few words, ")


class Gate:
    """What answers wait for, and how many do."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.waiting = 0


async def answer(request: ModelRequest, gate: Gate | None = None) -> AsyncGenerator[ModelItem]:
    """Ask for the tool at first; then say as many pieces as the user wants."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    if len(request.messages) == 1:
        yield ToolRequest("1", "look_up", {"number": 17})
        yield ModelEnd("tools")
        return
    yield PIECE
    if gate is not None:
        gate.waiting += 1
        await gate.open.wait()
    for _ in range(int(first.text) - 1):
        yield PIECE
        await trio.lowlevel.checkpoint()  # as where each comes from a socket
    yield ModelEnd()


class Scripted(Model):
    """The model."""

    gate: Gate

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        async with aclosing(answer(request, self.gate)) as items:
            async for item in items:
                yield item  # noqa: ASYNC119 -- the runtime closes what it runs


def look_up(number: int) -> str:
    """Return the state of an order."""
    return "sent"


class Thinker(ThinkingAgent):
    """You help customers of a shop. Be brief."""

    tools = (look_up,)


class Plain(ChatAgent):
    """The same without a model: what a chat costs."""

    gate: Gate

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        """Answer a message."""
        yield PIECE.text
        self.gate.waiting += 1
        await self.gate.open.wait()
        for _ in range(int(turn.text) - 1):
            yield PIECE.text
            await trio.lowlevel.checkpoint()


async def talk(agent: Ref[Any], each: int) -> None:
    """Hold one conversation, and count its chunks."""
    chunks = 0
    async with agent.stream(ChatAgent.chat, str(each)) as items:
        async for item in items:
            chunks += isinstance(item, TextChunk)
    assert chunks == each


async def _crowd(agent: Ref[Any], gate: Gate, each: int, conversations: int) -> tuple[float, float]:
    """Return chunks a second, and bytes of memory of each conversation in the middle of its answer."""
    await _warm(agent, gate)
    gc.collect()
    before = resident()
    async with trio.open_nursery() as nursery:
        for _ in range(conversations):
            nursery.start_soon(talk, agent, each)
        while gate.waiting < conversations:
            await trio.lowlevel.checkpoint()
        gc.collect()
        used = (resident() - before) / conversations
        began = clock()
        gate.open.set()
    return conversations * (each - 1) / (clock() - began), used


async def _warm(agent: Ref[Any], gate: Gate) -> None:
    gate.open.set()
    await talk(agent, 3)
    gate.open = trio.Event()
    gate.waiting = 0


def _measured(chunks: int, *, thinks: bool, which: int) -> float:
    async def main() -> float:
        gate, conversations = Gate(), min(CONVERSATIONS, chunks)
        async with open_node() as node:
            if thinks:
                await node.start(Scripted, gate=gate, concurrency=CONVERSATIONS)
                agent: Ref[Any] = await node.start(Thinker)
            else:
                agent = await node.start(Plain, gate=gate)
            found = await _crowd(agent, gate, max(2, chunks // conversations), conversations)
            return found[which]

    return trio.run(main)


def chunks(n: int) -> float:
    """Chunks a second of 1,000 conversations, `n` chunks in all, each after a call of a tool."""
    return _measured(n, thinks=True, which=0)


def chunks_without_a_model(n: int) -> float:
    """The same of chat agents that say the chunks themselves."""
    return _measured(n, thinks=False, which=0)


def bytes_each(n: int) -> float:
    """Bytes of a conversation in the middle of its answer."""
    return _measured(n, thinks=True, which=1)


def bytes_without_a_model(n: int) -> float:
    """The same of chat agents that say the chunks themselves."""
    return _measured(n, thinks=False, which=1)


def rounds(n: int) -> float:
    """Turns a second of one conversation after another: two requests to the model and one tool each."""

    async def main() -> float:
        gate = Gate()
        gate.open.set()
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(open_node())
            await node.start(Scripted, gate=gate)
            agent = await node.start(Thinker)
            await talk(agent, 2)
            began = clock()
            for _ in range(n):
                await talk(agent, 2)
            return n / (clock() - began)

    return trio.run(main)
