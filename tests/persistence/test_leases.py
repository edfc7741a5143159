"""Leases of agents with keys of their own: one node of several that share a store runs each."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Down,
    Event,
    Ref,
    StartFailed,
    SupervisorSpec,
    action,
    ephemeral,
    event,
    open_node,
    simulate,
)
from lmos_actors.actors import skew_clock, slot_of
from lmos_actors.errors import ConfigError, LeaseHeld, LeaseLost
from lmos_actors.persistence import MemoryStore, SimulatedDisk, SimulatedStore
from tests.persistence.stores import StoreOfTest, every_store
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from lmos_actors import Node
    from tests.persistence.stores import Make

KEY = "42"


class Counter(Agent, durable=True):
    """A counter of which there is one, wherever it runs."""

    n: int = 0
    counted: Event[int] = event()

    @action
    def add(self) -> int:
        self.n += 1
        self.counted.emit(self.n)
        return self.n

    @action
    def look(self) -> int:
        return self.n

    @action
    def crash(self) -> None:
        raise RuntimeError("as asked")


class Sink(Agent):
    """Counts what it gets."""

    got: int = 0

    @action
    def take(self) -> None:
        self.got += 1

    @action
    def look(self) -> int:
        return self.got


class Teller(Counter):
    sink: Ref[Sink] | None = ephemeral(default=None)

    @action
    def tell(self) -> None:
        self.n += 1
        if self.sink is not None:
            self.send(self.sink, Sink.take)

    @action
    def watch(self) -> None:
        self.counted.emit(self.n)

    @action(snapshot_safe=True)
    async def run(self) -> int:
        self.n += 1
        if self.sink is not None:
            await self.sink.invoke(Sink.take)
        return self.n


class Parting(Teller):
    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        yield
        if self.sink is not None:
            await self.sink.tell(Sink.take)


class Slow(Counter):
    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        await trio.sleep(15)
        yield


class Parent(Agent):
    @action
    async def begin(self) -> None:
        await self.start_child(spec())


def spec(cls: Any = Counter, name: str = "counter") -> ChildSpec[Any]:
    return ChildSpec(name, cls, key=KEY)


def epoch_of(ref: Ref[Any]) -> int | None:
    gate = slot_of(ref).output_gate
    assert gate is not None
    return gate.state.epoch


@attrs.define
class Pair:
    """Two nodes that share a store, each with a way of its own to it."""

    disk: SimulatedDisk
    stores: list[SimulatedStore]
    nodes: list[Node]

    def counter(self, number: int) -> Ref[Counter]:
        return self.nodes[number].find(Counter, "counter")


@asynccontextmanager
async def pair(seconds: float = 0.01) -> AsyncIterator[Pair]:
    disk = simulated_disk(1, lambda: seconds, shared=True)
    stores = [SimulatedStore(disk), SimulatedStore(disk)]
    trees = [SupervisorSpec("root", max_restarts=1_000) for _ in stores]
    async with open_node(trees[0], store=stores[0]) as a, open_node(trees[1], store=stores[1]) as b:
        yield Pair(disk, stores, [a, b])


def play(story: Any) -> None:
    async def main() -> None:
        async with pair() as two:
            await story(two)

    simulate(main)


@every_store
def test_each_opening_of_a_store_has_an_epoch_of_its_own_and_waits_for_nobody(
    make: Make, tmp_path: Path, autojump_clock: object
) -> None:
    store = make(tmp_path)

    async def main() -> None:
        for life in range(1, 4):
            began = trio.current_time()
            async with open_node(store=store) as node:
                counter = await node.start_child(spec())
                assert await counter.invoke(Counter.add) == life
                assert epoch_of(counter) == life
                with pytest.raises(AgentDied):
                    await counter.invoke(Counter.crash)
                await counter.ready()
                assert await counter.invoke(Counter.look) == life
                assert epoch_of(counter) == life, "a restart is no grant"
                await node.root.terminate_child("counter")
                assert epoch_of(counter) is None
            assert trio.current_time() == pytest.approx(began, abs=1)

    trio.run(main, clock=autojump_clock)  # type: ignore[arg-type]


@pytest.mark.parametrize("shared", [True, False])
def test_only_an_agent_with_a_key_has_a_lease(shared: bool) -> None:
    async def main() -> None:
        async with open_node(store=MemoryStore(shared=shared)) as node:
            if shared:
                with pytest.raises(StartFailed, match=r"each durable agent needs a key of its own, Chi"):
                    await node.start_child(ChildSpec("counter", Counter))
            else:
                counter = await node.start_child(ChildSpec("counter", Counter))
                assert epoch_of(counter) is None
                assert await counter.invoke(Counter.add) == 1

    simulate(main)


def test_a_start_waits_for_a_lease_and_then_fails_with_its_holder() -> None:
    async def story(two: Pair) -> None:
        await two.nodes[0].start_child(spec())
        began = trio.current_time()
        with pytest.raises(
            StartFailed, match=r"a node without a URL holds the lease of the key '42' \(epoch 1\), until 20"
        ) as failed:
            await two.nodes[1].start_child(spec())
        assert trio.current_time() - began == pytest.approx(15, abs=0.3)
        held = failed.value.__cause__
        assert isinstance(held, LeaseHeld)
        assert (held.key, held.holder, held.epoch) == (KEY, "a node without a URL", 1)
        assert two.nodes[1].crash_reports == (), "which is no crash"
        assert await two.counter(0).invoke(Counter.add) == 1

    play(story)


def test_a_lease_is_released_when_its_agent_stops() -> None:
    async def story(two: Pair) -> None:
        for life in range(1, 6):
            node, began = two.nodes[life % 2], trio.current_time()
            counter = await node.start_child(spec())
            assert trio.current_time() - began < 0.3
            assert (await counter.invoke(Counter.add), epoch_of(counter)) == (life, life)
            await node.root.terminate_child("counter")
            await node.root.delete_child("counter")

    play(story)


def test_a_lease_is_released_when_its_node_ends() -> None:
    async def main() -> None:
        store = MemoryStore(shared=True)
        async with open_node(store=store) as other:
            for life in (1, 3):
                async with open_node(SupervisorSpec("root", [spec()]), store=store) as node:
                    assert await node.find(Counter).invoke(Counter.add) == life
                began = trio.current_time()
                counter = await other.start_child(spec())
                assert trio.current_time() - began < 0.3
                assert (await counter.invoke(Counter.add), epoch_of(counter)) == (life + 1, life + 1)
                await other.root.terminate_child("counter")
                await other.root.delete_child("counter")

    simulate(main)


def test_a_waiting_start_has_the_lease_soon_after_its_release() -> None:
    async def story(two: Pair) -> None:
        await two.nodes[0].start_child(spec())

        async def stop() -> None:
            await trio.sleep(3)
            await two.nodes[0].root.terminate_child("counter")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            counter = await two.nodes[1].start_child(spec())
            assert 3 < trio.current_time() < 3.5
            assert epoch_of(counter) == 2

    play(story)


def test_a_start_that_is_cancelled_leaves_no_lease() -> None:
    async def story(two: Pair) -> None:
        two.disk.factor = 100.0  # a commit takes a second
        parent = await two.nodes[0].start_child(ChildSpec("parent", Parent))
        with trio.move_on_after(0.5):
            await parent.invoke(Parent.begin)
        began = trio.current_time()
        assert epoch_of(await two.nodes[1].start_child(spec())) == 2
        assert trio.current_time() - began < 4

    play(story)


def test_the_lease_of_a_node_that_is_gone_is_taken_a_second_after_the_store_misses_it() -> None:
    async def main() -> None:
        disk = simulated_disk(1, lambda: 0.01, shared=True)
        stores = [SimulatedStore(disk), SimulatedStore(disk)]
        async with open_node(store=stores[1]) as other:
            async with open_node(store=stores[0]) as node:
                counter = await node.start_child(spec())
                assert await counter.invoke(Counter.add) == 1
                await trio.sleep(7)
                stores[0].die(lands=False)
                node.force_stop()
            began = trio.current_time()
            counter = await other.start_child(spec())
            assert 1 <= trio.current_time() - began < 1.5
            assert (await counter.invoke(Counter.add), epoch_of(counter)) == (2, 2)

    simulate(main)


class Unseen(SimulatedStore):
    """A store that may lose sight of its writer, who goes on writing."""

    is_seen = True
    tell: Callable[[], object]

    @property
    def sign(self) -> str:
        return super().sign if self.is_seen else ""

    def when_unattended(self, tell: Callable[[], object]) -> None:
        self.tell = tell


def test_a_holder_that_the_store_loses_sight_of_keeps_its_lease() -> None:
    async def main() -> None:
        disk = simulated_disk(1, lambda: 0.01, shared=True)
        store = Unseen(disk)
        async with open_node(store=store) as node, open_node(store=SimulatedStore(disk)) as other:
            counter = await node.start_child(spec())
            store.is_seen = False
            store.tell()
            with pytest.raises(StartFailed, match="holds the lease of the key '42'"):
                await other.start_child(spec())
            assert (await counter.invoke(Counter.add), epoch_of(counter)) == (1, 1)

    simulate(main)


def test_a_holder_that_is_cut_off_ends_in_time_and_waits_until_it_can_have_the_lease_again() -> None:
    async def story(two: Pair) -> None:
        first = await two.nodes[0].start_child(spec())
        assert await first.invoke(Counter.add) == 1
        ends: list[tuple[float, Down]] = []

        async def watch(*, task_status: trio.TaskStatus[None]) -> None:
            async with first.monitor() as downs:
                task_status.started()
                ends.append((0.0, await anext(aiter(downs))))
                ends[0] = (trio.current_time(), ends[0][1])

        async with trio.open_nursery() as nursery:
            await nursery.start(watch)
            two.stores[0].is_cut_off = True
            began = trio.current_time()
            second = await two.nodes[1].start_child(spec())
            granted = trio.current_time()
            assert await second.invoke(Counter.add) == 2
        ((ended, down),) = ends
        error = down.reason.error
        assert isinstance(error, LeaseLost)
        assert (error.key, error.epoch) == (KEY, 1)
        assert error.why == "it could not be renewed in time"
        assert ended - began < 10 < granted - began < 11, "the first one has ended before"
        with pytest.raises(AgentUnavailable, match=r"its store fails|waits"):
            await first.invoke(Counter.look)
        two.stores[0].is_cut_off = False
        await trio.sleep(8)
        with pytest.raises(AgentUnavailable, match=r"holds the lease of the key '42' \(epoch 2\)") as caught:
            await first.invoke(Counter.look)
        assert caught.value.retry_in == 0.2
        await trio.sleep(60)
        assert await second.invoke(Counter.add) == 3, "which is not disturbed"
        await two.nodes[1].root.terminate_child("counter")
        await first.ready()
        assert (await first.invoke(Counter.add), epoch_of(first)) == (4, 3)

    play(story)


def test_a_store_that_is_away_for_a_minute_ends_no_supervisor() -> None:
    """It takes the leases of all agents at once, which is no crash loop of theirs."""

    async def main() -> None:
        store = SimulatedStore(simulated_disk(1, lambda: 0.01, shared=True))
        ends: list[Down] = []

        async def watch(counter: Ref[Counter], *, task_status: trio.TaskStatus[None]) -> None:
            async with counter.monitor() as downs:
                task_status.started()
                async for down in downs:
                    ends.append(down)

        async with open_node(store=store) as node, trio.open_nursery() as nursery:  # with the usual limits
            children = [ChildSpec(f"counter-{i}", Counter, key=f"key-{i}") for i in range(10)]
            counters = [await node.start_child(child) for child in children]
            for counter in counters:
                await counter.invoke(Counter.add)
                await nursery.start(watch, counter)
            store.is_cut_off = True
            await trio.sleep(60)
            with pytest.raises(AgentUnavailable, match="its store fails"):
                await counters[0].invoke(Counter.add)
            store.is_cut_off = False
            back = trio.current_time()
            for counter in counters:
                await counter.ready()
                assert trio.current_time() - back < 6, "it waits for the store, and not for its own lease"
                assert (await counter.invoke(Counter.add), epoch_of(counter)) == (2, 2)
            assert [type(down.reason.error) for down in ends] == [LeaseLost] * 10
            nursery.cancel_scope.cancel()

    simulate(main)


def test_renewals_that_come_while_the_store_is_away_are_made_up_for() -> None:
    async def main() -> None:
        store = SimulatedStore(simulated_disk(1, lambda: 0.01, shared=True))
        async with open_node(store=store) as node:
            counter = await node.start_child(spec())
            for number in range(1, 21):
                assert await counter.invoke(Counter.add) == number
                store.is_cut_off = True
                with pytest.raises(AgentDied, match="was not kept"):
                    await counter.invoke(Counter.add)
                await trio.sleep(3)  # about as long as from one renewal to the next
                store.is_cut_off = False
                await counter.ready()
            assert epoch_of(counter) == 1

    simulate(main)


def test_an_agent_that_is_stopped_while_it_waits_for_its_lease_does_not_keep_it() -> None:
    async def story(two: Pair) -> None:
        first = await two.nodes[0].start_child(spec())
        two.stores[0].is_cut_off = True
        await two.nodes[1].start_child(spec())
        two.stores[0].is_cut_off = False
        await trio.sleep(8)
        assert slot_of(first).suspended
        await two.nodes[0].root.terminate_child("counter")
        await two.nodes[1].root.terminate_child("counter")
        await trio.sleep(1)
        began = trio.current_time()
        await two.nodes[1].root.restart_child("counter")
        assert trio.current_time() - began < 0.3
        await two.nodes[1].root.terminate_child("counter")
        await two.nodes[0].root.restart_child("counter")
        await first.ready()
        assert await first.invoke(Counter.add) == 1

    play(story)


@pytest.mark.parametrize("request_", [Teller.add, Teller.look, Teller.tell, Teller.run, Teller.watch])
def test_nothing_leaves_an_agent_whose_lease_another_node_has(request_: Any) -> None:
    """Its clock is slow, so it believes to have the lease; what it changes, reads and sends is dropped."""

    async def story(two: Pair) -> None:
        sink = await two.nodes[0].start_child(ChildSpec("sink", Sink))
        first = await two.nodes[0].start_child(spec(partial(Teller, sink=sink)))
        skew_clock(first, rate=0.1)
        await trio.sleep(5)
        second = await two.nodes[1].start_child(spec(Teller))
        assert (epoch_of(first), epoch_of(second)) == (1, 2)
        assert await second.invoke(Teller.add) == 1
        heard: list[object] = []

        async def listen(feed: Any) -> None:
            async for each in feed:
                heard.append(each)

        async with trio.open_nursery() as nursery, second.subscribe(Teller.counted) as feed:
            nursery.start_soon(listen, feed)
            with pytest.raises(AgentDied, match="another node"):
                await first.invoke(request_)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert heard == []
        assert await sink.invoke(Sink.look) == 0
        assert await second.invoke(Teller.look) == 1
        report = two.nodes[0].crash_reports[-1]
        assert "the lease of the key '42' (epoch 1) is lost: another node has been granted it" in str(report)

    play(story)


def test_events_of_an_older_epoch_are_not_heard() -> None:
    async def story(two: Pair) -> None:
        first = await two.nodes[0].start_child(spec(Teller))
        heard: list[Any] = []

        async def listen(*, task_status: trio.TaskStatus[None]) -> None:
            async with first.subscribe(Teller.counted) as feed:
                task_status.started()
                async for each in feed:
                    heard.append(each)

        async with trio.open_nursery() as nursery:
            await nursery.start(listen)
            assert await first.invoke(Teller.add) == 1
            skew_clock(first, rate=0.1)
            await trio.sleep(5)
            await two.nodes[1].start_child(spec(Teller))
            for request in (Teller.watch, Teller.add):
                with suppress(AgentDied, AgentUnavailable):
                    await first.invoke(request)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert heard == [1]

    play(story)


def test_what_a_lifespan_sends_at_its_end_depends_on_the_lease_too() -> None:
    async def main(cut: bool) -> int:
        async with pair() as two:
            sink = await two.nodes[0].start_child(ChildSpec("sink", Sink))
            first = await two.nodes[0].start_child(spec(partial(Parting, sink=sink)))
            two.stores[0].is_cut_off = cut
            if cut:
                await two.nodes[1].start_child(spec(Parting))
            two.stores[0].is_cut_off = False
            await trio.sleep(6)
            await two.nodes[0].root.terminate_child("counter")
            with pytest.raises(AgentUnavailable):
                await first.invoke(Parting.look)
            return await sink.invoke(Sink.look)

    assert simulate(main, False) == 1
    assert simulate(main, True) == 0


def test_a_lease_that_is_lost_while_the_lifespan_is_entered() -> None:
    async def story(two: Pair) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.nodes[0].start_child, spec(Slow))
            await trio.sleep(1)
            two.stores[0].is_cut_off = True
            await trio.sleep(12)
            two.stores[0].is_cut_off = False
        slow = two.nodes[0].find(Slow)
        await slow.ready()
        assert await slow.invoke(Slow.add) == 1
        assert epoch_of(slow) == 2

    play(story)


def test_a_store_that_is_too_slow_to_grant_leases() -> None:
    async def story(two: Pair) -> None:
        two.disk.factor = 600.0  # a commit takes six seconds
        with pytest.raises(StartFailed, match="it grants no lease in time"):
            await two.nodes[0].start_child(spec())
        two.disk.factor = 1.0
        assert epoch_of(await two.nodes[1].start_child(spec())) == 2

    play(story)


async def test_leases_of_agents_that_start_together_are_granted_together(autojump_clock: object) -> None:
    tree = SupervisorSpec("root", [ChildSpec(f"a-{n}", Counter, key=f"k-{n}") for n in range(200)])
    store = StoreOfTest()
    for life in (1, 2, 3):
        store.commits.clear()
        async with open_node(tree, store=store) as node:
            assert store.commits == ["power"] * 4, "one for each 64"
            for n in (0, 150, 199):
                counter = node.find(Counter, f"a-{n}")
                assert (await counter.invoke(Counter.add), epoch_of(counter)) == (life, life)
    async with open_node(tree, store=store) as node:
        for number in range(4, 8):
            again = node.find(Counter, "a-0")
            assert (await again.invoke(Counter.add), epoch_of(again)) == (number, number)
            await node.root.terminate_child("a-0")
            await node.root.restart_child("a-0")


def test_an_agent_that_stands_by_is_there_once_the_other_node_has_left_it() -> None:
    async def main() -> None:
        store = MemoryStore(shared=True)
        waits = ChildSpec("counter", Counter, key=KEY, standby=True)
        async with open_node(store=store) as second:
            async with open_node(store=store) as first:
                here = await first.start_child(waits)
                assert await here.invoke(Counter.add) == 1
                began = trio.current_time()
                there = await second.start_child(waits)
                assert trio.current_time() - began < 1, "nobody waits for it"
                with pytest.raises(AgentUnavailable, match="holds the lease") as caught:
                    await there.invoke(Counter.add)
                assert caught.value.retry_in is not None
                await trio.sleep(60)
                assert await here.invoke(Counter.add) == 2
            await trio.sleep(1)
            assert await there.invoke(Counter.add) == 3
            await second.root.terminate_child("counter")
            await second.root.restart_child("counter")
            assert await there.invoke(Counter.add) == 4

    simulate(main)


def test_an_agent_that_stands_by_is_stopped_as_others_are() -> None:
    async def main() -> None:
        store = MemoryStore(shared=True)
        waits = ChildSpec("counter", Counter, key=KEY, standby=True)
        async with open_node(store=store) as first, open_node(store=store) as second:
            here = await first.start_child(waits)
            await second.start_child(waits)
            await second.root.terminate_child("counter")
            await first.root.terminate_child("counter")
            await trio.sleep(60)
            with pytest.raises(AgentUnavailable):
                await here.invoke(Counter.add)
            await second.root.restart_child("counter")
            there = second.find(Counter)
            assert await there.invoke(Counter.add) == 1

    simulate(main)


def test_only_an_agent_with_a_key_can_stand_by() -> None:
    with pytest.raises(ConfigError, match="goes with key="):
        ChildSpec("counter", Counter, standby=True)
