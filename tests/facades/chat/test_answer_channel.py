"""Items of answers: when those of durable agents leave, and those of several tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from lmos_actors import ChildSpec, action, open_node
from lmos_actors.errors import LmosActorsError
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.facades.chat import TextChunk, TurnDone
from lmos_actors.persistence import Put
from lmos_actors.thinking import ThinkingAgent
from tests.facades.lives import in_memory, virtual
from tests.persistence.stores import StoreOfTest
from tests.thinking.models import Log, Script, answered, wants


class Counted(msgspec.Struct, frozen=True):
    number: int


class Journaled(ChatAgent, durable="journal", snapshot_every=1):
    """Counts turns, in a journal; of its turns nothing is written before they end."""

    resumes = False
    total: int = 0

    def apply(self, fact: Counted) -> None:
        self.total += fact.number

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        self.record(Counted(1))
        yield f"{self.total}"

    @action
    def get(self) -> int:
        return self.total


class Serial(ChatAgent, durable=True, serial=True):
    """Counts turns, one at a time."""

    total: int = 0

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        self.total += 1
        yield f"{self.total}"

    @action
    def get(self) -> int:
        return self.total


KINDS = pytest.mark.parametrize("cls", [Journaled, Serial])


@KINDS
async def test_pieces_leave_at_once_and_the_end_waits_for_the_store(cls: Any) -> None:
    store, seen = StoreOfTest(), list[Any]()
    chunk = trio.Event()

    async def ask(desk: Any) -> None:
        async with desk.stream(cls.chat, "hello") as items:
            async for item in items:
                seen.append(item)
                if isinstance(item, TextChunk):
                    chunk.set()

    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        desk = await node.start_child(ChildSpec("desk", cls))
        store.may_commit.clear()
        before = len(store.commits)
        nursery.start_soon(ask, desk)
        await chunk.wait()
        assert len(store.commits) == before, "the store has not gone on by itself"
        assert not any(isinstance(item, TurnDone) for item in seen)
        store.may_commit.set()
    assert isinstance(seen[-1], TurnDone)


@KINDS
@virtual
async def test_who_has_got_the_end_finds_all_that_the_turn_has_changed(cls: Any) -> None:
    store, texts = in_memory(), []
    for _ in range(3):
        async with open_node(store=store) as node:
            desk: Any = await node.start_child(ChildSpec("desk", cls, shutdown="brutal"))
            async with desk.stream(cls.chat, "hello") as items:
                async for item in items:
                    if isinstance(item, TurnDone):
                        texts.append(item.text)
                        store.is_dead = True
                        node.force_stop()
                        break
        store.is_dead = False
    assert texts == ["1", "2", "3"]


class Mover(ChatAgent, durable="journal"):
    """Counts turns, as far as no earlier life has."""

    resumes = True
    total: int = 0

    def apply(self, fact: Counted) -> None:
        self.total += fact.number

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        if not turn.steps:
            self.record(Counted(1))
            await turn.record("counted")
        yield f"{self.total}"


@pytest.mark.parametrize("is_kept", [False, True])
@virtual
async def test_a_step_is_kept_after_what_was_recorded_before_it(is_kept: bool) -> None:
    """The process ends just before, or just after the commit of the step."""
    store = in_memory()

    def die(_: Any) -> None:
        store.is_dead = True

    def end(writes: Any) -> None:
        if any(isinstance(write, Put) and write.space == "chat steps" for write in writes):
            node.force_stop()
            store.is_dead, store.before_commit = not is_kept, die

    async with open_node(store=store) as node:
        mover = await node.start_child(ChildSpec("mover", Mover))
        store.before_commit = end
        with suppress(LmosActorsError):
            await answered(mover, "go", "s", new=True)
    store.is_dead, store.before_commit = False, None
    async with open_node(store=store) as node:
        mover = await node.start_child(ChildSpec("mover", Mover))
        _, answer = await mover.invoke(ChatAgent.history, "s", settled=True)
        assert answer.text == ("1" if is_kept else "2"), "a life that finds no step records again"


@virtual
async def test_turns_of_serial_agents_are_not_resumed() -> None:
    body = {"resumes": True, "reply": Serial.reply}
    with pytest.raises(TypeError, match="turns of a serial agent are not resumed"):
        type("Both", (ChatAgent,), body, serial=True)

    class Thinker(ThinkingAgent, serial=True):
        """You think."""

    store = in_memory()
    async with open_node(store=store) as node:
        await node.start_child(ChildSpec("model", partial(Script, answers=("Yes.",))))
        thinker = await node.start_child(ChildSpec("thinker", Thinker))
        assert await answered(thinker, "go") == "Yes."
    assert not any(isinstance(each, Put) and each.space == "chat turns" for each in store.commits)


class Buyer(ThinkingAgent, durable="journal"):
    """You buy."""

    total: int = 0

    def apply(self, fact: Counted) -> None:
        self.total += fact.number

    def tools_for(self, turn: ChatTurn) -> list[Any]:
        return [self.buy]

    def buy(self) -> str:
        """Buy one."""
        self.record(Counted(1))
        return "bought"

    @action
    def get(self) -> int:
        return self.total


@virtual
async def test_a_thinking_agent_may_be_durable_and_what_a_tool_records_is_kept_before_its_result() -> None:
    store, answers = in_memory(), (wants("buy"), "Bought.")

    def die(_: Any) -> None:
        store.is_dead = True

    def end(writes: Any) -> None:
        if any(isinstance(write, Put) and b'"bought"' in write.value for write in writes):
            node.force_stop()
            store.before_commit = die

    log = Log()
    for life in range(2):
        async with open_node(store=store) as node:
            await node.start(partial(Script, answers=answers, heard=log))
            buyer = await node.start_child(ChildSpec("buyer", Buyer))
            if not life:
                store.before_commit = end
                with suppress(LmosActorsError):
                    await answered(buyer, "go", "s", new=True)
                store.is_dead, store.before_commit = False, None
                continue
            _, answer = await buyer.invoke(ChatAgent.history, "s", settled=True)
            assert (answer.text, answer.failed) == ("Bought.", None)
            assert await buyer.invoke(Buyer.get) == 1


class Reporter(ChatAgent):
    """Says more in a task that outlives `reply`."""

    refused: int = 0

    async def reply(self, turn: ChatTurn) -> None:
        self.nursery.start_soon(self._go_on, turn)
        await trio.sleep(1)

    async def _go_on(self, turn: ChatTurn) -> None:
        for number in range(40):
            try:
                await turn.say(f"{number} ")
            except RuntimeError:
                self.refused += 1

    @action
    def get(self) -> int:
        return self.refused


@virtual
async def test_a_turn_ends_behind_an_item_that_another_task_puts_out() -> None:
    async with open_node() as node:
        reporter = await node.start(Reporter)
        async with reporter.stream(Reporter.chat, "go") as items:
            await trio.sleep(2)  # the other task waits for room when the turn ends
            *found, done = [item async for item in items]
        chunks = [item.text for item in found if isinstance(item, TextChunk)]
        assert isinstance(done, TurnDone)
        assert done.text == "".join(chunks)
        await trio.sleep(1)
        assert await reporter.invoke(Reporter.get) == 40 - len(chunks)


class Fast(ChatAgent):
    """Never waits."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        for _ in range(10_000):
            yield "x"


async def test_a_turn_that_nobody_hears_lets_others_run() -> None:
    async with open_node() as node:
        fast = await node.start(Fast)
        await fast.tell(Fast.chat, "go")
        for _ in range(200):
            await trio.lowlevel.checkpoint()
        assert "turn-1" in node.tree()


class Many(ChatAgent):
    """Says more than fits."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        for _ in range(40):
            yield "x"


@virtual
async def test_the_waiting_graph_shows_that_the_child_waits_for_the_reader() -> None:
    async with open_node() as node:
        many = await node.start(Many)
        async with many.stream(Many.chat, "go"):
            await trio.sleep(1)
            assert str(node.waiting_graph()).splitlines() == [
                "many (run of 'chat') waits for the answer to 'run' from many/turn-1",
                "many/turn-1 (run of 'run') waits for a seat for 'chat' with user code",
            ]
