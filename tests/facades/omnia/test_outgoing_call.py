"""`Chat.call` against our server, over frames in memory and over sockets; and `call` as any other action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, OutcomeUnknown, open_node, simulate
from lmos_actors.errors import ConnectFailed
from lmos_actors.facades import (
    CallBegan,
    ChatAgent,
    ChatTurn,
    Interrupted,
    MediaPiece,
    OmniaOptions,
    Said,
    Sound,
    SoundFormat,
    TextChunk,
    TurnDone,
    open_chat,
)
from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.facades.desk import URL, Desk
from tests.facades.test_calls import Leaver, Parrot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lmos_actors.facades import OutgoingCall
    from lmos_actors.node import Node

AGENT = f"{URL}/?agent=parrot"
FRAME_SECONDS = 0.02

STORY = (b"one", b"what?", b"stop", b"add", b"two")
HEARD = [
    Sound(b"one"),
    TextChunk("what?", role="user"),
    TextChunk("I "),
    TextChunk("repeat."),
    TurnDone("I repeat."),
    Interrupted(),
    "ToolCalled",
    "ToolReturned",
    Sound(b"two"),
    TurnDone(),
]


def plain(items: list[Any]) -> list[Any]:
    """Return items without what is different each time."""
    return [type(each).__name__ if hasattr(each, "id") else each for each in items]


async def spoken(network: Any, url: str) -> list[Any]:
    """Tell the story, hang up, and return what came."""
    async with open_chat(url, network=network) as chat:
        async with chat.call() as call:
            call.send(STORY[0])
            found = [await anext(call)]  # what is not on its way yet would be dropped by the interruption
            for frame in STORY[1:]:
                call.send(frame)
            call.hang_up()
            found += [item async for item in call]
        answer = await chat.say("what was it?")  # in the same session
        assert answer.text == "user: what?; agent: I repeat."
        return plain(found)


def told(body: Callable[[Node, MemoryNetwork], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=OmniaOptions(**options), network=network) as node:
            for cls in (Parrot, Leaver, Desk):
                await node.start(cls)
            with trio.fail_after(200):
                await body(node, network)

    simulate(main)


def test_a_call_in_memory() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        assert await spoken(network, AGENT) == HEARD

    told(body)


async def test_a_call_over_sockets() -> None:
    async with open_node(listen="ws://127.0.0.1:0", omnia=True) as node:
        await node.start(Parrot)
        with trio.fail_after(30):
            assert await spoken(TcpNetwork(), f"{node.urls[0]}/?agent=parrot") == HEARD


def test_a_call_is_an_action_with_streams_in_both_directions() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async def sound() -> AsyncIterator[bytes]:
            for frame in STORY:
                yield frame

        parrot = node.find(Parrot)
        async with parrot.stream(Parrot.call, sound()) as items:
            found = [item async for item in items]
        began = found.pop(0)
        assert isinstance(began, CallBegan)
        assert (began.is_new, began.format) == (True, SoundFormat("pcm", 16_000, 1))
        assert plain(found) == HEARD
        said = await parrot.invoke(Parrot.history, began.session)
        assert [(each.role, each.text) for each in said] == [("user", "what?"), ("agent", "I repeat.")]
        assert isinstance(said[0], Said)
        desk = node.find(Desk)
        with pytest.raises(ActionFailed, match="MEDIA_NOT_ENABLED"):
            async with desk.stream(Desk.call, sound()) as items:
                await anext(items)

    told(body)


def test_a_minute_of_sound_both_ways_interrupted_parked_and_resumed() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async def speak(call: OutgoingCall) -> None:
            for number in range(3_000):
                call.send(b"stop" if number == 1_000 else b"%d" % number)
                await trio.sleep(FRAME_SECONDS)
                if number == 2_000:
                    assert network.sever("desk", 80)
            call.hang_up()

        async with (
            open_chat(AGENT, network=network) as chat,
            chat.call() as call,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(speak, call)
            heard = [item async for item in call]
            counts = call.statistics()
        assert heard[-1] == TurnDone()
        numbers = [int(item.data) for item in heard if isinstance(item, Sound)]
        assert numbers == sorted(set(numbers))
        assert heard.count(Interrupted()) == 1
        assert (counts.resumed, counts.refused, counts.late) == (1, 0, 0)
        assert counts.received == len(numbers)
        missing = 2_999 - len(numbers)
        assert missing == counts.dropped + counts.lost + (counts.sent - counts.received - counts.lost - 1)
        assert missing <= 5  # what was under way when the connection broke

    told(body)


def test_a_connection_that_does_not_come_back_in_time_loses_the_call() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with open_chat(AGENT, network=network) as chat, chat.call(resume_seconds=60) as call:
            call.send(b"one")
            assert await anext(call) == Sound(b"one")
            network.forget(("desk", 80))  # nobody listens there
            network.sever("desk", 80)
            with pytest.raises(OutcomeUnknown, match="the call could not go on"):
                await anext(call)
            for _ in range(100):
                call.send(b"two")
            assert call.statistics().dropped == 50
        parrot = node.find(Parrot)
        assert parrot.path == "parrot"

    told(body)


def test_a_call_that_is_parked_for_too_long_is_cancelled_in_its_agent() -> None:
    seen: list[str] = []

    class Watched(ChatAgent):
        def reply(self, turn: ChatTurn) -> None:
            pass

        async def talk(self, call: Any) -> None:
            try:
                async for _ in call.sound:
                    seen.append("frame")
                seen.append("end")
            except trio.Cancelled:
                seen.append(f"cancelled after {trio.current_time() - began:.0f} s")
                raise

    async def main() -> None:
        nonlocal began
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=True, network=network) as node:
            await node.start(Watched)
            began = trio.current_time()
            url = f"{URL}/?agent=watched"
            async with open_chat(url, network=network) as chat, chat.call(resume_seconds=1) as call:
                call.send(b"one")
                await trio.sleep(5)
                network.forget(("desk", 80))
                network.sever("desk", 80)
                await trio.sleep(30)
        assert seen == ["frame", "cancelled after 20 s"]

    began = 0.0
    simulate(main)


def test_an_agent_that_ends_the_call_ends_the_iteration() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        url = f"{URL}/?agent=leaver"
        async with open_chat(url, network=network) as chat, chat.call() as call:
            call.send(b"in a wrong format")
            assert await anext(call) == SoundFormat("pcm", 24_000, 1)
            call.send(b"one")
            call.send(b"two")
            assert [item async for item in call] == [TextChunk("2 at 24000"), TurnDone("2 at 24000")]

    told(body)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (f"{URL}/?agent=desk", "MEDIA_NOT_ENABLED"),
        (f"{URL}/?agent=nobody", "404"),
        ("ws://other:80/", "other"),
    ],
)
def test_who_cannot_be_called(url: str, error: str) -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        with pytest.raises((ActionFailed, ConnectFailed), match=error):  # noqa: PT012
            async with open_chat(url, network=network) as chat, chat.call() as call:
                call.send(b"one")
                await anext(call)

    told(body)


def test_leaving_the_block_hangs_up() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        for _ in range(20):  # more than there may be at once
            async with open_chat(AGENT, network=network) as chat, chat.call() as call:
                call.send(b"one")
                assert await anext(call) == Sound(b"one")
            await trio.sleep(1)

    told(body)


# ---- media of answers


class Player(ChatAgent):
    """Plays what was asked for."""

    async def reply(self, turn: ChatTurn) -> None:
        async def clip() -> AsyncIterator[bytes]:
            yield b"ab"
            yield bytes(int(turn.text))

        await turn.stream_media("audio/pcm", clip(), "clip")
        await turn.stream_media("image/png", b"png")
        await turn.say("played")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("size", [3, (1 << 20) + 1])
def test_an_answer_streams_media(binary: bool, size: int) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=True, network=network) as node:
            await node.start(Player)
            url = f"{URL}/?agent=player"
            async with (
                open_chat(url, network=network, binary=binary) as chat,
                chat.stream(str(size)) as items,
            ):
                found = [item async for item in items]
        pieces = [item for item in found if isinstance(item, MediaPiece)]
        clip = [piece for piece in pieces if piece.media_id == "clip"]
        assert b"".join(piece.data for piece in clip) == b"ab" + bytes(size)
        assert [piece.sequence for piece in clip] == list(range(len(clip)))
        assert [piece.is_last for piece in clip] == [False] * (len(clip) - 1) + [True]
        assert len(clip) == (3 if size == 3 or not binary else 2 + 17)
        assert pieces[-1] == MediaPiece("media-1", 0, b"png", "image/png", True)
        assert found[-2:] == [TextChunk("played"), TurnDone("played")]

    simulate(main)
