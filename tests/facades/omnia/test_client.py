"""`open_chat` against facades of every habit that was recorded, and our own; in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, DeadlineExceeded, OutcomeUnknown, simulate
from lmos_actors.errors import ConnectFailed
from lmos_actors.facades import ChatPart, MediaPiece, TextChunk, ToolCalled, ToolReturned, TurnDone, open_chat
from lmos_actors.facades.omnia import chat_url
from lmos_actors.protocol.omnia import BinaryFrame, MediaFrame, MediaInfo, write_media_frame
from lmos_actors.transport import Accept, FrontDoor, MemoryNetwork, endpoint_of
from tests.facades.desk import URL, Raw, opened_desk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors.facades import Chat
    from lmos_actors.transport import Connection, Upgrade

Script = "Callable[[Raw, int], Awaitable[None]]"


class Facade(Raw):
    """The server's end of a connection, written by hand."""

    async def message(self) -> dict[str, Any]:
        """Wait for a message of the client; other frames are kept in `others`."""
        return dict(await self.next("message"))

    def announce(self, session: str) -> None:
        known = {"binary_frames": False, "max_payload_size": 1 << 24, "protocol_version": 1}
        self.say(type="connected", session_id=session, connected={"capabilities": known})

    def chunk(self, text: str, session: str = "s-1") -> None:
        self.say(type="chunk", session_id=session, content=text)

    def done(self, text: str, session: str = "s-1") -> None:
        self.say(type="done", session_id=session, content=text)

    def error(self, code: str, message: str, **members: Any) -> None:
        self.say(type="error", error={"code": code, "message": message}, **members)


@asynccontextmanager
async def opened_facade(script: Any) -> AsyncGenerator[tuple[MemoryNetwork, list[Upgrade]]]:
    """Serve a script, which gets each connection with its number from 1 on."""
    network, upgrades = MemoryNetwork(), list[Any]()

    async def follow(facade: Facade, number: int) -> None:
        with suppress(trio.EndOfChannel):  # the client has left
            await script(facade, number)

    async def serve(connection: Connection) -> None:
        facade = Facade()
        facade.connection = connection
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, facade, len(upgrades))
            await facade.run()
            nursery.cancel_scope.cancel()

    def route(upgrade: Upgrade) -> Accept:
        upgrades.append(upgrade)
        return Accept(None, serve)

    def fail(error: BaseException) -> None:
        raise error

    door = FrontDoor(await network.listen(endpoint_of(URL)), route=route, on_failure=fail)
    async with trio.open_nursery() as nursery:
        await nursery.start(door.serve)
        yield network, upgrades
        nursery.cancel_scope.cancel()


def talked(script: Any, main: Callable[[Chat], Awaitable[Any]], **options: Any) -> tuple[Any, int]:
    """Have our client talk to a script; return what `main` returns, and the number of connections."""

    async def run() -> tuple[Any, int]:
        async with opened_facade(script) as (network, upgrades):
            async with open_chat(URL, network=network, **options) as chat:
                found = await main(chat)
            return found, len(upgrades)

    return simulate(run)


async def hello(chat: Chat) -> str:
    return (await chat.say("hello")).text


def test_nothing_is_waited_for_before_the_first_message() -> None:
    """The oldest facade is silent until spoken to, and names the session of each message then."""

    async def seed(facade: Facade, _: int) -> None:
        for number in (1, 2):
            said = await facade.message()
            assert said.get("session_id") == (None if number == 1 else "s-1")
            facade.say(type="connected", session_id=f"s-{number}")
            facade.done(said["content"], f"s-{number}")

    async def main(chat: Chat) -> tuple[Any, ...]:
        before = chat.session
        return before, await hello(chat), chat.session, await hello(chat), chat.session

    assert talked(seed, main) == ((None, "hello", "s-1", "hello", "s-2"), 1)


def test_a_session_goes_on_though_another_is_announced() -> None:
    async def head(facade: Facade, _: int) -> None:
        facade.announce("fresh")
        said = await facade.message()
        facade.done("again", said["session_id"])

    async def main(chat: Chat) -> tuple[str, str | None]:
        return await hello(chat), chat.session

    assert talked(head, main, session="old") == (("again", "old"), 1)


def test_the_newest_session_of_any_frame_counts() -> None:
    async def other(facade: Facade, _: int) -> None:
        facade.announce("fresh")
        await facade.message()
        facade.chunk("one", "new")
        facade.done("one", "newest")
        assert (await facade.message())["session_id"] == "newest"
        facade.done("two", "newest")

    async def main(chat: Chat) -> list[Any]:
        return [await hello(chat), await hello(chat), chat.session]

    assert talked(other, main, session="old") == (["one", "two", "newest"], 1)


