"""Calls: sound in both directions, interrupted, parked, resumed, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node, simulate
from lmos_actors.facades import (
    ChatAgent,
    ChatTurn,
    OmniaOptions,
    SoundFormat,
    VoiceCall,
)
from lmos_actors.protocol.omnia import MediaFrame, MediaInfo, read_media_frame, write_media_frame
from lmos_actors.transport import MemoryNetwork
from tests.facades.desk import URL, Desk, add, opened_raw

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.node import Node

PCM = "audio/pcm"


class Parrot(ChatAgent):
    """Repeats every frame of sound, and does what some of them say."""

    ended: int = 0
    cancelled: int = 0

    def reply(self, turn: ChatTurn) -> str:
        return "; ".join(f"{said.role}: {said.text}" for said in turn.history)

    async def talk(self, call: VoiceCall) -> None:
        try:
            async for frame in call.sound:
                await self.answer(call, frame)
            self.ended += 1
        except trio.Cancelled:
            self.cancelled += 1
            raise

    async def answer(self, call: VoiceCall, frame: bytes) -> None:
        if frame == b"stop":
            await call.interrupt()
        elif frame == b"what?":
            await call.understood("what?")
            await call.say("I ")
            await call.say("repeat.")
            call.memory["asked"] = call.memory.get("asked", 0) + 1
            await call.finish()
        elif frame == b"add":
            await call.use(add, a=1, b=2)
        elif frame == b"crash":
            raise RuntimeError("secret: 4711")
        elif frame.startswith(b"flood"):
            for _ in range(int(frame[5:])):
                await call.play(bytes(1_000))
        elif frame == b"sleep":
            await trio.sleep(60)
        else:
            await call.play(frame)


class Leaver(ChatAgent):
    """Ends a call after two frames."""

    sound_format = SoundFormat("pcm", 24_000, 1)

    def reply(self, turn: ChatTurn) -> None:
        pass

    async def talk(self, call: VoiceCall) -> None:
        count = 0
        async for _ in call.sound:
            count += 1
            if count == 2:
                break
        await call.say(f"{count} at {call.format.sample_rate}")


def told(
    body: Callable[[Node, MemoryNetwork], Awaitable[None]], *, seconds: float = 120, **options: Any
) -> None:
    """Run a story with a node that has a parrot and more, in virtual time."""

    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=OmniaOptions(**options), network=network) as node:
            for cls in (Parrot, Leaver, Desk):
                await node.start(cls)
            with trio.fail_after(seconds):
                await body(node, network)

    simulate(main)


def frame(
    number: int, data: bytes, *, last: bool = False, mime: str | None = PCM, rate: int | None = None
) -> bytes:
    info = MediaInfo(mime_type=mime, sample_rate=rate)
    return write_media_frame(MediaFrame(media_id="", sequence=number, payload=data, is_last=last, info=info))


class Wire(bytes):
    """A binary frame for `Raw`."""


def speak(raw: Any, number: int, data: bytes, **more: Any) -> None:
    raw.waiting.append(Wire(frame(number, data, **more)))
    raw.connection.wake()


def heard(item: Any) -> Any:
    """Return the number and the sound of a binary frame, or the type of another."""
    if isinstance(item, bytes):
        found = read_media_frame(item)
        assert isinstance(found, MediaFrame)
        return found.sequence, found.payload
    return item["type"]


# ---- frames as they are


def test_sound_goes_both_ways_with_a_format_before_it() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=parrot&binary=true") as raw:
            session = (await raw.next())["session_id"]
            for number, data in enumerate((b"one", b"what?", b"stop", b"two")):
                speak(raw, number, data)
            config = await raw.next()
            assert config["type"] == "session_config"
            assert config["session_config"] == {"codec": "pcm", "sample_rate": 16_000, "channels": 1}
            frames = [await raw.next() for _ in range(7)]
            kinds = [heard(each) for each in frames]
            assert kinds == [(0, b"one"), "chunk", "chunk", "chunk", "done", "interrupt", (1, b"two")]
            assert (frames[1]["content"], frames[1]["role"]) == ("what?", "user")
            assert frames[4]["content"] == "I repeat."
            assert {each["session_id"] for each in frames if isinstance(each, dict)} == {session}
            speak(raw, 4, b"", last=True)
            assert (await raw.next())["type"] == "done"
            raw.ask("history")  # the call is over, so the session is free
            assert (await raw.end())["content"] == "user: what?; agent: I repeat."

    told(body)


def test_an_agent_that_needs_another_format_gets_no_sound_in_a_wrong_one() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=leaver&binary=true") as raw:
            await raw.next()
            speak(raw, 0, b"wrong", rate=16_000)
            config = await raw.next()
            assert config["session_config"] == {"codec": "pcm", "sample_rate": 24_000, "channels": 1}
            speak(raw, 1, b"wrong", rate=16_000)
            speak(raw, 2, b"right", rate=24_000)
            speak(raw, 3, b"silent about it")
            kinds = [await raw.next() for _ in range(3)]
            assert [each["type"] for each in kinds] == ["chunk", "done", "hangup"]
            assert kinds[1]["content"] == "2 at 24000"
            speak(raw, 4, b"on its way when the call ended")
            speak(raw, 0, b"another call")
            assert (await raw.next())["type"] == "session_config"

    told(body)


def test_a_client_that_stays_with_a_wrong_format_is_refused() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=leaver&binary=true") as raw:
            await raw.next()
            for number in range(7):
                speak(raw, number, b"wrong", rate=8_000)
                await trio.sleep(1)
            assert (await raw.next())["type"] == "session_config"
            end = await raw.next()
            assert end["error"]["code"] == "UNSATISFIABLE_FORMAT"
            assert "pcm of 24000 Hz with 1 channel(s)" in end["error"]["message"]

    told(body)


@pytest.mark.parametrize(
    ("query", "mime", "code"),
    [
        ("agent=parrot&binary=true", "video/h264", "UNSATISFIABLE_FORMAT"),
        ("agent=desk&binary=true", PCM, "MEDIA_NOT_ENABLED"),
        ("agent=parrot", PCM, "INVALID_MESSAGE"),
    ],
)
def test_what_begins_no_call(query: str, mime: str, code: str) -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, query) as raw:
            await raw.next()
            speak(raw, 0, b"one", mime=mime)
            assert (await raw.next())["error"]["code"] == code
            raw.ask("hello")  # the connection and its session go on
            assert (await raw.end())["type"] == "done"

    told(body)


def test_a_call_is_parked_and_resumed_by_its_caller_alone() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        query = "agent=parrot&binary=true"
        async with opened_raw(network, query) as raw:
            session = (await raw.next())["session_id"]
            speak(raw, 0, b"one")
            assert heard(await raw.next()) == "session_config"
            assert heard(await raw.next()) == (0, b"one")
        await trio.sleep(14)
        async with opened_raw(network, f"{query}&resume={session}") as raw:
            begun = await raw.next()
            assert (begun["session_id"], begun["connected"]["resumed"]) == (session, True)
            speak(raw, 1, b"two")
            assert heard(await raw.next()) == (1, b"two")
        await trio.sleep(16)
        async with opened_raw(network, f"{query}&resume={session}") as raw:
            assert "resumed" not in (await raw.next())["connected"]
        async with opened_raw(network, f"agent=leaver&binary=true&resume={session}") as raw:
            assert "resumed" not in (await raw.next())["connected"]

    told(body)


def test_a_call_is_taken_over_and_what_comes_of_the_old_connection_is_dropped() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        query = "agent=parrot&binary=true"
        async with opened_raw(network, query) as old:
            session = (await old.next())["session_id"]
            speak(old, 0, b"one")
            assert heard(await old.next()) == "session_config"
            assert heard(await old.next()) == (0, b"one")
            async with opened_raw(network, f"{query}&resume={session}") as new:
                assert (await new.next())["connected"]["resumed"]
                speak(old, 1, b"late")
                speak(new, 0 + 1, b"two")
                speak(new, 1, b"twice")
                speak(new, 4, b"five")
                assert heard(await new.next()) == (1, b"two")
                assert heard(await new.next()) == (2, b"five")
                new.say(type="hangup")
                assert (await new.next())["type"] == "done"

    told(body)


def test_hanging_up_parks_nothing_and_lets_the_agent_finish() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        query = "agent=parrot&binary=true"
        async with opened_raw(network, query) as raw:
            session = (await raw.next())["session_id"]
            speak(raw, 0, b"what?")
            await raw.next("done")
            raw.say(type="hangup")
            await trio.sleep(0.1)
        async with opened_raw(network, f"{query}&resume={session}") as raw:
            assert "resumed" not in (await raw.next())["connected"]

    told(body)


def test_the_calls_are_bounded_and_a_session_has_one() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        query = "agent=parrot&binary=true"
        async with opened_raw(network, query) as one, opened_raw(network, query) as two:
            await one.next()
            await two.next()
            speak(one, 0, b"one")
            assert heard(await one.next()) == "session_config"
            speak(two, 0, b"two")
            refused = await two.next()
            assert refused["error"] == {"code": "RATE_LIMITED", "message": "audio session limit reached"}
            one.say(type="hangup")
            await one.next("done")
            speak(two, 0, b"two")
            assert heard(await two.next()) == "session_config"

    told(body, calls=1)


def test_a_crash_ends_the_call_alone_with_one_error() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=parrot&binary=true") as raw:
            session = (await raw.next())["session_id"]
            speak(raw, 0, b"crash")
            await raw.next("session_config")
            end = await raw.next()
            assert (end["error"]["code"], end["session_id"]) == ("INTERNAL_ERROR", session)
            assert "4711" not in str(end)
            speak(raw, 1, b"too late")
            assert (await raw.next())["type"] == "hangup"
            raw.ask("still there?")
            assert [(await raw.next())["type"] for _ in range(2)] == ["connected", "done"]
        assert [report.agent for report in node.crash_reports] == ["parrot/turn-1"]

    told(body)


def test_sound_that_an_agent_does_not_take_is_dropped_and_reported_once() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=parrot&binary=true") as raw:
            await raw.next()
            speak(raw, 0, b"sleep")
            for number in range(1, 60):
                speak(raw, number, bytes(32_000))
                await trio.sleep(0.1)
            assert (await raw.next())["type"] == "session_config"
            fault = await raw.next()
            assert (fault["error"]["code"], fault.get("session_id")) == ("RATE_LIMITED", None)
            assert isinstance(await raw.next(), bytes)  # the agent goes on

    told(body)


def test_the_end_of_the_node_ends_calls() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=True, network=network) as node:
            parrot = await node.start(Parrot)
            async with opened_raw(network, "agent=parrot&binary=true") as raw:
                await raw.next()
                speak(raw, 0, b"one")
                await raw.next("session_config")
                await node.drain()
                assert (await raw.next("done"))["type"] == "done"
                await raw.over.wait()
                assert (raw.ended.code, raw.ended.reason) == (1001, "server shutdown")
            assert parrot.path == "parrot"

    simulate(main)


@pytest.mark.parametrize("strict", [True, False])
def test_a_call_in_a_session_that_does_not_exist(strict: bool) -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=parrot&binary=true&resume=nothing") as raw:
            assert (await raw.next())["session_id"] == "nothing"
            speak(raw, 0, b"one")
            if strict:
                assert (await raw.next())["error"]["code"] == "SESSION_EXPIRED"
                return
            session = (await raw.next("connected"))["session_id"]
            assert session != "nothing"
            await raw.next("session_config")
            speak(raw, 1, b"what?")
            assert (await raw.next("done"))["session_id"] == session

    told(body, strict_sessions=strict)


def test_a_message_waits_until_the_call_of_its_session_is_over() -> None:
    async def body(node: Node, network: MemoryNetwork) -> None:
        async with opened_raw(network, "agent=parrot&binary=true") as raw:
            session = (await raw.next())["session_id"]
            speak(raw, 0, b"what?")
            await raw.next("done")
            raw.ask("history", session_id=session)
            with trio.move_on_after(5) as scope:
                await raw.next("done")
            assert scope.cancelled_caught
            raw.say(type="hangup")
            assert (await raw.end())["content"] == "user: what?; agent: I repeat."

    told(body)
