"""What a node takes of callers without a name: every option beside every door."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.directory import DirectoryOptions
from lmos_actors.errors import InvalidInput
from lmos_actors.persistence import MemoryStore
from lmos_actors.security import ANYONE, Access, Security, SharedToken
from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.security.nodes.guarded import Secrets, ask, network_of, rules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Node

SHORT = "order-17"
OPEN = {"invoke": ANYONE, "read": ANYONE, "write": ANYONE, "subscribe": ANYONE}


class Shop(Agent, durable=True):
    """Sells."""

    sold: int = 0

    @action
    def order(self, item: str) -> int:
        self.sold += 1
        return self.sold


@attrs.frozen
class Case:
    """Options of a node, and whether callers without a name are strangers there."""

    options: dict[str, Any]
    strangers: bool
    security: Callable[[Secrets], Security] | None = None


def for_anyone(secrets: Secrets) -> Security:
    return rules(secrets, access={"shop": Access(**OPEN)})


LAUNCHED = DirectoryOptions(takeover_token=SharedToken(b"s" * 64))

CASES = {
    "nothing said": Case({}, strangers=False),
    "allow_operations": Case({"allow_operations": True}, strangers=False),
    "without a page": Case({"page": False}, strangers=False),
    "with a page": Case({"page": True}, strangers=False),
    "origins": Case({"origins": ["https://app.example"]}, strangers=False),
    "a launcher's token": Case({"directory": LAUNCHED}, strangers=False),
    "insecure, on loopback": Case({"insecure": True}, strangers=False),
    "insecure, for all": Case({"insecure": True, "listen": "ws://0.0.0.0:0"}, strangers=True),
    "public_url": Case({"public_url": "https://agents.example"}, strangers=True),
    "security": Case({"insecure": True}, strangers=True, security=for_anyone),
    "security and a page": Case({"insecure": True, "page": True}, strangers=True, security=for_anyone),
}


async def keyed_over_http(node: Node, url: str, **headers: str) -> int:
    body = json.dumps({"item": "tea"}).encode()
    given = {"content_type": "application/json", "idempotency_key": f'"{SHORT}"', **headers}
    return (await ask(node, "/agents/shop/actions/order", "POST", body=body, url=url, **given)).status


async def keyed_over_lmos(node: Node, url: str, **headers: str) -> int:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    async with open_node(network=network_of(node)) as client:
        far = await client.consume(Shop, f"{url}/agents/shop", headers=lines)
        try:
            await far.retrying(key=SHORT).invoke(Shop.order, "tea")
        except InvalidInput as refused:
            return 400 if "security" in str(refused) else 0
        return 200


async def registration(node: Node, url: str, **headers: str) -> int:
    return (await ask(node, "/register", "POST", body=b'{"agent_id":"agent-one"}', url=url, **headers)).status


DOORS: dict[str, tuple[Callable[..., Awaitable[int]], int, int]] = {
    "a short key over HTTP": (keyed_over_http, 200, 400),
    "a short key over LMOS": (keyed_over_lmos, 200, 400),
    "registration at its relay": (registration, 200, 403),
}
"""Each with what callers without a name get where they are no strangers, and where they are."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_what_a_node_takes_of_callers_without_a_name(case: Case, door: Any, tmp_path: Path) -> None:
    come, among_friends, among_strangers = door
    options = {"listen": "ws://127.0.0.1:0", "network": TcpNetwork(), **case.options}
    if case.security is not None:
        options["security"] = case.security(Secrets(tmp_path))
    async with open_node(shop(), store=MemoryStore(), relay=True, **options) as node:
        url = node.urls[0].replace("0.0.0.0", "127.0.0.1")
        assert await come(node, url) == (among_strangers if case.strangers else among_friends)


def shop() -> SupervisorSpec:
    return SupervisorSpec("root", [ChildSpec("shop", Shop)])


PAGES = {
    "its own": ({"origin": "http://here", "sec_fetch_site": "same-origin"}, 200),
    "another that is listed": ({"origin": "https://app.example", "sec_fetch_site": "cross-site"}, 400),
    "one of which the browser says nothing": ({"origin": "https://app.example"}, 400),
}


@pytest.mark.parametrize(("headers", "status"), PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("come", [keyed_over_http, keyed_over_lmos])
async def test_a_short_key_is_never_taken_of_another_page(
    autojump_clock: Any, come: Any, headers: dict[str, str], status: int
) -> None:
    network = MemoryNetwork()
    async with open_node(
        shop(), listen="ws://here", store=MemoryStore(), network=network, origins=["https://app.example"]
    ) as node:
        assert await come(node, "ws://here", **headers) == status
