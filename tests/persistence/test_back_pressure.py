"""A durable agent whose outputs wait for the store: it takes no further turns, and its senders wait."""

from __future__ import annotations

import attrs
import trio

from lmos_actors import Agent, ChildSpec, MailboxOptions, Ref, action, ephemeral, open_node
from lmos_actors.persistence import SimulatedStore
from tests.seeded import simulated_disk

MANY = 10_000
HELD_AT_MOST = 1_024
ROOM = 100


class Sink(Agent):
    taken: list[int] = attrs.field(factory=list)

    @action
    def take(self, n: int) -> None:
        self.taken.append(n)

    @action
    def look(self) -> list[int]:
        return self.taken


class Counter(Agent, durable=True):
    count: int = 0
    sink: Ref[Sink] | None = ephemeral(default=None)

    @action
    def add(self) -> None:
        self.count += 1
        assert self.sink is not None
        self.send(self.sink, Sink.take, self.count)


async def test_ten_thousand_outputs_hold_the_agent_and_its_senders_back(autojump_clock: object) -> None:
    told, seconds = 0, 0.0
    store = SimulatedStore(simulated_disk(1, lambda: seconds))
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        sink = await node.start_child(ChildSpec("sink", Sink))
        options = MailboxOptions(ROOM)
        ref = await node.start_child(ChildSpec("counter", lambda: Counter(sink=sink), mailbox=options))
        seconds = 30.0

        async def tell() -> None:
            nonlocal told
            for _ in range(MANY):
                await ref.tell(Counter.add)
                told += 1

        nursery.start_soon(tell)
        await trio.sleep(29)
        held = ref.statistics().handled  # those that had waited for room have an answer too, which is held
        assert HELD_AT_MOST - ROOM <= held <= HELD_AT_MOST + ROOM
        assert told <= held + ROOM + 1
        statistics = node.statistics().store
        assert statistics is not None
        assert statistics.waiting <= HELD_AT_MOST + ROOM
        assert await sink.within(1).invoke(Sink.look) == []
        await trio.sleep(1_000)
        assert await sink.invoke(Sink.look) == list(range(1, MANY + 1))
