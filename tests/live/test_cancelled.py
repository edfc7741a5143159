"""A node that looks at itself is cancelled at every single step: nothing of the look outlives it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, AgentError, ChildSpec, Node, SupervisorSpec, action, open_node
from lmos_actors.actors import TracedSlot, slot_of
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import MemoryNetwork
from tests.live.test_viewer import live_tasks
from tests.live.watching import SECURITY, watching
from tests.matrix import few_or_all
from tests.supervision.test_cancelled import Axe
from tests.supervision.world import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PLACE = "ws://here"
MOST_STEPS = 4_000


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text


class Asker(Agent):
    """Asks all the time."""

    def started(self) -> None:
        self.nursery.start_soon(self.ask_on)

    async def ask_on(self) -> None:
        while True:
            with suppress(AgentError, trio.TooSlowError), trio.fail_after(2):
                await self.find(Echo, "one").invoke(Echo.say, "x")
            await trio.sleep(0.1)


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("one", Echo),
        ChildSpec("asker", Asker),
        BulkSpec("many", member=ChildSpec("m", Echo), count=20),
    ],
)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "find": {"text": "m"},
    "agent": {"path": "one"},
    "rights": {"path": "one"},
}


def at_steps(scenario: Callable[[Axe], Awaitable[Any]], *, first: int, by: int, least: int) -> None:
    """Cancel a scenario at one step, then at a later one, until it is over before."""
    for step in range(first, MOST_STEPS, by):
        axe = Axe(step)
        run(partial(scenario, axe), seed=step)
        if not axe.fell:
            assert step > least, "there were hardly any steps to be cancelled at"
            return
    raise AssertionError(f"it takes more than {MOST_STEPS} steps")


async def look_at_all(network: MemoryNetwork) -> None:
    """Have all views open, and carry some operations out."""
    async with watching(PLACE, network) as watcher:
        for number, view in enumerate(watcher.hello["views"]):
            watcher.look(view, f"v{number}", **ARGUMENTS.get(view, {}))
        for number, what in enumerate(("hold", "release", "restart", "stop", "restart")):
            watcher.do(what, "one", f"o{number}")
            await trio.sleep(0.3)
        await trio.sleep(2)


def assert_untouched(node: Node, slots: list[Any]) -> None:
    """What a look changes in a node is as it was."""
    rt = node.root.rt
    assert rt.instrument is None
    assert not issubclass(rt.link, TracedSlot)
    assert {type(slot) for slot in slots} == {rt.link}


STRIDES = [
    pytest.param(1, few_or_all(71, 29), id="some"),
    *(pytest.param(n, 12, id=f"more-{n}", marks=pytest.mark.matrix) for n in range(2, 14, 3)),
]


@pytest.mark.parametrize(("first", "by"), STRIDES)
def test_a_node_that_is_cancelled_while_somebody_looks(first: int, by: int) -> None:
    async def scenario(axe: Axe) -> None:
        nodes: list[Node] = []
        slots: list[Any] = []

        async def all_of_it() -> None:
            network = MemoryNetwork()
            async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
                nodes.append(node)
                slots.extend(slot_of(ref) for ref in node.agents())
                await look_at_all(network)

        await axe.over(all_of_it)
        assert live_tasks() == []
        for node in nodes:
            assert_untouched(node, slots)

    at_steps(scenario, first=first, by=by, least=200)


@pytest.mark.slow  # its lines: the test above, test_viewer.py
@pytest.mark.parametrize(("first", "by"), [pytest.param(1, few_or_all(211, 29), id="some"), *STRIDES[1:]])
def test_a_viewer_that_is_cancelled(first: int, by: int) -> None:
    async def scenario(axe: Axe) -> None:
        network = MemoryNetwork()
        async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
            slots = [slot_of(ref) for ref in node.agents()]
            await axe.over(partial(look_at_all, network))
            await trio.sleep(10)
            assert live_tasks() == []
            assert_untouched(node, slots)
            await look_at_all(network)
            assert await node.find(Echo, "one").invoke(Echo.say, "still here") == "still here"

    at_steps(scenario, first=first, by=by, least=200)
