"""Agents offered to an MCP client over two streams: the official SDK's client, in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator  # noqa: TC003 -- types of agents are read
from typing import Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Pool, Property, action, open_node, prop
from lmos_actors.errors import ConfigError
from lmos_actors.llm import Model, ModelEnd, ModelItem, ModelRequest
from lmos_actors.mcp import McpOptions
from tests.mcp.offering import (
    Hidden,
    Marks,
    Support,
    Weather,
    client_of,
    error_of,
    lines_of,
    offered,
    text_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

UNITS = "lmos://agents/weather/properties/units"
ASKED = "lmos://agents/weather/events/asked"
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


@MODES
async def test_actions_are_tools(mode: str) -> None:
    async with offered(Weather, Hidden) as node, client_of(node, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [
            "weather__crash", "weather__finish", "weather__forecast", "weather__hours", "weather__large",
            "weather__look", "weather__move", "weather__places", "weather__refuse", "weather__set_password",
            "weather__set_units", "weather__wait",
        ]  # fmt: skip
        forecast = tools["weather__forecast"]
        assert forecast.description == "Forecast the weather of a city."
        assert forecast.input_schema == {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
        }
        result = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
        assert forecast.output_schema == result
        assert forecast.annotations is not None
        assert (forecast.annotations.read_only_hint, forecast.annotations.idempotent_hint) == (False, True)
        look = tools["weather__look"]
        assert look.annotations is not None
        assert look.annotations.read_only_hint
        assert look.output_schema is not None
        assert look.output_schema["properties"]["name"] == {"type": "string"}


@MODES
async def test_a_call_has_progress_and_a_result(mode: str) -> None:
    reported: list[tuple[float, float | None, str | None]] = []

    async def report(*progress: Any) -> None:
        reported.append(progress)

    async with offered() as node, client_of(node, mode=mode) as client:
        result = await client.call_tool(
            "weather__forecast", {"city": "Bonn", "days": 2}, progress_callback=report
        )
        assert text_of(result) == "Bonn: sunny for 2 days, 25 degrees celsius"
        assert result.structured_content == {"result": text_of(result)}
        await client.call_tool("weather__hours", {"most": 2}, progress_callback=report)
        assert sorted(reported) == [(0.25, None, None), (0.5, None, None), (1.0, None, "0"), (2.0, None, "1")]


@pytest.mark.parametrize(
    ("tool", "arguments", "structured", "text"),
    [
        ("look", {"name": "Bonn"}, {"name": "Bonn", "height": 60.5}, '{"name":"Bonn","height":60.5}'),
        ("places", {}, {"result": [{"name": "Bonn", "height": None}]}, '[{"name":"Bonn","height":null}]'),
        ("move", {"place": {"name": "Bonn"}}, None, ""),
        ("hours", {"most": 3}, {"items": [0, 1, 2]}, "[0,1,2]"),
        ("hours", {"most": 0}, {"items": []}, "[]"),
        ("set_units", {"value": "kelvin"}, None, ""),
        ("set_password", {"value": "4711"}, None, ""),
    ],
)
async def test_results(tool: str, arguments: dict[str, Any], structured: Any, text: str | None) -> None:
    async with offered() as node, client_of(node) as client:
        result = await client.call_tool(f"weather__{tool}", arguments)
        assert not result.is_error
        assert result.structured_content == structured
        assert text is None or text_of(result) == text


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("refuse", {}, "FULL: no seat is left"),
        ("crash", {}, "Agent Died: error"),
        ("look", {}, "Invalid Input: Weather.look needs 'name' - at $.name"),
        ("look", {"name": 1}, "Invalid Input: Expected `str`, got `int` - at $.name"),
        ("look", {"n": "x"}, "Invalid Input: Weather.look has no parameter 'n' - at $.n"),
        ("set_units", {"value": 3}, "Invalid Input: Expected `str`, got `int`"),
        ("set_units", {}, "Invalid Input: 'value' is needed - at $.value"),
        ("set_units", {"value": "x", "y": 1}, "Invalid Input: there is no parameter 'y' - at $.y"),
        ("large", {"size": 1_000}, "the result has more than 100 bytes"),
        ("hours", {"most": 1_000}, "Action Cancelled: the stream has more than 100 bytes or 10000 items"),
    ],
)
async def test_failures_are_results_without_internals(
    tool: str, arguments: dict[str, Any], text: str
) -> None:
    async with offered() as node, client_of(node, McpOptions(result_bytes=100)) as client:
        result = await client.call_tool(f"weather__{tool}", arguments)
        assert result.is_error
        assert text_of(result) == text


async def test_how_many_items_a_stream_has_is_an_option() -> None:
    async with offered() as node, client_of(node, McpOptions(items=3)) as client:
        results = [await client.call_tool("weather__hours", {"most": most}) for most in (3, 4)]
        assert [result.is_error for result in results] == [False, True]
        assert text_of(results[1]).endswith("or 3 items")


async def test_half_a_character_in_a_failure_is_replaced() -> None:
    class Odd(Agent):
        @action
        def refuse(self) -> None:
            raise ActionFailed({"code": "FULL", "detail": "\ud800"})

    async with offered(Odd) as node, client_of(node) as client:
        assert text_of(await client.call_tool("odd__refuse")) == "FULL: ?"


async def test_a_call_that_is_cancelled_is_cancelled_there() -> None:
    marks = Marks()
    async with open_node() as node:
        await node.start(Weather, marks=marks)
        async with client_of(node) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "weather__wait")
                await marks.began.wait()
                nursery.cancel_scope.cancel()
            await marks.ended.wait()
            assert (await client.call_tool("weather__look", {"name": "x"})).structured_content


async def test_a_request_to_cancel_also_cancels_what_would_go_on_without_a_client(
    autojump_clock: trio.testing.MockClock,
) -> None:
    marks = Marks()
    async with open_node() as node:
        await node.start(Weather, marks=marks)
        async with client_of(node) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "weather__finish")
                await marks.began.wait()
                nursery.cancel_scope.cancel()
            await trio.sleep(60)
            assert not marks.ended.is_set()


@pytest.mark.parametrize("tool", ["weather__wait", "weather__finish"])
async def test_the_end_of_the_input_ends_what_was_asked_for(tool: str) -> None:
    """But an action goes on that is declared to."""
    marks = Marks()
    async with open_node() as node:
        await node.start(Weather, marks=marks)
        async with lines_of(node) as stream:
            await stream.send_all(_request("initialize", HELLO) + _request("tools/call", {"name": tool}, 2))
            await marks.began.wait()
            assert not marks.ended.is_set()
        await marks.ended.wait()


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def _request(method: str, params: Any, number: int = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


async def test_calls_take_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    class Slow(Agent):
        @action
        async def rest(self) -> float:
            await trio.sleep(3_600)
            return trio.current_time()

    async with offered(Slow) as node, client_of(node) as client:
        result = await client.call_tool("slow__rest")
        assert result.structured_content is not None
        assert result.structured_content["result"] >= 3_600


@MODES
async def test_a_chat_agent_is_one_tool(mode: str) -> None:
    said: list[str | None] = []

    async def report(_progress: float, _total: float | None, message: str | None) -> None:
        said.append(message)

    async with offered(Support) as node, client_of(node, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["support__chat"]
        first = await client.call_tool("support__chat", {"content": "hi"}, progress_callback=report)
        assert text_of(first) == "You said hi, 0 before."
        assert sorted(filter(None, said)) == [", 0 before.", "You said ", "hi"]
        structured: Any = first.structured_content
        again = await client.call_tool("support__chat", {"content": "ho", "session": structured["session"]})
        assert again.structured_content == {
            "text": "You said ho, 2 before.",
            "session": structured["session"],
        }
        for wrong in ({}, {"content": 3}, {"content": "x", "new": True}, {"content": "x", "session": None}):
            assert (await client.call_tool("support__chat", wrong)).is_error
        unknown = await client.call_tool("support__chat", {"content": "x", "session": "nobody's"})
        assert unknown.is_error
        assert text_of(unknown).startswith("SESSION_EXPIRED: ")


# ---- resources


@MODES
async def test_properties_and_events_are_resources(mode: str) -> None:
    async with offered() as node, client_of(node, mode=mode) as client:
        found = {each.uri: each for each in (await client.list_resources()).resources}
        assert list(found) == [ASKED, "lmos://agents/weather/properties/count", UNITS]
        assert found[UNITS].description == "The unit of temperatures."
        assert await _read(client, UNITS) == "celsius"
        await client.call_tool("weather__set_units", {"value": "kelvin"})
        assert await _read(client, UNITS) == "kelvin"
        assert await _read(client, ASKED) == []


async def _read(client: Any, uri: str) -> Any:
    return json.loads((await client.read_resource(uri)).contents[0].text)


async def test_subscribers_are_notified() -> None:
    send, receive = trio.open_memory_channel[str](10)

    async def hear(message: Any) -> None:
        if message.method == "notifications/resources/updated":
            await send.send(message.params.uri)

    async with offered() as node, client_of(node, message_handler=hear) as client:
        for uri in (UNITS, ASKED):
            await client.session.subscribe_resource(uri)
        await trio.testing.wait_all_tasks_blocked()
        await client.call_tool("weather__set_units", {"value": "kelvin"})
        assert await receive.receive() == UNITS
        await client.call_tool("weather__forecast", {"city": "Bonn"})
        assert await receive.receive() == ASKED
        assert await _read(client, ASKED) == ["Bonn"]
        await client.session.unsubscribe_resource(UNITS)
        await client.call_tool("weather__set_units", {"value": "celsius"})
        await client.call_tool("weather__forecast", {"city": "Köln"})
        assert await receive.receive() == ASKED


async def test_subscribers_of_the_newer_protocol_are_notified() -> None:
    async with (
        offered() as node,
        client_of(node, mode="auto") as client,
        client.listen(resource_subscriptions=[UNITS, "lmos://agents/nobody/properties/x"]) as changes,
    ):
        await client.call_tool("weather__set_units", {"value": "kelvin"})
        async for change in changes:
            assert change.uri == UNITS  # type: ignore[union-attr]
            break


LISTS = {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")}


async def test_clients_hear_of_agents_that_come_and_go() -> None:
    send, receive = trio.open_memory_channel[str](10)

    async def hear(message: Any) -> None:
        await send.send(message.method)

    async with offered() as node, client_of(node, message_handler=hear) as client:
        await node.start(Support)
        assert {await receive.receive() for _ in LISTS} == LISTS
        assert "support__chat" in [tool.name for tool in (await client.list_tools()).tools]
        await client.call_tool("weather__crash")  # a restart is no change
        await node.root.terminate_child("support")
        await node.root.delete_child("support")
        assert {await receive.receive() for _ in LISTS} == LISTS
        assert receive.statistics().current_buffer_used == 0


async def test_clients_hear_of_agents_among_very_many_that_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.mcp.offer._watching.MOST_CHANGED", 1)
    send, receive = trio.open_memory_channel[str](10)

    async def hear(message: Any) -> None:
        await send.send(message.method)

    async with offered() as node, client_of(node, message_handler=hear):
        await node.start(Hidden)
        await node.start(Support)
        with trio.fail_after(5):
            assert await receive.receive() == "notifications/tools/list_changed"


async def test_too_many_subscriptions_are_refused() -> None:
    async with offered() as node, client_of(node, McpOptions(subscriptions=1)) as client:
        await client.session.subscribe_resource(UNITS)
        await client.session.subscribe_resource(UNITS)
        assert "more than 1" in str(await error_of(client.session.subscribe_resource(ASKED)))
        await client.session.unsubscribe_resource(UNITS)
        await client.session.subscribe_resource(ASKED)


# ---- names


class Odd(Agent):
    """An agent whose names are unusual."""

    value: Property[int] = prop(default=0, name="a b/ü%2f.")

    @action(name="do it/now")
    def first(self) -> str:
        return "slash"

    @action
    def set_value(self, value: int) -> str:
        """An action goes before the writing of a property."""
        return "action"

    @action
    def two__parts(self) -> str:
        return "underscores"


async def test_every_name_is_one_that_models_take_and_leads_back() -> None:
    async with open_node() as node:
        for name in ("odd", "Ödd ünit", "a__b", "x" * 100, "_", "odd_"):
            await node.start_child(ChildSpec(name, Odd))
        async with client_of(node) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            assert len(set(tools)) == 6 * 4
            for name in tools:
                assert 0 < len(name) <= 64
                assert all(each.isascii() and (each.isalnum() or each in "_-") for each in name)
                arguments = {"value": 1} if "set_value" in name or "set_a_b" in name else {}
                result = await client.call_tool(name, arguments)
                assert not result.is_error or "value" in text_of(result), (name, result)
            assert text_of(await client.call_tool("odd__set_value", {"value": 1})) == "action"
            for each in (await client.list_resources()).resources:
                assert await _read(client, each.uri) in (0, 1)


async def test_lists_have_pages() -> None:
    async with offered() as node, client_of(node, McpOptions(page=5)) as client:
        found: list[str] = []
        page = await client.list_tools()
        while page.next_cursor:
            found += [tool.name for tool in page.tools]
            page = await client.list_tools(cursor=page.next_cursor)
        found += [tool.name for tool in page.tools]
        assert (len(found), found) == (12, sorted(found))
        for cursor in ("x", "ü", "a" * 10_000, "===="):
            assert (await error_of(client.list_tools(cursor=cursor))).error.code == -32602


async def test_of_a_pool_the_members_are_no_tools() -> None:
    async with open_node() as node:
        await node.start_pool(Pool(Weather, 2, name="desks"))
        async with client_of(node) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names[0] == "desks__crash"
            assert not [name for name in names if not name.startswith("desks__")]
            assert (await client.call_tool("desks__look", {"name": "x"})).structured_content
            assert (await error_of(client.call_tool("desks__1__look", {"name": "x"}))).error.code == -32602
            assert not (await client.list_resources()).resources


class Parrot(Model):
    """Repeats."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        yield ModelEnd()


