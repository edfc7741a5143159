"""Names of others that DNS leads to this machine: seen when a connection stands, each time anew."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    LmosActorsError,
    Property,
    SupervisorSpec,
    open_node,
    prop,
)
from lmos_actors.transport import ConnectFailed, Endpoint, MemoryNetwork, TcpNetwork, endpoint_of, is_here
from tests.bindings.exposure.test_outward_network import ROME, answer, asked, described
from tests.security.nodes.test_client_credentials import Servers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

EVIL = "evil.example"
CELSIUS = answer(b'"celsius"', "application/json")
NAMED = r"its name leads to 127\.0\.0\.1, and another host"


class Named(MemoryNetwork):
    """A network whose names lead where `addresses` says, else to themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses = {EVIL: "127.0.0.1", "mine.example": "127.0.0.1"}

    async def connect(self, endpoint: Endpoint, tls: Any) -> trio.abc.Stream:
        address = self.addresses.get(endpoint.host, endpoint.host)
        if endpoint.elsewhere and is_here(address):
            why = f"its name leads to {address}, and another host has named it"
            raise ConnectFailed(endpoint.url, why, leads_here=True)
        return await super().connect(attrs.evolve(endpoint, host=address), tls)


def run(work: Callable[[Any, Servers, Named], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        network = Named()
        async with trio.open_nursery() as nursery:
            servers = Servers(nursery, network)
            for host in ("rome", "127.0.0.1"):
                await servers.open(f"ws://{host}:80")
            servers.answers["127.0.0.1", "/units"] = CELSIUS
            async with open_node(network=network, **options) as node:
                await work(node, servers, network)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_description_of_another_host_does_not_lead_here_by_name(scheme: str) -> None:
    async def work(node: Any, servers: Servers, _: Named) -> None:
        servers.answers["rome", "/thing"] = answer(described(f"{scheme}://{EVIL}:80/units"))
        with pytest.raises(ConnectFailed, match=NAMED) as caught:
            await node.consume_thing(ROME)
        assert caught.value.leads_here
        assert asked(servers) == {"rome"}

    run(work)


def test_a_name_that_comes_to_lead_here_is_asked_no_more() -> None:
    """As by an attacker whose DNS answers anew each time."""

    async def work(node: Any, servers: Servers, network: Named) -> None:
        servers.answers["rome", "/thing"] = answer(described("http://rome/units"))
        servers.answers["rome", "/units"] = CELSIUS
        thing = await node.consume_thing(ROME)
        assert await thing.read("units") == "celsius"
        network.addresses["rome"] = "127.0.0.1"
        with pytest.raises(AgentUnavailable, match=NAMED):
            await thing.read("units")
        assert asked(servers) == {"rome"}

    run(work)


def test_a_redirect_on_the_way_to_a_description_does_not_lead_here_by_name() -> None:
    async def work(node: Any, servers: Servers, _: Named) -> None:
        servers.move("rome", "/thing", f"http://{EVIL}/thing")
        servers.answers["127.0.0.1", "/thing"] = answer(described("http://rome/units"))
        with pytest.raises(ConnectFailed, match=NAMED):
            await node.consume_thing(ROME)
        assert asked(servers) == {"rome"}

    run(work)


def test_an_answer_does_not_lead_here_by_name() -> None:
    async def work(node: Any, servers: Servers, _: Named) -> None:
        servers.answers["rome", "/thing"] = answer(described("http://rome/units"))
        servers.move("rome", "/units", f"http://{EVIL}/units")
        thing = await node.consume_thing(ROME)
        with pytest.raises(LmosActorsError, match=NAMED):
            await thing.read("units")
        assert asked(servers) == {"rome"}

    run(work)


def test_what_is_allowed_does_by_name_too() -> None:
    async def work(node: Any, servers: Servers, _: Named) -> None:
        servers.answers["rome", "/thing"] = answer(described(f"http://{EVIL}/units"))
        with pytest.raises(ConnectFailed):
            await node.consume_thing(ROME)
        assert await (await node.consume_thing(ROME, local=True)).read("units") == "celsius"

    run(work)


@pytest.mark.parametrize(
    "href", ["http://mine.example/units", "http://localhost/units", "http://127.0.0.1/units"]
)
def test_this_machine_by_a_name_that_its_user_has_given_leads_to_itself(href: str) -> None:
    async def work(node: Any, servers: Servers, network: Named) -> None:
        network.addresses["localhost"] = "127.0.0.1"
        servers.move("127.0.0.1", "/moved", "http://localhost/thing")
        servers.answers["127.0.0.1", "/thing"] = answer(described(href))
        for source in ("http://mine.example/thing", "http://mine.example/moved"):
            assert await (await node.consume_thing(source)).read("units") == "celsius"

    run(work)


class Thing(Agent):
    """A thing with units."""

    units: Property[str] = prop(default="kelvin")


@pytest.mark.parametrize("host", [EVIL, "rome"])
def test_a_directory_does_not_lead_here_by_name(host: str) -> None:
    """But for its own name: that is who its user has chosen."""

    async def work(node: Any, servers: Servers, network: Named) -> None:
        told = json.loads(described(f"http://{host}/units"))
        told |= {"@type": "lmos:Agent", "id": "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10"}
        told["properties"]["units"]["observable"] = True
        told["properties"]["units"]["forms"][0]["op"] = ["readproperty", "writeproperty", "observeproperty"]
        listed = answer(json.dumps([told]).encode(), "application/json")
        at = "127.0.0.1" if host == "rome" else "rome"
        network.addresses["rome"] = at
        servers.answers[at, "/things?limit=100&offset=0"] = listed
        thing = node.find(Thing)
        if host == "rome":
            assert await thing.read(Thing.units) == "celsius"
            return
        with pytest.raises(LmosActorsError, match=NAMED):
            await thing.read(Thing.units)
        assert asked(servers) == {"rome"}

    run(work, lookup="http://rome")


def test_a_description_of_a_directory_does_not_lead_here_by_name() -> None:
    async def work(node: Any, servers: Servers, _: Named) -> None:
        forms = [{"href": f"http://{EVIL}/things", "op": "readproperty"}]
        told = {
            **json.loads(described(ROME)),
            "@type": "ThingDirectory",
            "properties": {"things": {"forms": forms}},
        }
        servers.answers["rome", "/.well-known/wot"] = answer(json.dumps(told).encode())
        with pytest.raises(ConnectFailed, match=NAMED):
            await node.discover("rome")
        assert asked(servers) == {"rome"}

    run(work)


# ---- sockets


class Resolver(trio.abc.HostnameResolver):
    """Leads every name to one address."""

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *_: int) -> Any:
        await trio.lowlevel.checkpoint()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

    async def getnameinfo(self, *_: Any) -> Any:
        raise NotImplementedError


async def test_the_address_of_a_socket_is_looked_at_before_anything_is_sent() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver())
    try:
        network = TcpNetwork()
        listener = await network.listen(endpoint_of("ws://localhost:0"))
        port = listener.addresses[0][1]
        with pytest.raises(ConnectFailed, match=NAMED) as caught:
            await network.connect(Endpoint(False, EVIL, port, elsewhere=True), None)
        assert caught.value.leads_here
        assert caught.value.at("http://x").leads_here
        with trio.fail_after(5):
            stream, _ = await listener.accept()
            assert await stream.receive_some() == b""
            other = await network.connect(Endpoint(False, EVIL, port), None)
            again, _ = await listener.accept()
        for each in (stream, other, again, listener):
            await each.aclose()
    finally:
        trio.socket.set_custom_hostname_resolver(None)


async def test_a_node_of_this_machine_is_consumed_by_any_name_of_it() -> None:
    tree = SupervisorSpec("root", [ChildSpec("thing", Thing)])
    trio.socket.set_custom_hostname_resolver(Resolver())
    try:
        async with open_node(tree, listen="ws://127.0.0.1:0") as served, open_node() as node:
            (url,) = served.urls
            place = url.replace("ws:", "http:")
            assert "127.0.0.1" in place
            with pytest.raises(ConnectFailed, match=r"answered 4\d\d"):  # by its `Host` it is somebody else's
                await node.consume_thing(place.replace("127.0.0.1", EVIL))
            for name in ("127.0.0.1", "localhost"):
                thing = await node.consume_thing(place.replace("127.0.0.1", name))
                assert await thing.read("units") == "kelvin"
    finally:
        trio.socket.set_custom_hostname_resolver(None)
