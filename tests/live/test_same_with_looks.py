"""What agents do, and what is recorded of it, is the same whether somebody looks or not.

In one instant the order may be another one, as the tasks of the looks take part in it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
import trio

from lmos_actors import Agent, AgentError, ChildSpec, Pool, Progress, SupervisorSpec, action, open_node
from lmos_actors.persistence import SimulatedStore
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import MemoryNetwork
from tests.live.test_cancelled import ARGUMENTS
from tests.live.watching import SECURITY, watching
from tests.seeded import simulated_disk
from tests.supervision.world import run

PLACE = "ws://here"


class Worker(Agent):
    """Draws lots, has turns and runs, fails now and then, and sends to others."""

    done: int = 0

    @action
    def draw(self, number: int) -> float:
        self.done += number
        if self.random.random() < 0.1:
            raise RuntimeError("as it happens")
        if number > 1:
            self.send(self.find(Worker, "one"), Worker.draw, number - 1)
        return self.random.random()

    @action
    async def work(self, progress: Progress[int], number: int) -> float:
        await trio.sleep(self.random.random())
        progress.report(number)
        with suppress(AgentError):
            return await self.find(Worker, "two").invoke(Worker.draw, number)
        return -1.0

    @action
    def count(self) -> int:
        return self.done


class Keeper(Worker, durable=True, serial=True):
    """The same, with state that is kept."""


class Log:
    """An instrument that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, str, str]] = []

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        plain = {name: value for name, value in fields.items() if name != "report"}
        self.lines.append((trio.current_time(), agent, kind, str(plain)))


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("one", Worker),
        ChildSpec("two", Worker),
        ChildSpec("three", Keeper),
        Pool(Worker, 3, name="pool"),
        BulkSpec("many", member=ChildSpec("m", Worker), count=30),
    ],
    max_restarts=10**6,
)


async def story(node: Any) -> list[Any]:
    """Return what comes of some messages, and when."""
    random, found = Random(5), list[Any]()
    names = ["one", "two", "three", "pool", "many/3", "many/7"]

    async def ask(number: int, wait: float, name: str) -> None:
        await trio.sleep(wait)
        ref = node.find(Worker, name)
        answer: Any = None
        try:
            match number % 4:
                case 0:
                    answer = await ref.invoke(Worker.draw, number % 5)
                case 1:
                    answer = await ref.invoke(Worker.work, number % 5)
                case 2:
                    answer = await ref.tell(Worker.draw, 3)
                case _:
                    with trio.move_on_after(0.3):
                        answer = await ref.invoke(Worker.work, 2)
        except AgentError as error:
            answer = str(error)
        found.append((number, trio.current_time(), answer))

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(ask, number, 2 + random.random() * 8, random.choice(names))
    found.sort()  # tasks that wake in one instant do so in any order
    await trio.sleep(2)
    found += [
        await node.find(Worker, name).invoke(Worker.count) for name in ("one", "two", "three", "many/3")
    ]
    return found


async def told(recorded: bool, viewers: int) -> tuple[list[Any], list[Any]]:
    """Return what comes of the story, and its records, while so many look at everything."""
    network, log = MemoryNetwork(), Log() if recorded else None

    async def look() -> None:
        async with watching(PLACE, network) as watcher:
            for number, view in enumerate(watcher.hello["views"]):
                watcher.look(view, f"v{number}", **ARGUMENTS.get(view, {}))
            await trio.sleep_forever()

    store = SimulatedStore(simulated_disk(8, lambda: 0.003))
    async with (
        open_node(
            TREE, listen=PLACE, network=network, security=SECURITY, instrument=log, store=store
        ) as node,
        trio.open_nursery() as nursery,
    ):
        for _ in range(viewers):
            nursery.start_soon(look)
        found = await story(node)
        nursery.cancel_scope.cancel()
    return found, [] if log is None else sorted(log.lines)


@pytest.mark.parametrize("recorded", [False, True])
def test_the_same(recorded: bool) -> None:
    alone = run(partial(told, recorded, 0), seed=3)
    watched = run(partial(told, recorded, 2), seed=3)
    assert watched == alone
