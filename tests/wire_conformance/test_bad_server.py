"""A server that sends what nobody asked for, or nobody can read: the next answer is still understood."""

from __future__ import annotations

import json
from typing import Any

import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import open_node, simulate
from lmos_actors.transport import MemoryNetwork
from tests.matrix import examples
from tests.wire_conformance.agents import Subject
from tests.wire_conformance.sockets import Server, Socket
from tests.wire_conformance.test_bad_frames import frames


@given(frames(), st.booleans())
@settings(max_examples=examples(40))
def test_whatever_comes_the_next_answer_is_taken(texts: list[str], ours: bool) -> None:
    async def main() -> None:
        network = MemoryNetwork()

        async def talk(socket: Socket) -> None:
            for text in texts:
                await socket.send(text.replace('"IT"', '"urn:it"'))
            while True:
                request = json.loads(await socket.receive())
                raw: dict[str, Any] = {"messageType": "propertyReading", "name": "serial", "value": "s-9"}
                raw |= {"thingID": "urn:it", "messageID": "x", "timestamp": "2025-01-20T19:00:00Z"}
                await socket.send(json.dumps(raw | {"correlationID": request["messageID"]}))

        async with trio.open_nursery() as nursery, open_node(network=network) as node:
            server = Server(talk, choose=lambda offered: "lmosprotocol" if ours else None)
            address = await nursery.start(server.serve, network, "bad")
            it = await node.consume(Subject, f"ws://{address}/ws", thing="urn:it", habits="spec")
            with trio.fail_after(60):
                assert await it.read(Subject.serial) == "s-9"
            assert node.connection_failures == ()
            nursery.cancel_scope.cancel()

    simulate(main)
