"""Sources of callers over HTTP: what is sent as the body, to a server that a test writes by hand."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, InvalidInput, NotAllowed, OutcomeUnknown, action, describe, open_node
from lmos_actors.bindings import ContractWarning
from lmos_actors.errors import AgentUnavailable, RemoteProtocolError
from lmos_actors.protocol.td import dump, with_forms
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.lmos.test_peer_streams import Later, Tap
from tests.bindings.web_things import say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors import Ref

WEB = "http://taker"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Taker(Agent):
    @action
    async def gather(self, rows: AsyncIterator[int], words: tuple[str, ...] = ()) -> list[int]:
        return [row async for row in rows]

    @action
    async def echo(self, words: AsyncIterator[str]) -> AsyncIterator[str]:
        async for word in words:
            yield word

    @action
    async def weigh(self, parts: AsyncIterator[bytes]) -> int:
        return sum([len(part) async for part in parts])


def without_sockets(described: Any) -> Any:
    for each in described["actions"].values():
        each["forms"] = [form for form in each["forms"] if form["href"].startswith("http")]
    return described


class Server:
    """One connection of the client at a time, read and answered by hand."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.stream: Any = None
        self.got = b""
        self.connections = 0
        self.came = trio.Event()

    async def accept(self, *, task_status: trio.TaskStatus[None]) -> None:
        listener = await self.network.listen(endpoint_of(WEB))
        task_status.started()
        while True:
            self.stream, _ = await listener.accept()
            self.connections += 1
            self.got = b""
            self.came.set()

    async def until(self, mark: bytes) -> bytes:
        await self.came.wait()
        while mark not in self.got:
            data = bytes(await self.stream.receive_some(65_536))
            assert data, self.got
            self.got += data
        found, _, self.got = self.got.partition(mark)
        return found

    async def head(self) -> tuple[str, dict[str, str]]:
        first, *lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        return first, {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    async def chunk(self) -> bytes:
        size = int(await self.until(b"\r\n"), 16)
        while len(self.got) < size + 2:
            self.got += bytes(await self.stream.receive_some(65_536))
        found, self.got = self.got[:size], self.got[size + 2 :]
        return found

    async def say(self, data: bytes) -> None:
        await self.stream.send_all(data)


@asynccontextmanager
async def serving(
    change: Callable[[Any], Any] = lambda described: described,
) -> AsyncGenerator[tuple[Server, Ref[Taker], trio.Nursery]]:
    described = change(without_sockets(dump(with_forms(describe(Taker, id="urn:taker"), "taker", [WEB]))))
    server = Server()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.accept)
        async with open_node(network=server.network) as node:
            with (
                warnings.catch_warnings(action="ignore", category=ContractWarning),
                tempfile.TemporaryDirectory() as folder,
            ):
                path = Path(folder) / "taker.json"
                path.write_text(json.dumps(described))
                ref = await node.consume(Taker, path)
            await wait_all_tasks_blocked()
            server.came, server.connections = trio.Event(), 0  # one has come to try the address
            yield server, ref, nursery
            assert node.connection_failures == ()
        nursery.cancel_scope.cancel()


async def test_a_source_is_the_body_and_is_not_touched_before_it_is_wanted(autojump_clock: Any) -> None:
    async with serving() as (server, ref, nursery):
        tap = Tap(*range(3), waits=False)
        asked = Later(nursery, ref.within(60).invoke(Taker.gather, tap, words=("ä",)))
        line, headers = await server.head()
        assert line == "POST /agents/taker/actions/gather HTTP/1.1"
        assert headers["content-type"] == "application/x-ndjson"
        assert (headers["transfer-encoding"], headers["expect"]) == ("chunked", "100-continue")
        assert headers["lmos-input"] == '{"words":["\\u00e4"]}'
        assert float(headers["lmos-remaining"]) == pytest.approx(60, abs=1)
        assert headers["accept"] == "application/json"
        await trio.sleep(4)
        assert tap.fate == "untouched"
        before = trio.current_time()
        await server.say(CONTINUE)
        got = b""
        while chunk := await server.chunk():
            got += chunk
        assert got == b"0\n1\n2\n"
        assert trio.current_time() - before < 0.5
        await server.say(say([0, 1, 2]))
        await asked.done.wait()
        assert (asked.value, tap.fate, asked.error) == ([0, 1, 2], "ended", None)


