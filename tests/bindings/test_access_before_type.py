"""A property that is read-only refuses what does not fit as it refuses what does: near, far and over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, InvalidInput, NotAllowed, Property, open_node, prop
from lmos_actors.bindings import fetch
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.web import HERE, Web, run

if TYPE_CHECKING:
    from pathlib import Path


class Meter(Agent):
    """Has one property of each kind."""

    total: Property[int] = prop(default=1, read_only=True)
    limit: Property[int] = prop(default=2)


@pytest.mark.parametrize("value", ["a text", 3, None, {"a": 1}, [1]])
def test_access_comes_before_type(tmp_path: Path, value: Any) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=HERE, network=network) as node, open_node(network=network) as client:
            near: Any = await node.start(Meter)
            text, _ = await fetch(network, "http://here:80/agents/meter", None)
            found = json.loads(text)
            for owner in (found, *found["properties"].values()):
                owner["forms"] = [each for each in owner["forms"] if "/ws" not in each["href"]]
            await trio.Path(tmp_path / "meter.json").write_text(json.dumps(found))
            far = await client.consume(Meter, "http://here:80/agents/meter")
            thing = await client.consume_thing("http://here:80/agents/meter")
            kotlin = await client.consume(Meter, "ws://here:80/ws", thing="meter", habits="kotlin-wot")
            for ref in (near, far, kotlin, thing):
                key: Any = "total" if ref is thing else Meter.total
                with pytest.raises(NotAllowed):
                    await ref.write(key, value)
            for ref in (near, far, kotlin):
                with pytest.raises(NotAllowed):
                    await ref.write_many(Meter.total.to(value))
                with pytest.raises(InvalidInput):
                    await ref.write(Meter.limit, "a text")
            web = Web(await network.connect(endpoint_of(HERE), None), "/agents/meter")
            assert (await web.ask("PUT", "properties/total", value)).status == 405
            assert await near.read(Meter.total) == 1

    run(main)
