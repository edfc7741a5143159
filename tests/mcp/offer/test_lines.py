"""Agents offered over two streams, to a client that is no client: bare lines."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from lmos_actors import ActionFailed, Agent, action
from lmos_actors.mcp import McpOptions, serve_mcp
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
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}', -32700),
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


@pytest.mark.parametrize("calls", [300, pytest.param(10_000, marks=pytest.mark.matrix)])
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


# ---- a client that does not read


class Counted(Agent):
    """Counts its calls."""

    sizes: list[int] = attrs.field(factory=list)

    @action
    def page(self, size: int) -> str:
        self.sizes.append(size)
        if size < 0:
            raise ActionFailed("x" * -size)
        return "x" * size


class Gate(trio.abc.SendStream):
    """A stream to a client that reads only while the gate is open."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.opened = trio.Event()
        self.opened.set()

    async def send_all(self, data: Any) -> None:
        await self.opened.wait()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.opened.wait()

    async def aclose(self) -> None:
        await self._stream.aclose()


def calls_of(size: int, count: int) -> bytes:
    call = {"name": "counted__page", "arguments": {"size": size}}
    return b"".join(line_of("tools/call", call, number) for number in range(1, count + 1))


async def test_results_that_a_client_does_not_read_are_bounded() -> None:
    sizes: list[int] = []
    async with offered() as node, trio.open_nursery() as nursery:
        await node.start(Counted, sizes=sizes)
        ours, theirs = memory_stream_pair()
        gate = Gate(theirs)
        nursery.start_soon(serve_mcp, node, theirs, gate, McpOptions(waiting_bytes=2_500_000))
        answers = await begun(ours)
        gate.opened = trio.Event()
        await ours.send_all(calls_of(1_000_000, 5))
        await wait_all_tasks_blocked()
        gate.opened.set()
        failed = [(await answers.next())["result"] for _ in range(5)]
        assert sum(each["isError"] for each in failed) == 2  # the stream has one, and two wait
        await ours.send_all(calls_of(1_000_000, 1))  # the same id once more
        assert not (await answers.next())["result"]["isError"]
        await ours.aclose()


async def test_a_failure_that_is_too_long_is_cut() -> None:
    async with offered() as node, lines_of(node) as stream:
        await node.start(Counted)
        answers = await begun(stream)
        await stream.send_all(calls_of(-1_000_000, 1))
        result = (await answers.next())["result"]
        assert result["isError"]
        assert len(result["content"][0]["text"]) == 65_536


async def test_nothing_is_read_while_too_much_waits_for_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.mcp.offer._lines.MOST_WAITING", 100_000)
    sizes: list[int] = []
    async with offered() as node, trio.open_nursery() as nursery:
        await node.start(Counted, sizes=sizes)
        ours, theirs = memory_stream_pair()
        gate = Gate(theirs)
        nursery.start_soon(serve_mcp, node, theirs, gate)
        answers = await begun(ours)
        gate.opened = trio.Event()
        await ours.send_all(calls_of(1, 900))
        await wait_all_tasks_blocked()
        assert len(sizes) < 200
        gate.opened.set()
        for _ in range(900):
            assert not (await answers.next())["result"]["isError"]
        await ours.aclose()


async def test_a_request_with_the_id_of_another_is_refused_and_its_id_is_free_again_after_it() -> None:
    async with offered() as node, lines_of(node) as stream:
        answers = await begun(stream)
        call = line_of("tools/call", {"name": "weather__wait", "arguments": {}}, 5)
        for _ in range(2):
            await stream.send_all(call + line_of("ping", number="5"))
            refused = await answers.next()
            assert (refused["id"], refused["error"]["code"]) == (None, -32600)
            assert refused["error"]["message"] == "the id '5' is that of a request in progress"
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
            await stream.send_all(json.dumps(cancel).encode() + b"\n" + line_of("ping", number=6))
            assert (await answers.next())["id"] == 6
            await wait_all_tasks_blocked()
