"""Servers that speak another protocol than LMOS: whoever asks them is told which, and waits no longer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import wait_all_tasks_blocked

from lmos_actors import AgentUnavailable
from lmos_actors.bindings import consume_thing
from tests.bindings.client_connections import THING, Wire, scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.bindings import ConsumedThing

URL = "ws://server/agents/weather"
OMNIA = {"type": "error", "error": {"code": "X", "message": "not known"}}
STRANGERS: list[tuple[dict[str, Any], str]] = [
    ({"type": "connected", "session_id": "s-1"}, "Omnia's chat protocol"),
    (OMNIA, "Omnia's chat protocol"),
    ({"from": "relay", "to": ["me"], "type": "welcome", "payload": {}}, "AgentRelay's protocol"),
    ({"jsonrpc": "2.0", "id": None, "error": {}}, "JSON-RPC, such as MCP"),
]


async def invoked(thing: ConsumedThing) -> None:
    await thing.invoke("forecast", {"city": "Bonn"})


async def observed(thing: ConsumedThing) -> None:
    async with thing.observe("units"):
        pass


@pytest.mark.parametrize("ask", [invoked, observed])
@pytest.mark.parametrize(("frame", "what"), STRANGERS)
async def test_a_server_of_another_protocol_is_named(
    frame: dict[str, Any], what: str, ask: Callable[[ConsumedThing], Awaitable[None]], autojump_clock: Any
) -> None:
    def answer(wire: Wire, message: dict[str, Any]) -> None:
        wire.text(json.dumps(frame))

    async with scripted(answer, offers=None, kotlin=True) as (peers, _):
        thing = await consume_thing(peers, URL, thing=THING)
        with pytest.raises(AgentUnavailable, match=f"it speaks {what}, not LMOS"):
            await ask(thing)


async def test_a_server_of_lmos_may_say_what_it_likes(autojump_clock: Any) -> None:
    def answer(wire: Wire, message: dict[str, Any]) -> None:
        wire.text("noise")
        wire.status(message, "completed", output="sunny")
        wire.text(json.dumps(OMNIA))

    async with scripted(answer) as (peers, _):
        thing = await consume_thing(peers, URL, thing=THING)
        for _ in range(2):
            assert await thing.invoke("forecast", {"city": "Bonn"}) == "sunny"
        await wait_all_tasks_blocked()
        assert len(peers.wires) == 1
