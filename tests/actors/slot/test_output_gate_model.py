"""Random plans on a node with a durable agent: what was seen is kept, whatever the store and the callers do.

A plan says how long each commit takes, when the disk is full, when the node is killed and with what left of
the last commit, and what callers ask for meanwhile. Each request has a number, and the agent keeps the
numbers that it has carried out, in order. So every answer, event and message can be compared with the disk as
it is when they are seen, and with the agent as it is at the end.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import msgspec
import pytest
import trio
from hypothesis import example, given, settings, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Event,
    Node,
    NotFound,
    Property,
    Ref,
    SupervisorSpec,
    action,
    ephemeral,
    event,
    open_node,
    prop,
    simulate,
)
from lmos_actors.errors import WrongState
from lmos_actors.persistence import SimulatedDisk, SimulatedStore
from tests.matrix import examples
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from lmos_actors.persistence import Store

Writes: TypeAlias = Literal["kept", "lost", "torn"]

KEYED: Final = 1_000
"""The number of the request with the key 0."""

LIMIT: Final = 16.0
"""Seconds for the end of a node: 5 for its agents, 10 for the store."""

COMMIT: Final = 60.0
"""Seconds of two commits, the one under way and the next one."""


class Sink(Agent):
    """Takes the messages of the durable agent."""

    program: Program

    @action
    def take(self, n: int) -> None:
        self.program.saw("message", n)


class Work(Agent):
    """What both classes below do; `note` changes the state."""

    def note(self, n: int) -> int:
        raise NotImplementedError

    def put_out(self: Any, n: int) -> int:
        count: int = self.note(n)
        self.level = count
        self.done.emit(n)
        self.send(self.sink, Sink.take, n)
        return count


class Snapshots(Work, durable=True):
    numbers: list[int] = attrs.field(factory=list)
    sink: Ref[Sink] | None = ephemeral(default=None)
    level: Property[int] = prop(default=0)
    done: Event[int] = event()

    def note(self, n: int) -> int:
        self.numbers.append(n)
        return len(self.numbers)

    @action
    def put(self, n: int) -> int:
        return self.put_out(n)

    @action
    def put_and_crash(self, n: int) -> None:
        self.put_out(n)
        raise KeyError(n)

    @action(snapshot_safe=True)
    async def put_slowly(self, n: int) -> int:
        await trio.sleep(1)
        count = self.put_out(n)
        await trio.sleep(1)
        return count

    @action
    def look(self) -> list[int]:
        return self.numbers


@attrs.frozen
class Done:
    n: int


class Journal(Work, durable="journal", durability="power", snapshot_every=3):
    numbers: list[int] = attrs.field(factory=list)
    sink: Ref[Sink] | None = ephemeral(default=None)
    level: Property[int] = prop(default=0)
    done: Event[int] = event()

    def apply(self, fact: Done) -> None:
        self.numbers.append(fact.n)
        self.level = len(self.numbers)

    def note(self, n: int) -> int:
        self.record(Done(n))
        return len(self.numbers)

    @action
    def put(self, n: int) -> int:
        return self.put_out(n)

    @action
    def put_and_crash(self, n: int) -> None:
        self.put_out(n)
        raise KeyError(n)

    @action
    async def put_slowly(self, n: int) -> int:
        await trio.sleep(1)
        count = self.put_out(n)
        await trio.sleep(1)
        return count

    @action
    def look(self) -> list[int]:
        return self.numbers


def numbers_on(disk: SimulatedDisk, *, synced: bool) -> list[int]:
    """Return the numbers that a process would find after a kill; with `synced`, after a loss of power."""
    copied = simulated_disk(0)
    copied.records, copied.log = disk.records, disk.log[: disk.synced if synced else None]
    store: Store = SimulatedStore(copied)
    store.open()
    (found,) = store.get("state", ["work"])
    if found is None:
        return []
    record = msgspec.json.decode(found)
    facts = [msgspec.json.decode(value)["fact"]["n"] for _, value in store.scan("journal", limit=10_000)]
    return [*record["fields"]["numbers"], *facts]


@attrs.define
class Program:
    """One run of a plan."""

    cls: Any
    seed: int
    seconds: float = 0.0
    asked: int = 0
    outcomes: dict[int, list[object]] = attrs.Factory(dict)
    """Of each request, by its number: its answer, the class of its error, or "cancelled"."""
    looks: list[list[int]] = attrs.Factory(list)
    heard: list[int] = attrs.Factory(list)
    taken: list[int] = attrs.Factory(list)
    life: AsyncExitStack = attrs.Factory(AsyncExitStack)
    disk: SimulatedDisk = attrs.field(init=False)
    node: Node = attrs.field(init=False)
    ref: Ref[Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.disk = simulated_disk(self.seed, lambda: self.seconds)

    @property
    def kept(self) -> list[int]:
        """What is kept now, as the class promises it."""
        return numbers_on(self.disk, synced=self.cls is Journal)

    def saw(self, what: str, n: int) -> None:
        """An event or a message has come."""
        assert n in self.kept, f"{what} {n} before its commit"
        (self.heard if what == "event" else self.taken).append(n)

    # ---- the node

    async def start(self, nursery: trio.Nursery) -> None:
        tree = SupervisorSpec("root", max_restarts=1_000)
        self.node = await self.life.enter_async_context(open_node(tree, store=SimulatedStore(self.disk)))
        sink = await self.node.start_child(ChildSpec("sink", lambda: Sink(program=self)))
        self.ref = await self.node.start_child(ChildSpec("work", lambda: self.cls(sink=sink)))
        await nursery.start(self.listen, self.ref)

    async def stop(self) -> None:
        began = trio.current_time()
        await self.life.aclose()
        assert trio.current_time() - began <= LIMIT
        assert not self.disk.users

    async def listen(self, ref: Ref[Any], *, task_status: trio.TaskStatus[None]) -> None:
        """Note the events of one life of the node; a full disk can refuse the first subscriptions."""
        starting = [task_status]
        while True:
            try:
                async with ref.subscribe(self.cls.done) as feed:
                    if starting:
                        starting.pop().started()
                    async for n in feed:
                        self.saw("event", n)
                    return
            except (AgentDied, AgentUnavailable):
                if starting:
                    starting.pop().started()
                await trio.sleep(1)

    # ---- the steps

    async def carry_out(self, plan: list[Any]) -> None:
        async with trio.open_nursery() as nursery, self.life:
            await self.start(nursery)
            for kind, *more in plan:
                await getattr(self, f"do_{kind}")(nursery, *more)
                self.check_accounts()
            self.disk.full, self.seconds = False, 0.0
            await trio.sleep(60)
            await self.ref.ready()
            final: list[int] = await self.ref.within(5).invoke(self.cls.look)
            await trio.sleep(60)
            self.check_accounts()
            statistics = self.node.statistics()
            assert (statistics.waiting, statistics.running) == (0, 0)
            assert final == self.kept
            await self.stop()
            with trio.fail_after(1):
                while nursery.child_tasks:
                    await trio.lowlevel.checkpoint()
        self.judge(final)

    async def do_sleep(self, _: trio.Nursery, seconds: float) -> None:
        await trio.sleep(seconds)

    async def do_take(self, _: trio.Nursery, seconds: float) -> None:
        """From now on each commit takes so long."""
        self.seconds = seconds

    async def do_disk(self, _: trio.Nursery, full: bool) -> None:
        self.disk.full = full

    async def do_put(self, nursery: trio.Nursery, verb: str, within: float | None, gives_up: float) -> None:
        self.asked += 1
        nursery.start_soon(self.ask, self.ref, verb, self.asked, within, gives_up)

    async def do_keyed(self, nursery: trio.Nursery, key: int, within: float | None, gives_up: float) -> None:
        ref = self.ref.retrying(key=f"key-{key}")
        nursery.start_soon(self.ask, ref, "put", KEYED + key, within, gives_up)

    async def do_tell(self, _: trio.Nursery) -> None:
        self.asked += 1
        try:
            await self.ref.tell(self.cls.put, self.asked)
        except (AgentDied, AgentUnavailable, NotFound):
            self.outcomes.setdefault(self.asked, []).append(AgentUnavailable)

    async def do_look(self, nursery: trio.Nursery, reads: bool) -> None:
        nursery.start_soon(self.read if reads else self.look, self.ref)

    async def do_stop(self, nursery: trio.Nursery) -> None:
        """Stop the agent while its commits are open, and start it again."""
        began = trio.current_time()
        is_starting = self.ref.statistics().state in ("starting", "down")
        await self.node.root.terminate_child("work")
        # a start waits for the commits of the incarnation before, and its supervisor waits for the start
        assert trio.current_time() - began <= (COMMIT if is_starting else LIMIT)
        nursery.start_soon(self.start_again, self.node)

    async def start_again(self, node: Node) -> None:
        with suppress(WrongState):  # the node has ended meanwhile
            await node.root.restart_child("work")

    async def do_kill(self, nursery: trio.Nursery, writes: Writes) -> None:
        self.disk.crash(writes if self.cls is Journal else "kept")
        self.node.force_stop()
        await self.stop()
        await self.start(nursery)

    async def do_close(self, nursery: trio.Nursery) -> None:
        await self.stop()
        await self.start(nursery)

    # ---- callers

    async def ask(self, ref: Any, verb: str, n: int, within: float | None, gives_up: float) -> None:
        outcome: object = "cancelled"
        began = trio.current_time()
        with trio.move_on_after(gives_up):
            try:
                asked = ref if within is None else ref.within(within)
                outcome = await asked.invoke(getattr(self.cls, verb), n)
            except AgentDied as error:
                outcome = AgentDied if error.started else AgentUnavailable
            except (AgentUnavailable, NotFound):
                outcome = AgentUnavailable
            except DeadlineExceeded:
                outcome = DeadlineExceeded
            else:
                assert n in self.kept, f"answer {n} before its commit"
        assert trio.current_time() - began <= min(gives_up, within or gives_up) + 0.02
        self.outcomes.setdefault(n, []).append(outcome)

    async def look(self, ref: Ref[Any]) -> None:
        try:
            numbers: list[int] = await ref.within(30).invoke(self.cls.look)
        except (AgentDied, AgentUnavailable, NotFound, DeadlineExceeded):
            return
        assert numbers == self.kept[: len(numbers)]
        self.looks.append(numbers)

    async def read(self, ref: Ref[Any]) -> None:
        try:
            level = await ref.within(30).read(self.cls.level)
        except (AgentDied, AgentUnavailable, NotFound, DeadlineExceeded):
            return
        assert level <= len(self.kept)

    # ---- what must hold

    def check_accounts(self) -> None:
        s = self.node.statistics()
        assert s.accepted == s.handled + s.cancelled + s.dropped + s.dead_lettered + s.waiting + s.running

    def judge(self, final: list[int]) -> None:
        place = {n: place for place, n in enumerate(final, 1)}
        assert len(place) == len(final), "nothing is applied twice"
        for n, outcomes in self.outcomes.items():
            for outcome in outcomes:
                if isinstance(outcome, int):
                    assert outcome == place.get(n), "an answer that was seen stands"
            if all(outcome is AgentUnavailable for outcome in outcomes):
                assert n not in place, "what was refused, or has not started, is not carried out"
        assert all(numbers == final[: len(numbers)] for numbers in self.looks)
        for seen in (self.heard, self.taken):
            assert all(place[one] < place[other] for one, other in pairwise(seen)), "in order, once"


times = st.sampled_from([0.0, 0.5, 1.0, 2.0])
within = st.sampled_from([None, 0.5, 3.0])
gives_up = st.sampled_from([0.5, 2.0, 300.0])
puts = st.tuples(
    st.just("put"), st.sampled_from(["put", "put", "put_slowly", "put_and_crash"]), within, gives_up
)
PLANS = st.lists(
    st.one_of(
        puts,
        puts,
        st.tuples(st.just("keyed"), st.integers(0, 2), within, gives_up),
        st.tuples(st.just("sleep"), times),
        st.tuples(st.just("take"), st.sampled_from([0.0, 1.0, 1.0, 30.0])),
        st.tuples(st.just("disk"), st.booleans()),
        st.tuples(st.just("look"), st.booleans()),
        st.tuples(st.just("kill"), st.sampled_from(["kept", "lost", "torn"])),
        st.sampled_from([("tell",), ("stop",), ("close",)]),
    ),
    min_size=5,
    max_size=30,
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cls", [Snapshots, Journal])
@given(plan=PLANS, seed=st.integers(0, 7))
@example(  # the deadline comes while the node is closed, and waits for its store
    plan=[("take", 30.0), ("put", "put", 3.0, 300.0), ("sleep", 0.5), ("kill", "kept")], seed=0
)
@example(  # a snapshot that is due is written by the first turn of the next life, while the disk is full
    plan=[
        ("put", "put_slowly", None, 0.5),
        *[("put", "put", None, 0.5)] * 3,
        ("sleep", 0.5),
        ("disk", True),
        ("kill", "kept"),
    ],
    seed=0,
)
@settings(max_examples=examples(300), deadline=None)
def test_what_was_seen_is_kept(cls: Any, plan: list[Any], seed: int) -> None:
    simulate(partial(Program(cls, seed).carry_out, plan), seed=seed)