async def test_a_server_that_knows_no_continue_is_sent_the_body_after_a_while(autojump_clock: Any) -> None:
    async with serving() as (server, ref, nursery):
        asked = Later(nursery, ref.invoke(Taker.weigh, Tap(b"abc", waits=False)))
        await server.head()
        before = trio.current_time()
        assert await server.chunk() == b'"YWJj"\n'
        assert trio.current_time() - before == pytest.approx(5, abs=0.1)
        await server.say(say(3))
        await asked.done.wait()
        assert asked.value == 3


async def test_items_and_answers_cross_and_silence_is_bridged(autojump_clock: Any) -> None:
    async with serving() as (server, ref, _):
        send, receive = trio.open_memory_channel[str](0)
        async with ref.stream(Taker.echo, receive) as items:
            _, headers = await server.head()
            assert headers["accept"].startswith("text/event-stream, ")
            await server.say(CONTINUE + EVENTS)
            for word in "ab":
                await send.send(word)
                assert await server.chunk() == b'"%s"\n' % word.encode()
                await server.say(b'event: item\ndata: "%s"\n\n' % word.encode())
                assert await anext(items) == word
            before = trio.current_time()
            assert await server.chunk() == b"\n"
            assert trio.current_time() - before == pytest.approx(30, abs=0.1)
            await send.aclose()
            assert await server.chunk() == b""
            await server.say(b"event: lmosx:end\ndata: null\n\n")
            assert [item async for item in items] == []


async def test_a_source_that_raises_ends_the_body_by_a_line(autojump_clock: Any) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise LookupError('no "more"')

    async with serving() as (server, ref, nursery):
        asked = Later(nursery, ref.invoke(Taker.gather, broken()))
        await server.head()
        await server.say(CONTINUE)
        got = b""
        while chunk := await server.chunk():
            got += chunk
        assert got == b'1\n!"LookupError: no \\"more\\""\n'
        assert not asked.done.is_set()  # the run may still answer
        await server.say(say([1]))
        await asked.done.wait()
        assert isinstance(asked.error, LookupError)


ENDS = {
    b"": OutcomeUnknown,
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[": OutcomeUnknown,
    say([1]): None,
    say({"status": 503, "title": "busy"}, "503 Service Unavailable", "application/problem+json"): (
        AgentUnavailable
    ),
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\n\r\n": RemoteProtocolError,
    b"no HTTP\r\n\r\n": RemoteProtocolError,
}


@pytest.mark.parametrize("begun", [False, True])
async def test_every_end_of_the_connection_closes_the_source(begun: bool, autojump_clock: Any) -> None:
    for answer, outcome in ENDS.items():
        async with serving() as (server, ref, nursery):
            tap = Tap(1)
            asked = Later(nursery, ref.retrying().invoke(Taker.gather, tap))
            await server.head()
            if begun:
                await server.say(CONTINUE)
                assert await server.chunk() == b"1\n"
            await server.say(answer)
            await trio.aclose_forcefully(server.stream)
            await asked.done.wait()
            assert (type(asked.error) if asked.error else None) == outcome, answer
            assert tap.fate == ("Cancelled" if begun else "untouched"), answer
            assert server.connections == 1, answer


async def test_a_caller_that_is_cancelled_closes_the_connection(autojump_clock: Any) -> None:
    async with serving() as (server, ref, _):
        tap = Tap(1)
        with trio.move_on_after(7):
            await ref.invoke(Taker.gather, tap)
        assert tap.fate == "Cancelled"
        assert await server.stream.receive_some() != b""
        assert await server.stream.receive_some() == b""


async def test_what_cannot_be_sent_is_refused_before_anything_is(autojump_clock: Any) -> None:
    async with serving() as (server, ref, _):
        tap = Tap(1)
        with pytest.raises(InvalidInput, match="there is room for 8000"):
            await ref.invoke(Taker.gather, tap, words=("x" * 8_000,))
        assert (tap.fate, server.connections) == ("untouched", 0)


def _as_json(described: Any) -> Any:
    """Describe the action as one that knows no streams."""
    described.pop("lmosx:streams", None)
    for each in described["actions"].values():
        each.pop("lmosx:streams", None)
        each["forms"] = [{"href": each["forms"][0]["href"], "op": ["invokeaction"]}]
    return described


async def test_a_thing_that_takes_no_streams_is_sent_none(autojump_clock: Any) -> None:
    async with serving(_as_json) as (server, ref, _):
        tap = Tap(1)
        with pytest.raises(NotAllowed, match="no form over HTTP that carries the input stream 'rows'"):
            await ref.invoke(Taker.gather, tap)
        assert (tap.fate, server.connections) == ("untouched", 0)
