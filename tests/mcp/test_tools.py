"""The tools of MCP servers in the hands of models: names, failures, restarts, stand-ins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import ConfigError, StartFailed, open_node, simulate
from lmos_actors.llm import ToolMessage
from lmos_actors.mcp import (
    McpContent,
    McpResult,
    McpServer,
    McpTool,
    mcp,
    mcp_failure,
    tools_of_server,
)
from lmos_actors.testing import fake
from lmos_actors.thinking import ThinkingAgent, hand_over, think, tools_of
from tests.mcp.using import hostile
from tests.thinking.models import Log, Script, answered, wants

if TYPE_CHECKING:
    from tests.mcp.using import Notes

NUMBER = '{"type": "object", "properties": {"number": {"type": "integer"}}}'


async def called(name: str, arguments: dict[str, Any] | None = None) -> McpResult:
    """What the stand-in does."""
    if name == "refuse":
        raise mcp_failure("MCP_TOOL_FAILED", "not on Sundays")
    if name == "hang":
        raise mcp_failure("MCP_NO_ANSWER", "the tool 'hang' was not answered within 1 s")
    if name == "picture":
        link = McpContent("link", "the shop", uri="https://shop.example")
        picture = McpContent("image", data="cG5n", mime_type="image/png")
        return McpResult((McpContent(text="See:"), picture, link))
    return McpResult((McpContent(text=f"{name} {arguments}"),), {"name": name} if name == "look up" else None)


def shop(*tools: McpTool) -> Any:
    """A stand-in for a server with tools."""
    return fake(McpServer, call=called, tools=tools)


def look_up(number: int) -> str:
    """Look up."""
    return f"found {number}"


def test_the_tools_of_a_server_are_called_by_a_model() -> None:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            server = await node.start(
                shop(McpTool("look up", "Look up an order.", NUMBER), McpTool("refuse"), McpTool("picture"))
            )
            answers = (
                [wants("look_up", number=17), wants("refuse", "2"), wants("picture", "3")],
                "Fine.",
            )
            model = await node.start(Script, answers=answers, heard=log)
            thought = await think(model, "hello", tools=[server])
            assert thought.messages[2:5] == (
                ToolMessage("1", "look_up", {"name": "look up"}),
                ToolMessage("2", "refuse", error="MCP_TOOL_FAILED: not on Sundays"),
                ToolMessage("3", "picture", "See:\n[image/png, 3 bytes]\n[https://shop.example: the shop]"),
            )
            offers = log.asked[0].tools
            assert [each.name for each in offers] == ["look_up", "refuse", "picture"]
            assert offers[0].description == "Look up an order."
            assert offers[0].schema == {"type": "object", "properties": {"number": {"type": "integer"}}}
            assert offers[1].schema == {"type": "object"}

    simulate(main)


def test_a_server_never_takes_the_name_of_another_tool() -> None:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            server = await node.start(
                shop(
                    McpTool("look_up"),
                    McpTool("look up"),
                    McpTool("a!"),
                    McpTool("a?"),
                    McpTool("hand_over_to_boss"),
                )
            )
            model = await node.start(Script, answers=("Fine.",), heard=log)
            boss = hand_over(model, name="hand_over_to_boss").tool
            await think(model, "hello", tools=[server, look_up], ending=[boss])
            name = str(server.path)
            names = [each.name for each in log.asked[0].tools]
            assert [re.sub("_[0-9a-f]{8}$", "_#", each) for each in names] == [
                "look_up",
                f"{name}_look_up",
                "look_up_#",
                "a_#",
                "a_#",
                "hand_over_to_boss_#",
                "hand_over_to_boss",
            ]
            assert len(set(names)) == len(names)


def test_names_in_any_script_are_distinct_and_do_not_depend_on_the_order() -> None:
    said = ["天気", "天候", "погода", "look.up", "look up", "x" * 90, "x" * 91]

    async def names(said: list[str]) -> set[str]:
        log = Log()
        async with open_node() as node:
            model = await node.start(Script, answers=("Fine.",), heard=log)
            await think(model, "hello", tools=[await node.start(shop(*map(McpTool, said)))])
        return {each.name for each in log.asked[0].tools}

    async def main() -> None:
        found = await names(said)
        assert len(found) == len(said)
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each) for each in found)
        assert await names(said[::-1]) == found

    simulate(main)

    simulate(main)


def test_what_a_server_says_of_its_tools_decides_whether_they_are_repeated() -> None:
    async def main() -> None:
        async with open_node() as node:
            server = await node.start(
                shop(McpTool("read", read_only=True), McpTool("put", idempotent=True), McpTool("hang"))
            )
            tools = await tools_of_server(server)
            assert [each.repeatable for each in tools] == [True, True, False]
            again = (wants("hang"), wants("hang", "2"), "Fine.")
            model = await node.start(Script, answers=again)
            thought = await think(model, "hello", tools=[server])
            first, second = (each for each in thought.messages if isinstance(each, ToolMessage))
            assert first.error.startswith("OutcomeUnknown")
            assert second.error.startswith("not called again")

    simulate(main)


def test_a_server_that_is_not_there_has_no_tools_and_the_turn_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            model = await node.start(Script, answers=("Fine.",), heard=log)
            assert (await think(model, "hello", tools=[McpServer, look_up], find=node.find)).answer == "Fine."
            assert [each.name for each in log.asked[0].tools] == ["look_up"]

    simulate(main)
    assert "no tools of the MCP server" in caplog.text


def test_what_cannot_be_used_as_it_stands_names_the_way_out() -> None:
    async def main() -> None:
        async with open_node() as node:
            server = await node.start(shop())
            with pytest.raises(TypeError, match=r"await tools_of_server\(ref\)"):
                tools_of([server])
            with pytest.raises(TypeError, match="start McpServer, and give its ref"):
                tools_of([mcp("server")])

    simulate(main)
    with pytest.raises(ConfigError, match=r"McpServer.call_seconds: must be a number"):
        mcp("server", call_seconds=-1)
    with pytest.raises(TypeError, match="colour"):
        mcp("server", colour="red")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (mcp("uvx mcp-server-time"), "mcp-server-time"),
        (mcp("python server.py --verbose"), "server"),
        (mcp(["npx", "-y", "@scope/server-files"]), "server-files"),
        (mcp("https://tools.example/mcp"), "tools-example"),
        (mcp("https://tools.example/mcp", name="my tools"), "my-tools"),
    ],
)
def test_a_server_is_named_after_its_program_or_host(source: Any, name: str) -> None:
    assert source.name == name


def test_an_agent_thinks_without_an_optional_server_that_is_away() -> None:
    class Desk(ThinkingAgent):
        """Help."""

        tools = (mcp("server", name="shop", optional=True),)

    class Strict(ThinkingAgent):
        """Help."""

        tools = (mcp("server", name="shop"),)

    log = Log()

    async def main() -> None:
        async with open_node() as node:
            await node.start(Script, answers=("Fine.",), heard=log)
            with pytest.raises(StartFailed, match="virtual time"):  # where no server can be started
                await node.start(Strict)
            assert await answered(await node.start(Desk)) == "Fine."
            assert node.degraded() == ["desk/shop"]

    simulate(main)
    assert list(log.asked[0].tools) == []


@pytest.mark.slow
async def test_an_agent_starts_its_servers_restarts_them_and_ends_them(notes: Notes) -> None:
    dying = mcp(hostile("dies", notes.path), name="shop")

    class Desk(ThinkingAgent):
        """Help."""

        tools = (dying, mcp(hostile("plain"), name="shop"))

    log = Log()
    async with open_node() as node:
        answers = (wants("shop_work"), wants("shop-2_work", "2"), "Fine.", wants("shop-2_read"), "Again.")
        await node.start(Script, answers=answers, heard=log)
        desk = await node.start(Desk)
        await notes.begun()
        assert await answered(desk) == "Fine."
        results = [each for each in log.asked[2].messages if isinstance(each, ToolMessage)]
        assert results[0].error.startswith("OutcomeUnknown: the tool broke off")
        assert results[1].result == "done"
        await notes.ended()
        assert await answered(desk) == "Again."  # the server that had died is back
        assert [each.name for each in log.asked[3].tools] == [
            "shop_work",
            "shop_read",
            "shop-2_work",
            "shop-2_read",
        ]
        await notes.begun()
        await node.root.terminate_child("desk")
        await notes.ended()
