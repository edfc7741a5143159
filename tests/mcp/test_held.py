"""MCP servers at a URL that are killed at the worst instant: in a stream, in a list, with many calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from starlette.responses import Response

from lmos_actors import open_node
from lmos_actors.errors import StartFailed
from lmos_actors.mcp import McpServer
from tests.mcp.serving import WORK, Door, by_hand, open_door, text_answer
from tests.mcp.using import asked, text_of


class Killed:
    """A server that dies: as an answer, it sends what is given, and all connections are cut."""

    def __init__(self, *pieces: bytes) -> None:
        self.door: Door | None = None
        self.pieces = pieces

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.door is not None
        headers = [(b"content-type", b"text/event-stream")]
        if self.pieces:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await self.door.cut()
        await trio.sleep_forever()


REPORT = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
EVENT = f"data: {json.dumps(REPORT)}\n\n".encode()


@pytest.mark.parametrize(
    "pieces", [(), (b"",), (EVENT,), (EVENT, b"data: {"), (b'data: {"jsonrpc": "2.0", "id"',)]
)
async def test_a_server_that_is_killed_in_its_answer_fails_that_call_alone(pieces: tuple[bytes, ...]) -> None:
    killed = Killed(*pieces)
    answers: list[Any] = [killed, None]

    def answer(id: Any) -> Any:
        return answers.pop(0) or text_answer(id, "fine")

    async with open_door(by_hand(answer)) as door, open_node() as node:
        killed.door = door
        server = await node.start(McpServer, url=door.url)
        assert (await asked(server, "work")).code == "MCP_NO_ANSWER"
        assert await text_of(server, "work") == "fine"
        assert (answers, node.crash_reports) == ([], ())


def pages(*second: Any) -> Any:
    """A list of two pages, whose second one is each of these in turn, and then a good one."""
    left = list(second)

    def listed(cursor: str | None) -> Any:
        if cursor is None:
            return {"tools": [WORK], "nextCursor": "2"}
        return left.pop(0) if left else {"tools": [{**WORK, "name": "more"}]}

    return listed


async def test_a_server_that_is_killed_in_its_list_is_listed_anew() -> None:
    """As it is when the second session begins, which the third one then takes the place of."""
    killed = Killed()
    good = {"tools": [{**WORK, "name": "more"}]}
    answers: list[Any] = [Response(status_code=404), None]

    def answer(id: Any) -> Any:
        return answers.pop(0) or text_answer(id, "fine")

    async with open_door(by_hand(answer, pages(good, killed))) as door, open_node() as node:
        killed.door = door
        server = await node.start(McpServer, url=door.url)
        assert await text_of(server, "work") == "fine"
        assert [each.name for each in await server.read(McpServer.tools)] == ["work", "more"]
        assert not node.crash_reports


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (Killed(), "cannot be reached"),
        (Killed(EVENT), "offers nothing usable"),
        (Response(status_code=500), "offers nothing usable"),
        ({"tools": "none"}, "offers nothing usable"),
        ({"tools": [], "nextCursor": 7}, "offers nothing usable"),
    ],
)
async def test_a_server_whose_first_list_breaks_off_does_not_start(second: Any, why: str) -> None:
    app = by_hand(lambda id: text_answer(id, "fine"), pages(second))
    async with open_door(app) as door, open_node() as node:
        if isinstance(second, Killed):
            second.door = door
        with pytest.raises(StartFailed, match=why):
            await node.start(McpServer, url=door.url)


async def test_a_session_that_ends_among_many_calls_costs_those_that_had_begun_alone() -> None:
    """A server that is killed answers none of what it had begun; what waits is sent in the next session."""
    killed, begun = Killed(), list[Any]()

    def answer(id: Any) -> Any:
        begun.append(id)
        return killed if len(begun) == 30 else text_answer(id, "fine")

    async with open_door(by_hand(answer)) as door, open_node() as node:
        killed.door = door
        server = await node.start(McpServer, url=door.url)
        found: list[str] = []

        async def call() -> None:
            result = await asked(server, "work")
            found.append(getattr(result, "code", "fine"))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(call)
        assert len(found) == 100
        assert set(found) == {"fine", "MCP_NO_ANSWER"}
        assert found.count("fine") <= len(begun) <= 100
        assert await text_of(server, "work") == "fine"
        assert not node.crash_reports
