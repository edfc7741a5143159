"""Refs that are let go: their connections end with the last of them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import AgentUnavailable, ConfigError, Node, open_node
from tests.security.nodes.guarded import PLACE, Desk, Vault, guarded_node


async def settled(node: Node, connections: int) -> None:
    await trio.sleep(1)
    assert node.connections == connections


async def test_a_connection_ends_with_the_last_ref_that_needs_it(autojump_clock: Any) -> None:
    async with guarded_node(None) as node, open_node() as client:
        desk = await client.consume(Desk, "http://here/agents/desk")
        again = await client.consume(Desk, "http://here/agents/desk")
        vault = await client.consume_thing("http://here/agents/vault")
        await settled(node, 1)
        client.release(desk)
        client.release(desk)
        client.release(vault)
        assert await again.invoke(Desk.who) is None
        client.release(again.retrying())
        await settled(node, 0)
        with pytest.raises(AgentUnavailable, match="it was released"):
            await again.invoke(Desk.who)


async def test_what_is_listened_to_ends_with_it(autojump_clock: Any) -> None:
    async with guarded_node(None) as node, open_node() as client:
        desk = await client.consume(Desk, f"{PLACE}/agents/desk")
        async with desk.subscribe(Desk.told) as told:
            await node.find(Desk).invoke(Desk.tell, "one")
            assert await anext(aiter(told)) == "one"
            client.release(desk)
            assert [each async for each in told] == []
        await settled(node, 0)


async def test_what_was_released_can_be_consumed_anew(autojump_clock: Any) -> None:
    async with guarded_node(None) as node, open_node() as client:
        for _ in range(3):
            vault = await client.consume(Vault, f"{PLACE}/agents/vault")
            assert await vault.read(Vault.units) == "celsius"
            client.release(vault)
        await settled(node, 0)


async def test_a_near_ref_holds_nothing(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        desk = node.find(Desk)
        node.release(desk)
        assert await desk.invoke(Desk.who) is None


async def test_a_consume_that_fails_leaves_no_connection(autojump_clock: Any) -> None:
    async with guarded_node(None) as node, open_node() as client:
        with pytest.raises(ConfigError):
            await client.consume(Desk, "http://here/agents/desk", thing="vault")
        await settled(node, 0)
