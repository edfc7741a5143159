"""Pools: where they are in the tree, which member gets a message, and what they refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    AgentError,
    AgentUnavailable,
    Backoff,
    ChildSpec,
    ConfigError,
    DeadlineExceeded,
    Event,
    InvalidInput,
    MailboxOptions,
    NotAllowed,
    NotFound,
    Pool,
    PoolRef,
    Property,
    Ref,
    SupervisorSpec,
    TraceLog,
    action,
    event,
    invoke_all,
    open_node,
    prop,
    simulate,
)
from lmos_actors.errors import NameTaken
from lmos_actors.testing import open_test_node, settle


class Worker(Agent):
    units: Property[str] = prop(default="none")
    said: Event[str] = event()
    calls: int = 0

    @action
    def where(self, customer: str = "nobody") -> str:
        self.calls += 1
        self.said.emit(customer)
        return self.path.rpartition("-")[2]

    @action(concurrency=100)
    async def wait(self, seconds: float, customer: str = "nobody") -> str:
        await trio.sleep(seconds)
        return self.path.rpartition("-")[2]

    @action
    def hand_on(self) -> None:
        self.send(self.find(Worker, "worker"), Worker.where)

    @action
    async def hold(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    async def count(self, upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number

    @action
    def crash(self, customer: str = "nobody") -> None:
        raise KeyError(customer)

    @action
    def nothing(self) -> None:
        pass


class Sender(Agent):
    pool: Any

    @action
    def pass_on(self, customer: str) -> None:
        self.send(self.pool, Worker.where, customer)

    @action
    def join(self) -> str:
        for verb in (self.link, lambda ref: self.monitor(ref, print)):
            with pytest.raises(NotAllowed, match=r"pool\.members"):
                verb(self.pool)
        return "refused"

    @action
    def misuse(self) -> str:
        with pytest.raises(RuntimeError, match="resize"):
            self.pool.resize(3)
        return "refused"


class Listener(Agent):
    pool: Any
    heard: Any

    def started(self) -> None:
        self.follow(self.pool, Worker.said, self.on_said)

    def on_said(self, customer: str) -> None:
        self.heard.append(customer)


async def crash(ref: Ref[Worker]) -> None:
    with pytest.raises(AgentDied):
        await ref.invoke(Worker.crash)


async def asked(pool: Ref[Worker], times: int) -> str:
    """Which members answered, by number."""
    return "".join([await pool.invoke(Worker.where) for _ in range(times)])


def adds_up(ref: Ref[Any]) -> bool:
    s = ref.statistics()
    gone = s.cancelled + s.dropped + s.dead_lettered
    return s.accepted == s.handled + gone + s.waiting + s.running


def slow(**options: Any) -> Pool[Worker]:
    """A pool whose members, once crashed, stay down for ten seconds."""
    return Pool(Worker, 3, backoff=Backoff(initial=10, max=10, jitter=0), max_restarts=9, **options)


# ---- the spec


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"size": 0}, "worker.size"),
        ({"size": True}, "worker.size"),
        ({"by": "robin"}, "worker.by"),
        ({"key": "customer"}, "worker.key"),
        ({"by": "key", "key": "costumer"}, "worker.key"),
        ({"by": "key", "key": 3}, "worker.key"),
        ({"restart": "temporary"}, "worker.restart"),
        ({"restart": "always"}, "worker.restart"),
        ({"max_restarts": -1}, "worker.max_restarts"),
        ({"max_seconds": 0}, "worker.max_seconds"),
        ({"shutdown": -1}, "worker.shutdown"),
        ({"backoff": 3}, "worker.backoff"),
        ({"name": "a/b"}, "Pool.name"),
        ({"factory": "Worker"}, "Pool.factory"),
    ],
)
def test_a_spec_is_checked_when_it_is_written(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Pool(**{"factory": Worker, "size": 2, **options})
    assert caught.value.path == field


def test_a_wrong_key_is_refused_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'customer'"):
        Pool(Worker, 2, by="key", key="costumer")


def test_a_spec_is_named_after_its_class_and_is_data() -> None:
    assert Pool(partial(Worker, calls=3), 2).name == "worker"
    assert attrs.evolve(Pool(Worker, 2), size=3) == Pool(Worker, 3)
    assert Pool(Worker, 2, shutdown=7).member(2) == ChildSpec("worker-2", Worker, shutdown=7)


# ---- where it is


async def test_a_pool_is_a_child_like_any_other(virtual_clock: object) -> None:
    desk = SupervisorSpec("desk", [ChildSpec("first", Worker), Pool(Worker, 2, name="clerks")])
    async with open_test_node(SupervisorSpec("root", [desk])) as node:
        pool = node.root.supervisor("desk").pool("clerks")
        assert pool.path == "desk/clerks"
        assert [ref.path for ref in pool.members] == ["desk/clerks/clerks-1", "desk/clerks/clerks-2"]
        assert node.find(Worker, "clerks") == pool == node.find(Worker, "desk/clerks")
        assert node.root.supervisor("desk").child("clerks") == pool
        assert node.find(Worker, "clerks-2") == pool.members[1] != pool
        assert node.find(Worker).path == "desk/first"
        assert "    clerks (pool of 2, round_robin, 3 in 5 s)\n      clerks-1 running #1" in node.tree()
        assert await asked(node.find(Worker, "clerks"), 3) == "121"
        with pytest.raises(NotFound, match="no pool 'first'"):
            node.root.supervisor("desk").pool("first")
        with pytest.raises(NotFound, match="no agent 'desk'"):
            node.root.child("desk")


async def test_names_are_given_as_for_agents(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pools = [await node.start_pool(Pool(Worker, 1)) for _ in range(2)]
        assert [pool.path for pool in pools] == ["worker", "worker-2"]
        assert len({*pools, node.root.pool("worker")}) == 2
        with pytest.raises(NameTaken):
            await node.start_pool(Pool(Worker, 1, name="worker"))
        with pytest.raises(NameTaken):
            SupervisorSpec("desk", [Pool(Worker, 1), ChildSpec("worker", Worker)])
        with pytest.raises(ConfigError):
            await node.start_pool(ChildSpec("worker", Worker))  # type: ignore[arg-type]


class Boss(Agent):
    def supervises(self) -> SupervisorSpec:
        return SupervisorSpec("staff", [Pool(Worker, 2, name="old")])

    @action
    async def hire(self) -> str:
        pool: PoolRef[Worker] = await self.start_pool(Pool(Worker, 1))
        await pool.resize(3)
        return pool.path

    @action
    async def delegate(self, name: str) -> str:
        return await self.find(Worker, f"boss/{name}").invoke(Worker.where)

    @action
    def misuse(self) -> None:
        self.start_pool(Pool(Worker, 1))


async def test_an_agent_has_pools_of_its_own(virtual_clock: object) -> None:
    async with open_test_node() as node:
        boss = await node.start(Boss)
        assert await boss.invoke(Boss.hire) == "boss/worker"
        assert [await boss.invoke(Boss.delegate, "worker") for _ in "1234"] == list("1231")
        assert [await boss.invoke(Boss.delegate, "old") for _ in "123"] == list("121")
        assert "    worker (pool of 3, round_robin, 3 in 5 s)" in node.tree()
        with pytest.raises(AgentDied, match="start_pool"):
            await boss.invoke(Boss.misuse)
        await boss.ready()
        assert [await boss.invoke(Boss.delegate, "old") for _ in "123"] == list("121")
        assert "worker" not in node.tree()


async def test_a_pool_that_has_not_begun_has_nobody(virtual_clock: object) -> None:
    outcome: list[Exception] = []

    class Early(Agent):
        def started(self) -> None:
            for call in (self.tell, self.look):
                try:
                    call()
                except AgentUnavailable as exc:
                    outcome.append(exc)

        def tell(self) -> None:
            self.find(Worker, "late").tell_nowait(Worker.nothing)

        def look(self) -> None:
            assert self.find(Worker, "late").statistics().state == "empty"
            assert self.find(Worker, "late").mailbox_statistics().size == 0

    tree = SupervisorSpec("root", [ChildSpec("early", Early), Pool(Worker, 2, name="late")])
    async with open_test_node(tree) as node:
        assert str(outcome[0]) == "agent 'late' is unavailable: none of its 0 members is running"
        assert len(outcome) == 1
        assert await asked(node.find(Worker, "late"), 2) == "12"


# ---- choosing


async def test_round_robin_leaves_out_who_is_down_and_takes_it_back(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(slow())
        assert await asked(pool, 4) == "1231"
        await crash(pool.members[1])
        assert await asked(pool, 4) == "3131"
        await trio.sleep(10)
        await settle()
        assert await asked(pool, 4) == "2312"


@pytest.mark.parametrize("by", ["round_robin", "least_loaded"])
async def test_where_nobody_runs_the_pool_is_unavailable(by: Any, virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(slow(by=by))
        sender = await node.start(Sender, pool=pool)
        for member in pool.members:
            await crash(member)
        for call in (pool.invoke, pool.tell, pool.within(1).invoke):
            with pytest.raises(AgentUnavailable, match="none of its 3 members is running"):
                await call(Worker.where)
        with pytest.raises(AgentUnavailable):
            pool.tell_nowait(Worker.where)
        await sender.invoke(Sender.pass_on, "ada")
        letter = node.dead_letters[-1]
        assert (letter.agent, letter.sender, letter.affordance) == ("worker", "sender", "where")
        assert pool.statistics().refused == 5
        assert pool.statistics().state == "down"
        began = trio.current_time()
        await pool.ready()
        assert trio.current_time() - began == 10
        assert pool.statistics().state == "running"


async def test_least_loaded_goes_to_who_has_the_least_to_do(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(slow(by="least_loaded"))
        assert await asked(pool, 4) == "1231"
        await pool.tell(Worker.wait, 9)  # 2 is the next in turn
        await settle()
        assert await asked(pool, 4) == "3131"
        for _ in range(2):
            pool.members[0].tell_nowait(Worker.wait, 9)
            pool.members[2].tell_nowait(Worker.wait, 9)
        await settle()
        assert await pool.invoke(Worker.where) == "2"
        await crash(pool.members[1])
        assert await asked(pool, 2) == "31"


async def test_senders_who_wait_for_a_seat_are_load(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 2, by="least_loaded", mailbox=MailboxOptions(1)))
        first, second = pool.members
        for member in (first, first, first, first, second, second, second):
            nursery.start_soon(member.invoke, Worker.hold, 9)
        await settle()
        assert [(m.depth, m.parked) for m in (first.mailbox_statistics(), second.mailbox_statistics())] == [
            (1, 2),
            (1, 1),
        ]
        nursery.start_soon(pool.invoke, Worker.where)
        await settle()
        assert second.mailbox_statistics().parked == 2
        nursery.cancel_scope.cancel()


async def test_a_member_is_chosen_when_the_call_begins(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(slow())
        calls = [pool.invoke(Worker.where), pool.within(1).invoke(Worker.where)]
        told = pool.tell(Worker.where)
        await crash(pool.members[0])
        assert [await call for call in calls] == ["2", "3"]
        await told
        await settle()
        assert [ref.statistics().handled for ref in pool.members] == [1, 2, 1]


async def test_a_turn_in_progress_is_load(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 2, by="least_loaded"))
        await pool.members[0].invoke(Worker.hand_on)
        await settle()
        assert [ref.statistics().accepted for ref in pool.members] == [1, 1]


async def test_a_key_has_its_member(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 4, by="key", key="customer"))
        names = [f"customer {number}" for number in range(40)]
        places = {name: await pool.invoke(Worker.where, name) for name in names}
        assert set(places.values()) == {"1", "2", "3", "4"}
        for name in names:
            assert await pool.invoke(Worker.where, customer=name) == places[name]
            assert await pool.invoke(Worker.wait, 0.1, name) == places[name]
            assert await pool.invoke(Worker.wait, customer=name, seconds=0) == places[name]
        assert await pool.invoke(Worker.where) == await pool.invoke(Worker.where, "nobody")


async def test_the_first_parameter_is_the_key_where_none_is_named(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 4, by="key"))
        assert await pool.invoke(Worker.wait, 1) == await pool.invoke(Worker.wait, 1.0, "somebody else")
        with pytest.raises(InvalidInput, match=r"Worker.nothing has no parameter by which the pool 'worker'"):
            await pool.invoke(Worker.nothing)


async def test_an_action_without_the_key_is_refused(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 4, by="key", key="customer"))
        with pytest.raises(InvalidInput, match="'customer'") as caught:
            await pool.invoke(Worker.nothing)
        assert caught.value.path == "$.customer"
        with pytest.raises(InvalidInput, match=r"\$.customer") as caught:
            await pool.invoke(Worker.where, 3)  # type: ignore[arg-type]
        assert (pool.statistics().accepted, pool.statistics().refused) == (1, 1)
        assert adds_up(pool)


async def test_a_key_never_goes_to_another_member(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(slow(by="key", key="customer"))
        with pytest.raises(AgentDied):
            await pool.invoke(Worker.crash, "ada")
        with pytest.raises(AgentUnavailable, match="worker/worker-"):
            await pool.invoke(Worker.where, "ada")
        whole = await node.start_pool(Pool(Worker, 3, name="whole", by="key", key="customer"))
        places = {name: await whole.invoke(Worker.where, name) for name in ("ada", *map(str, range(9)))}
        assert len(set(places.values())) == 3
        for name, place in places.items():
            if place == places["ada"]:
                with pytest.raises(AgentUnavailable, match=f"worker/worker-{place}"):
                    await pool.invoke(Worker.where, name)
            else:
                assert await pool.invoke(Worker.where, name) == place


class Keyed(Agent):
    @action
    def place(self, key: Any) -> int:
        """Its place among the members of its pool, from 0."""
        return int(self.path.rpartition("-")[2]) - 1

    @action
    def place_of_mapping(self, key: dict[int, str]) -> int:
        return self.place(key)

    @action
    def place_of_set(self, key: frozenset[str]) -> int:
        return self.place(key)


def places_of(keys: Iterable[Any], *sizes: int, by: Any = Keyed.place) -> list[list[int]]:
    """Where a pool by keys sends each key, for each of its sizes."""

    async def main() -> list[list[int]]:
        found: list[list[int]] = []
        async with open_node() as node:
            pool = await node.start_pool(Pool(Keyed, sizes[0], by="key"))
            for size in sizes:
                await pool.resize(size)
                found.append([await pool.invoke(by, key) for key in keys])
        return found

    return simulate(main)


def test_places_are_the_same_in_every_process() -> None:
    assert places_of(("ada", "ben", 1, 2.5, None, (1, "x")), 8) == [PLACES]
    [[one, same]] = places_of([{1: "a", 10: "b"}, {10: "b", 1: "a"}], 99, by=Keyed.place_of_mapping)
    assert one == same
    [[one, same]] = places_of([frozenset("abc"), frozenset("cba")], 99, by=Keyed.place_of_set)
    assert one == same
    [[place]] = places_of([2**80], 8)
    assert place in range(8)


PLACES = [6, 3, 3, 7, 5, 0]


@given(
    st.lists(st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.integers(1, 50),
)
def test_one_place_more_moves_keys_to_it_alone(keys: list[object], size: int) -> None:
    before, after = places_of(keys, size, size + 1)
    assert all(new in (old, size) for old, new in zip(before, after, strict=True))


def test_keys_are_spread_evenly_and_few_move() -> None:
    before, after = places_of([f"key {number}" for number in range(8000)], 8, 9)
    spread = Counter(before)
    assert len(spread) == 8
    assert max(spread.values()) - min(spread.values()) < 200
    moved = sum(old != new for old, new in zip(before, after, strict=True))
    assert abs(moved - 8000 / 9) < 150


# ---- verbs


async def test_every_verb_goes_to_one_member(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 3))
        sender = await node.start(Sender, pool=pool)
        async with pool.begin(Worker.wait, 1) as call:
            assert await call.result() == "1"
        async with pool.stream(Worker.count, 3) as items:
            assert [item async for item in items] == [0, 1, 2]
        await pool.tell(Worker.where)
        pool.tell_nowait(Worker.where)
        await sender.invoke(Sender.pass_on, "ada")
        within = pool.within(2)
        assert isinstance(within, PoolRef)
        assert within.size == 3
        assert await within.invoke(Worker.wait, 1) == "3"
        with pytest.raises(DeadlineExceeded):
            await within.invoke(Worker.wait, 3)
        await settle()
        assert [ref.statistics().accepted for ref in pool.members] == [3, 2, 2]
        assert await invoke_all(pool.members, Worker.where) == ["1", "2", "3"]
        assert sorted(await invoke_all([pool] * 3, Worker.where)) == ["1", "2", "3"]


async def test_what_belongs_to_each_member_is_refused(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 3))
        for ref in (pool, node.find(Worker, "worker")):
            for verb in (ref.read(Worker.units), ref.write(Worker.units, "x"), ref.read_all()):
                with pytest.raises(NotAllowed, match=r"pool\.members"):
                    await verb
            with pytest.raises(NotAllowed, match=r"pool\.members"):
                async with ref.observe(Worker.units):
                    pass
            with pytest.raises(NotAllowed, match=r"pool\.members"):
                async with ref.link():
                    pass
        sender = await node.start(Sender, pool=pool)
        assert await sender.invoke(Sender.join) == "refused"
        with pytest.raises(NotFound, match="mispelt"):
            await pool._link.ask("mispelt", (), {})  # as a file might
        assert await pool.members[1].read(Worker.units) == "none"


def test_a_tree_of_pools_is_the_same_every_time() -> None:
    async def ask(pool: PoolRef[Worker], seconds: float) -> None:
        with suppress(AgentDied):
            await pool.invoke(Worker.wait, seconds)

    async def story() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            pool = await node.start_pool(slow(by="least_loaded"))
            for number in range(20):
                nursery.start_soon(ask, pool, number / 7)
                if number == 10:
                    await crash(pool.members[0])
            await trio.sleep(1)
            await pool.resize(5)
            await pool.resize(2)

    digests = []
    for _ in range(2):
        log = TraceLog()
        simulate(story, seed=3, log=log)
        digests.append(log.digest())
    assert digests[0] == digests[1]


async def test_what_a_member_could_not_begin_goes_to_another(virtual_clock: object) -> None:
    """A sender that waits outside a full mailbox is not lost with the member that stops."""

    class Narrow(Agent, mailbox=MailboxOptions(size=1)):
        @action
        async def work(self) -> str:
            await trio.sleep(10)
            return self.path

    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Narrow, 2, name="crew", shutdown=1.0))
        done: list[str] = []

        async def work() -> None:
            with suppress(AgentError):
                done.append(await pool.invoke(Narrow.work))

        for _ in range(6):  # each member runs one, has one in line, and one waits outside
            nursery.start_soon(work)
            await settle()
        nursery.start_soon(pool.resize, 1)  # what waits at the second, inside and outside, goes to the first
        await trio.sleep(60)
        assert done == ["crew/crew-1"] * 5  # all but the one that had begun at the other
