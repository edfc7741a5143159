"""What the server holds for a connection goes with it: nothing large waits for the collector of cycles."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, action
from lmos_actors.bindings._server_memories import Memories
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from tests.bindings.lines import Line, Serving, serving

SIZE = 500_000
NAMED = ((b"lmos-peer", b"0123456789abcdef0123456789abcdef"),)


class Large(Agent):
    @action
    def text(self, size: int) -> str:
        return "x" * size

    @action(on_disconnect="finish")
    async def late(self) -> None:
        await trio.sleep(10)


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


async def test_memories_of_those_who_left_are_bounded_in_bytes(virtual_clock: Any) -> None:
    memories = Memories(100, most_bytes=1000)
    for number in range(10):
        with memories.of(name_of(number)) as memory:
            remember(memory, number, 200)
    assert len(memories) == 2
    for number in (8, 9):
        with memories.of(name_of(number)) as memory:
            assert len(memory) == 1
    with memories.of(name_of(10)) as memory:
        remember(memory, 10, 5000)
        assert len(memories) == 3
    assert len(memories) == 0


def name_of(number: int) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"lmos-peer", b"%032d" % number),)


def remember(memory: lmos.AnswerMemory, number: int, size: int) -> None:
    session = lmos.ThingSession(offered=True, new_id=lambda: "id", memory=memory)
    said = f'{{"messageType":"invokeAction","thingID":"t","messageID":"m{number}","action":"a"}}'
    (asked,) = session.receive(said, trio.current_time())
    assert isinstance(asked, lmos.Asked)
    session.complete(asked, "x" * size)
