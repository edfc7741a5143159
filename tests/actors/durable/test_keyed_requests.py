"""Requests with keys from elsewhere: over LMOS and HTTP, over breaks, and over restarts of either side."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, NotAllowed, Ref, action, open_node
from lmos_actors.bindings import fetch
from lmos_actors.errors import InvalidInput, KeyReused
from lmos_actors.persistence import MemoryStore
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.security import ANYONE, Access, Bearer, NoSec, Security
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.web import Answer, Web

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

URL = "ws://127.0.0.1:8080"
SHOP = f"{URL}/agents/shop"


class Shop(Agent, durable=True):
    sold: int = 0

    @action
    def order(self, item: str) -> int:
        self.sold += 1
        return self.sold

    @action(snapshot_safe=True)
    async def order_slowly(self, item: str) -> int:
        await trio.sleep(1)
        self.sold += 1
        return self.sold

    @action
    def look(self) -> int:
        return self.sold


class Plain(Agent):
    @action
    def order(self, item: str) -> str:
        return item


@asynccontextmanager
async def server(network: MemoryNetwork, store: Any = "memory:", **options: Any) -> AsyncGenerator[Ref[Shop]]:
    async with open_node(listen=URL, network=network, store=store, **options) as node:
        await node.start(Plain)
        yield await node.start_child(ChildSpec("shop", Shop))


@asynccontextmanager
async def client(network: MemoryNetwork, **options: Any) -> AsyncGenerator[Ref[Shop]]:
    async with open_node(network=network) as node:
        yield await node.consume(Shop, SHOP, **options)


@pytest.mark.parametrize("key", [None, "order-17"])
async def test_a_request_that_was_cut_off_is_carried_out_once(key: str | None, autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with server(network) as near, client(network) as shop, trio.open_nursery() as nursery:

        async def cut() -> None:
            await trio.sleep(0.5)
            network.sever("127.0.0.1", 8080)

        nursery.start_soon(cut)
        assert await shop.retrying(key=key).invoke(Shop.order_slowly, "tea") == 1
        assert await near.invoke(Shop.look) == 1


class CuttingStore(MemoryStore):
    """A store that calls `cut` when the next commit is done, before its agents hear of it."""

    cut: Callable[[], None] | None = None

    def commit(self, *args: Any) -> Any:
        done = super().commit(*args)
        if self.cut is not None:
            self.cut()
        return done


@pytest.mark.parametrize("key", [None, "order-17"])
async def test_a_server_that_was_restarted_answers_a_repeat(key: str | None, autojump_clock: Any) -> None:
    network, store = MemoryNetwork(), CuttingStore()
    was_cut, answered = trio.Event(), trio.Event()

    def cut() -> None:
        network.sever("127.0.0.1", 8080)
        was_cut.set()

    async def ask(shop: Ref[Shop]) -> None:
        assert await shop.retrying(key=key).invoke(Shop.order, "tea") == 2
        answered.set()

    async with open_node(network=network) as node, trio.open_nursery() as nursery:
        async with server(network, store):
            shop = await node.consume(Shop, SHOP)
            await shop.invoke(Shop.order, "milk")
            store.cut = cut
            nursery.start_soon(ask, shop)
            await was_cut.wait()
        assert not answered.is_set()
        store.cut = None
        async with server(network, store) as near:
            await answered.wait()
            assert await near.invoke(Shop.look) == 2


async def test_a_caller_that_was_restarted_gets_the_same_answer(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with server(network) as near:
        for _ in range(2):
            async with client(network) as shop:
                assert await shop.retrying(key="order-17").invoke(Shop.order, "tea") == 1
                with pytest.raises(KeyReused, match="'shop' has the key 'order-17' already"):
                    await shop.retrying(key="order-17").invoke(Shop.order, "milk")
        assert await near.retrying(key="order-17").invoke(Shop.order, "milk") == 2


async def test_a_thing_by_its_description(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with server(network) as near, open_node(network=network) as node:
        shop = await node.consume_thing(SHOP.replace("ws:", "http:"))
        assert shop.description is not None
        assert shop.description.answers == {"seconds": 86400.0, "count": 10000, "bytes": 16 << 20}
        for _ in range(2):
            assert await shop.retrying(key="a").invoke("order", {"item": "tea"}) == 1
        plain = await node.consume_thing("http://127.0.0.1:8080/agents/plain")
        with pytest.raises(NotAllowed, match="'plain' keeps no answers"):
            await plain.retrying(key="a").invoke("order", {"item": "tea"})
        assert await near.invoke(Shop.look) == 1


async def test_an_agent_that_keeps_no_answers_begins_nothing(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with server(network), open_node(network=network) as node:
        # a class that is durable here, and plain there
        shop = await node.consume(Shop, f"{URL}/agents/plain")
        with pytest.raises(NotAllowed, match="keeps no answers"):
            await shop.retrying(key="a").invoke(Shop.order, "tea")
    options = SessionOptions(offers=("acks", "retries"))
    async with server(network, session=options), client(network) as shop:
        with pytest.raises(NotAllowed, match="keeps no answers"):
            await shop.retrying(key="a").invoke(Shop.order, "tea")
        assert await shop.retrying().invoke(Shop.order, "tea") == 1


async def test_keys_are_those_of_a_principal(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ada", "bob"):
        monkeypatch.setenv(f"TOKEN_{name.upper()}", name[0] * 32)
    bearer = Bearer({"ada": "env:TOKEN_ADA", "bob": "env:TOKEN_BOB"})
    security = Security(schemes=(NoSec(), bearer), access={"*": Access(invoke=ANYONE, read=())})
    network = MemoryNetwork()
    async with server(network, security=security):
        async with client(network) as shop:
            with pytest.raises(InvalidInput, match="must be impossible to guess"):
                await shop.retrying(key="order-1").invoke(Shop.order, "tea")
            assert await shop.retrying(key="x" * 32).invoke(Shop.order, "tea") == 1
            assert await shop.retrying(key="x" * 32).invoke(Shop.order, "tea") == 1
        for name, sold in (("ada", 2), ("bob", 3), ("ada", 2)):
            async with client(network, headers={"Authorization": f"Bearer {name[0] * 32}"}) as shop:
                assert await shop.retrying(key="order-1").invoke(Shop.order, "tea") == sold
                assert await shop.retrying(key="x" * 32).invoke(Shop.look) in (2, 3)


async def test_keys_over_http(autojump_clock: Any, tmp_path: Path) -> None:
    network, store = MemoryNetwork(), MemoryStore()
    for _ in range(2):
        async with server(network, store) as near, open_node(network=network) as node:
            text, _ = await fetch(network, SHOP.replace("ws:", "http:"), None)
            found = json.loads(text)
            for each in (found, *found["actions"].values(), *found.get("properties", {}).values()):
                forms = each.get("forms", ())
                each["forms"] = [form for form in forms if form.get("subprotocol") != "lmosprotocol"]
            await trio.Path(tmp_path / "shop.json").write_text(json.dumps(found))
            shop = await node.consume(Shop, tmp_path / "shop.json")
            for _ in range(2):
                assert await shop.retrying(key='say "a\\b"'.replace(" ", "-")).invoke(Shop.order, "tea") == 1
            with pytest.raises(KeyReused, match="it names another request, of 'order'"):
                await shop.retrying(key='say-"a\\b"').invoke(Shop.order_slowly, "tea")
            over_lmos = await node.consume(Shop, SHOP)
            assert await over_lmos.retrying(key='say-"a\\b"').invoke(Shop.order, "tea") == 1
            assert await near.invoke(Shop.look) == 1


@pytest.mark.parametrize(
    ("field", "status", "answer"),
    [
        ('"a"', 200, 1),
        ("a", 200, 1),
        ('"a', 400, None),
        ('"a b"', 400, None),
        ("", 400, None),
        ("x" * 257, 400, None),
    ],
)
async def test_the_field_of_http(field: str, status: int, answer: int | None, autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with server(network):
        for _ in range(2):
            got = await posted(network, "shop", field)
            assert got.status == status
            assert answer is None or got.data == answer
        assert (await posted(network, "plain", "a")).status == 405


async def posted(network: MemoryNetwork, agent: str, key: str) -> Answer:
    web = Web(await network.connect(endpoint_of(URL), None), f"/agents/{agent}")
    try:
        fields = {"idempotency_key": key, "host": "127.0.0.1:8080"}
        return await web.ask("POST", "actions/order", {"item": "tea"}, **fields)
    finally:
        await web.leave()


async def test_a_message_with_a_wrong_key_is_refused(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with server(network) as near, client(network) as shop:
        session = shop._link.far.peer.connection.session  # type: ignore[attr-defined]
        thing = shop._link.far.thing_id  # type: ignore[attr-defined]
        for key in ("", "a b", "x" * 257):
            session.invoke(thing, "order", {"item": "tea"}, key=key)
        await trio.sleep(1)
        assert await near.invoke(Shop.look) == 0
        assert session.statistics().failed == 3
