"""Durable agents: what is kept, what is given back, and what leaves when."""

from __future__ import annotations

import datetime
import decimal
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Event,
    Property,
    Ref,
    StartFailed,
    action,
    ephemeral,
    event,
    open_node,
    prop,
)
from lmos_actors.persistence import Delete, SqliteStore
from tests.persistence.stores import StoreOfTest, every_place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors.persistence import Store
    from tests.persistence.stores import Place


class Ledger(Agent, durable=True):
    balance: int = 0
    names: list[str] = attrs.field(factory=list)
    level: Property[int] = prop(default=0)
    charged: Event[int] = event()
    other: Ref[Ledger] | None = None

    @action
    def add(self, n: int) -> int:
        self.balance += n
        self.level = self.balance
        self.charged.emit(n)
        if self.other is not None:
            self.send(self.other, Ledger.add, n)
        return self.balance

    @action
    def fail(self, n: int) -> None:
        self.balance += n
        raise ActionFailed("no")

    @action
    def crash(self, n: int) -> None:
        self.balance += n
        self.charged.emit(n)
        if self.other is not None:
            self.send(self.other, Ledger.add, n)
        raise KeyError(n)

    @action
    def get(self) -> int:
        return self.balance

    @action
    def is_restored(self) -> bool:
        return self.restored

    @action(snapshot_safe=True)
    async def add_slowly(self, n: int) -> int:
        self.balance += n
        self.charged.emit(n)
        await trio.lowlevel.checkpoint()
        if self.other is not None:
            await self.other.invoke(Ledger.add, n)
        return self.balance

    @action(snapshot_safe=True)
    async def emit_and_crash(self, n: int) -> None:
        await trio.lowlevel.checkpoint()
        self.balance += n
        self.charged.emit(n)
        raise KeyError(n)

    @action(snapshot_safe=True)
    async def count(self, n: int) -> AsyncIterator[int]:
        for _ in range(n):
            self.balance += 1
            yield self.balance


@asynccontextmanager
async def ledger_in(store: Store | str, **fields: Any) -> AsyncGenerator[Ref[Ledger]]:
    async with open_node(store=store) as node:
        yield await node.start_child(ChildSpec("bank", Ledger))


async def test_a_crash_gives_back_the_last_kept_state(autojump_clock: object) -> None:
    async with ledger_in("memory:") as ref:
        assert not await ref.invoke(Ledger.is_restored)
        for n in (1, 2, 3):
            await ref.invoke(Ledger.add, n)
        with pytest.raises(AgentDied) as died:
            await ref.invoke(Ledger.crash, 100)
        assert died.value.started
        await ref.ready()
        assert await ref.invoke(Ledger.get) == 6
        assert await ref.read(Ledger.level) == 6
        assert await ref.invoke(Ledger.is_restored)


@every_place
async def test_another_node_finds_the_state_of_the_first(place: Place, tmp_path: Path) -> None:
    path = place(tmp_path)
    async with ledger_in(path) as ref:
        assert await ref.invoke(Ledger.add, 7) == 7
    async with ledger_in(path) as ref:
        assert await ref.invoke(Ledger.get) == 7
        assert await ref.invoke(Ledger.is_restored)


async def test_a_declared_failure_keeps_what_the_turn_has_changed(autojump_clock: object) -> None:
    async with ledger_in("memory:") as ref:
        with pytest.raises(ActionFailed):
            await ref.invoke(Ledger.fail, 5)
        with pytest.raises(AgentDied):
            await ref.invoke(Ledger.crash, 1)
        await ref.ready()
        assert await ref.invoke(Ledger.get) == 5


