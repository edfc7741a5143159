"""What the server holds for a connection goes with it: nothing large waits for the collector of cycles."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, action
from lmos_actors._core import Budget
from lmos_actors.bindings.lmos._server_memories import AnswerMemories
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, Serving, serving

SIZE = 500_000
NAMED = ((b"lmos-peer", b"0123456789abcdef0123456789abcdef"),)


class Large(Agent):
    @action
    def text(self, size: int) -> str:
        return "x" * size

    @action
    def numbers(self, count: int) -> list[int]:
        return [100 + number % 900 for number in range(count)]

    @action(on_disconnect="finish")
    async def late(self) -> None:
        await trio.sleep(10)


class Counter(Agent):
    count: int = 0

    @action
    def more(self) -> int:
        self.count += 1
        return self.count


@pytest.mark.parametrize(("seconds", "wait", "count"), [(5.0, 4.0, 1), (5.0, 6.0, 2), (60.0, 6.0, 1)])
async def test_how_long_an_answer_is_remembered_is_an_option(
    virtual_clock: Any, seconds: float, wait: float, count: int
) -> None:
    options = lmos.SessionOptions(repeat_seconds=seconds)
    async with open_test_node() as node, serving(node, options=options) as served:
        await node.start_child(ChildSpec("counter", Counter))
        counts: list[int] = []
        for pause in (0.0, 0.0, wait):
            await trio.sleep(pause)
            line = await served.line(headers=NAMED)
            counts.append((await line.ask("invokeAction", thingID="counter", action="more"))["output"])
            line.leave()
        assert counts == [1, 1, count]


async def filled(served: Serving, *, headers: Any = (), late: bool = False) -> Line:
    """Connect somebody who has asked for large texts, and taken some of them."""
    line = await served.line(headers=headers)
    for _ in range(4):
        answer = await line.ask("invokeAction", thingID="large", action="text", input={"size": SIZE})
        assert len(answer["output"]) == SIZE
    line.put("invokeAction", thingID="large", action="text", input={"size": SIZE})
    if late:
        line.put("invokeAction", thingID="large", action="late")
    await settle()
    return line


@pytest.mark.parametrize("late", [False, True])
async def test_answers_go_with_their_connection(virtual_clock: Any, late: bool) -> None:
    """Also where a run of its goes on."""
    async with open_test_node() as node, serving(node) as served:
        await node.start_child(ChildSpec("large", Large))
        (await filled(served)).leave()  # what is made once
        await settle()
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            line = await filled(served, late=late)
            meanwhile = tracemalloc.get_traced_memory()[0] - before
            line.leave()
            del line
            await settle()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            gc.enable()
        assert served.server.statistics().open == int(late)
        assert meanwhile > 4 * SIZE
        assert held < SIZE / 2, f"{held} bytes"


async def test_memories_are_few_and_those_in_use_stay(virtual_clock: Any) -> None:
    memories = AnswerMemories(lmos.SessionOptions(remembered_peers=2))
    with memories.of(name_of(0)) as used:
        for number in range(1, 10):
            with memories.of(name_of(number)) as memory:
                remember(memory, number, 200)
        assert len(memories) == 3
        with memories.of(name_of(0)) as again:
            assert again is used
        assert len(memories) == 3
        with memories.of(name_of(9)) as memory:
            assert len(memory) == 1
    for number in (8, 9):
        with memories.of(name_of(number)) as memory:
            memory.expire(trio.current_time())
    await trio.sleep(61)
    for _ in range(3):
        with memories.of(name_of(20)):
            pass
    assert len(memories) <= 1


async def test_memories_of_those_who_left_are_bounded_in_bytes(virtual_clock: Any) -> None:
    memories = AnswerMemories(lmos.SessionOptions(remembered_peers=100, remembered_bytes=60_000))
    for number in range(10):
        with memories.of(name_of(number)) as memory:
            remember(memory, number, 20_000)
    assert len(memories) == 2
    for number in (8, 9):
        with memories.of(name_of(number)) as memory:
            assert len(memory) == 1


async def test_memories_that_are_forgotten_hold_nothing(virtual_clock: Any) -> None:
    memories = AnswerMemories(lmos.SessionOptions(remembered_peers=2))
    for number in range(10):
        with memories.of(name_of(number)) as memory:
            remember(memory, number, 200)
    held = 0
    for number in (8, 9):
        with memories.of(name_of(number)) as memory:
            assert len(memory) == 1
            held += memory.held
    assert memories.bound.bytes == held


async def test_whoever_is_answered_most_is_forgotten_first(virtual_clock: Any) -> None:
    """Also while its connection stands: the bound is one over all peers."""
    memories = AnswerMemories(lmos.SessionOptions(remembered_peers=100, remembered_bytes=60_000))
    with memories.of(name_of(1)) as small, memories.of(()) as nameless:
        remember(small, 1, 10_000)
        for number in range(10):
            remember(nameless, number, 10_000)
            assert memories.bound.bytes <= 60_000
        assert len(small) == 1
        assert 1 <= len(nameless) < 5
    assert memories.bound.bytes == small.held
    with memories.of(name_of(2)) as large:
        remember(large, 2, 500_000)
        assert (len(small), len(large)) == (1, 0)


async def test_ended_runs_count_with_what_is_remembered(virtual_clock: Any) -> None:
    """What can be queried of runs over open connections is held by the same bound."""
    async with open_test_node() as node, serving(node) as served:
        await node.start_child(ChildSpec("large", Large))
        memories: AnswerMemories = served.server._memories
        memories.bound.most = 3 * SIZE
        line = await served.line()
        for _ in range(6):
            await line.ask("invokeAction", thingID="large", action="text", input={"size": SIZE})
            assert memories.bound.bytes <= 3 * SIZE
        assert line.session_there.statistics().remembered < 6
        line.leave()
        await settle()
        assert memories.bound.bytes == 0


@pytest.mark.slow
async def test_peers_that_come_once_leave_no_more_than_the_bound(virtual_clock: Any) -> None:
    """Neither as garbage nor as Python objects, which are many times as large as their text."""
    async with open_test_node() as node, serving(node) as served:
        await node.start_child(ChildSpec("large", Large))
        memories: AnswerMemories = served.server._memories
        memories.bound.most = memories._most_bytes = 4 * SIZE
        await asked_once(served, 0)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(1, 9):
                await asked_once(served, number)
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            gc.enable()
        assert 0 < memories.bound.bytes <= 4 * SIZE
        assert held < 5 * SIZE, f"{held} bytes"


async def asked_once(served: Serving, number: int) -> None:
    """Connect somebody by a name of its own, who asks for much and is gone."""
    line = await served.line(headers=name_of(number))
    answer = await line.ask("invokeAction", thingID="large", action="numbers", input={"count": SIZE // 4})
    assert len(answer["output"]) == SIZE // 4
    line.leave()
    await settle()


def name_of(number: int) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"lmos-peer", b"%032d" % number),)


def remember(memory: lmos.AnswerMemory, number: int, size: int) -> None:
    session = lmos.ThingSession(offered=True, new_id=lambda: "id", memory=memory)
    said = f'{{"messageType":"writeProperty","thingID":"t","messageID":"m{number}","name":"p","data":1}}'
    (asked,) = session.receive(said, trio.current_time())
    assert isinstance(asked, lmos.IncomingRequest)
    session.answer(asked, "x" * size, datetime(2026, 1, 1, tzinfo=UTC))


async def test_what_a_peer_makes_the_server_hold_is_charged_to_it(virtual_clock: Any) -> None:
    """Requests that are open, by what they take as objects; and answers that it does not read."""
    async with open_test_node() as node, serving(node) as served:
        await node.start_child(ChildSpec("large", Large))
        line = await served.line()
        line.put("invokeAction", thingID="large", action="late", input={"more": [[]] * 1000})
        await settle()
        assert line.account.bytes > 50_000
        line.put("invokeAction", thingID="large", action="text", input={"size": SIZE})
        await settle()
        assert line.account.bytes > 50_000 + SIZE
        line.take()
        await trio.sleep(11)
        line.take()
        await settle()
        assert line.account.bytes == 0


async def test_a_peer_that_has_to_give_way_is_served_no_more(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as served:
        await node.start_child(ChildSpec("large", Large))
        greedy, good = await served.line(), await served.line(peer="consumer:2")
        budget = Budget(3 * SIZE)
        greedy.account, good.account = (
            budget.open(lambda line=line: line.handler.overdrawn()) for line in (greedy, good)
        )
        for _ in range(4):
            greedy.put("invokeAction", thingID="large", action="text", input={"size": SIZE})
            await settle()
        assert budget.statistics().gave_way == 1
        assert greedy.raw() == []
        answer = await good.ask("invokeAction", thingID="large", action="text", input={"size": SIZE})
        assert len(answer["output"]) == SIZE
        assert served.server.statistics().open == 0
