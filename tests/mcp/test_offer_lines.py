"""Agents offered over two streams, to a client that is no client: bare lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from lmos_actors.mcp import McpOptions
from tests.mcp.offering import lines_of, offered

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def line_of(method: str, params: Any = None, number: Any = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


class Answers:
    """The messages that come."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._buffer = b""

    async def next(self) -> Any:
        while b"\n" not in self._buffer:
            self._buffer += bytes(await self._stream.receive_some())
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


async def begun(stream: Any) -> Answers:
    """Begin a session."""
    answers = Answers(stream)
    await stream.send_all(line_of("initialize", HELLO, 0))
    assert (await answers.next())["result"]["protocolVersion"] == "2025-06-18"
    return answers


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700),
        (b"[]", -32600),
        (b"5", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    ],
)
async def test_lines_that_are_no_messages_are_answered(line: bytes, code: int) -> None:
    async with offered() as node, lines_of(node) as stream:
        answers = await begun(stream)
        await stream.send_all(line + b"\n\n  \n" + line_of("ping", number=2))
        assert (await answers.next())["error"]["code"] == code
        assert (await answers.next()) == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_a_line_without_an_end_is_skipped() -> None:
    async with offered() as node, lines_of(node) as stream:
        answers = await begun(stream)
        await stream.send_all(b"x" * (9 << 20) + b"\n" + line_of("ping", number=2))
        error = (await answers.next())["error"]
        assert (error["code"], error["message"]) == (-32600, "a message has at most 4194304 bytes")
        assert (await answers.next())["id"] == 2


async def test_requests_before_the_handshake_are_refused() -> None:
    async with offered() as node, lines_of(node) as stream:
        await stream.send_all(line_of("tools/list"))
        assert (await Answers(stream).next())["error"]["code"] == -32602


@pytest.mark.parametrize("calls", [300, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_thousands_of_calls_at_once_are_answered(calls: int) -> None:
    """So many run, and the others are failures that say why."""
    async with offered() as node, lines_of(node, McpOptions(calls=100)) as stream:
        answers = await begun(stream)
        call = {"name": "weather__forecast", "arguments": {"city": "Bonn"}}
        found: dict[int, bool] = {}

        async def send() -> None:
            for number in range(1, calls + 1):
                await stream.send_all(line_of("tools/call", call, number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while len(found) < calls:
                answer = await answers.next()
                found[answer["id"]] = answer["result"]["isError"]
        assert sorted(found) == list(range(1, calls + 1))
        assert 0 < sum(not is_error for is_error in found.values()) < calls
        await stream.send_all(line_of("tools/call", call, 0))
        assert not (await answers.next())["result"]["isError"]