@attrs.define
class Heard:
    """What tasks of a test have seen, in order."""

    things: list[object] = attrs.field(factory=list)

    async def ask(self, ref: Ref[Ledger], handle: Any, *args: Any) -> None:
        try:
            self.things.append(await ref.invoke(handle, *args))
        except Exception as error:
            self.things.append(type(error))

    async def listen(self, ref: Ref[Ledger], *, task_status: trio.TaskStatus[None]) -> None:
        async with ref.subscribe(Ledger.charged) as feed:
            task_status.started()
            async for n in feed:
                self.things.append(f"event {n}")

    async def observe(self, ref: Ref[Ledger], *, task_status: trio.TaskStatus[None]) -> None:
        async with ref.observe(Ledger.level) as feed:
            task_status.started()
            async for n in feed:
                self.things.append(f"level {n}")


async def test_nothing_leaves_before_it_is_kept_and_the_next_turns_go_on() -> None:
    store, heard = StoreOfTest(), Heard()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        other = await node.start_child(ChildSpec("other", Ledger))
        ref = await node.start_child(ChildSpec("bank", Ledger))
        await ref.invoke(Ledger.add, 1)
        await nursery.start(heard.listen, ref)
        await nursery.start(heard.observe, ref)
        await wait_all_tasks_blocked()
        assert heard.things == ["level 1"]
        store.may_commit.clear()
        nursery.start_soon(heard.ask, ref, Ledger.add, 2)
        await wait_all_tasks_blocked()
        nursery.start_soon(heard.ask, ref, Ledger.add, 3)
        await wait_all_tasks_blocked()
        nursery.start_soon(heard.ask, ref, Ledger.get)  # what it reads is not kept yet
        await wait_all_tasks_blocked()
        assert heard.things == ["level 1"]
        assert ref.statistics().handled == 6
        store.may_commit.set()
        while len(answers := [thing for thing in heard.things if isinstance(thing, int)]) < 3:
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert answers == [3, 6, 6]
        assert [thing for thing in heard.things if str(thing).startswith("event")] == ["event 2", "event 3"]
        assert "level 6" in heard.things
        assert await other.invoke(Ledger.get) == 0
        nursery.cancel_scope.cancel()


async def test_a_message_leaves_once_the_state_behind_it_is_kept() -> None:
    store, heard = StoreOfTest(), Heard()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        other = await node.start_child(ChildSpec("other", Ledger))
        ref = await node.start_child(ChildSpec("bank", lambda: Ledger(other=other)))
        store.may_commit.clear()
        nursery.start_soon(heard.ask, ref, Ledger.add, 2)
        await wait_all_tasks_blocked()
        assert other.statistics().accepted == 0
        store.may_commit.set()
        while not heard.things:
            await trio.lowlevel.checkpoint()
        assert await other.invoke(Ledger.get) == 2


async def test_a_run_asks_others_once_its_state_is_kept() -> None:
    store, heard = StoreOfTest(), Heard()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        other = await node.start_child(ChildSpec("other", Ledger))
        ref = await node.start_child(ChildSpec("bank", lambda: Ledger(other=other)))
        await nursery.start(heard.listen, ref)
        store.may_commit.clear()
        nursery.start_soon(heard.ask, ref, Ledger.add_slowly, 2)
        await wait_all_tasks_blocked()
        assert other.statistics().accepted == 0
        assert heard.things == []
        store.may_commit.set()
        while 2 not in heard.things:
            await trio.lowlevel.checkpoint()
        assert heard.things == ["event 2", 2]
        assert await other.invoke(Ledger.get) == 2
        nursery.cancel_scope.cancel()


async def test_what_a_crashing_turn_puts_out_is_never_seen(autojump_clock: object) -> None:
    heard = Heard()
    async with open_node(store="memory:") as node, trio.open_nursery() as nursery:
        other = await node.start_child(ChildSpec("other", Ledger))
        ref = await node.start_child(ChildSpec("bank", lambda: Ledger(other=other)))
        await nursery.start(heard.listen, ref)
        await heard.ask(ref, Ledger.crash, 5)
        await ref.ready()
        await heard.ask(ref, Ledger.add, 1)
        await wait_all_tasks_blocked()
        assert heard.things in ([AgentDied, 1, "event 1"], [AgentDied, "event 1", 1])
        assert await other.invoke(Ledger.get) == 1
        nursery.cancel_scope.cancel()


