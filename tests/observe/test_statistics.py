"""What `node.statistics()` counts, and that it counts without a call for each agent at rest."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    MailboxFull,
    MailboxOptions,
    NodeStatistics,
    OutcomeUnknown,
    Pool,
    Ref,
    SupervisorSpec,
    action,
    open_node,
    simulate,
)
from lmos_actors.testing import open_test_node, settle
from lmos_actors.transport import BudgetStatistics, ConnectionOptions, MemoryNetwork

if TYPE_CHECKING:
    from types import FrameType

    from lmos_actors.testing import TestNode

COUNTED = (
    "accepted", "handled", "cancelled", "dropped", "dead_lettered", "waiting", "running", "refused",
    "restarts",
)  # fmt: skip


class Busy(Agent):
    """Does whatever leaves something in its accounts."""

    @action
    def take(self, value: int) -> int:
        return value

    @action
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    def crash(self) -> None:
        raise ZeroDivisionError

    @action
    def later(self, seconds: float) -> None:
        self.after(seconds, self.nothing)

    @action
    def put_aside(self) -> None:
        self.stash()

    @action
    async def hire(self) -> None:
        await self.start(Busy)

    def nothing(self) -> None:
        pass


def summed(node: TestNode) -> dict[str, int]:
    """Add up what each agent says of itself."""
    each = [attrs.asdict(ref.statistics()) for ref in node.agents()]
    return {name: sum(numbers[name] for numbers in each) for name in COUNTED}


def counted(found: NodeStatistics) -> dict[str, int]:
    return {name: getattr(found, name) for name in COUNTED}


class Slow(Agent):
    """Takes its time."""

    @action
    async def take(self, text: str, seconds: float) -> int:
        await trio.sleep(seconds)
        return len(text)


steps = st.lists(
    st.tuples(
        st.sampled_from(["take", "work", "crash", "later", "put_aside", "hire", "pass"]), st.integers(0, 5)
    ),
    max_size=25,
)


async def do(ref: Ref[Any], verb: str, number: int) -> None:
    with suppress(AgentDied, MailboxFull):
        if verb == "work":
            with trio.move_on_after(1):
                await ref.invoke(Busy.work, float(number))
        elif verb == "later":
            await ref.tell(Busy.later, float(number))
        elif verb == "take" and number % 2:
            await ref.tell(Busy.take, number)
        elif verb == "put_aside":
            with trio.move_on_after(2):
                await ref.invoke(Busy.put_aside)
        else:
            call = {"crash": Busy.crash, "hire": Busy.hire}.get(verb)
            await (ref.invoke(Busy.take, number) if call is None else ref.invoke(call))


@given(steps)
def test_a_node_counts_what_its_agents_count(plan: list[tuple[str, int]]) -> None:
    async def main() -> None:
        small = MailboxOptions(2, "drop_oldest")
        crew = SupervisorSpec("crew", [ChildSpec("a", Busy), Pool(Busy, 2, name="pool")], max_restarts=100)
        tree = SupervisorSpec("root", [crew, ChildSpec("b", Busy, mailbox=small)], max_restarts=100)
        async with open_test_node(tree) as node, trio.open_nursery() as nursery:
            await node.root.start_many(ChildSpec("many", Busy), 3)
            refs = node.agents()
            for place, (verb, number) in enumerate(plan):
                if verb == "pass":
                    await trio.sleep(number / 4)
                else:
                    nursery.start_soon(do, refs[place % len(refs)], verb, number)
                await settle()
                found = node.statistics()
                assert counted(found) == summed(node)
                assert found.agents == len(node.agents())
                assert found.supervisors == 3 + len(
                    {ref.path.rpartition("/")[0] for ref in node.agents()}
                    - {
                        "",
                        "crew",
                        "crew/pool",
                    }
                )
            nursery.cancel_scope.cancel()

    simulate(main)


def test_an_agent_at_rest_is_counted_without_a_call() -> None:
    async def main() -> int:
        async with open_test_node() as node:
            refs = await node.root.start_many(ChildSpec("busy", Busy), 1_000)
            for ref in refs[::2]:
                await ref.invoke(Busy.take, 1)
            return calls(partial(_count, node))

    assert simulate(main) < 100


def _count(node: TestNode) -> None:
    found = node.statistics()
    assert (found.agents, found.handled) == (1_000, 500)


def calls(fn: Any) -> int:
    """Count the calls of functions written in Python that a call makes."""
    made = 0

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        fn()
    finally:
        sys.setprofile(before)
    return made


def test_what_peers_hold_of_the_memory_is_counted() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        narrow = ConnectionOptions(total_bytes=1 << 20)
        async with (
            open_node(listen="ws://server", network=network, connection=narrow) as server,
            open_node(network=network) as client,
            trio.open_nursery() as nursery,
        ):
            assert client.statistics().memory == BudgetStatistics(0, 256 << 20, 0)
            assert server.statistics().memory == BudgetStatistics(0, 1 << 20, 0)
            await server.start(Slow)
            slow = await client.consume(Slow, "ws://server/agents/slow")
            nursery.start_soon(slow.invoke, Slow.take, "x" * 200_000, 10.0)
            await trio.sleep(1)
            assert 200_000 < server.statistics().memory.bytes < 210_000
            await trio.sleep(20)
            assert server.statistics().memory.bytes == 0
            with suppress(OutcomeUnknown):
                await slow.invoke(Slow.take, "x" * 1_100_000, 10.0)
            assert server.statistics().memory == BudgetStatistics(0, 1 << 20, 1)

    simulate(main)
