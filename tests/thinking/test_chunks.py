"""Chunks from a near model to the client: in the model's step where nobody has to wait, always in order."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node, simulate
from lmos_actors.actors import Outlet, pour
from lmos_actors.facades import ChatAgent, ChatTurn, TextChunk
from lmos_actors.llm import Model, ModelEnd, ModelItem, Reasoning, Tally, TextDelta
from lmos_actors.testing import settle
from lmos_actors.thinking import Budget, ThinkingAgent, think
from tests.thinking.models import Log, Script, said

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Ref
    from lmos_actors.llm import ModelRequest

    Answer = Callable[[ModelRequest], AsyncGenerator[ModelItem]]


class Plain(ThinkingAgent):
    """You talk."""


class Reader:
    """Takes the chunks of an answer, while it has room; notes the task that hands each of them over."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tasks: list[trio.lowlevel.Task] = []
        self.room = True
        self.outlet = Outlet(self.take)

    def take(self, item: Any) -> bool:
        if self.room and isinstance(item, TextChunk):
            self.texts.append(item.text)
            self.tasks.append(trio.lowlevel.current_task())
        return self.room

    async def read(self, agent: Ref[Any]) -> None:
        async with agent.stream(ChatAgent.chat, "hello") as items:
            await pour(items, self.outlet)

    def more(self) -> None:
        self.room = True
        self.outlet.go_on()


def play(answer: Answer, act: Callable[[Ref[Any]], Awaitable[Any]], cls: Any = Plain, **fields: Any) -> Any:
    """Have `act` talk to an agent whose model answers so."""

    async def main() -> Any:
        async with open_node() as node:
            await node.start(Script, answers=(answer,), heard=Log())
            result = await act(await node.start(cls, **fields))
            assert not node.crash_reports
            return result

    return simulate(main)


def test_a_chunk_goes_to_the_client_in_the_step_of_the_model() -> None:
    tasks: list[trio.lowlevel.Task] = []
    reader = Reader()

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        for word in ("one", "two", "three"):
            yield Reasoning("hm")
            yield TextDelta(word)
            assert reader.texts[-1] == word
            tasks.append(trio.lowlevel.current_task())
            await trio.sleep(1)
        yield ModelEnd()

    play(answer, reader.read)
    assert reader.texts == ["one", "two", "three"]
    assert reader.tasks == tasks


def test_many_chunks_at_once_let_others_run() -> None:
    seen: list[int] = []
    reader = Reader()

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        for number in range(200):
            yield TextDelta(f"{number}")
        yield ModelEnd()

    async def act(agent: Ref[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.read, agent)
            while len(reader.texts) < 200:
                seen.append(len(reader.texts))
                await trio.lowlevel.checkpoint()

    play(answer, act)
    assert reader.texts == [f"{number}" for number in range(200)]
    assert max(later - before for before, later in pairwise(seen)) <= 32


def test_a_client_without_room_gets_all_chunks_in_order_and_holds_the_model_up() -> None:
    sent: list[int] = []
    reader = Reader()

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        for number in range(60):
            reader.room = reader.room and number != 5
            yield TextDelta(f"{number}")
            sent.append(number)
        yield ModelEnd()

    async def act(agent: Ref[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.read, agent)
            await trio.sleep(1)
            assert len(reader.texts) == 5
            assert len(sent) < 30
            reader.more()

    play(answer, act)
    assert reader.texts == [f"{number}" for number in range(60)]


def test_a_chunk_stands_behind_what_another_task_is_saying() -> None:
    reader = Reader()

    class Busy(ChatAgent):
        """Says a thing beside what the model says."""

        async def reply(self, turn: ChatTurn) -> None:
            reader.room = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turn.say, "first")
                await trio.sleep(1)
                await think(self.find(Model), turn.text, say=turn.say)

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        reader.room = True  # but nobody has been told yet, and the first one is still on its way
        yield TextDelta("second")
        yield TextDelta("third")
        yield ModelEnd()

    async def act(agent: Ref[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.read, agent)
            await trio.sleep(5)
            reader.more()

    play(answer, act, Busy)
    assert reader.texts == ["first", "second", "third"]


def test_nothing_is_said_once_the_thinking_is_cancelled() -> None:
    scope = trio.CancelScope()

    class Impatient(ChatAgent):
        """Stops thinking when it is told to."""

        async def reply(self, turn: ChatTurn) -> str:
            with scope:
                await think(self.find(Model), turn.text, say=turn.say)
            assert turn.answer == "a"
            return "."

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        await trio.sleep(1)
        yield TextDelta("a")
        scope.cancel()
        yield TextDelta("b")
        yield ModelEnd()

    _, items = play(answer, said, Impatient)
    assert [item.text for item in items if isinstance(item, TextChunk)] == ["a", "."]
    assert items[-1].text == "a."


def test_the_chunk_that_is_beyond_the_budget_is_not_said() -> None:
    reader, most = Reader(), list[int]()

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        left = 300 - 64 - Tally(request).expected
        most.append(int(left * 1.25))
        for _ in range(1_000):
            yield TextDelta("four")  # a token
        yield ModelEnd()

    async def act(agent: Ref[Any]) -> None:
        with pytest.raises(ActionFailed, match="longer than the budget"):
            await reader.read(agent)
        (session,) = await agent.invoke(ChatAgent.sessions)
        (_, failed) = await agent.invoke(ChatAgent.history, session.id)
        assert failed.text == "".join(reader.texts)

    play(answer, act, budget=Budget(tokens=300))
    assert [len(reader.texts)] == most


def test_another_function_than_a_turns_gets_its_pieces_in_its_own_task() -> None:
    class Loud(ChatAgent):
        """Says it loudly."""

        async def reply(self, turn: ChatTurn) -> None:
            me = trio.lowlevel.current_task()

            async def say(text: str) -> None:
                assert trio.lowlevel.current_task() is me
                await trio.sleep(1)
                await turn.say(text.upper())

            await think(self.find(Model), turn.text, say=say)

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        for word in ("a", "b"):
            yield TextDelta(word)
            await trio.sleep(5)
        yield ModelEnd()

    _, items = play(answer, said, Loud)
    assert [item.text for item in items if isinstance(item, TextChunk)] == ["A", "B"]


def test_the_client_that_leaves_ends_the_request_of_the_model() -> None:
    ended: list[str] = []
    reader = Reader()

    async def answer(request: ModelRequest) -> AsyncGenerator[ModelItem]:
        try:
            while True:
                yield TextDelta("on and on ")
                await trio.sleep(1)
        except trio.Cancelled:
            ended.append("cancelled")
            raise

    async def act(agent: Ref[Any]) -> None:
        with trio.move_on_after(3.5):
            await reader.read(agent)
        await settle()
        assert ended == ["cancelled"]

    play(answer, act)
    assert len(reader.texts) == 4