async def test_what_a_run_puts_out_in_the_step_that_crashes_is_never_seen(autojump_clock: object) -> None:
    heard = Heard()
    async with open_node(store="memory:") as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("bank", Ledger))
        await nursery.start(heard.listen, ref)
        await heard.ask(ref, Ledger.emit_and_crash, 5)
        await ref.ready()
        assert await ref.invoke(Ledger.get) == 0
        await wait_all_tasks_blocked()
        assert heard.things == [AgentDied]
        nursery.cancel_scope.cancel()


async def test_items_of_a_stream_wait_for_their_state() -> None:
    store, items = StoreOfTest(), list[int]()

    async def consume(ref: Ref[Ledger]) -> None:
        async with ref.stream(Ledger.count, 3) as stream:
            async for item in stream:
                items.append(item)

    async with ledger_in(store) as ref, trio.open_nursery() as nursery:
        store.may_commit.clear()
        nursery.start_soon(consume, ref)
        await wait_all_tasks_blocked()
        assert items == []
        store.may_commit.set()
    assert items == [1, 2, 3]


async def test_a_deadline_and_a_cancel_hold_while_the_store_does_not_answer() -> None:
    store = StoreOfTest()
    async with ledger_in(store) as ref:
        store.may_commit.clear()
        with pytest.raises(DeadlineExceeded):
            await ref.within(0.02).invoke(Ledger.add, 1)
        with trio.move_on_after(0.02) as scope:
            await ref.invoke(Ledger.add, 1)
        assert scope.cancelled_caught
        with pytest.raises(DeadlineExceeded):
            await ref.within(0.02).read(Ledger.level)
        store.may_commit.set()
        assert await ref.invoke(Ledger.get) == 2
        statistics = ref.statistics()
        assert statistics.accepted == statistics.handled


async def test_a_failed_commit_ends_the_incarnation_until_the_store_works(autojump_clock: object) -> None:
    store, heard = StoreOfTest(), Heard()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("bank", Ledger))
        await ref.invoke(Ledger.add, 1)
        await nursery.start(heard.listen, ref)
        store.fails = True
        with pytest.raises(AgentDied, match="disk is full") as died:
            await ref.invoke(Ledger.add, 2)
        assert died.value.started
        with pytest.raises(AgentUnavailable, match="store fails") as refused:
            await ref.invoke(Ledger.add, 3)
        assert refused.value.retry_in is not None
        statistics = node.statistics().store
        assert statistics is not None
        assert (statistics.commits, statistics.failures) == (1, 1)
        await trio.sleep(60)
        store.fails = False
        await ref.ready()
        assert await ref.invoke(Ledger.get) == 1
        assert await ref.retrying().invoke(Ledger.add, 4) == 5
        await wait_all_tasks_blocked()
        assert heard.things == ["event 4"]
        assert node.root.statistics().restarts == 0
        nursery.cancel_scope.cancel()


async def test_a_crash_while_the_store_fails_is_no_second_one(autojump_clock: object) -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("bank", Ledger))
        await ref.invoke(Ledger.add, 1)
        store.fails = True
        for n in range(10):
            with pytest.raises((AgentDied, AgentUnavailable)):
                await ref.invoke(Ledger.crash if n == 0 else Ledger.add, 2)
        store.fails = False
        await ref.ready()
        assert await ref.invoke(Ledger.get) == 1


async def test_agents_that_first_meet_a_failing_store_are_suspended_too(autojump_clock: object) -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node:
        first, second = [await node.start_child(ChildSpec(name, Ledger)) for name in ("first", "second")]
        journal = await node.start_child(ChildSpec("journal", Journal))
        await second.invoke(Ledger.add, 1)
        store.fails = True
        with pytest.raises(AgentDied):
            await first.invoke(Ledger.add, 1)
        for ref, action_ in ((second, Ledger.add), (journal, Journal.charge)):
            with pytest.raises(AgentDied, match="was not kept"):
                await ref.invoke(action_, 5)
            with pytest.raises(AgentUnavailable, match="store fails"):
                await ref.invoke(action_, 5)
        store.fails = False
        with trio.fail_after(60):
            await second.ready()
            await journal.ready()
        assert await second.invoke(Ledger.get) == 1
        assert await journal.invoke(Journal.charge, 2) == 2
        assert node.root.statistics().restarts == 0


