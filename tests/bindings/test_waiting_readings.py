"""Memory of readings and progress that wait for slow observers: counted, shared, bounded, given back."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    ChildSpec,
    Event,
    Progress,
    Property,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.testing import settle
from lmos_actors.transport import ConnectionOptions, MemoryNetwork, endpoint_of
from tests.bindings.server_connections import Line, serving
from tests.bindings.web import Web

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import AgentRef
    from lmos_actors.transport import Budget

SIZE = 300_000
"""Bytes of a reading: so many in an outbox are a crowd."""


class Board(Agent):
    text: Property[str] = prop(default="")
    note: Property[str] = prop(default="")
    wiped: Event[int] = event()

    @action
    def write(self, number: int, size: int = SIZE) -> None:
        self.text = f"{number:04}" + "n" * size

    @action
    def remark(self, text: str) -> None:
        self.note = text

    @action
    def wipe(self) -> None:
        self.wiped.emit(0)

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    @action
    async def study(self, progress: Progress[str], size: int) -> None:
        for number in range(5):
            progress.report(f"{number}" + "p" * size)
        await trio.sleep(10)


class Served:
    """A board and connections to it, whose accounts are in the budget of its node."""

    def __init__(self, board: AgentRef, budget: Budget, line: Any) -> None:
        self.board = board
        self.budget = budget
        self._line = line
        self._lines = 0

    async def line(self, **observe: Any) -> Line:
        """Open a connection that observes everything."""
        line: Line = await self._line()
        line.account = self.budget.open(lambda: line.close(1013))
        self._lines += 1
        for name in ("text", "note"):
            line.put("observeProperty", thingID="board", name=name, **observe)
        await settle()
        assert len(line.take()) == 2
        return line

    def holds(self, size: int) -> bool:
        """Return whether so much is held, as coarse as it is charged, beside the observations themselves."""
        return size <= self.budget.statistics().bytes < size + size // 8 + 33_000 + 15_000 * self._lines


@asynccontextmanager
async def served(limit: int = 1 << 30) -> AsyncGenerator[Served]:
    async with open_node() as node, serving(node) as server:
        board = await node.start_child(ChildSpec("board", Board))
        budget = server.server.context.budget
        budget.limit = limit
        yield Served(board, budget, server.line)


def texts(line: Line) -> list[str]:
    """Return the beginnings of the texts that wait for a connection."""
    return [said["value"][:4] for said in line.take() if said["correlationID"] == "m1"]


async def test_a_reading_that_waits_counts(virtual_clock: object) -> None:
    async with served() as it:
        line = await it.line()
        assert it.holds(0)
        await it.board.invoke(Board.write, 1, 100_000)
        assert it.holds(100_000)
        await it.board.invoke(Board.write, 2, 50_000)
        assert it.holds(50_000)
        assert texts(line) == ["0002"]
        assert it.holds(0)


async def test_a_large_reading_is_there_once_however_many_it_waits_for(virtual_clock: object) -> None:
    async with served() as it:
        lines = [await it.line() for _ in range(20)]
        for number in range(1, 4):
            await it.board.invoke(Board.write, number)
        assert it.holds(SIZE)
        for line in lines[:19]:
            assert texts(line) == ["0003"]
        assert it.holds(SIZE)
        for line in lines:
            line.leave()
        await settle()
        assert it.holds(0)


async def test_readings_wait_in_order_behind_a_gap(virtual_clock: object) -> None:
    async with served() as it:
        line = await it.line(gaps=True)
        await it.board.invoke(Board.write, 1)
        with pytest.raises(Exception, match="boom"):
            await it.board.invoke(Board.crash)
        await settle()
        await it.board.invoke(Board.write, 2)
        await it.board.invoke(Board.write, 3)
        said = [one for one in line.take() if one["correlationID"] == "m1"]
        kinds = [(one["messageType"], one.get("value", "")[:4]) for one in said]
        assert kinds == [("propertyReading", "0001"), ("gap", ""), ("propertyReading", "0003")]
        assert it.holds(0)


async def test_the_latest_of_other_readings_of_a_crowded_connection_comes(
    virtual_clock: object,
) -> None:
    async with served() as it:
        line = await it.line()
        await it.board.invoke(Board.write, 1)
        for word in ("a", "b", "c"):
            await it.board.invoke(Board.remark, word)
        assert [one["value"][:4] for one in line.take()] == ["0001", "c"]
        assert it.holds(0)


async def test_the_time_of_a_reading_is_that_of_the_change(virtual_clock: object) -> None:
    async with served() as it:
        line = await it.line()
        for number in (1, 2):
            await it.board.invoke(Board.write, number)
        before = line.handler._rt.entropy.now()
        await trio.sleep(100)
        (reading,) = line.take()
        assert reading["timestamp"][:19] == before.isoformat()[:19]


async def test_readings_beyond_the_budget_become_a_gap(
    virtual_clock: object,
) -> None:
    async with served(limit=8 * SIZE) as it:
        lines = [await it.line(gaps=bool(number % 2)) for number in range(6)]
        for number in (1, 2):  # the second is there once
            await it.board.invoke(Board.write, number, SIZE - 10_000 * number)
        await it.board.invoke(Board.write, 3, 9 * SIZE)
        assert it.holds(0)
        assert it.budget.statistics().gave_way >= 1
        await it.board.invoke(Board.write, 4)
        for number, line in enumerate(lines):
            said = [one for one in line.take() if one["correlationID"] == "m1"]
            kinds = [one["messageType"] for one in said]
            assert kinds == ["gap", "propertyReading"] if number % 2 else ["propertyReading"]
            assert said[-1]["value"][:4] == "0004"
            assert line.closed is None
        assert it.holds(0)


async def test_progress_that_waits_counts(virtual_clock: object) -> None:
    async with served() as it:
        line = await it.line()
        line.put("invokeAction", thingID="board", action="study", input={"size": 100_000})
        await settle()
        assert it.holds(100_000)
        (said,) = [one for one in line.take() if "progress" in one]
        assert said["progress"][0] == "4"
        assert it.holds(0)
        await trio.sleep(11)
        assert line.take()[-1]["status"] == "completed"
        assert it.holds(0)


LIMIT = 6 << 20


async def test_many_slow_observers_hold_no_more_than_the_budget(autojump_clock: object) -> None:
    network = MemoryNetwork(10_000)
    tree = SupervisorSpec("root", [ChildSpec("board", Board)])
    options = ConnectionOptions(total_bytes=LIMIT)
    async with open_node(tree, listen="ws://here:80", network=network, connection=options) as node:
        board = node.find(Board)
        webs: list[Web] = []
        for _ in range(10):
            web = Web(await network.connect(endpoint_of("ws://here:80"), None), "/agents/board")
            await web.listen("properties/text")
            webs.append(web)
        for number in range(1, 30):
            await board.invoke(Board.write, number)
            await trio.sleep(0.01)
            # each is being sent one, and all wait for the same next one
            assert node.statistics().memory.bytes < 12 * SIZE
        for web in webs:
            await web.leave()
        await wait_all_tasks_blocked()
        assert node.statistics().memory.bytes == 0
