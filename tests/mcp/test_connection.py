"""MCP servers that do what none should: each is bounded, and says what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import AgentDied, open_node
from lmos_actors.errors import StartFailed
from lmos_actors.mcp import McpContent, McpProgress, McpResult, McpServer
from lmos_actors.thinking import think
from tests.mcp.using import asked, hostile, server_of, text_of
from tests.thinking.models import Log, Script

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mcp.using import Notes

DONE = McpResult((McpContent(text="done"),))


async def start_failure(command: list[str], **options: Any) -> str:
    async with open_node() as node:
        with pytest.raises(StartFailed) as failed:
            await node.start(McpServer, command=command, **options)
        return str(failed.value)


async def test_one_that_dies_in_mid_call_comes_back_and_ends_its_agent_at_the_fourth_time() -> None:
    async with server_of(hostile("dies")) as (node, server):
        for _ in range(4):
            assert not node.crash_reports
            error = await asked(server, "work")
            assert error.code == "MCP_NO_ANSWER"
            assert "has ended with status 7: it may have done its work or not" in str(error)
            assert [each.name for each in await server.read(McpServer.tools)] == ["work", "read"]
        assert isinstance(await asked(server, "work"), AgentDied)
        assert len(node.crash_reports) == 1
        await server.ready()


@pytest.mark.parametrize(("tool", "wanted"), [("read", DONE), ("work", "MCP_NO_ANSWER")])
async def test_what_may_be_done_twice_is_sent_again_to_one_that_died(
    tool: str, wanted: Any, tmp_path: Path
) -> None:
    async with server_of(hostile("dies once"), env={"MARK": str(tmp_path / "mark")}) as (node, server):
        found = await asked(server, tool)
        assert getattr(found, "code", found) == wanted
        assert await asked(server, tool) == DONE
        assert not node.crash_reports


async def test_one_that_never_answers_a_call_is_left_alone_after_its_time() -> None:
    async with server_of(hostile("silent"), call_seconds=0.2) as (node, server):
        error = await asked(server, "work")
        assert error.code == "MCP_NO_ANSWER"
        assert "the tool 'work' was not answered within 0.2 s: it may have done its work or not" in str(error)
        with trio.move_on_after(0.05) as left:
            await asked(server, "work")
        assert left.cancelled_caught
        assert not node.crash_reports


@pytest.mark.slow
async def test_one_that_never_begins_is_given_up() -> None:
    assert "does not begin a session within 0.3 s" in await start_failure(hostile("mute"), start_seconds=0.3)


async def test_one_that_ends_at_once_is_quoted_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    text = await start_failure(hostile("exits"), env={"PASSWORD": "env:DB_PASSWORD"})
    assert "has ended with status 1: there is no database at db.example with the password ***" in text
    assert "hunter2" not in text


async def test_one_that_is_not_there_is_named() -> None:
    assert "'no-such-program --x' cannot be started: No such file" in await start_failure(
        ["no-such-program", "--x"]
    )


async def test_one_that_floods_is_cut_off(notes: Notes) -> None:
    async with server_of(hostile("floods", notes.path)) as (_, server):
        await notes.begun()
        error = await asked(server, "work")
        assert "floods: more than 500 messages a second" in str(error)
        assert isinstance(await asked(server, "work"), AgentDied)
        await notes.ended()
        await server.ready()


async def test_rubbish_on_standard_output_is_skipped() -> None:
    async with server_of(hostile("rubbish")) as (node, server):
        assert await asked(server, "work") == DONE
        assert not node.crash_reports


@pytest.mark.slow
async def test_an_answer_of_megabytes_fails_that_call_alone() -> None:
    async with server_of(hostile("long")) as (node, server):
        error = await asked(server, "work")
        assert error.code == "MCP_RESULT_TOO_LARGE"
        assert await asked(server, "read") == DONE
        assert not node.crash_reports


async def test_one_that_sends_a_line_without_an_end_is_cut_off() -> None:
    async with server_of(hostile("endless line")) as (_, server):
        assert "sends a message without an end" in str(await asked(server, "work"))


async def test_one_that_lies_about_its_results_is_found_out() -> None:
    async with server_of(hostile("lies")) as (_, server):
        error = await asked(server, "count")
        assert error.code == "MCP_RESULT_INVALID"
        assert "'count' was carried out, and its result is not what its schema says" in str(error)
        assert '"seven" is not of type "integer" - at `$.n`' in str(error)
        wrong = await asked(server, "check", n="seven")
        assert wrong.code == "MCP_ARGUMENTS_INVALID"


async def test_an_answer_that_is_not_of_the_protocol_says_where() -> None:
    async with server_of(hostile("misshapen")) as (_, server):
        error = await asked(server, "work")
        assert error.code == "MCP_RESULT_INVALID"
        assert "content" in str(error)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("no UTF-8", "can't decode byte 0xff"),
        ("half a character", "Input data was truncated"),
        ("NaN", "JSON is malformed: "),
        ("a member twice", "an object has the member 'content' twice"),
        ("a number out of range", "Number out of range"),
        ("an error without a message", "it is not of the protocol: "),
        ("an error that is a text", "it is not of the protocol: "),
        ("a batch", "it is not of the protocol: "),
        ("two messages on a line", "JSON is malformed: trailing characters"),
        ("a BOM", "JSON is malformed: "),
        ("rubbish behind", "JSON is malformed: "),
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_request_at_once(mode: str, why: str) -> None:
    async with server_of(hostile(mode)) as (node, server):
        error = await asked(server, "work")
        assert error.code == "MCP_RESULT_INVALID"
        assert f"the answer about the tool 'work' cannot be read: {why}" in str(error).replace(
            "'utf-8' codec ", ""
        )
        assert await asked(server, "read") == McpResult()
        assert not node.crash_reports


async def test_the_last_report_of_progress_comes_before_the_result() -> None:
    async with server_of(hostile("hasty")) as (_, server):
        for _ in range(20):
            async with server.begin(McpServer.call, "work") as call:
                reports = [report async for report in call.progress]
                assert await call.result() == DONE
            assert reports[-1:] == [McpProgress(3.0, 3.0)]


async def test_of_ten_thousand_tools_the_first_are_taken() -> None:
    async with server_of(hostile("many"), most_tools=100) as (_, server):
        assert [each.name for each in await server.read(McpServer.tools)] == [f"t{n}" for n in range(100)]
        assert await server.read(McpServer.left_out) == ("all after the first 100 (most_tools)",)


async def test_what_all_tools_say_together_is_bounded_for_a_server_and_for_a_request() -> None:
    log = Log()
    async with server_of(hostile("heavy")) as (node, server):
        assert [each.name for each in await server.read(McpServer.tools)] == ["t0", "t1", "t2", "t3"]
        left = await server.read(McpServer.left_out)
        assert len(left) == 100
        assert left[0] == "t4: all tools have more than 131072 bytes"
        others = [await node.start(McpServer, command=hostile("heavy")) for _ in range(2)]
        model = await node.start(Script, answers=("Fine.",), heard=log)
        await think(model, "hello", tools=[server, *others])
    assert len(log.asked[0].tools) == 8


async def test_pages_without_end_are_left() -> None:
    async with server_of(hostile("endless"), most_tools=10) as (_, server):
        assert len(await server.read(McpServer.tools)) == 10


async def test_tools_that_break_a_rule_are_left_out_with_the_reason() -> None:
    async with server_of(hostile("odd")) as (_, server):
        assert [each.name for each in await server.read(McpServer.tools)] == ["good"]
        left = dict(each.split(": ", 1) for each in await server.read(McpServer.left_out))
        assert list(left) == ["good", "big", "wrong", "away", "file", ""]
        assert left["good"] == "there are two of that name"
        assert left["big"].endswith("32768 are taken")
        assert left["wrong"].startswith('one of its schemas is not right: "wurst" is not valid')
        assert "must not refer to another document" in left["away"]
        assert "must not refer to another document" in left["file"]
        assert left[""] == "it has no name"
        assert [each.uri for each in await server.read(McpServer.resources)] == ["note://a"]


async def test_a_question_for_the_password_of_the_user_is_declined() -> None:
    async with server_of(hostile("curious")) as (_, server):
        assert await text_of(server, "work") == '{"action": "decline"}'
        assert await server.read(McpServer.declined) == 1


@pytest.mark.slow
async def test_one_that_hears_no_signal_is_gone_with_its_agent(notes: Notes) -> None:
    async with server_of(hostile("deaf", notes.path)) as (_, server):
        await notes.begun()
        with trio.move_on_after(0.05):
            await asked(server, "work")
    await notes.ended()
