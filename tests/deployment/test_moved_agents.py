"""An agent with a key that moves to another node in the middle of a call, a stream or a commit.

Whichever way it moves, its caller has one end of each request, and what that says agrees with what the new
node has: an answer counts there, and an error that says that nothing has begun does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, Node, SupervisorSpec, action, open_node, simulate
from lmos_actors.actors import skew_clock
from lmos_actors.errors import AgentDied, AgentUnavailable, LmosActorsError, NotFound, OutcomeUnknown
from lmos_actors.persistence import SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.matrix import some
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from lmos_actors import Ref

Move = Literal["in order", "cut off", "standing still", "killed", "killed, what it wrote landed"]
Middle = Literal["call", "stream", "commit"]

HUB: Final = "http://hub:80"
SLOW: Final = 30.0
"""Seconds of a call or of a commit, in which the agent moves."""
LONG: Final = 200.0
"""Seconds in which each request has ended."""


class Ledger(Agent, durable=True):
    """Counts entries."""

    entries: int = 0

    @action
    def enter(self) -> int:
        self.entries += 1
        return self.entries

    @action(snapshot_safe=True)
    async def enter_slowly(self) -> int:
        await trio.sleep(SLOW)
        return self.enter()

    @action(snapshot_safe=True)
    async def enter_many(self) -> AsyncIterator[int]:
        for _ in range(int(SLOW)):
            yield self.enter()
            await trio.sleep(1)

    @action(safe=True)
    def count(self) -> int:
        return self.entries


@attrs.define
class Office:
    """Two nodes that share a disk and a directory; the agent is in the first one, its caller looks it up."""

    network: MemoryNetwork
    stores: list[SimulatedStore]
    nodes: list[Node]
    caller: Node
    latency: float = 0.01

    def ledger(self) -> Ref[Ledger]:
        return self.caller.find(Ledger, id="1")

    async def move(self, way: Move) -> None:
        """Have the agent leave the first node, where the second one stands by."""
        old, store = self.nodes[0], self.stores[0]
        if way == "in order":
            await old.drain()
            await old.root.terminate_child("ledger")
        elif way == "standing still":
            skew_clock(old.find(Ledger, "ledger"), rate=0.001)
        elif way == "cut off":
            store.is_cut_off = True
            self.network.sever("a", 80)
        else:
            store.die(lands=way != "killed")
            self.network.sever("a", 80)
            self.network.forget(("a", 80))
            old.force_stop()


async def play(middle: Middle, way: Move, *, is_repeated: bool) -> None:
    async with AsyncExitStack() as stack:
        office = await opened(stack)
        ends: list[Any] = []
        async with trio.open_nursery() as nursery:
            ledger = office.ledger()
            assert await ledger.invoke(Ledger.enter) == 1
            if middle == "commit":
                office.latency = SLOW  # of the next commit alone
            nursery.start_soon(ask, ledger, middle, is_repeated, ends)
            await trio.sleep(3)
            office.latency = 0.01
            nursery.start_soon(office.move, way)
            with trio.fail_after(LONG):
                while not ends:  # noqa: ASYNC110 -- on virtual time
                    await trio.sleep(0.1)
            await trio.sleep(SLOW)
            assert len(ends) == 1
        new = office.nodes[1].find(Ledger, "ledger")
        await new.ready()
        kept = await new.invoke(Ledger.count)
        check(middle, ends[0], kept, is_repeated=is_repeated)
        with trio.fail_after(LONG):
            assert await entered(office.ledger()) == kept + 1


async def opened(stack: AsyncExitStack) -> Office:
    network, enter = MemoryNetwork(), stack.enter_async_context
    disk = simulated_disk(1, lambda: office.latency, shared=True)
    stores = [SimulatedStore(disk), SimulatedStore(disk)]
    await enter(open_node(listen="ws://hub:80", directory=True, network=network))
    nodes = [
        await enter(
            open_node(
                SupervisorSpec("root"), listen=f"ws://{host}:80", register=HUB, store=store, network=network
            )
        )
        for host, store in zip("ab", stores, strict=True)
    ]
    office = Office(network, stores, nodes, await enter(open_node(lookup=HUB, network=network)))
    for node in nodes:
        await node.start_child(ChildSpec("ledger", Ledger, key="1", standby=True, shutdown=2 * SLOW))
        await trio.sleep(2)
    await office.ledger().ready()
    return office


async def ask(ledger: Ref[Ledger], middle: Middle, is_repeated: bool, ends: list[Any]) -> None:
    """Ask once, or until there is an answer; note the end, of a stream with the items before it."""
    items: list[int] = []
    view = ledger.retrying(attempts=None, seconds=LONG, key="entry") if is_repeated else ledger
    try:
        if middle == "stream":
            async with ledger.stream(Ledger.enter_many) as found:
                async for item in found:
                    items.append(item)
            ends.append((items, None))
        else:
            ends.append(await view.invoke(Ledger.enter if middle == "commit" else Ledger.enter_slowly))
    except LmosActorsError as error:
        ends.append((items, error) if middle == "stream" else error)


async def entered(ledger: Ref[Ledger]) -> int:
    """Enter once, as soon as the agent can be reached."""
    while True:
        try:
            return await ledger.invoke(Ledger.enter)
        except (AgentUnavailable, NotFound):
            await trio.sleep(0.2)


def check(middle: Middle, end: Any, kept: int, *, is_repeated: bool) -> None:
    """Check that the end of a request agrees with what was kept."""
    if middle == "stream":
        items, error = end
        assert items == list(range(2, len(items) + 2))
        assert kept >= len(items) + 1, "an item has left whose state was not kept"
        assert isinstance(error, (AgentDied, OutcomeUnknown)) or len(items) == SLOW
    elif isinstance(end, int):
        assert (end, kept) == (2, 2)
    else:
        # the death of an agent is not repeated by itself
        assert isinstance(end, AgentDied if is_repeated else (AgentDied, OutcomeUnknown, AgentUnavailable))
        may_have_begun = isinstance(end, OutcomeUnknown) or getattr(end, "started", False)
        assert kept in ((1, 2) if may_have_begun else (1,))


CASES = [
    (middle, way, is_repeated)
    for middle, way, is_repeated in product(get_args(Middle), get_args(Move), (False, True))
    if not (middle == "stream" and is_repeated)
]


@pytest.mark.parametrize(("middle", "way", "is_repeated"), some(CASES, of=3))
def test_each_request_has_one_end_that_agrees_with_what_is_kept(
    middle: Middle, way: Move, is_repeated: bool
) -> None:
    async def main() -> None:
        await play(middle, way, is_repeated=is_repeated)

    simulate(main)
