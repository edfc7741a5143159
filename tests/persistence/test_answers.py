"""Requests with keys: a durable agent carries out one of each key, and its repeats get the same answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    DeadlineExceeded,
    NotAllowed,
    Ref,
    Secret,
    action,
    open_node,
)
from lmos_actors.actors import KEPT_ANSWERS, KEPT_SECONDS
from lmos_actors.errors import KeyReused
from lmos_actors.persistence import MemoryStore, _answers, records_of
from lmos_actors.testing import open_test_node
from tests.persistence.stores import StoreOfTest, every_place

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors import Node
    from tests.persistence.stores import Place


class Receipt(msgspec.Struct):
    number: int
    items: list[str]


class Shop(Agent, durable=True):
    sold: int = 0
    starts: int = 0

    @action
    def order(self, item: str, count: int = 1) -> Receipt:
        self.sold += count
        if item == "crash":
            raise ValueError("broken")
        if item == "none left":
            raise ActionFailed({"code": "none-left", "sold": self.sold})
        return Receipt(self.sold, [item] * count)

    @action(snapshot_safe=True)
    async def order_slowly(self, item: str) -> int:
        self.starts += 1
        await trio.sleep(1)
        self.sold += 1
        return self.sold

    @action
    def look(self) -> int:
        return self.sold

    @action(snapshot_safe=True)
    async def list_items(self) -> AsyncIterator[int]:
        yield self.sold

    @action
    def enter(self, password: Secret) -> int:
        return self.sold


async def test_a_repeat_gets_the_same_answer_and_is_not_carried_out(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await node.start_child(ChildSpec("shop", Shop))
        first = shop.retrying(key="order-1")
        receipt = await first.invoke(Shop.order, "tea", 2)
        assert receipt == Receipt(2, ["tea", "tea"])
        assert await first.invoke(Shop.order, "tea", 2) == receipt
        assert await shop.retrying(key="order-2").invoke(Shop.order, "tea", 2) == Receipt(4, ["tea", "tea"])
        assert await shop.invoke(Shop.look) == 4


@every_place
async def test_another_node_finds_the_answer(place: Place, tmp_path: Path) -> None:
    store, receipts = place(tmp_path), []
    for _ in range(2):
        async with open_node(store=store) as node:
            shop = await node.start_child(ChildSpec("shop", Shop))
            receipts.append(await shop.retrying(key="order-1").invoke(Shop.order, "tea"))
            assert await shop.invoke(Shop.look) == 1
    assert receipts == [Receipt(1, ["tea"])] * 2


async def opened_shop(node: Node) -> Ref[Shop]:
    return await node.start_child(ChildSpec("shop", Shop))


async def test_a_declared_failure_is_an_answer_and_a_crash_is_none(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        for _ in range(2):
            with pytest.raises(ActionFailed) as failed:
                await shop.retrying(key="a").invoke(Shop.order, "none left")
            assert failed.value.output == {"code": "none-left", "sold": 1}
        for _ in range(2):
            with pytest.raises(AgentDied):
                await shop.retrying(key="b").invoke(Shop.order, "crash")
            await shop.ready()
        assert await shop.invoke(Shop.look) == 1


async def test_an_answer_that_changes_nothing_is_kept_too() -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node:
        shop = await opened_shop(node)
        assert await shop.retrying(key="look").invoke(Shop.look) == 0
        await shop.invoke(Shop.order, "tea")
        assert await shop.retrying(key="look").invoke(Shop.look) == 0
        assert len(store.commits) == 2


@pytest.mark.parametrize("handle", [Shop.order, Shop.order_slowly])
async def test_repeats_wait_for_the_one_that_is_under_way(handle: Any, autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await shop.retrying(key="a").invoke(handle, "tea"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert answers == [answers[0]] * 5
        assert await shop.invoke(Shop.look) == 1


async def test_repeats_wait_for_the_commit() -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        shop = await opened_shop(node)
        await shop.retrying(key="other").invoke(Shop.order, "tea")
        store.may_commit.clear()
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await shop.retrying(key="a").invoke(Shop.order, "tea")).number)

        nursery.start_soon(ask)
        with pytest.raises(DeadlineExceeded):
            await shop.retrying(key="a").within(0.05).invoke(Shop.order, "tea")
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        assert answers == []
        store.may_commit.set()
    assert answers == [2, 2]


async def test_a_caller_that_gives_up_leaves_the_others(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        keyed = shop.retrying(key="a")
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                with pytest.raises(DeadlineExceeded):
                    await keyed.within(0.5).invoke(Shop.order_slowly, "tea")

            nursery.start_soon(give_up)
            await wait_all_tasks_blocked()
            assert await keyed.invoke(Shop.order_slowly, "tea") == 1
        assert await shop.invoke(Shop.look) == 1


async def test_with_its_last_caller_a_request_is_withdrawn(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        keyed = shop.retrying(key="a")
        with trio.move_on_after(0.5):
            await keyed.invoke(Shop.order_slowly, "tea")
        await wait_all_tasks_blocked()
        assert await shop.invoke(Shop.look) == 0
        assert await keyed.invoke(Shop.order_slowly, "tea") == 1
        statistics = shop.statistics()
        assert (statistics.accepted, statistics.cancelled, statistics.running) == (3, 1, 0)


async def test_a_key_names_one_request(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node, trio.open_nursery() as nursery:
        shop = await opened_shop(node)
        keyed = shop.retrying(key="a")
        nursery.start_soon(keyed.invoke, Shop.order_slowly, "tea")
        await wait_all_tasks_blocked()
        for _ in range(2):  # while the first is under way, and after it
            with pytest.raises(KeyReused, match="it names another request, of 'order_slowly'"):
                await keyed.invoke(Shop.order_slowly, "milk")
            with pytest.raises(KeyReused):
                await keyed.invoke(Shop.order, "tea")
            await trio.sleep(2)
        assert await shop.invoke(Shop.look) == 1


async def test_what_has_its_default_does_not_count(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        keyed = shop.retrying(key="a")
        assert await keyed.invoke(Shop.order, "tea") == await keyed.invoke(Shop.order, "tea", count=1)


async def test_an_answer_is_kept_for_a_day(autojump_clock: object) -> None:
    store = MemoryStore()
    for wait, number in ((0.0, 1), (KEPT_SECONDS - 60, 1), (120.0, 4), (60.0, 4)):
        await trio.sleep(wait)
        async with open_test_node(store=store) as node:
            shop = await opened_shop(node)
            assert (await shop.retrying(key="a").invoke(Shop.order, "tea")).number == number
            if not wait:
                for key in ("b", "c"):
                    await shop.retrying(key=key).invoke(Shop.order, "tea")
    assert counts_in(store) == (1, 1, 1)


def counts_in(store: MemoryStore) -> tuple[int, ...]:
    store.open()
    counts = tuple(
        len(list(records_of(store, space))) for space in ("answers", "answer-order", "answer-counts")
    )
    store.close()
    return counts


async def test_the_oldest_answers_go_first(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_answers, "KEPT_ANSWERS", 100)
    store = MemoryStore()
    for life in range(3):
        async with open_node(store=store) as node:
            shop = await opened_shop(node)
            for i in range(100):
                await shop.retrying(key=f"{life}-{i}").invoke(Shop.order, "tea")
            sold = await shop.invoke(Shop.look)
            assert (await shop.retrying(key=f"{life}-99").invoke(Shop.order, "tea")).number == sold
            assert (await shop.retrying(key=f"{life}-0").invoke(Shop.order, "tea")).number == sold - 99
            assert await shop.invoke(Shop.look) == sold
        assert counts_in(store) == (100, 100, 1)


async def test_answers_of_many_bytes_go_sooner(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_answers, "KEPT_BYTES", 10_000)
    store = MemoryStore()
    async with open_node(store=store) as node:
        shop = await opened_shop(node)
        for i in range(20):
            await shop.retrying(key=str(i)).invoke(Shop.order, "tea", 400)
        big = await shop.retrying(key="big").invoke(Shop.order, "tea", 9_000)
        assert await shop.retrying(key="big").invoke(Shop.order, "tea", 9_000) == big
        await shop.retrying(key="last").invoke(Shop.order, "tea")
    assert counts_in(store)[0] == 2


def test_what_is_read_at_a_start_does_not_grow_with_the_answers() -> None:
    assert (_answers.PAGE, _answers.REMOVED) == (64, 8)
    assert KEPT_ANSWERS == 10_000


async def test_a_store_that_fails_keeps_no_answer_and_no_change(autojump_clock: object) -> None:
    store = StoreOfTest()
    async with open_node(store=store) as node:
        shop = await opened_shop(node)
        await shop.retrying(key="a").invoke(Shop.order, "tea")
        store.fails = True
        with pytest.raises(AgentDied):
            await shop.retrying(key="b").invoke(Shop.order, "tea")
        store.fails = False
        assert (await shop.retrying(key="b").invoke(Shop.order, "tea")).number == 2
        assert (await shop.retrying(key="a").invoke(Shop.order, "tea")).number == 1
        assert await shop.invoke(Shop.look) == 2


async def test_any_action_of_a_durable_agent_is_asked_again(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        with pytest.raises(AgentDied):
            await shop.invoke(Shop.order, "crash")
        assert (await shop.retrying().invoke(Shop.order, "tea")).number == 1


class Plain(Agent):
    @action(idempotent=True)
    def order(self, item: str) -> str:
        return item


async def test_where_keys_are_refused(autojump_clock: object) -> None:
    async with open_node(store="memory:") as node:
        shop = await opened_shop(node)
        keyed = shop.retrying(key="a")
        plain = (await node.start(Plain)).retrying(key="a")
        with pytest.raises(NotAllowed, match="keeps no answers"):
            await plain.invoke(Plain.order, "tea")
        with pytest.raises(NotAllowed, match="streams"):
            await keyed.invoke(Shop.list_items)  # type: ignore[arg-type]
        with pytest.raises(NotAllowed, match="secret"):
            await keyed.invoke(Shop.enter, "xyz")
        with pytest.raises(NotAllowed, match="begin has no key"):
            async with keyed.begin(Shop.order_slowly, "tea"):
                pass
        with pytest.raises(NotAllowed, match="tell has no key"):
            await keyed.tell(Shop.order, "tea")
        assert await keyed.read_all() == {}


@pytest.mark.parametrize("key", ["", "x" * 257, "a\0b", "a b", "ä", 17, b"a"])
async def test_what_is_no_key(key: Any) -> None:
    async with open_node() as node:
        plain = await node.start(Plain)
        with pytest.raises(ValueError, match=r"retrying\(key=...\): a key"):
            plain.retrying(key=key)


@attrs.frozen
class Sold:
    count: int


class Journal(Agent, durable="journal", snapshot_every=2):
    sold: int = 0

    def apply(self, fact: Sold) -> None:
        self.sold += fact.count

    @action
    def order(self) -> int:
        self.record(Sold(1))
        return self.sold

    @action
    async def order_twice(self) -> int:
        self.record(Sold(1))
        await trio.sleep(1)
        self.record(Sold(1))
        return self.sold

    @action
    def look(self) -> int:
        return self.sold


class Serial(Agent, durable=True, serial=True):
    sold: int = 0

    @action
    async def order(self) -> int:
        self.sold += 1
        await trio.sleep(1)
        return self.sold


@pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")
@pytest.mark.slow
@every_place
async def test_journals_and_serial_classes_keep_answers_too(place: Place, tmp_path: Path) -> None:
    store, answers = place(tmp_path), []
    for _ in range(2):
        async with open_node(store=store) as node:
            journal = await node.start_child(ChildSpec("journal", Journal))
            serial = await node.start_child(ChildSpec("serial", Serial))
            one = [await journal.retrying(key=str(i)).invoke(Journal.order) for i in range(5)]
            two = await journal.retrying(key="twice").invoke(Journal.order_twice)
            three = await serial.retrying(key="a").invoke(Serial.order)
            answers.append([*one, two, three, await journal.invoke(Journal.look)])
    assert answers == [[1, 2, 3, 4, 5, 7, 1, 7]] * 2