async def test_a_stop_waits_for_what_is_on_its_way_to_the_store() -> None:
    store, heard = StoreOfTest(), Heard()
    async with trio.open_nursery() as nursery:
        async with open_node(store=store) as node:
            ref = await node.start_child(ChildSpec("bank", Ledger))
            store.may_commit.clear()
            nursery.start_soon(heard.ask, ref, Ledger.add, 2)
            await wait_all_tasks_blocked()
            nursery.start_soon(trio.to_thread.run_sync, store.may_commit.set)
        assert heard.things == [2]


@every_place
async def test_a_key_finds_the_state_under_another_name(place: Place, tmp_path: Path) -> None:
    path = place(tmp_path)
    async with open_node(store=path) as node:
        ref = await node.start_child(ChildSpec("a", Ledger, key="42"))
        await ref.invoke(Ledger.add, 1)
    async with open_node(store=path) as node:
        ref = await node.start_child(ChildSpec("b", Ledger, key="42"))
        assert await ref.invoke(Ledger.get) == 1


async def test_durable_agents_need_a_store_and_a_name(autojump_clock: object) -> None:
    async with open_node() as node:
        with pytest.raises(StartFailed, match="open_node\\(store="):
            await node.start_child(ChildSpec("bank", Ledger))
    async with open_node(store="memory:") as node:
        with pytest.raises(Exception, match="start_child\\(ChildSpec\\(NAME"):
            await node.start(Ledger)


@every_place
async def test_another_class_at_a_key_is_refused(place: Place, tmp_path: Path) -> None:
    path = place(tmp_path)

    class Other(Agent, durable=True):
        balance: int = 0

        @action
        def set(self, n: int) -> None:
            self.balance = n

    class Renamed(Agent, durable=True, formerly=(f"{Other.__module__}:{Other.__qualname__}",)):
        balance: int = 0

        @action
        def get(self) -> int:
            return self.balance

    async with open_node(store=path) as node:
        ref = await node.start_child(ChildSpec("bank", Other))
        await ref.invoke(Other.set, 3)
    async with open_node(store=path) as node:
        with pytest.raises(StartFailed, match="formerly="):
            await node.start_child(ChildSpec("bank", Ledger))
        renamed = await node.start_child(ChildSpec("bank", Renamed))
        assert await renamed.invoke(Renamed.get) == 3


async def test_the_strongest_durability_of_a_batch(autojump_clock: object) -> None:
    class Careful(Agent, durable=True, durability="power"):
        n: int = 0

        @action
        def add(self) -> None:
            self.n += 1

    store = StoreOfTest()
    async with open_node(store=store) as node:
        careful = await node.start_child(ChildSpec("careful", Careful))
        ledger = await node.start_child(ChildSpec("ledger", Ledger))
        await careful.invoke(Careful.add)
        await ledger.invoke(Ledger.add, 1)
        assert store.commits == ["power", "process"]


class Spoilt(Agent, durable=True):
    when: datetime.date = datetime.date(2026, 1, 1)
    heard: Event[str] = event()

    @action
    def spoil(self) -> str:
        self.when = "today"  # type: ignore[assignment]
        return "spoilt"

    @action(snapshot_safe=True)
    async def spoil_slowly(self) -> str:
        await trio.lowlevel.checkpoint()
        self.when = "today"  # type: ignore[assignment]
        self.heard.emit("spoilt")
        await trio.sleep(1)
        return "spoilt"

    @action
    def look(self) -> datetime.date:
        return self.when