@pytest.mark.parametrize(("refusals", "error"), [(1, None), (7, None), (8, "RATE_LIMITED")])
def test_a_message_that_is_one_too_many_is_said_again(refusals: int, error: str | None) -> None:
    """The newest facade frees the place of a turn after its `done`."""

    async def busy(facade: Facade, _: int) -> None:
        facade.announce("s-1")
        for _ in range(refusals):
            await facade.message()
            facade.error("RATE_LIMITED", "too many in-flight requests", session_id="s-1")
        await facade.message()
        facade.done("at last")

    async def main(chat: Chat) -> tuple[str, float]:
        try:
            return await hello(chat), trio.current_time()
        except ActionFailed as failure:
            return str(failure.code), trio.current_time()

    (said, seconds), connections = talked(busy, main)
    assert (said, connections) == (error or "at last", 1)
    assert seconds >= 0.05 * (2 ** min(refusals, 7) - 1), "with pauses that double"


def test_an_error_in_the_middle_is_the_end_and_no_reason_to_ask_again() -> None:
    async def limited(facade: Facade, _: int) -> None:
        await facade.message()
        facade.chunk("a piece")
        facade.error("RATE_LIMITED", "enough", session_id="s-1")
        assert (await facade.message())["content"] == "hello"
        facade.done("the next turn")

    async def main(chat: Chat) -> tuple[Any, ...]:
        with pytest.raises(ActionFailed) as caught:
            await hello(chat)
        return caught.value.code, caught.value.detail, await hello(chat)

    assert talked(limited, main) == (("RATE_LIMITED", "enough", "the next turn"), 1)


def test_an_error_about_another_frame_does_not_end_a_turn_that_has_begun() -> None:
    async def picky(facade: Facade, _: int) -> None:
        await facade.message()
        facade.chunk("a ")
        facade.error("INVALID_MESSAGE", "no pending tool call")
        facade.done("a word")

    assert talked(picky, hello) == ("a word", 1)


def test_what_cannot_be_read_is_passed_over() -> None:
    async def odd(facade: Facade, _: int) -> None:
        await facade.message()
        facade.say("{broken")
        facade.say(type="applause", content="x")
        facade.say(type="chunk", content=[1])
        facade.say(type="chunk", role="user", content="what the user said")
        facade.say(type="chunk", parts=[{"type": "hologram"}, {"type": "text", "text": "part"}])
        facade.say(type="done", content="whole", extra=1)

    async def main(chat: Chat) -> list[Any]:
        async with chat.stream("hello") as items:
            return [item async for item in items]

    found, _ = talked(odd, main)
    assert found == [TextChunk(parts=[ChatPart("text", "part")]), TurnDone("whole")]


# ---- connections that end


@pytest.mark.parametrize("after", ["announcement", "chunk", "nothing"])
def test_a_turn_that_is_cut_off_has_an_unknown_outcome_and_is_not_repeated(after: str) -> None:
    async def cut(facade: Facade, number: int) -> None:
        said = await facade.message()
        if number == 2:
            assert said["content"] == "again"
            facade.done("yes", said.get("session_id", "none"))
            return
        if after == "announcement":
            facade.announce("s-1")
        elif after == "chunk":
            facade.chunk("a piece")
        await trio.sleep(1)
        facade.connection.close(1011, "out of order")

    async def main(chat: Chat) -> tuple[str, Any]:
        with pytest.raises(OutcomeUnknown, match=r"1011: out of order"):
            await hello(chat)
        return (await chat.say("again")).text, chat.session

    found, connections = talked(cut, main)
    assert found == ("yes", "none" if after == "nothing" else "s-1")
    assert connections == 2


def test_between_two_turns_it_connects_again_and_goes_on() -> None:
    async def restless(facade: Facade, number: int) -> None:
        facade.announce(f"fresh-{number}")
        said = await facade.message()
        facade.done(f"{number}", said.get("session_id", f"fresh-{number}"))
        await trio.sleep(1)
        facade.connection.close(1001, "server shutdown")

    async def main(chat: Chat) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            found.append(await hello(chat))
            await trio.sleep(5)
        return [*found, chat.session]

    assert talked(restless, main) == (["1", "2", "3", "fresh-1"], 3)