async def test_models_are_not_offered() -> None:
    async with open_node() as node:
        await node.start(Parrot)
        await node.start(Weather)
        async with client_of(node) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert any(name.startswith("weather__") for name in names)
            assert not any("parrot" in name for name in names)
            assert (await error_of(client.call_tool("parrot__generate"))).error.message == "Unknown tool"


async def test_agents_of_the_system_are_not_offered() -> None:
    async with open_node(approvals=True, directory=True) as node:
        assert {"approvals", "directory"} <= {ref.path for ref in node.agents()}
        async with client_of(node) as client:
            assert not (await client.list_tools()).tools
            assert not (await client.list_resources()).resources
            for name in ("approvals__decide", "approvals__list", "directory__search"):
                assert (await error_of(client.call_tool(name))).error.message == "Unknown tool"


@pytest.mark.parametrize(
    "field", ["sessions", "calls", "page", "result_bytes", "subscriptions", "idle_seconds"]
)
def test_wrong_options_are_refused(field: str) -> None:
    for value in (0, -1, "1", None, True, float("inf")):
        with pytest.raises(ConfigError, match=field):
            McpOptions(**{field: value})  # type: ignore[arg-type]


async def test_options_need_a_server() -> None:
    with pytest.raises(ConfigError, match=r"mcp=\.\.\."):
        async with open_node(mcp=True):
            pass
    with pytest.raises(ConfigError, match=r"mcp=\.\.\."):
        async with open_node(listen="ws://127.0.0.1:0", mcp="yes"):  # type: ignore[arg-type]
            pass
