"""Refs that durable agents keep: they lead to the same agent after a restart, wherever that is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import Agent, AgentDied, ChildSpec, Ref, action, open_node
from lmos_actors.persistence import MemoryStore
from lmos_actors.transport import MemoryNetwork
from tests.actors.slot.test_output_gate import by_http_alone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Node


class Witness(Agent):
    name: str = "?"

    @action
    def who(self) -> str:
        return self.name


class Keeper(Agent, durable=True):
    to: Ref[Witness] | None = None
    all: tuple[Ref[Witness], ...] = ()
    turns: int = 0

    @action
    def take_turn(self) -> None:
        self.turns += 1

    @action(snapshot_safe=True)
    async def ask(self) -> list[str]:
        assert self.to is not None
        names: list[str] = []
        for each in (self.to, *self.all):
            await each.ready()
            names.append(await each.invoke(Witness.who))
        return names


async def consumed(node: Node, **_: Any) -> Any:
    return await node.consume(Witness, "http://server/agents/witness")


async def by_address(node: Node, **_: Any) -> Any:
    return await node.consume(Witness, "ws://server/agents/witness")


async def retrying(node: Node, **_: Any) -> Any:
    return (await node.consume(Witness, "http://server/agents/witness")).retrying()


@pytest.mark.parametrize("get", [consumed, by_address, retrying], ids=lambda get: get.__name__)
async def test_a_ref_to_an_agent_of_another_node_leads_there_again(
    tmp_path: Path, get: Callable[..., Awaitable[Any]]
) -> None:
    network, store = MemoryNetwork(), MemoryStore()
    async with open_node(listen="ws://server", network=network) as server:
        await server.start_child(ChildSpec("witness", partial(Witness, name="elsewhere")))
        async with open_node(network=network, store=store) as node:
            near = await node.start_child(ChildSpec("witness", partial(Witness, name="near")))
            far = await get(node, server=server, network=network, folder=tmp_path)
            keeper = partial(Keeper, to=far, all=(near, far))
            ref = await node.start_child(ChildSpec("keeper", keeper))
            await ref.invoke(Keeper.take_turn)
        async with open_node(network=network, store=store) as node:
            await node.start_child(ChildSpec("witness", partial(Witness, name="near")))
            ref = await node.start_child(ChildSpec("keeper", Keeper))
            assert await ref.invoke(Keeper.ask) == ["elsewhere", "near", "elsewhere"]


async def with_headers(node: Node, **_: Any) -> Any:
    return await node.consume(Witness, "ws://server/agents/witness", headers={"Accept-Language": "de"})


async def over_http(node: Node, *, network: MemoryNetwork, folder: Path, **_: Any) -> Any:
    return await node.consume(Witness, await by_http_alone(network, folder))


async def neighbour(node: Node, *, server: Node, **_: Any) -> Any:
    return server.find(Witness, "witness")


@pytest.mark.parametrize(
    ("get", "said"),
    [
        (with_headers, "which has headers of its own"),
        (over_http, "which is for HTTP alone"),
        (neighbour, "which leads to another node of this process without a URL"),
    ],
)
async def test_a_ref_that_would_not_lead_there_again_is_refused_by_name(
    tmp_path: Path, get: Callable[..., Awaitable[Any]], said: str
) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network, store="memory:") as node,
    ):
        await server.start_child(ChildSpec("witness", Witness))
        spec = ChildSpec(
            "keeper", partial(Keeper, to=await get(node, server=server, network=network, folder=tmp_path))
        )
        ref = await node.start_child(spec)
        with pytest.raises(AgentDied) as caught:
            await ref.invoke(Keeper.take_turn)
        assert "Keeper.to" in str(caught.value)
        assert said in str(caught.value)