def test_nobody_is_there() -> None:
    async def main() -> None:
        async with open_chat(URL, network=MemoryNetwork()) as chat:
            await chat.say("hello")

    with pytest.raises(ConnectFailed):
        simulate(main)


LMOS = {"messageType": "error", "type": "urn:x#invalid-input", "title": "Invalid Input", "status": "400"}
WELCOME = {"from": "relay", "to": ["me"], "type": "welcome", "payload": {}}
STRANGERS: list[tuple[dict[str, Any] | None, float, str]] = [
    (LMOS, 0, "it speaks LMOS, not Omnia's chat protocol"),
    (WELCOME, 0, "it speaks AgentRelay's protocol, not"),
    ({"jsonrpc": "2.0", "error": {}}, 0, "it speaks JSON-RPC, such as MCP, not"),
    ({"type": "tick"}, 30, "nothing of Omnia's chat protocol came within 30 s"),
    (None, 30, "nothing of Omnia's chat protocol came within 30 s"),
]


@pytest.mark.parametrize(("frame", "seconds", "why"), STRANGERS)
def test_a_server_of_another_protocol_is_left_soon(
    frame: dict[str, Any] | None, seconds: float, why: str
) -> None:
    async def stranger(facade: Facade, number: int) -> None:
        await facade.message()
        if number == 2:
            facade.done("here")
        while frame is not None:
            facade.say(**frame)
            await trio.sleep(1)

    async def main(chat: Chat) -> tuple[float, str]:
        began = trio.current_time()
        with pytest.raises(ConnectFailed, match=why):
            await hello(chat)
        return trio.current_time() - began, await hello(chat)

    (took, text), connections = talked(stranger, main)
    assert (took, text, connections) == (pytest.approx(seconds, abs=0.5), "here", 2)


def test_a_connection_can_be_made_before_the_first_message() -> None:
    async def main() -> None:
        async with open_chat(URL, network=MemoryNetwork()) as chat:
            await chat.connect()

    with pytest.raises(ConnectFailed):
        simulate(main)


def test_a_silent_server_is_given_up_and_the_next_turn_has_another_connection() -> None:
    async def silent(facade: Facade, number: int) -> None:
        await facade.message()
        facade.chunk("wait")
        if number == 2:
            facade.done("here")

    async def main(chat: Chat) -> tuple[float, str]:
        began = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await hello(chat)
        return trio.current_time() - began, await hello(chat)

    (seconds, text), connections = talked(silent, main, silence=30.0)
    assert (seconds, text, connections) == (pytest.approx(30, abs=1), "here", 2)


def test_a_slow_turn_that_shows_life_is_not_silent() -> None:
    async def slow(facade: Facade, _: int) -> None:
        await facade.message()
        for _ in range(10):
            await trio.sleep(20)
            facade.chunk("x")
        facade.done("x" * 10)

    assert talked(slow, hello, silence=30.0) == ("x" * 10, 1)


def test_leaving_a_stream_early_closes_the_connection() -> None:
    async def endless(facade: Facade, number: int) -> None:
        await facade.message()
        if number == 2:
            facade.done("the next", "s-1")
            return
        while True:
            facade.chunk("x")
            await trio.sleep(1)

    async def main(chat: Chat) -> tuple[int, str, Any]:
        count = 0
        async with chat.stream("hello") as items:
            async for _ in items:
                count += 1
                if count == 3:
                    break
        return count, await hello(chat), chat.session

    assert talked(endless, main) == ((3, "the next", "s-1"), 2)


def test_what_the_body_raises_is_raised_unchanged() -> None:
    async def quiet(facade: Facade, _: int) -> None:
        await facade.message()
        facade.done("yes")

    async def main() -> None:
        async with opened_facade(quiet) as (network, _):
            with pytest.raises(ZeroDivisionError, match="mine"):  # noqa: PT012
                async with open_chat(URL, network=network) as chat:
                    await hello(chat)
                    raise ZeroDivisionError("mine")

    simulate(main)


# ---- tools


def position(accuracy: str) -> dict[str, str]:
    """Return where this is."""
    if accuracy == "broken":
        raise KeyError("secret: 4711")
    return {"city": "Bonn", "accuracy": accuracy}


CALL = {"id": "c-1", "name": "position", "arguments": {"accuracy": "high"}}