async def test_a_value_of_another_type_crashes_the_turn_that_set_it(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        ref = await node.start_child(ChildSpec("spoilt", Spoilt))
        with pytest.raises(AgentDied):
            await ref.invoke(Spoilt.spoil)
        await ref.ready()
        assert await ref.invoke(Spoilt.look) == datetime.date(2026, 1, 1)
        with pytest.raises(AgentDied):
            await ref.invoke(Spoilt.spoil_slowly)
        await ref.ready()
        assert await ref.invoke(Spoilt.look) == datetime.date(2026, 1, 1)


async def test_a_request_that_comes_as_a_run_has_spoilt_the_state_is_answered(autojump_clock: object) -> None:
    heard = Heard()
    async with open_node(store="memory:") as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("spoilt", Spoilt))
        nursery.start_soon(heard.ask, ref, Spoilt.spoil_slowly)
        for _ in range(10):
            nursery.start_soon(heard.ask, ref, Spoilt.look)
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.deadline = trio.current_time() + 10
    assert len(heard.things) == 11


# ---- the stored form


@attrs.define
class Cash:
    amount: decimal.Decimal


@attrs.define
class Card:
    number: str
    until: datetime.date


class Shop(Agent, durable=True):
    by_day: dict[datetime.date, int] = attrs.field(factory=dict)
    by_number: dict[int, Cash] = attrs.field(factory=dict)
    how: Cash | Card | None = None
    seen: set[uuid.UUID] = attrs.field(factory=set)
    span: datetime.timedelta = datetime.timedelta(seconds=1.5)
    ledger: Ref[Ledger] | None = None
    level: Property[float] = prop(default=1.0)

    @action
    def fill(self) -> None:
        self.ledger = self.find(Ledger, "ledger")
        self.by_day = {datetime.date(2026, 1, 2): 3}
        self.by_number = {7: Cash(decimal.Decimal("1.10"))}
        self.how = Card("1", datetime.date(2027, 1, 1))
        self.seen = {uuid.UUID(int=5)}
        self.span = datetime.timedelta(days=2, microseconds=1)
        self.level = 2.5

    @action
    def shown(self) -> str:
        things = (self.by_day, self.by_number, self.how, self.seen, self.span, self.level, self.ledger)
        return repr(things)


@every_place
async def test_all_kinds_of_values_come_back(place: Place, tmp_path: Path) -> None:
    path = place(tmp_path)
    async with open_node(store=path) as node:
        ref = await node.start_child(ChildSpec("shop", Shop))
        await ref.invoke(Shop.fill)
        shown = await ref.invoke(Shop.shown)
    async with open_node(store=path) as node:
        ref = await node.start_child(ChildSpec("shop", Shop))
        assert await ref.invoke(Shop.shown) == shown


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (Any, "name its type"),
        (list, "name their type"),
        (threading.Event, "does not outlive"),
        (trio.Nursery, "does not outlive"),
        (trio.CancelScope, "does not outlive"),
        (dict[tuple[int, int], int], "keys"),
        (Ledger, "keep a Ref"),
        (type, "no form"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_class(hint: Any, why: str) -> None:
    with pytest.raises(TypeError, match=f"Bad.thing: .*{why}"):

        class Bad(Agent, durable=True):
            thing: hint


def test_runs_of_a_durable_class_are_safe_or_serial() -> None:
    with pytest.raises(TypeError, match="snapshot_safe=True"):

        class Runs(Agent, durable=True):
            @action
            async def go(self) -> None: ...

    class Serial(Agent, durable=True, serial=True):
        @action
        async def go(self) -> None: ...


# ---- journals


@attrs.frozen
class Charged:
    amount: int
    on: datetime.date = datetime.date(2026, 1, 1)


@attrs.frozen
class Refunded:
    amount: int


class Journal(Agent, durable="journal", snapshot_every=4):
    balance: int = 0
    facts: int = 0
    seen: int = ephemeral(default=0)
    changed: Event[int] = event()

    def apply(self, fact: Charged | Refunded) -> None:
        self.balance += fact.amount if isinstance(fact, Charged) else -fact.amount
        self.facts += 1

    @action
    def charge(self, amount: int) -> int:
        self.record(Charged(amount))
        self.changed.emit(self.balance)
        return self.balance

    @action
    def refund_and_crash(self, amount: int) -> None:
        self.record(Refunded(amount))
        self.changed.emit(self.balance)
        raise KeyError(amount)

    @action
    def look(self) -> tuple[int, int, bool]:
        return self.balance, self.facts, self.restored

    @action
    async def charge_twice(self, amount: int, crash: bool = False) -> int:
        self.record(Charged(amount))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        self.record(Charged(amount))
        if crash:
            raise KeyError(amount)
        return self.balance

    @action
    def charge_wrongly(self) -> None:
        self.record("charged")


@every_place
async def test_a_journal_is_applied_again(place: Place, tmp_path: Path) -> None:
    path = place(tmp_path)
    for life in range(3):
        async with open_node(store=path) as node:
            ref = await node.start_child(ChildSpec("bank", Journal))
            assert await ref.invoke(Journal.look) == (life * 7, life * 7, life > 0)
            for _ in range(7):
                await ref.invoke(Journal.charge, 1)


async def test_a_snapshot_takes_the_place_of_its_facts(autojump_clock: object) -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("bank", Journal))
        for n in range(1, 10):
            await ref.invoke(Journal.charge, 1)
            assert len(store.scan("journal", limit=100)) == n % 4
        with pytest.raises(AgentDied):
            await ref.invoke(Journal.refund_and_crash, 5)
        await ref.ready()
        assert await ref.invoke(Journal.look) == (9, 9, True)


