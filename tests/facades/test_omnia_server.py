"""Chat agents over Omnia's protocol, as a client with its own frames sees them; in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import simulate
from lmos_actors.facades import OmniaOptions
from lmos_actors.transport import ConnectFailed, connect
from tests.facades.desk import URL, Desk, Raw, opened_desk, opened_raw

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def told(main: Callable[[Raw], Awaitable[Any]], query: str = "agent=desk", **options: Any) -> Any:
    """Have a client talk to a desk on virtual time."""

    async def run() -> Any:
        async with opened_desk(**options) as (_, network), opened_raw(network, query) as raw:
            return await main(raw)

    return simulate(run)


def plain(frame: dict[str, Any]) -> dict[str, Any]:
    """Return a frame without what differs from run to run."""
    return {name: value for name, value in frame.items() if name not in ("timestamp", "session_id")}


def test_a_connection_has_a_session_at_once_and_messages_belong_to_it() -> None:
    async def main(raw: Raw) -> None:
        connected = await raw.next()
        capabilities = {"binary_frames": False, "max_payload_size": 16 << 20, "protocol_version": 1}
        assert plain(connected) == {"type": "connected", "connected": {"capabilities": capabilities}}
        assert connected["timestamp"].endswith("Z")
        raw.ask("hello")
        assert (await raw.next())["session_id"] == connected["session_id"], "said once more"
        chunk, done = await raw.next(), await raw.next()
        assert plain(chunk) == {"type": "chunk", "content": "1: hello"}
        assert plain(done) == {"type": "done", "content": "1: hello"}
        assert {chunk["session_id"], done["session_id"]} == {connected["session_id"]}
        raw.ask("again", session_id=connected["session_id"])
        assert plain(await raw.end()) == {"type": "done", "content": "2: again"}

    told(main)


def test_the_session_is_announced_once_more_to_the_first_message_without_one() -> None:
    async def main(raw: Raw) -> None:
        session = (await raw.next())["session_id"]
        order = {"filename": "a.txt", "mime_type": "text/plain", "size_bytes": 3}
        for frame, kinds in (
            ({"type": "upload_request", "upload_request": order}, ["error"]),
            ({"type": "message", "content": "named", "session_id": session}, ["chunk", "done"]),
            ({"type": "message", "content": "first"}, ["connected", "chunk", "done"]),
            ({"type": "message", "content": "second", "session_id": ""}, ["chunk", "done"]),
        ):
            raw.say(frame)
            frames = [await raw.next() for _ in kinds]
            assert [each["type"] for each in frames] == kinds
            assert {each["session_id"] for each in frames} == {session}

    told(main)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "this is not JSON"),
        ("{broken", "this is not JSON"),
        ("null", "a frame is a JSON object"),
        ("42", "a frame is a JSON object"),
        ('"text"', "a frame is a JSON object"),
        ("[]", "a frame is a JSON object"),
        ('{"content": "no type"}', "it has no type"),
        ('{"type": 5, "content": "x"}', "its type is not text"),
        ('{"type": "mesage", "content": "x"}', "did you mean 'message'?"),
        ('{"type": "ping"}', "there is no type 'ping'"),
        ('{"TYPE": "message", "Content": "other case"}', "it has no type"),
        ('{"type": "message"}', "a message has content or parts"),
        ('{"type": "message", "content": ""}', "a message has content or parts"),
        ('{"type": "message", "content": null}', "a message has content or parts"),
        ('{"type": "message", "content": 5}', "Expected `str | null`, got `int`"),
        ('{"type": "message", "session_id": 7, "content": "x"}', "Expected `str | null`, got `int`"),
        ('{"type": "message", "content": "x", "metadata": [1]}', "Expected `object | null`, got `array`"),
        ('{"type": "message", "parts": [{"type": "smell"}]}', "there is no type of parts 'smell'"),
        ('{"type": "message", "parts": [{"type": "image"}]}', "a part of type image has `media`"),
        (
            '{"type": "message", "parts": [{"type": "image", "media": {"mime_type": "a/b"}}]}',
            "exactly one of",
        ),
        ('{"type": "message", "content": "a"}{"type": "message", "content": "b"}', "this is not JSON"),
        ('{"type": "tool_result"}', "missing required field `tool_result`"),
        ('{"type": "tool_result", "tool_result": {"call_id": "tc-9"}}', "no pending tool call 'tc-9'"),
        ('{"type": "upload_request", "upload_request": {}}', "missing required field"),
    ],
)
def test_a_bad_frame_is_refused_and_loses_nothing(text: str, reason: str) -> None:
    async def main(raw: Raw) -> None:
        raw.say(text)
        error = await raw.next("error")
        assert (error["error"]["code"], "session_id" in error) == ("INVALID_MESSAGE", False)
        assert reason in error["error"]["message"]
        raw.ask("hello")
        assert plain(await raw.end()) == {"type": "done", "content": "1: hello"}

    told(main)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "message", "content": "hello", "x": {"y": 1}}',
        '{"type": "message", "content": "hello", "content ": "two"}',
        '{"type": "message", "content": "hello", "metadata": {"number": 1, "deep": {"list": []}}}',
        '{"type": "message", "content": "hello", "session_id": ""}',
        '{"type": "message", "content": "hello", "session_id": null}',
    ],
)
def test_odd_frames_that_are_taken(text: str) -> None:
    async def main(raw: Raw) -> None:
        raw.say(text)
        assert plain(await raw.end()) == {"type": "done", "content": "1: hello"}

    told(main)


@pytest.mark.parametrize("frame", ["tool_call_ack", "tool_call_nack"])
def test_answers_to_calls_that_nobody_made_are_passed_over(frame: str) -> None:
    async def main(raw: Raw) -> None:
        raw.say({"type": frame, frame: {"call_id": "tc-9"}})
        raw.ask("hello")
        assert [plain(await raw.next())["type"] for _ in range(4)] == [
            "connected",
            "connected",
            "chunk",
            "done",
        ]

    told(main)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("crash", "INTERNAL_ERROR", "internal server error"),
        ("fail no provider", "PROVIDER_ERROR", "no provider"),
        ("bad one", "TOOL_ERROR", "the tool 'add' failed"),
        ("ask high", "TOOL_ERROR", "the tool 'position' failed"),
    ],
)
def test_a_turn_that_fails_ends_with_one_error(text: str, code: str, message: str) -> None:
    async def main(raw: Raw) -> None:
        connected = await raw.next()
        raw.ask(text)
        error = await raw.end()
        assert plain(error) == {"type": "error", "error": {"code": code, "message": message}}
        assert error["session_id"] == connected["session_id"]
        raw.ask("hello")
        assert plain(await raw.end()) == {"type": "done", "content": "1: hello"}

    told(main)


def test_a_turn_that_the_end_of_its_agent_cuts_off_is_not_called_a_failure() -> None:
    async def run() -> None:
        async with opened_desk() as (node, network), opened_raw(network, "agent=desk") as raw:
            raw.ask("slow 60")
            await raw.next("chunk")
            await node.root.terminate_child(node.root.which_children()[0].name)
            error = (await raw.end())["error"]
            assert error["code"] == "OUTCOME_UNKNOWN"
            assert "look at the history before asking again" in error["message"]

    simulate(run)


def test_an_agent_without_a_word_is_done() -> None:
    async def main(raw: Raw) -> None:
        raw.ask("nothing")
        assert plain(await raw.end()) == {"type": "done"}

    told(main)


def test_a_second_message_waits_and_the_tenth_is_refused() -> None:
    async def main(raw: Raw) -> None:
        session = (await raw.next())["session_id"]
        for number in range(10):
            raw.ask(f"slow {number}", session_id=session)
        ends = [await raw.end() for _ in range(10)]
        assert ends[0]["error"] == {"code": "RATE_LIMITED", "message": "too many in-flight requests"}
        assert [end["content"] for end in ends[1:]] == [f"wait {n + 1}: slow {n}" for n in range(9)]

    told(main)


def test_a_message_in_the_instant_of_done_is_taken() -> None:
    async def main(raw: Raw) -> None:
        for number in range(1, 20):
            raw.ask("hello")
            assert (await raw.end())["content"] == f"{number}: hello"

    told(main)


def test_an_unknown_session_is_a_new_one_that_is_announced() -> None:
    async def main(raw: Raw) -> None:
        first = (await raw.next())["session_id"]
        raw.ask("hello", session_id="sess-abc123")
        connected, chunk, done = await raw.next(), await raw.next(), await raw.next()
        assert connected["type"] == "connected"
        assert connected["session_id"] not in (first, "sess-abc123")
        assert {chunk["session_id"], done["session_id"]} == {connected["session_id"]}
        raw.ask("again")
        assert (await raw.end())["content"] == "2: again", "which is that of the connection now"

    told(main)


def test_an_unknown_session_is_refused_where_that_is_wanted() -> None:
    async def main(raw: Raw) -> None:
        raw.ask("hello", session_id="sess-abc123")
        error = await raw.end()
        assert (error["error"]["code"], error["session_id"]) == ("SESSION_EXPIRED", "sess-abc123")
        raw.ask("hello")
        assert (await raw.end())["content"] == "1: hello"

    told(main, omnia=OmniaOptions(strict_sessions=True))


def test_a_session_goes_on_over_another_connection() -> None:
    async def main() -> None:
        async with opened_desk() as (_, network):
            async with opened_raw(network) as raw:
                raw.ask("hello")
                session = (await raw.end())["session_id"]
            async with opened_raw(network) as raw:
                raw.ask("again", session_id=session)
                end = await raw.end()
                assert (end["content"], end["session_id"]) == ("2: again", session)
            async with opened_raw(network, f"agent=desk&resume={session}") as raw:
                assert (await raw.next())["session_id"] == session
                raw.ask("once more")
                assert (await raw.end())["content"] == "3: once more"

    simulate(main)


def test_two_connections_on_one_session_take_turns_and_hear_their_own() -> None:
    async def main() -> None:
        async with (
            opened_desk() as (_, network),
            opened_raw(network) as one,
            opened_raw(network) as two,
            opened_raw(network, "agent=desk&watch=true") as watcher,
        ):
            one.ask("hello")
            session = (await one.end())["session_id"]
            watcher.ask("watch", session_id=session)
            await watcher.end()
            one.ask("slow 10", session_id=session)
            await trio.sleep(1)
            two.ask("mine", session_id=session)
            assert (await one.end())["content"] == "wait 3: slow 10"
            assert (await two.end())["content"] == "4: mine"
            assert [(await watcher.end())["content"] for _ in range(2)] == ["wait 3: slow 10", "4: mine"]
            assert two.heard.statistics().current_buffer_used == 0

    simulate(main)


def test_tools_are_shown_and_answers_to_what_is_shown_are_passed_over() -> None:
    async def main(raw: Raw) -> None:
        raw.ask("add 4")
        call = await raw.next("tool_call")
        assert (call["tool_call"]["arguments"], call["tool_call"]["shown"]) == ({"a": 1, "b": 4}, True)
        call_id = call["tool_call"]["id"]
        raw.say({"type": "tool_result", "tool_result": {"call_id": call_id, "result": 7}})
        raw.say({"type": "tool_call_nack", "tool_call_nack": {"call_id": call_id}})
        result = await raw.next()
        assert plain(result) == {"type": "tool_result", "tool_result": {"id": call_id, "result": 5}}
        raw.ask("hello")
        assert [(await raw.next("chunk", "done", "error"))["type"] for _ in range(4)] == ["chunk", "done"] * 2

    told(main)


def test_tools_can_be_hidden() -> None:
    async def main(raw: Raw) -> None:
        raw.ask("add 4")
        kinds = [(await raw.next())["type"] for _ in range(4)]
        assert kinds == ["connected", "connected", "chunk", "done"]

    told(main, omnia=OmniaOptions(shows_tools=False))


@pytest.mark.parametrize(
    ("answers", "outcome", "seconds"),
    [
        ([("tool_result", {"result": {"lat": 1}})], "found {'lat': 1}", 0),
        ([("tool_result", {})], "found None", 0),
        ([("tool_call_ack", {}), ("tool_result", {"result": "Bonn"})], "found Bonn", 0),
        ([("tool_call_nack", {"reason": "not now"})], None, 0),
        ([("tool_result", {"error": "denied"})], None, 0),
        ([], None, 5),
        ([("tool_call_ack", {})], None, 60),
    ],
)
@pytest.mark.parametrize("query", ["agent=desk", "agent=desk&client_tools=true"])
def test_a_tool_of_the_client(
    answers: list[tuple[str, dict[str, Any]]], outcome: str | None, seconds: float, query: str
) -> None:
    async def main(raw: Raw) -> None:
        raw.ask("ask high")
        call = (await raw.next("tool_call"))["tool_call"]
        assert call == {"id": call["id"], "name": "position", "arguments": {"accuracy": "high"}}
        began = trio.current_time()
        for kind, members in answers:
            raw.say({"type": kind, kind: {"call_id": call["id"], **members}})
        end = await raw.end()
        assert trio.current_time() - began == pytest.approx(seconds)
        if outcome is None:
            assert end["error"]["code"] == "TOOL_ERROR"
        else:
            assert end["content"] == outcome
        raw.say({"type": "tool_result", "tool_result": {"call_id": call["id"], "result": "late"}})
        error = await raw.next()
        assert error["error"]["message"] == f"no pending tool call {call['id'][:32]!r}"
        assert "session_id" not in error

    told(main, query)


def test_a_client_that_leaves_cancels_the_turn_and_keeps_the_session() -> None:
    async def main() -> None:
        async with opened_desk() as (node, network):
            async with opened_raw(network) as raw:
                raw.ask("hello")
                session = (await raw.end())["session_id"]
                raw.ask("slow 1000")
                await raw.next("chunk")
                assert "turn-" in node.tree()
            await trio.sleep(1)
            assert "turn-" not in node.tree()
            assert not node.crash_reports
            async with opened_raw(network) as raw:
                raw.ask("again", session_id=session)
                assert (await raw.end())["content"] == "2: again"

    simulate(main)


@pytest.mark.slow  # its lines: test_outgoing_call.py
def test_a_client_that_does_not_read_slows_its_agent() -> None:
    """1 MB is said, and no more than is bounded waits for the client."""

    async def main() -> None:
        async with opened_desk() as (node, network), opened_raw(network) as raw:
            raw.ask("flood 3000")
            assert len((await raw.end())["content"]) == 3_000_000
            assert node.find(Desk, "desk").statistics().incarnation == 1

    simulate(main)


# --- before the upgrade


@pytest.mark.parametrize(
    ("target", "status", "reason"),
    [
        ("/?agent=nobody", 404, "there is no chat agent 'nobody'"),
        ("/?agent=dest", 404, "did you mean 'desk'?"),
        ("/api/agents/nobody/ws", 404, "there is no chat agent 'nobody'"),
        ("/api/agents/desk/other", 404, "there is no chat agent 'other'"),
        ("/api/agents/a/b/desk/ws", 404, "nothing is served over WebSocket"),
        ("/api/agents//desk/ws", 404, "nothing is served over WebSocket"),
    ],
)
def test_no_such_agent(target: str, status: int, reason: str) -> None:
    async def main() -> None:
        async with opened_desk() as (_, network):
            path, _, query = target.partition("?")
            with pytest.raises(ConnectFailed) as failed:
                async with opened_raw(network, query, path):
                    pass
            assert failed.value.status == status
            assert reason in failed.value.why

    simulate(main)


@pytest.mark.parametrize("path", ["/", "/ws"])
def test_where_nothing_else_is_served_the_agent_is_required(path: str) -> None:
    async def main() -> None:
        async with opened_desk(omnia=OmniaOptions(only=True)) as (_, network):
            with pytest.raises(ConnectFailed, match="400 Bad Request: agent parameter is required"):
                async with opened_raw(network, "", path):
                    pass
            async with opened_raw(network, "agent=desk", path) as raw:
                raw.ask("hello")
                assert (await raw.end())["content"] == "1: hello"

    simulate(main)


@pytest.mark.parametrize(
    "path", ["/", "/api/agents/desk/ws", "/api/agents/desk", "/api/agents/default/desk/ws"]
)
def test_an_agent_has_several_addresses(path: str) -> None:
    async def main() -> None:
        async with opened_desk() as (_, network), opened_raw(network, "", path) as raw:
            raw.ask("hello")
            assert (await raw.end())["content"] == "1: hello"

    simulate(main)


def test_turns_are_not_reached_from_outside() -> None:
    async def main() -> None:
        async with opened_desk() as (node, network), opened_raw(network) as raw:
            raw.ask("slow 10")
            await raw.next("chunk")
            with pytest.raises(ConnectFailed, match="404"):
                async with opened_raw(network, "agent=desk.turn-1"):
                    pass
            assert "turn-1" in node.tree()
            with pytest.raises(ConnectFailed, match="404"):
                async with opened_raw(network, "", "/agents/desk.turn-1"):
                    pass

    simulate(main)


def test_how_much_a_client_may_say_is_an_option() -> None:
    async def main() -> None:
        options = OmniaOptions(texts_burst=2, texts_per_second=0.5)
        async with opened_desk(omnia=options) as (_, network), opened_raw(network) as raw:
            for pause, kind in ((0, "done"), (0, "done"), (0, "error"), (2, "done"), (0, "error")):
                await trio.sleep(pause)
                raw.ask("hello")
                assert (await raw.next("done", "error"))["type"] == kind

    simulate(main)


def test_too_many_connections() -> None:
    async def main() -> None:
        async with opened_desk(omnia=OmniaOptions(connections=1)) as (_, network), opened_raw(network):
            with pytest.raises(
                ConnectFailed, match="503 Service Unavailable: there are too many connections"
            ):
                async with opened_raw(network):
                    pass

    simulate(main)


def test_a_drain_ends_turns_first_and_connections_after_them() -> None:
    async def main() -> None:
        async with opened_desk() as (node, network), opened_raw(network) as raw, opened_raw(network) as idle:
            raw.ask("slow 3")
            await raw.next("chunk")
            await node.drain()
            assert (await raw.end())["content"] == "wait 1: slow 3"
            for each in (raw, idle):
                await each.over.wait()
                assert (each.ended.code, each.ended.reason) == (1001, "server shutdown")

    simulate(main)


@pytest.mark.parametrize("talks", [True, False])
def test_a_client_that_never_pongs_is_cut_after_a_minute_even_if_it_talks(talks: bool) -> None:
    async def main() -> None:
        async with opened_desk() as (_, network):
            connection = await connect(network, f"{URL}/?agent=desk", subprotocols=())
            connection._codec.pong = lambda payload: b""  # type: ignore[method-assign]
            raw = Raw()
            raw.connection = connection
            async with trio.open_nursery() as nursery:
                nursery.start_soon(raw.run)
                for _ in range(59):
                    await trio.sleep(1)
                    if talks:
                        raw.ask("hello")
                assert raw.ended is None
                await trio.sleep(2)
            assert raw.ended.by == "broken"

    simulate(main)


def test_a_client_that_pongs_stays_though_it_is_silent() -> None:
    async def main() -> None:
        async with opened_desk() as (_, network), opened_raw(network) as raw:
            await trio.sleep(3_600)
            raw.ask("hello")
            assert (await raw.end())["content"] == "1: hello"

    simulate(main)
