"""What another host says of this machine: neither a description nor a redirect leads a consumer home."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import ConfigError, LmosActorsError, open_node
from lmos_actors.protocol.td import TD_CONTEXT_URI
from lmos_actors.security import BearerToken, Credentials
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.security.nodes.test_client_credentials import Servers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ROME = "http://rome/thing"
HERE = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "localhost",
    "LOCALHOST.",
    "some.localhost",
    "169.254.169.254",
    "[fe80::1]",
)


def described(href: str, base: str | None = None, **more: Any) -> bytes:
    subprotocol = {"subprotocol": "lmosprotocol"} if "ws:" in f"{base}{href}" else {}
    form = {"href": href, "op": ["readproperty"], **subprotocol}
    units = {"type": "string", "forms": [form], **more}
    described = {
        "@context": TD_CONTEXT_URI,
        "id": "urn:x:thing",
        "title": "Thing",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "properties": {"units": units},
    }
    return json.dumps(described if base is None else {**described, "base": base}).encode()


def answer(body: bytes, kind: str = "application/td+json") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def run(work: Callable[[Any, Servers], Awaitable[None]], **options: Any) -> None:
    """Run with a node that consumes, and servers at Rome, Paris and here."""

    async def main() -> None:
        network = MemoryNetwork()
        async with trio.open_nursery() as nursery:
            servers = Servers(nursery, network)
            for host in ("rome", "paris", "localhost", "127.0.0.1"):
                await servers.open(f"ws://{host}:80")
            servers.answers["localhost", "/units"] = answer(b'"celsius"', "application/json")
            async with open_node(network=network, **options) as node:
                await work(node, servers)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def asked(servers: Servers) -> set[str]:
    return {host for host, _, _ in servers.told}


@pytest.mark.parametrize("host", HERE)
@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("by", ["form", "base"])
def test_a_description_of_another_host_does_not_lead_here(host: str, scheme: str, by: str) -> None:
    async def work(node: Any, servers: Servers) -> None:
        place = f"{scheme}://{host}:80/"
        told = described(f"{place}units") if by == "form" else described("units", place)
        servers.answers["rome", "/thing"] = answer(told)
        with pytest.raises(ConfigError, match="another host there than here") as caught:
            await node.consume_thing(ROME)
        assert caught.value.path == ROME
        assert asked(servers) == {"rome"}

    run(work)


@pytest.mark.parametrize(
    ("href", "base", "more"),
    [
        ("//localhost/units", None, {}),
        ("units", "//localhost/", {}),
        ("http://{host}/units", None, {"uriVariables": {"host": {"type": "string", "default": "localhost"}}}),
        (
            "http://{+host}",
            None,
            {"uriVariables": {"host": {"type": "string", "default": "localhost/units"}}},
        ),
    ],
)
def test_nor_does_one_that_says_so_in_another_way(href: str, base: str | None, more: Any) -> None:
    async def work(node: Any, servers: Servers) -> None:
        servers.answers["rome", "/thing"] = answer(described(href, base, **more))
        with pytest.raises(LmosActorsError):
            await (await node.consume_thing(ROME)).read("units")
        assert asked(servers) == {"rome"}

    run(work)


def test_one_bad_form_among_good_ones_is_enough() -> None:
    async def work(node: Any, servers: Servers) -> None:
        told = json.loads(described("http://paris/units"))
        told["properties"]["units"]["forms"].append({"href": "http://localhost/units", "op": "writeproperty"})
        servers.answers["rome", "/thing"] = answer(json.dumps(told).encode())
        with pytest.raises(ConfigError, match="another host there than here"):
            await node.consume_thing(ROME)

    run(work)


@pytest.mark.parametrize("start", ["http://rome/a", "http://localhost/a"])
def test_a_redirect_on_the_way_to_a_description_does_not_lead_here(start: str) -> None:
    """Step by step: what stands here may lead to Rome, and Rome not back."""

    async def work(node: Any, servers: Servers) -> None:
        servers.move("localhost", "/a", "http://rome/a")
        servers.move("rome", "/a", "http://paris/a")
        servers.move("paris", "/a", "http://127.0.0.1/thing")
        servers.answers["127.0.0.1", "/thing"] = answer(described("http://127.0.0.1/units"))
        with pytest.raises(ConnectFailed, match=r"it redirects to '127\.0\.0\.1'"):
            await node.consume_thing(start)
        assert "127.0.0.1" not in asked(servers)
        servers.move("localhost", "/a", "http://127.0.0.1/thing")
        if "localhost" in start:  # this machine may lead to itself
            assert (await node.consume_thing(start)).id == "urn:x:thing"

    run(work)


@pytest.mark.parametrize("status", [302, 307, 308])
def test_an_answer_does_not_lead_here(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even without what says who asks: what only this machine reaches may ask nobody."""
    monkeypatch.setenv("TOKEN", "for-here")
    mine = Credentials({"http://localhost": BearerToken("env:TOKEN")})

    async def work(node: Any, servers: Servers) -> None:
        servers.answers["rome", "/thing"] = answer(described("http://rome/units"))
        servers.answers["rome", "/units"] = (
            f"HTTP/1.1 {status} Go\r\nLocation: http://localhost/units\r\nContent-Length: 0\r\n\r\n".encode()
        )
        thing = await node.consume_thing(ROME)
        with pytest.raises(LmosActorsError, match="it redirects to 'localhost'"):
            await thing.read("units")
        assert asked(servers) == {"rome"}

    run(work, credentials=mine)


def test_what_is_allowed_does() -> None:
    async def work(node: Any, servers: Servers) -> None:
        servers.move("rome", "/moved", "http://localhost/thing")
        servers.answers["localhost", "/thing"] = answer(described("http://localhost/units"))
        servers.answers["rome", "/thing"] = answer(described("http://localhost/units"))
        for source in (ROME, "http://rome/moved"):
            thing = await node.consume_thing(source, local=True)
            assert await thing.read("units") == "celsius"

    run(work)


def test_what_this_machine_says_of_itself_does_and_so_does_a_file(tmp_path: Path) -> None:
    (tmp_path / "thing.json").write_bytes(described("http://localhost/units"))

    async def work(node: Any, servers: Servers) -> None:
        servers.answers["127.0.0.1", "/thing"] = answer(described("http://localhost/units"))
        for source in ("http://127.0.0.1/thing", tmp_path / "thing.json"):
            assert await (await node.consume_thing(source)).read("units") == "celsius"

    run(work)