async def answers(facade: Facade, call: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask for a call, and return what the client answers within a second."""
    await facade.message()
    facade.say(type="tool_call", session_id="s-1", tool_call=call)
    found: list[dict[str, Any]] = []
    with trio.move_on_after(1):
        while True:
            found.append({key: value for key, value in (await facade.next()).items() if key != "session_id"})
    facade.done("thanks")
    return found


TAKEN = {"type": "tool_call_ack", "tool_call_ack": {"call_id": "c-1"}}


REFUSED = {
    "type": "tool_call_nack",
    "tool_call_nack": {"call_id": "c-1", "reason": "there is no tool 'weather' here"},
}


def result(**members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_result": {"call_id": "c-1", **members}}


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (CALL, [TAKEN, result(result={"city": "Bonn", "accuracy": "high"})]),
        ({**CALL, "arguments": {"accuracy": "broken"}}, [TAKEN, result(error="the tool failed")]),
        (
            {**CALL, "arguments": {"precision": 1}},
            [TAKEN, result(error="its arguments are not right: Object contains unknown field `precision`")],
        ),
        ({**CALL, "arguments": None}, 2),
        ({**CALL, "name": "weather"}, [REFUSED]),
        ({**CALL, "shown": True}, []),
    ],
)
def test_calls_of_its_tools_are_carried_out(call: dict[str, Any], wanted: Any) -> None:
    heard: list[Any] = []

    async def asks(facade: Facade, _: int) -> None:
        facade.announce("s-1")
        heard.extend(await answers(facade, call))

    assert talked(asks, hello, tools=[position]) == ("thanks", 1)
    assert (len(heard) if isinstance(wanted, int) else heard) == wanted


def test_a_facade_that_was_silent_before_gets_no_answer_to_a_call() -> None:
    """It would take an acknowledgement for a message."""
    heard: list[Any] = []

    async def seed(facade: Facade, _: int) -> None:
        heard.extend(await answers(facade, CALL))

    async def main(chat: Chat) -> list[Any]:
        async with chat.stream("hello") as items:
            return [item async for item in items]

    found, _ = talked(seed, main, tools=[position])
    assert heard == []
    assert found == [ToolCalled("c-1", "position", {"accuracy": "high"}), TurnDone("thanks")]


@pytest.mark.parametrize("consents", [True, False])
def test_consent_is_asked_for_each_call(consents: bool) -> None:
    heard: list[Any] = []
    asked: list[ToolCalled] = []

    async def consent(call: ToolCalled) -> bool:
        asked.append(call)
        await trio.sleep(0.5)
        return consents

    async def asks(facade: Facade, _: int) -> None:
        facade.announce("s-1")
        call = {**CALL, "consent_message": "May I?", "categories": ["location"]}
        heard.extend(await answers(facade, call))

    assert talked(asks, hello, tools=[position], consent=consent) == ("thanks", 1)
    (call,) = asked
    assert (call.name, call.consent_message, call.categories) == ("position", "May I?", ["location"])
    if consents:
        assert [each["type"] for each in heard] == ["tool_call_ack", "tool_result"]
    else:
        reason = {"call_id": "c-1", "reason": "the user does not consent"}
        assert heard == [TAKEN, {"type": "tool_call_nack", "tool_call_nack": reason}]


def test_tools_that_are_shown_are_items() -> None:
    async def shows(facade: Facade, _: int) -> None:
        facade.announce("s-1")
        await facade.message()
        facade.say(type="tool_call", session_id="s-1", tool_call={"id": "1", "name": "search"})
        facade.say(type="tool_result", session_id="s-1", tool_result={"id": "1", "result": [1]})
        facade.say(type="tool_result", session_id="s-1", tool_result={"id": "2", "error": "no"})
        facade.done("found")

    async def main(chat: Chat) -> list[Any]:
        async with chat.stream("hello") as items:
            return [item async for item in items]

    assert talked(shows, main)[0] == [
        ToolCalled("1", "search"),
        ToolReturned("1", [1]),
        ToolReturned("2", error="no"),
        TurnDone("found"),
    ]


@pytest.mark.parametrize("binary", [True, False])
def test_media_come_as_pieces_in_either_form(binary: bool) -> None:
    async def plays(facade: Facade, _: int) -> None:
        await facade.message()
        for sequence in range(3):
            last = sequence == 2
            if binary:
                info = MediaInfo(session_id="s-1", mime_type="audio/pcm")
                piece = MediaFrame(media_id="m", sequence=sequence, payload=b"ab", is_last=last, info=info)
                facade.waiting.append(BinaryFrame(write_media_frame(piece)))
                facade.connection.wake()
            else:
                members = {"media_id": "m", "sequence": sequence, "is_last": last, "data": "YWI="}
                facade.say(type="media_chunk", media_chunk={**members, "mime_type": "audio/pcm"})
        facade.say(
            type="media_chunk", media_chunk={"media_id": "m", "sequence": 3, "is_last": True, "data": "?"}
        )
        facade.done("played")

    async def main(chat: Chat) -> list[Any]:
        async with chat.stream("play") as items:
            return [item async for item in items]

    found, _ = talked(plays, main, binary=binary)
    pieces = [MediaPiece("m", sequence, b"ab", "audio/pcm", sequence == 2) for sequence in range(3)]
    assert found == [*pieces, TurnDone("played")]


def test_a_server_that_floods_a_slow_reader_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.facades.omnia._line.FLOOD_BYTES", 1 << 20)

    async def floods(facade: Facade, _: int) -> None:
        await facade.message()
        while True:
            facade.chunk("x" * 10_000)
            await trio.sleep(0.001)

    async def main(chat: Chat) -> int:
        count = 0
        with pytest.raises(OutcomeUnknown):  # noqa: PT012
            async with chat.stream("hello") as items:
                async for _ in items:
                    count += 1
                    await trio.sleep(1 if count == 1 else 0)
        return count

    count, _ = talked(floods, main)
    assert 50 < count < 200


def test_the_query_says_nothing_of_tools() -> None:
    async def main() -> list[str]:
        async def script(facade: Facade, _: int) -> None:
            facade.announce("s-1")
            await facade.message()
            facade.done("yes")

        async with opened_facade(script) as (network, upgrades):
            for tools in ([], [position]):
                url = f"{URL}/?agent=desk"
                async with open_chat(url, network=network, tools=tools, headers={"x-a": "b"}) as chat:
                    await chat.say("hello")
            assert all((b"x-a", b"b") in upgrade.headers for upgrade in upgrades)
            return [upgrade.query for upgrade in upgrades]

    assert simulate(main) == ["agent=desk"] * 2


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://127.0.0.1:8080/agents/desk", "ws://127.0.0.1:8080/api/agents/desk/ws"),
        ("https://example.org/agents/desk/", "wss://example.org/api/agents/desk/ws"),
        ("https://example.org/gate/agents/desk", "wss://example.org/gate/api/agents/desk/ws"),
        ("ws://127.0.0.1:8080/?agent=desk", "ws://127.0.0.1:8080/?agent=desk"),
        ("ws://127.0.0.1/api/agents/desk/ws", "ws://127.0.0.1/api/agents/desk/ws"),
    ],
)
def test_the_address_of_an_agent_will_do(url: str, wanted: str) -> None:
    assert chat_url(url) == wanted


# ---- with our own facade


def test_our_own_ends_understand_each_other() -> None:
    async def main() -> list[Any]:
        found: list[Any] = []
        async with opened_desk() as (_, network):
            async with open_chat(f"{URL}/agents/desk", network=network, tools=[position]) as chat:
                found += [(await chat.say(text)).text for text in ("hello", "ask high", "add 2")]
                session = chat.session
            async with open_chat(f"{URL}/agents/desk", network=network, session=session) as chat:
                found += [(await chat.say("again")).text, chat.session == session]
                with pytest.raises(ActionFailed) as caught:
                    await chat.say("crash")
                found += [caught.value.code, (await chat.say("and on")).text]
        return found

    assert simulate(main) == [
        "1: hello",
        "found {'city': 'Bonn', 'accuracy': 'high'}",
        "sum 3",
        "4: again",
        True,
        "INTERNAL_ERROR",
        "5: and on",
    ]


def test_the_outcome_of_a_turn_that_the_end_of_its_agent_cuts_off_is_unknown() -> None:
    async def main() -> str:
        async with (
            opened_desk() as (node, network),
            open_chat(f"{URL}/agents/desk", network=network) as chat,
            chat.stream("slow 60") as items,
        ):
            await anext(items)
            await node.root.terminate_child(node.root.which_children()[0].name)
            with pytest.raises(OutcomeUnknown) as caught:
                async for _ in items:
                    pass
            return caught.value.why

    assert "look at the history before asking again" in simulate(main)


def test_cancelling_a_turn_cancels_it_at_the_agent() -> None:
    async def main() -> tuple[bool, str]:
        async with opened_desk() as (_, network), open_chat(f"{URL}/agents/desk", network=network) as chat:
            with trio.move_on_after(5) as scope:
                await chat.say("slow 60")
            return scope.cancelled_caught, (await chat.say("hello")).text

    assert simulate(main) == (True, "1: hello"), "the turn that was cancelled is not kept"