async def test_facts_of_a_crashing_turn_are_never_seen(autojump_clock: object) -> None:
    things = list[int]()

    async def listen(ref: Ref[Journal], *, task_status: trio.TaskStatus[None]) -> None:
        async with ref.subscribe(Journal.changed) as feed:
            task_status.started()
            async for balance in feed:
                things.append(balance)

    async with open_node(store="memory:") as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("bank", Journal))
        await nursery.start(listen, ref)
        await ref.invoke(Journal.charge, 3)
        with pytest.raises(AgentDied):
            await ref.invoke(Journal.refund_and_crash, 2)
        await ref.ready()
        await ref.invoke(Journal.charge, 1)
        await wait_all_tasks_blocked()
        assert things == [3, 4]
        nursery.cancel_scope.cancel()


async def test_facts_are_kept_inside_runs(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        ref = await node.start_child(ChildSpec("bank", Journal))
        assert await ref.invoke(Journal.charge_twice, 1) == 2
        with pytest.raises(AgentDied):
            await ref.invoke(Journal.charge_twice, 1, crash=True)
        await ref.ready()
        assert (await ref.invoke(Journal.look))[0] == 3  # the last fact went with the step that crashed


async def test_a_fact_of_another_class_is_a_bug_of_the_agent(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        ref = await node.start_child(ChildSpec("bank", Journal))
        with pytest.raises(AgentDied, match="takes Charged, Refunded"):
            await ref.invoke(Journal.charge_wrongly)


async def test_a_hole_in_a_journal_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "bank.db"))
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("bank", Journal))
        for _ in range(3):
            await ref.invoke(Journal.charge, 1)
    store.open()
    store.commit([[Delete("journal", f"bank\x00{2:016x}")]], "process")
    store.close()
    async with open_node(store=store) as node:
        with pytest.raises(StartFailed, match="fact 2 of its journal is missing"):
            await node.start_child(ChildSpec("bank", Journal))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"durable": "journal"}, "Bad.apply needs one parameter"),
        ({"durable": "jornal"}, "durable must be"),
        ({"durable": True, "snapshot_every": 5}, "snapshot_every"),
        ({"durable": True, "durability": "powr"}, "did you mean 'power'"),
        ({"durability": "power"}, "goes with durable"),
        ({"durable": True, "formerly": "a:B"}, "tuple of names"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        type("Bad", (Agent,), {}, **options)
