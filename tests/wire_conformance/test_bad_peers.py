"""Peers that misbehave: silent, slow, gone. Each ends its own connection at most, and costs little."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import ConnectionOptions, MemoryNetwork, endpoint_of
from tests.wire_conformance.agents import Subject
from tests.wire_conformance.hand import Scene, play

if TYPE_CHECKING:
    from tests.wire_conformance.hand import Hand

ALIVE = ConnectionOptions(heartbeat_seconds=20, heartbeat_grace=10, write_seconds=30)


async def gone(scene: Scene, connections: int = 1) -> float:
    """Wait until the peer's connection is gone; give the seconds that this took."""
    began = trio.current_time()
    await scene.count(connections)
    return trio.current_time() - began


async def fine(scene: Scene) -> None:
    """See that somebody else is answered at once."""
    hand = await scene.hand()
    await hand.say("readProperty", "fine", name="serial")
    assert await hand.heard() == ['propertyReading mfine name="serial" value="s-1"']
    await trio.aclose_forcefully(hand.socket.stream)


def test_a_peer_that_never_reads() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand(reads=False)
        await hand.say("subscribeEvent", event="asked")
        await hand.say("observeProperty", 2, name="units")
        await trio.sleep(1)
        it = await scene.bench.subject()
        words = ["x" * 1000] * 100
        for _ in range(20):
            await it.invoke(Subject.tell_all, words)
        assert scene.server.statistics().connections == 2
        (slow,) = [served for served in scene.server._served if served.session.statistics().listening]
        statistics = slow.session.statistics()
        assert statistics.waiting <= 200
        assert statistics.waiting_bytes <= 1 << 17
        await fine(scene)
        assert await gone(scene) <= 70

    play(story, network=MemoryNetwork(buffer=4096), connection=ALIVE)


def test_a_peer_that_asks_and_never_reads() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand(reads=False)
        text = json.dumps({"messageType": "readAllProperties", "thingID": scene.name, "messageID": "m"})
        with trio.move_on_after(100):
            for _ in range(3000):
                await hand.raw(text)
        assert await gone(scene) <= 70
        await fine(scene)

    play(story, network=MemoryNetwork(buffer=4096), connection=ALIVE, session=SessionOptions(max_waiting=100))


def test_a_peer_that_never_pongs() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        hand.socket.silent = True
        await hand.say("invokeAction", action="hold", input={"gate": "g"})
        await scene.bench.until("begun hold")
        assert 20 < await gone(scene) <= 50.1
        await scene.bench.until("cancelled hold")
        await fine(scene)

    play(story, connection=ALIVE)


def test_a_peer_that_pongs_stays() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        await trio.sleep(900)
        await hand.say("readProperty", name="units")
        assert await hand.heard() == ['propertyReading m1 name="units" value="celsius"']

    play(story, connection=ALIVE)


def test_a_byte_a_second() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        from wsproto.events import TextMessage

        text = json.dumps(
            {"messageType": "readProperty", "thingID": scene.name, "messageID": "m1", "name": "units"}
        )
        data = hand.socket.ws.send(TextMessage(data=text))
        for index in range(len(data)):
            await hand.socket.stream.send_all(data[index : index + 1])
            await trio.sleep(1)
        assert await hand.heard() == ['propertyReading m1 name="units" value="celsius"']

    play(story, connection=ALIVE)


def test_a_byte_a_second_of_a_head() -> None:
    async def story(scene: Scene) -> None:
        stream = await scene.network.connect(endpoint_of(scene.node.urls[0]), None)
        sent = 0
        for byte in b"GET /ws HTTP/1.1\r\nhost: here\r\n" * 3:
            try:
                await stream.send_all(bytes([byte]))
            except trio.BrokenResourceError:
                break
            sent += 1
            await trio.sleep(1)
        assert sent <= 10
        await fine(scene)
        await trio.aclose_forcefully(stream)

    play(story)


@pytest.mark.parametrize("left", [1, 2, 5, 6, 20, -1], ids=lambda left: f"after {left}")
@pytest.mark.parametrize("how", ["closed", "reset", "eof"])
def test_a_peer_that_leaves_in_mid_frame(left: int, how: str) -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        await hand.say("invokeAction", action="hold", input={"gate": "g"})
        await hand.say("observeProperty", 2, name="units")
        await scene.bench.until("begun hold")
        from wsproto.events import TextMessage

        text = json.dumps(
            {"messageType": "readProperty", "thingID": scene.name, "messageID": "m3", "name": "units"}
        )
        stream: Any = hand.socket.stream
        await stream.send_all(hand.socket.ws.send(TextMessage(data=text))[:left])
        await trio.sleep(1)
        match how:
            case "closed":
                await stream.aclose()
            case "reset":
                stream.break_now()
            case _:
                await stream.send_eof()
        assert await gone(scene) <= 10
        await scene.bench.until("cancelled hold")
        await fine(scene)

    play(story)


def test_a_run_that_is_to_finish_does_so_without_its_consumer() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        await hand.say("invokeAction", action="line", input={"gate": "a"}, attempt=1)
        await scene.bench.until("begun line")
        await trio.aclose_forcefully(hand.socket.stream)
        assert await gone(scene) <= 1
        assert scene.server.statistics().open == 1  # kept for the one who may ask again
        await trio.sleep(120)
        assert scene.server.statistics().open == 0
        assert await scene.bench.noted("cancelled line") == {"cancelled line": 1}

    play(story)


async def flooded(hand: Hand, number: int) -> None:
    for _ in range(number):
        await hand.raw("{")


def test_too_many_messages_a_second() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        await flooded(hand, 60)
        await trio.sleep(1)
        assert hand.closed == 1008
        await fine(scene)

    play(story, connection=ConnectionOptions(messages_per_second=50))


def test_a_thousand_silent_peers() -> None:
    async def story(scene: Scene) -> None:
        streams = [await scene.network.connect(endpoint_of(scene.node.urls[0]), None) for _ in range(200)]
        await fine(scene)
        await trio.sleep(30)
        assert scene.node._connections.count() <= 2
        for stream in streams:
            await trio.aclose_forcefully(stream)

    play(story)
