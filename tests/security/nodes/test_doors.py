"""All doors of a node have one guard: who fails at one has failed at all, and locks nobody out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import open_node
from lmos_actors.facades import RelayOptions
from lmos_actors.security import Rate, Security
from lmos_actors.transport import ConnectFailed, MemoryNetwork, connect
from tests.security.nodes.guarded import PLACE, Secrets, ask, network_of, rules, tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Node

RANDOM = "3b1f6f4f0e3f4a9d8e2b7c6d5a4f3e21"
GUESS = "wrong-token"
ABROAD = {"sec_fetch_site": "cross-site", "origin": "https://elsewhere.example", "sec_fetch_mode": "cors"}


async def opened(node: Node, path: str, headers: dict[str, str]) -> int:
    """Return 101 where a WebSocket is opened, else the status of the refusal."""
    lines = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    try:
        connection = await connect(network_of(node), f"{PLACE}{path}", headers=lines)
    except ConnectFailed as failure:
        return failure.status or 0
    await connection.aclose()
    return 101


def request(
    path: str, method: str = "GET", body: bytes = b"", **own: str
) -> Callable[[Node, dict[str, str]], Awaitable[int]]:
    async def come(node: Node, headers: dict[str, str]) -> int:
        return (await ask(node, path, method, body=body, **{**own, **headers})).status

    return come


def socket(path: str) -> Callable[[Node, dict[str, str]], Awaitable[int]]:
    async def come(node: Node, headers: dict[str, str]) -> int:
        return await opened(node, path, headers)

    return come


CALL = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
DOORS: dict[str, Callable[[Node, dict[str, str]], Awaitable[int]]] = {
    "LMOS": socket("/ws"),
    "HTTP": request("/agents/desk/properties/units"),
    "descriptions": request("/agents"),
    "chat": socket("/api/agents/desk/ws"),
    "relay": socket("/arc"),
    "registration at the relay": request("/register", "POST", b'{"agent_id":"me"}'),
    "directory": request("/things"),
    "MCP": request(
        "/mcp", "POST", CALL, accept="application/json, text/event-stream", content_type="application/json"
    ),
    "page": request("/live/session"),
    "what the page watches": socket("/live"),
}


@pytest.fixture
async def node(autojump_clock: Any, tmp_path: Path) -> AsyncGenerator[Node]:
    secrets = Secrets(tmp_path)
    security = rules(secrets, failures=Rate(0.1, 3))
    robot = secrets.put("robot", RANDOM)
    bearer, *others = security.schemes
    security = Security(
        schemes=(type(bearer)({**bearer.tokens, "robot": robot}), *others), failures=Rate(0.1, 3)
    )
    relay = RelayOptions(registration="open")
    doors: dict[str, Any] = {"relay": relay, "omnia": True, "mcp": True, "directory": True}
    network = MemoryNetwork()
    async with open_node(tree(), listen=PLACE, network=network, security=security, **doors) as node:
        yield node


WRONG = {"page": 403}
"""What wrong credentials get, where it is not 401: a browser would ask for others, in a window of its own."""

COMES_IN = {"relay": 401}
"""What good ones get, where it is an error: the principals of a node are not agents of its relay."""


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def comes_in(node: Node, name: str, token: str) -> bool:
    found = await DOORS[name](node, bearer(token))
    return found == COMES_IN.get(name) or found not in (401, 403, 429)


@pytest.mark.parametrize("name", DOORS)
async def test_who_guesses_at_one_door_waits_at_all_and_nobody_else_does(node: Node, name: str) -> None:
    assert await comes_in(node, name, "token-a")
    wrong = WRONG.get(name, 401)
    found = [await DOORS[name](node, bearer(GUESS)) for _ in range(5)]
    assert found == [wrong, wrong, wrong, 429, 429]
    for other, door in DOORS.items():
        assert await door(node, bearer(GUESS)) == 429
        assert await door(node, bearer("token-b")) == 429  # it can be guessed, and is new
        assert await comes_in(node, other, "token-a")
        assert await comes_in(node, other, RANDOM)


@pytest.mark.parametrize("name", DOORS)
async def test_a_page_of_another_site_gets_nothing_and_has_failed_at_nothing(node: Node, name: str) -> None:
    door = DOORS[name]
    for _ in range(20):
        assert await door(node, {**ABROAD, **bearer(GUESS)}) == 403
        assert await door(node, {"sec_fetch_site": "same-site"}) == 403
    assert await door(node, bearer(GUESS)) == WRONG.get(name, 401)
    assert await comes_in(node, name, "token-a")


LAN = Security(hosts=("desk.lan",))


@pytest.mark.parametrize("host", ["127.0.0.1:80", "[::1]:80", "desk.lan:8443", "here"])
@pytest.mark.parametrize("path", ["/agents/desk", "/agents", "/", "/.well-known/wot", "/openapi.json"])
async def test_a_description_leads_to_where_it_was_asked_for(
    autojump_clock: Any, path: str, host: str
) -> None:
    network = MemoryNetwork()
    async with open_node(tree(), listen=[PLACE, "ws://there"], network=network, security=LAN) as node:
        text = (await ask(node, path, host=host)).body.decode()
        assert f'"http://{host}' in text
        assert "://there" not in text


async def test_a_host_without_its_port_is_the_one_with_it(autojump_clock: Any) -> None:
    network = MemoryNetwork()
    async with open_node(tree(), listen=["ws://here:8080", "ws://there:8080"], network=network) as node:
        text = (await ask(node, "/agents/desk", url="ws://here:8080", host="here")).body.decode()
        assert '"http://here:8080/' in text
        assert "://there" not in text


async def test_a_public_address_stands_whatever_a_proxy_says(autojump_clock: Any) -> None:
    network, public = MemoryNetwork(), "https://agents.example"
    async with open_node(tree(), listen=PLACE, network=network, public_url=public) as node:
        for host in ("127.0.0.1:8080", "agents.example"):
            text = (await ask(node, "/agents/desk", host=host)).body.decode()
            assert "https://agents.example/" in text
            assert "127.0.0.1" not in text
