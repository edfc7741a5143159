"""A request from afar hands its trace on to what its agent asks of far agents, whatever the verb."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors import Agent, action
from tests.bindings.client_connections import Weather, quiet, scripted, weather
from tests.bindings.lmos.test_peer_requests import complete
from tests.bindings.server_connections import serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
ASKED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}


class Relay(Agent):
    weather: Any

    @action
    async def turn_to_all(self) -> None:
        await self.weather.invoke(Weather.turn, "Bonn")
        async with self.weather.begin(Weather.turn, "Rome") as call:
            await call.result()
        await self.weather.tell(Weather.turn, "Oslo")
        self.weather.tell_nowait(Weather.turn, "Paris")
        await self.weather.read(Weather.units)
        await self.weather.write(Weather.units, "kelvin")

    @action
    def turn_to_it(self) -> None:
        self.send(self.weather, Weather.turn, "Bonn")


@pytest.mark.parametrize(("action", "sent"), [("turn_to_all", 6), ("turn_to_it", 1)])
async def test_it_is_the_same_trace_and_another_span(action: str, sent: int, autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, node):
        relay = await node.start(Relay, weather=await weather(peers))
        async with serving(node) as served:
            line = await served.line()
            line.put("invokeAction", thingID="relay", action=action, **ASKED)
            await quiet()
            assert line.take()[-1]["status"] == "completed"
        said = [(message["traceparent"].split("-"), message["tracestate"]) for message in peers.wire.sent]
        assert len(said) == sent
        spans = [
            span
            for (version, trace, span, flags), _ in said
            if (version, trace, flags) == ("00", TRACE, "01")
        ]
        assert len(dict.fromkeys([PARENT, *spans])) == sent + 1
        assert {state for _, state in said} == {"lmosactors=relay,a=b"}
        peers.wire.sent.clear()
        await relay.invoke(Relay.turn_to_it)
        await quiet()
        assert ["traceparent" in message for message in peers.wire.sent] == [False]
