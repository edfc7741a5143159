"""The live view of people with rights over some agents alone: each sees these, and nothing else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.security import Access, Bearer, Security
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.live.watching import NAMES, SECURITY as WHOLE, Watcher, as_viewer, watching

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PLACE = "ws://here"

SECURITY = Security(
    schemes=(Bearer({name: f"env:LIVE_{name.upper()}" for name in (*NAMES, "sue")}),),
    access={
        "shop.till": Access(inspect=("ann",), operate=("eve",), invoke=("ann",)),
        "shop.*": Access(inspect=("ann",), approve=("bob",)),
        "shop": Access(operate=("eve",)),
    },
)
"""Ann may look into a shop, Bob decides what it asks, Eve may operate it, and Sue nothing."""


class Till(Agent):
    """Asks a person before it pays."""

    @action
    async def pay(self, why: str) -> bool:
        return await self.approve(f"Pay for {why}", key=why)


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("vault", Till),
        SupervisorSpec(
            "shop",
            [
                ChildSpec("till", Till),
                ChildSpec("once", Till, restart="temporary"),
                BulkSpec("many", member=ChildSpec("m", Till), count=400),
            ],
        ),
    ],
)


@asynccontextmanager
async def watched(name: str) -> AsyncGenerator[tuple[Any, Watcher]]:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network, as_viewer(name)) as watcher,
    ):
        yield node, watcher


async def seen(watcher: Watcher, view: str, **arguments: Any) -> dict[str, Any]:
    """Open a view; return its first state, or its error."""
    watcher.look(view, view, **arguments)
    refused = len(watcher.errors)
    await watcher.until(lambda: view in watcher.views or len(watcher.errors) > refused)
    return watcher.views.get(view) or watcher.errors[-1]


@pytest.fixture(autouse=True)
def secret_of_sue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVE_SUE", "sue-token")


async def test_who_may_look_into_some_agents_finds_them() -> None:
    async with watched("ann") as (_, watcher):
        assert watcher.hello["rights"] == []
        assert watcher.hello["views"] == ["agent", "agents", "approvals", "chats", "flow", "rights"]
        await seen(watcher, "agents")
        await watcher.until(lambda: len(watcher.views["agents"]["order"]) == 300)
        agents = watcher.views["agents"]
        assert agents["order"][:2] == ["shop/till", "shop/once"]
        assert agents["rows"]["shop/till"]["class"] == "Till"
        assert not agents["complete"]
        assert (await seen(watcher, "agent", path="shop/till"))["kind"] == "agent"
        for view in ("tree", "find", "top", "crashes", "flow", "audit"):  # of the whole node
            arguments = {"text": "x"} if view == "find" else {}
            assert (await seen(watcher, view, **arguments))["code"] == "FORBIDDEN"
        watcher.look("agent", "other", path="vault")
        await watcher.until(lambda: watcher.errors[-1]["id"] == "other")
        assert watcher.errors[-1]["code"] == "FORBIDDEN"


async def test_who_may_look_into_some_agents_sees_their_messages() -> None:
    async with watched("ann") as (node, watcher), trio.open_nursery() as nursery:
        watcher.look("flow", "mine", paths=["shop/till", "shop/once"])
        await watcher.until(lambda: "mine" in watcher.views)
        await trio.sleep(0.1)  # until they are tapped
        for path in ("shop/till", "vault"):
            nursery.start_soon(node.find(Till, path).invoke, Till.pay, "tea")
        records = await watcher.until(lambda: watcher.views["mine"].get("records"))
        assert {each["agent"] for each in records.values()} == {"shop/till"}
        for paths in (["shop/till", "vault"], [""], ["shop"]):
            watcher.look("flow", "others", paths=paths)
            await watcher.until(lambda: watcher.errors)
            assert watcher.errors.pop()["code"] == "FORBIDDEN"
        nursery.cancel_scope.cancel()


async def test_who_decides_alone_sees_what_waits_for_him() -> None:
    async with watched("bob") as (node, watcher), trio.open_nursery() as nursery:
        assert watcher.hello["views"] == ["approvals", "chats", "rights"]
        nursery.start_soon(node.find(Till, "shop/once").invoke, Till.pay, "tea")
        nursery.start_soon(node.find(Till, "vault").invoke, Till.pay, "gold")
        await seen(watcher, "approvals")
        await watcher.until(lambda: watcher.views["approvals"]["waiting"] == 1)
        (row,) = watcher.views["approvals"]["rows"].values()
        assert row["text"] == "Pay for tea"
        assert (await seen(watcher, "agents"))["order"] == []
        nursery.cancel_scope.cancel()


async def test_who_operates_some_agents_is_offered_what_fits() -> None:
    async with watched("eve") as (_, watcher):
        assert (await seen(watcher, "agents"))["order"] == ["shop/till"]
        rights = await seen(watcher, "rights", path="shop/till")
        assert rights["operations"] == ["restart", "stop", "hold"]
        watcher.do("hold", "shop/till")
        await watcher.until(lambda: watcher.views["rights"]["operations"] == ["restart", "stop", "release"])
        watcher.do("stop", "shop/till", "d2")
        await watcher.until(lambda: watcher.views["rights"]["operations"] == ["restart", "release"])
        watcher.look("rights", "rights", path="shop")
        await watcher.until(lambda: watcher.views["rights"]["operations"] == ["restart", "stop"])
        assert not watcher.views["rights"]["there"]
        watcher.do("restart", "vault", "d3")
        await watcher.until(lambda: watcher.errors)
        assert watcher.errors[-1]["code"] == "FORBIDDEN"


@pytest.mark.parametrize("path", ["", "vault", "shop/many/3", "shop/none"])
async def test_what_one_may_not_operate_offers_nothing(path: str) -> None:
    async with watched("eve") as (_, watcher):
        rights = await seen(watcher, "rights", path=path)
        assert rights["operations"] == []


async def test_who_has_no_such_right_is_not_let_in() -> None:
    with pytest.raises(ConnectFailed, match="403"):
        async with watched("sue"):
            pass


async def test_what_the_node_offers_as_a_whole() -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=WHOLE),
        watching(PLACE, network) as watcher,
    ):
        assert (await seen(watcher, "rights", path=""))["operations"] == ["drain"]
        watcher.look("rights", "once", path="shop/once")
        await watcher.until(lambda: watcher.views.get("once"))
        assert watcher.views["once"]["operations"] == ["stop", "hold"]
