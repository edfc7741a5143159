"""MCP servers in use, as processes: the official SDK at both ends, over real pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, ConfigError, SupervisorSpec, open_node, simulate
from lmos_actors.errors import StartFailed
from lmos_actors.mcp import (
    McpArgument,
    McpContent,
    McpMessage,
    McpProgress,
    McpPrompt,
    McpResource,
    McpResult,
    McpServer,
)
from tests.mcp.using import GOOD, HERE, asked, hostile, server_of, text_of

if TYPE_CHECKING:
    from tests.mcp.using import Notes

REPO = HERE.parent.parent


@pytest.mark.slow
async def test_what_a_server_offers_is_used_and_read_again_when_it_changes() -> None:
    async with server_of(GOOD, env={"GREETING": "hi"}) as (node, server):
        info = await server.read(McpServer.info)
        assert (info.name, info.version, info.instructions) == (
            "well-behaved",
            "1.2",
            "Add before you guess.",
        )
        tools = {each.name: each for each in await server.read(McpServer.tools)}
        assert list(tools) == ["add", "greet", "fail", "wait", "die", "grow", "variable", "large"]
        assert (tools["add"].description, tools["add"].read_only) == ("Add two numbers.", True)
        assert await server.read(McpServer.resources) == (
            McpResource("note://first", "first", "The first note.", "text/plain"),
            McpResource("note://{name}", "named", "A note.", "text/plain", is_template=True),
        )
        assert await server.read(McpServer.prompts) == (
            McpPrompt("review", "Review code.", (McpArgument("code", required=True),)),
        )

        assert await asked(server, "add", a=1, b=2) == McpResult((McpContent(text="3"),), {"result": 3})
        assert await text_of(server, "greet", name="Ada") == "Hello Ada!"
        assert (await asked(server, "fail", why="no")).code == "MCP_TOOL_FAILED"
        assert "did you mean 'add'?" in str(await asked(server, "ad"))
        assert "'b' is a required" in str(await asked(server, "add", a=1)).replace('"', "'")
        assert (await asked(server, "large", size=2 << 20)).code == "MCP_RESULT_TOO_LARGE"
        assert await server.invoke(McpServer.read_resource, "note://first") == [
            McpContent("resource", "buy milk", mime_type="text/plain", uri="note://first")
        ]
        assert await server.invoke(McpServer.get_prompt, "review", {"code": "x"}) == [
            McpMessage("user", McpContent(text="Review this: x"))
        ]

        # of our variables it gets few, and those that were named
        os.environ["LMOS_TEST_SECRET"] = "hunter2"
        assert await text_of(server, "variable", name="LMOS_TEST_SECRET") == "not set"
        assert await text_of(server, "variable", name="GREETING") == "hi"

        async with server.observe(McpServer.tools) as changes:
            assert await text_of(server, "grow") == "grown"
            async for now in changes:
                if now[-1].name == "fail_again":
                    break
        assert (await asked(server, "fail_again", why="no")).code == "MCP_TOOL_FAILED"
        assert not node.crash_reports


@pytest.mark.slow
async def test_a_call_that_is_cancelled_is_cancelled_there_and_the_next_one_is_answered(
    notes: Notes,
) -> None:
    async with server_of([*GOOD, notes.path]) as (node, server):
        await notes.begun()
        async with server.begin(McpServer.call, "wait") as call:
            async for progress in call.progress:
                assert progress == McpProgress(0.25, 1.0, "waiting")
                break
        assert [await notes.line(), await notes.line()] == ["waiting", "cancelled"]
        assert await text_of(server, "greet", name="Ada") == "Hello Ada!"
        assert not node.crash_reports
    assert await notes.line() == "left"
    await notes.ended()


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.matrix)])
async def test_calls_side_by_side_are_answered_each(count: int) -> None:
    """However many and fast: answers are no flood."""
    async with server_of(hostile("plain")) as (_, server):
        done = 0

        async def one() -> None:
            nonlocal done
            for _ in range(count // 50):
                assert await text_of(server, "work") == "done"
                done += 1

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert done == count


async def test_a_server_is_gone_with_the_agent_above_it(notes: Notes) -> None:

    class Owner(Agent):
        def supervises(self) -> Any:
            return SupervisorSpec(
                "own", [ChildSpec("server", lambda: McpServer(command=hostile("plain", notes.path)))]
            )

    async with open_node() as node:
        await node.start(Owner)
        await notes.begun()
        await node.root.terminate_child("owner")
        await notes.ended()


HOST = """
import sys, trio
from lmos_actors import open_node
from lmos_actors.mcp import McpServer

async def main():
    async with open_node() as node:
        await node.start(McpServer, command=sys.argv[1:])
        print("ready", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.slow
async def test_a_server_is_gone_when_our_process_is_killed(notes: Notes) -> None:
    host = await trio.lowlevel.open_process(
        [sys.executable, "-c", HOST, *hostile("plain", notes.path)], stdout=subprocess.PIPE, cwd=REPO
    )
    assert host.stdout is not None
    async with host.stdout:
        assert (await host.stdout.receive_some()).startswith(b"ready")
        await notes.begun()
        os.kill(host.pid, signal.SIGKILL)
        await host.wait()
        await notes.ended()


def test_servers_on_virtual_time_name_the_way_out() -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(StartFailed, match=r"uses a live MCP server.*`from: mock`"):
                await node.start(McpServer, command="server")

    simulate(main)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "McpServer: give the command of a program, or the url of a server"),
        ({"command": "a", "url": "http://x"}, "give the command of a program, or the url"),
        ({"command": "a 'b"}, "McpServer.command: cannot be split into words: No closing quotation"),
        ({"command": ["a", 1]}, "McpServer.command: must be a text or a list of words"),
        ({"command": "a", "bearer": "env:T"}, "a program gets its secrets by env"),
        ({"command": "a", "env": {"A": "env:1"}}, "McpServer.env.A: a reference to a secret is needed"),
        ({"command": "a", "env": {"A=": "x"}}, "McpServer.env: must be texts by the names of variables"),
        ({"url": "ftp://x"}, "McpServer.url: must be the http or https URL of a server"),
        ({"url": "https://me@x/"}, "with a host and without a user"),
        ({"url": "https://x/", "env": {"A": "b"}}, "McpServer.env: is for programs"),
        ({"url": "https://x/", "bearer": "sk-1"}, "McpServer.bearer: a reference to a secret is needed"),
        ({"url": "http://x.example/", "bearer": "env:T"}, "would be sent without TLS"),
        ({"command": "a", "call_seconds": 0}, "McpServer.call_seconds: must be a number of seconds above 0"),
        ({"command": "a", "most_tools": 0}, "McpServer.most_tools: must be a whole number of at least 1"),
    ],
)
def test_mistakes_name_the_field(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        McpServer(**options)
    assert text in str(error.value)
    assert "sk-1" not in str(error.value)


async def test_a_secret_that_is_not_there_is_named() -> None:
    async with open_node() as node:
        with pytest.raises(StartFailed, match="env:NO_SUCH_VARIABLE: the variable is not set"):
            await node.start(McpServer, command="server", env={"A": "env:NO_SUCH_VARIABLE"})
