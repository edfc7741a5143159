"""The flow of messages: what is recorded while somebody looks, and that it ends with that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec import Struct

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentError,
    ChildSpec,
    Ref,
    Secret,
    SupervisorSpec,
    action,
    open_node,
    sibling,
)
from lmos_actors.actors import TracedSlot, slot_of
from lmos_actors.simulation import TraceLog
from lmos_actors.transport import MemoryNetwork
from tests.live.watching import SECURITY, Watcher, watching
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from trio.testing import MockClock

PLACE = "ws://here"


class Stock(Agent):
    """Has things."""

    @action
    def take(self, name: str, pin: Secret[str] = "") -> int:
        if name == "none":
            raise ValueError("there is none")
        return 1


class Desk(Agent):
    """Asks the stock."""

    stock: Ref[Stock]

    @action
    async def order(self, name: str) -> int:
        return await self.stock.invoke(Stock.take, name, "pin-of-1234")


TREE = SupervisorSpec(
    "root",
    [ChildSpec("stock", Stock), ChildSpec("desk", partial(Desk, stock=sibling("stock")))],
)


def records(watcher: Watcher) -> list[dict[str, Any]]:
    return list(watcher.views.get("it", {}).get("records", {}).values())


async def test_messages_pass_with_their_traces_and_without_their_secrets(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        desk = node.find(Desk)
        await desk.invoke(Desk.order, "before")
        watcher.look("flow", paths=["desk", "stock"])
        await watcher.until(lambda: watcher.views.get("it"))
        assert await desk.invoke(Desk.order, "tea") == 1
        await watcher.until(lambda: len(records(watcher)) == 6)
        sent = [each for each in records(watcher) if each["kind"] == "sent"]
        assert [(each["from"], each["agent"], each["affordance"]) for each in sent] == [
            ("user", "desk", "order"),
            ("desk", "stock", "take"),
        ]
        assert len({each["trace"] for each in records(watcher)}) == 1
        assert "tea" in sent[1]["input"]
        assert "1234" not in str(watcher.views)
        edges = watcher.views["it"]["edges"]
        assert edges["desk > stock > take"]["sent"] == 1


async def test_only_what_is_looked_at_is_recorded(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        stock = node.find(Stock)
        watcher.look("flow", paths=["stock"], affordance="take")
        await watcher.until(lambda: watcher.views.get("it"))
        await node.find(Desk).invoke(Desk.order, "tea")
        await watcher.until(lambda: len(records(watcher)) == 3)
        assert {each["agent"] for each in records(watcher)} == {"stock"}
        assert not isinstance(slot_of(node.find(Desk)), TracedSlot)
        assert isinstance(slot_of(stock), TracedSlot)


async def test_nothing_is_left_of_it_when_nobody_looks(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        rt = node.root.rt
        link = rt.link
        async with watching(PLACE, network) as watcher:
            watcher.look("flow")
            await watcher.until(lambda: watcher.views.get("it"))
            await trio.sleep(2)
            assert rt.link is TracedSlot
            await node.start_child(ChildSpec("late", Stock))
            assert type(slot_of(node.find(Stock, "late"))) is TracedSlot
        await trio.sleep(10)
        assert rt.instrument is None
        assert rt.link is link
        assert [type(slot_of(ref)) for ref in node.agents()] == [link] * 3
        assert await node.find(Desk).invoke(Desk.order, "tea") == 1


async def test_a_node_with_an_instrument_goes_on_recording(virtual_clock: MockClock) -> None:
    network, log = MemoryNetwork(), TraceLog()
    async with open_node(TREE, listen=PLACE, network=network, instrument=log, security=SECURITY) as node:
        async with watching(PLACE, network) as watcher:
            watcher.look("flow")
            await watcher.until(lambda: watcher.views.get("it"))
            await node.find(Desk).invoke(Desk.order, "tea")
            await watcher.until(lambda: len(records(watcher)) == 6)
        await trio.sleep(10)
        assert node.root.rt.instrument is log
        await node.find(Desk).invoke(Desk.order, "tea")


async def test_what_the_instrument_of_a_node_records_beside_is_not_counted(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, instrument=TraceLog(), security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        watcher.look("flow", paths=["stock"])
        await watcher.until(lambda: watcher.views.get("it"))
        await node.find(Desk).invoke(Desk.order, "tea")
        await watcher.until(lambda: len(records(watcher)) == 3)
        assert list(watcher.views["it"]["edges"]) == ["desk > stock > take"]
        assert watcher.views["it"]["left_out"] == 0


async def test_under_load_whole_traces_are_kept_and_all_is_counted(virtual_clock: MockClock) -> None:
    count = few_or_all(1_500, 3_000)
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        desk = node.find(Desk)
        watcher.look("flow")
        await watcher.until(lambda: watcher.views.get("it"))
        await trio.sleep(2)
        for _ in range(count):
            await desk.invoke(Desk.order, "tea")
        await watcher.until(
            lambda: watcher.views["it"]["edges"].get("desk > stock > take", {}).get("sent") == count
        )
        view = watcher.views["it"]
        assert view["left_out"] > count // 3
        assert len(view["records"]) == 200
        by_trace: dict[int, list[str]] = {}
        for each in list(view["records"].values())[10:]:
            by_trace.setdefault(each["trace"], []).append(each["kind"])
        whole = [kinds for kinds in by_trace.values() if len(kinds) == 6]
        assert len(whole) >= len(by_trace) - 2


async def test_failures_are_counted(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        watcher.look("flow")
        await watcher.until(lambda: watcher.views.get("it"))
        await node.find(Stock).tell(Stock.take, "none")
        edge = await watcher.until(lambda: watcher.views["it"]["edges"].get("user > stock > take"))
        await watcher.until(lambda: any(each["kind"] == "crashed" for each in records(watcher)))
        assert edge["sent"] == 1


class Named(Struct):
    """Shows itself by its own words."""

    key: str

    def __repr__(self) -> str:
        return "Named"


class Point(Struct, rename={"x": "X"}):
    """Shows its fields."""

    x: int
    pin: Secret[str] = ""


class Taker(Agent):
    """Takes values."""

    @action
    def plain(self, value: Any) -> None:
        pass

    @action
    def point(self, value: Point) -> None:
        pass

    @action
    def named(self, value: Named) -> None:
        pass


async def test_values_are_json_where_they_can_be_shown_whole(virtual_clock: MockClock) -> None:
    whole = [
        (Taker.plain, {"a": [1, None, "x"]}, '{"a":[1,null,"x"]}'),
        (Taker.point, Point(3, "pin-of-1234"), '{"X":3,"pin":"***"}'),
        (Taker.point, Point(4, "12"), '{"X":4,"pin":"***"}'),
        (Taker.plain, 2**53, str(2**53)),
        (Taker.plain, "é" * 600, '"' + "é" * 600 + '"'),
    ]
    parts = [(Taker.named, Named("swordfish")), (Taker.plain, "x" * 3_000), (Taker.plain, [[]] * 600)]
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("taker", Taker)])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        watcher.look("flow")
        await watcher.until(lambda: watcher.views.get("it"))
        sending: list[tuple[Any, Any]] = [(each[0], each[1]) for each in [*whole, *parts]]
        for method, value in sending:
            await node.find(Taker).tell(method, value)

        def sent() -> list[dict[str, Any]]:
            return [each for each in records(watcher) if each["kind"] == "sent"]

        await watcher.until(lambda: len(sent()) == len(sending))
        inputs = [(each["input"], each.get("json", False)) for each in sent()]
        assert inputs[: len(whole)] == [(f'{{"value":{text}}}', True) for _, _, text in whole]
        assert not any(is_json for _, is_json in inputs[len(whole) :])
        assert all(len(text) <= 300 for text, _ in inputs[len(whole) :])
        assert "swordfish" not in str(sent())


class Login(Struct, frozen=True):
    user: str
    token: Secret[str]


class Careless(Agent):
    """Keeps secrets where its class does not say so, and quotes them."""

    key: Secret[str] = "key-of-4711"

    def __init__(self) -> None:
        self.kept: Any = {"login": [Login("ada", "canary-4711")]}

    @action
    def quote(self) -> None:
        raise ActionFailed(f"no {self.kept['login'][0].token} for {self.key}")

    @action
    def crash(self) -> None:
        raise ValueError(f"no {self.kept['login'][0].token} for {self.key}")


class Open(Agent):
    """The same, and its class declares no secret at all."""

    def __init__(self) -> None:
        self.kept: Any = {"login": [Login("ada", "canary-4711")]}
        self.key = "none"

    quote = Careless.quote
    crash = Careless.crash


async def test_errors_are_shown_without_secrets_that_no_type_declares(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    children = [ChildSpec("careless", Careless), ChildSpec("open", Open)]
    tree = SupervisorSpec("root", children, max_restarts=500)
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        watcher.look("flow")
        watcher.look("crashes", "crashes", open=[1, 2])
        await watcher.until(lambda: watcher.views.get("it") is not None)
        refs: list[Any] = [node.find(Careless, "careless"), node.find(Open, "open")]
        for ref in refs:
            for asked in (Careless.quote, Careless.crash):
                with pytest.raises(AgentError):
                    await ref.invoke(asked)
                await trio.sleep(2)
        await watcher.until(lambda: len([each for each in records(watcher) if "error" in each]) == 4)
        await watcher.until(lambda: watcher.views.get("crashes", {}).get("total") == 2)
        for _ in range(150):
            with pytest.raises(AgentError):
                await refs[1].invoke(Careless.quote)
        await trio.sleep(2)
        shown = str(watcher.views)
        assert "4711" not in shown
        assert "ActionFailed: no *** for none" in shown
