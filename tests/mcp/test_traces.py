"""Requests to MCP servers as spans: one trace from the agent that asks to the agent behind the server."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trio
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from lmos_actors import Agent, action, open_node
from lmos_actors.mcp import McpServer
from tests.mcp.offering import Weather
from tests.observe.http_requests import samples
from tests.observe.test_tracing import TRACE, TRACEPARENT, Recorder, id_of, parent_of, traces

SEEN: list[str] = []
PATH = "/agents/desk/actions/ask"
ATTRIBUTES = {
    "mcp.method.name": "tools/call",
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "station__traced",
    "lmos.way": "mcp",
}


class Station(Weather):
    """Knows in which trace it is asked."""

    @action
    def traced(self) -> None:
        SEEN.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")


class Desk(Agent):
    """Asks a server by an agent that holds the session."""

    tools: Any

    @action
    async def ask(self, tool: str) -> None:
        await self.tools.invoke(McpServer.call, tool)


def posted(url: str, tool: str) -> None:
    """Have the desk ask, in a trace."""
    headers = {"Content-Type": "application/json", "traceparent": TRACEPARENT}
    try:
        urlopen(Request(url, json.dumps({"tool": tool}).encode(), headers)).close()
    except HTTPError as error:
        error.close()


@pytest.mark.parametrize("tracing", [True, False], ids=["spans", "no spans between"])
async def test_a_call_is_in_the_trace_of_who_calls(tracing: bool) -> None:
    ours, theirs = Recorder(), Recorder()
    SEEN.clear()
    async with (
        open_node(listen="ws://127.0.0.1:0", mcp=True, tracing=theirs.provider) as there,
        open_node(
            listen="ws://127.0.0.1:0", tracing=ours.provider if tracing else False, metrics=True
        ) as here,
    ):
        await there.start(Station)
        tools = await here.start(McpServer, url=there.urls[0].replace("ws", "http") + "/mcp")
        await here.start(Desk, tools=tools)
        address = here.urls[0].replace("ws", "http")
        for tool in ("station__traced", "station__refuse"):
            await trio.to_thread.run_sync(posted, f"{address}{PATH}", tool)
        counted = samples(await here.metrics())
        went, came = ours.took(), theirs.took()
    assert traces(*went, *came) == SEEN == [TRACE]
    for status in ("2xx", "4xx"):
        kind = "tools/call", "mcp", status, "call", "mcp"
        assert counted["lmos_actors_client_requests_total", *kind] == 1
    assert [span.name for span in came] == ["invoke Station.traced", "invoke Station.refuse"]
    assert (came[0].attributes or {}).items() >= ATTRIBUTES.items()
    if tracing:
        assert [span.name for span in went] == [
            "invoke Desk.ask", "tools/call station__traced", "invoke Desk.ask", "tools/call station__refuse",
        ]  # fmt: skip
        assert [parent_of(span) for span in (went[1], came[0])] == [id_of(went[0]), id_of(went[1])]
        assert (went[1].attributes or {}).items() >= ATTRIBUTES.items()
        assert went[3].status.status_code is StatusCode.ERROR
    else:
        assert went == []
