"""The gateway of a group: clients say where they want to go, and are told whether they are there."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import Agent, Property, open_node, prop
from lmos_actors.deployment.faults import FaultProxy, Gateway, GatewayNetwork, links_with
from lmos_actors.errors import ConnectFailed
from lmos_actors.links import LinkFault, LinkRules, between_sides
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.deployment.test_fault_proxy import on_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.transport import Endpoint

GATE, THERE = "ws://gate:1", "ws://there:80"


class Lamp(Agent):
    is_on: Property[bool] = prop(default=True)


async def host_of(to: Endpoint) -> str:
    return to.host


@asynccontextmanager
async def gateway() -> AsyncGenerator[tuple[FaultProxy, MemoryNetwork]]:
    network = MemoryNetwork()
    gate, links = Gateway(host_of), links_with(LinkRules(), seed=1)
    async with FaultProxy(endpoint_of(GATE), gate, links, source="us", network=network) as proxy:
        yield proxy, network


@on_virtual_time
async def test_one_way_out_leads_everywhere_and_a_cut_is_of_one_pair() -> None:
    async with gateway() as (proxy, network):
        ways_out = GatewayNetwork(endpoint_of(GATE), network)
        async with (
            open_node(listen=THERE, network=network) as there,
            open_node(listen="ws://here:1", network=network) as here,
            open_node(network=ways_out) as ours,
        ):
            await there.start(Lamp)
            await here.start(Lamp)
            far = await ours.consume(Lamp, f"{THERE}/agents/lamp")
            near = await ours.consume(Lamp, "ws://here:1/agents/lamp")
            proxy.begin(LinkFault(selects=between_sides([["us"], ["there"]]), cuts=True))
            assert await near.read(Lamp.is_on)
            with trio.move_on_after(3) as waited:
                await far.read(Lamp.is_on)
            assert waited.cancelled_caught
            proxy.heal()
            assert await far.read(Lamp.is_on)
            assert proxy.reset(lambda source, target: target == "there") == 1
            assert await far.retrying().read(Lamp.is_on)
            assert proxy.statistics().connections == 3


@on_virtual_time
async def test_a_connection_that_is_half_open_is_over_once_something_is_said() -> None:
    async with gateway() as (proxy, network):
        listener = await network.listen(endpoint_of(THERE))
        client = await GatewayNetwork(endpoint_of(GATE), network).connect(endpoint_of(THERE), None)
        server, _ = await listener.accept()
        assert proxy.reset(half_open=True) == 1
        with pytest.raises(trio.BrokenResourceError):
            await server.receive_some()
        with trio.move_on_after(60) as waited:
            await client.receive_some()
        assert waited.cancelled_caught
        await client.send_all(b"are you there?")
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        await listener.aclose()
        await trio.aclose_forcefully(server)
        await trio.aclose_forcefully(client)


@on_virtual_time
async def test_what_cannot_be_reached_is_said() -> None:
    async with gateway() as (proxy, network):
        with pytest.raises(ConnectFailed, match="cannot connect to ws://there/: ") as direct:
            await network.connect(endpoint_of(THERE), None)
        with pytest.raises(ConnectFailed) as found:
            await GatewayNetwork(endpoint_of(GATE), network).connect(endpoint_of(THERE), None)
        assert str(found.value).endswith(direct.value.why)
        assert proxy.statistics().unreachable == 1


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"CONNECT\r\n\r\n", b"CONNECT :x \r\n\r\n", b"\xff" * 9_000]
)
@on_virtual_time
async def test_who_says_nothing_of_a_place_is_refused(said: bytes) -> None:
    async with gateway() as (_, network):
        stream = await network.connect(endpoint_of(GATE), None)
        await stream.send_all(said)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 400 ")
        assert await stream.receive_some() == b""
        await trio.aclose_forcefully(stream)
