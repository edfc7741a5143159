"""Input streams over HTTP: bodies that a client writes by hand, while the run goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    ChildSpec,
    MailboxOptions,
    Pool,
    action,
    open_node,
)
from lmos_actors.errors import SourceFailed
from lmos_actors.security import Access, Bearer, Security
from lmos_actors.transport import ConnectionOptions, DoorOptions, MemoryNetwork, endpoint_of
from tests.bindings.web import HERE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors import Node

LINES = "application/x-ndjson"
OCTETS = "application/octet-stream"


class Taker(Agent, mailbox=MailboxOptions(size=1, when_full="reject")):
    """Takes input streams, and notes what comes of them."""

    notes: Any

    @action
    async def gather(
        self, rows: AsyncIterator[int], up_to: int = -1, words: tuple[str, ...] = ()
    ) -> list[Any]:
        """Return the items, or so many of them."""
        found: list[Any] = list(words)
        try:
            while len(found) != up_to:
                try:
                    found.append(await anext(rows))
                except StopAsyncIteration:
                    break
        except SourceFailed as error:
            self.notes.append(error.reason)
            raise
        except trio.Cancelled:
            self.notes.append("cancelled")
            raise
        return found

    @action
    async def echo(self, words: AsyncIterator[str]) -> AsyncIterator[str]:
        """Answer each item by one."""
        async for word in words:
            yield word.upper()

    @action
    async def weigh(self, parts: AsyncIterator[bytes]) -> list[int]:
        """Return the lengths of all items."""
        return [len(part) async for part in parts]

    @action
    async def total(self, rows: AsyncIterator[str]) -> int:
        """Count the characters."""
        return sum([len(row) async for row in rows])

    @action
    async def slowly(self, rows: AsyncIterator[str], seconds: float = 1.0) -> int:
        """Take an item a second."""
        count = 0
        async for _ in rows:
            count += 1
            await trio.sleep(seconds)
        return count

    @action(on_disconnect="finish")
    async def outlive(self, rows: AsyncIterator[int]) -> None:
        """Go on without the client."""
        try:
            async for row in rows:
                self.notes.append(row)
        except SourceFailed as error:
            self.notes.append(error.reason)

    @action
    async def hold(self, seconds: float = 1.0) -> None:
        """Take the agent's place."""
        await trio.sleep(seconds)


class World:
    """A node that serves the agent, and its clients."""

    def __init__(self, node: Node, network: Any) -> None:
        self.node = node
        self.network = network
        self.noted: list[Any] = []
        """What the agent has noted."""

    async def client(
        self, action: str, *headers: str, chunked: bool = True, kind: str | None = LINES
    ) -> Client:
        """Send the head of an invocation."""
        client = Client(await self.network.connect(endpoint_of(HERE), None))
        lines = [f"POST /agents/taker/actions/{action} HTTP/1.1", "Host: here", *headers]
        lines += ["Transfer-Encoding: chunked"] if chunked else []
        lines += [f"Content-Type: {kind}"] if kind else []
        await client.stream.send_all("\r\n".join([*lines, "", ""]).encode())
        return client

    async def ask(self, action: str, body: bytes, *headers: str, kind: str | None = LINES) -> tuple[int, Any]:
        """Send a whole body, and return the status and the value."""
        client = await self.client(action, *headers, f"Content-Length: {len(body)}", chunked=False, kind=kind)
        await client.stream.send_all(body)
        return await client.answer()


class Client:
    """A connection, on which a test writes by hand."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.got = b""

    async def chunk(self, data: bytes) -> None:
        """Send a piece of the body; nothing ends it."""
        await self.stream.send_all(b"%x\r\n%s\r\n" % (len(data), data))

    async def until(self, mark: bytes) -> bytes:
        """Receive up to a mark, and return what came before it."""
        while mark not in self.got:
            data = bytes(await self.stream.receive_some(65_536))
            assert data, self.got
            self.got += data
        found, _, self.got = self.got.partition(mark)
        return found

    async def head(self) -> tuple[int, dict[str, str]]:
        """Receive the head of the answer."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split()[1]), headers

    async def answer(self) -> tuple[int, Any]:
        """Receive the whole answer, that is no stream; of a problem its detail."""
        status, headers = await self.head()
        while len(self.got) < int(headers.get("content-length", 0)):
            self.got += bytes(await self.stream.receive_some(65_536))
        if not self.got:
            return status, None
        value = json.loads(self.got)
        return status, value["detail"] if status >= 400 else value

    async def ended(self) -> bool:
        """Whether the server has ended the connection, within its time."""
        with trio.move_on_after(5):
            try:
                while await self.stream.receive_some(65_536):
                    pass
            except trio.BrokenResourceError:
                pass
            return True
        return False


@asynccontextmanager
async def world(buffer: int = 65_536, **options: Any) -> AsyncGenerator[World]:
    network = MemoryNetwork(buffer)
    async with open_node(listen=HERE, network=network, **options) as node:
        there = World(node, network)
        ref = await node.start_child(ChildSpec("taker", partial(Taker, notes=there.noted)))
        yield there
        await wait_all_tasks_blocked()
        counts = ref.statistics()
        ends = counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered
        assert counts.accepted == ends + counts.waiting + counts.running, counts
        assert node.connection_failures == ()
        assert node.statistics().memory.bytes == 0


# ---- what flows


async def test_lines_are_items_and_the_rest_of_the_input_stands_in_the_query_or_a_header(
    autojump_clock: Any,
) -> None:
    async with world() as w:
        assert await w.ask("gather", b"1\n 2 \r\n\n\n3.0") == (200, [1, 2, 3])
        assert await w.ask("gather", b"") == (200, [])
        assert await w.ask("gather?up_to=1", b"1\n2\n") == (200, [1])
        assert await w.ask('gather?words=%5B"a"%5D', b"1\n") == (200, ["a", 1])
        beside = 'LMOS-Input: {"words": ["\\u00e4", "b"], "up_to": 3, "other": 0}'
        assert await w.ask("gather", b"1\n2\n", beside) == (200, ["ä", "b", 1])
        assert await w.ask("gather", b"7", kind=None) == (200, [7])
        assert await w.ask("gather", b"7", kind="application/jsonl; charset=UTF-8") == (200, [7])
        # lines do not end where pieces do
        client = await w.client("gather")
        for number in b"1", b"1\n", b"", b"2", b"2":
            if number:
                await client.chunk(number)
        await client.chunk(b"")
        assert await client.answer() == (200, [11, 22])


async def test_octets_are_items_as_they_come_and_never_long(autojump_clock: Any) -> None:
    async with world() as w:
        status, sizes = await w.ask("weigh", bytes(200_000), kind=OCTETS)
        assert (status, sum(sizes), max(sizes) <= 65_536) == (200, 200_000, True)
        assert await w.ask("weigh", b"any\nthing", kind=None) == (200, [9])
        assert await w.ask("weigh", b'"QUJD"\n""\n') == (200, [3, 0])  # as lines they keep their bounds


async def test_answers_leave_while_the_body_still_comes(autojump_clock: Any) -> None:
    async with world() as w:
        for accept, of in ((LINES, b'"%s"\n'), ("*/*", b'event: item\ndata: "%s"\n\n')):
            client = await w.client("echo", f"Accept: {accept}")
            for word in (b"a", b"b", b"c"):
                await client.chunk(b'"%s"\n' % word)
                await client.until(of % word.upper())
            await client.chunk(b"")
            rest = await client.until(b"0\r\n\r\n")
            assert (b"lmosx:end" in rest) == (accept == "*/*")


async def test_a_stream_that_fails_says_so_in_its_last_line(autojump_clock: Any) -> None:
    async with world() as w:
        client = await w.client("echo", f"Accept: {LINES}")
        await client.chunk(b'"a"\n5\n')
        await client.chunk(b"")
        _, _, last = (await client.until(b"\r\n0\r\n\r\n")).rpartition(b"\r\n")
        assert json.loads(last)["lmosx:end"]["status"] == 400


async def test_a_body_may_be_longer_than_any_other_and_its_memory_stays_flat(autojump_clock: Any) -> None:
    line = json.dumps("x" * 9_997).encode() + b"\n"
    async with world(connection=ConnectionOptions(total_bytes=2 << 20)) as w:
        client = await w.client("total", f"Content-Length: {len(line) * 2_000}", chunked=False)
        most = 0
        for _ in range(200):
            await client.stream.send_all(line * 10)
            most = max(most, w.node.statistics().memory.bytes)
        assert await client.answer() == (200, 9_997 * 2_000)
        assert 0 < most < 1 << 20


async def test_a_slow_handler_holds_its_client_back(autojump_clock: Any) -> None:
    async with world(buffer=1_000) as w:
        client = await w.client("slowly", "Content-Length: 1000000000", chunked=False)
        sent = 0
        with trio.move_on_after(10):
            while True:
                await client.stream.send_all(json.dumps("x" * 9_997).encode() + b"\n")
                sent += 1
        assert sent < 10 + 16 + 15  # taken, in the room, and in what the front door has read
        await trio.aclose_forcefully(client.stream)
        await trio.sleep(60)


async def test_no_more_is_read_than_there_is_room_for(autojump_clock: Any) -> None:
    async with world(door=DoorOptions(silence_seconds=10)) as w:
        client = await w.client("slowly")
        await client.chunk(b'"x"\n' * 40)
        status, _ = await client.head()
        # the fortieth is read when the 24th has been taken: from then on the client is silent
        assert (status, trio.current_time()) == (408, pytest.approx(33, abs=9))
        assert trio.current_time() > 24


# ---- before it begins


async def test_nothing_is_asked_for_before_the_run_begins(autojump_clock: Any) -> None:
    async with world() as w:
        first = await w.client("slowly")
        await first.chunk(b'"x"\n')
        await wait_all_tasks_blocked()
        queued = await w.client("slowly", "Expect: 100-continue")
        await wait_all_tasks_blocked()
        refused = await w.client("gather", "Expect: 100-continue")
        status, headers = await refused.head()
        assert (status, headers["connection"]) == (503, "close")  # its body has not been asked for
        with trio.move_on_after(3):
            await queued.until(b"\r\n")
        assert queued.got == b""
        await first.chunk(b"")
        assert await first.answer() == (200, 1)
        assert await queued.until(b"\r\n\r\n") == b"HTTP/1.1 100 "
        await queued.chunk(b'"x"\n')
        await queued.chunk(b"")
        assert await queued.answer() == (200, 1)


@pytest.mark.parametrize(
    ("action", "headers", "kind", "refusal"),
    [
        ("gather", (), "application/json", (415, "send application/x-ndjson, in UTF-8")),
        ("gather", (), f"{LINES}; charset=latin-1", (415, "send application/x-ndjson, in UTF-8")),
        ("gather", (), OCTETS, (415, "send application/x-ndjson, in UTF-8")),
        ("weigh", (), "text/plain", (415, f"send {LINES} or {OCTETS}, in UTF-8")),
        ("gather", ("Content-Encoding: gzip",), LINES, (415, "send the body without Content-Encoding")),
        ("gather", ("Accept: text/plain",), LINES, (406, "accept application/json")),
        ("gather", ("LMOS-Input: [1",), LINES, (400, "LMOS-Input is not JSON: Input data was truncated")),
        ("gather", ("LMOS-Input: [1]",), LINES, (400, "Taker.gather takes an object, not list")),
        ("gather?up_to=x", (), LINES, (400, "Expected `int`, got `str`")),
        ("gather?up_to=1", ('LMOS-Input: {"up_to": 2}',), LINES, (400, "it is in the body and in the query")),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_the_request_is_refused_before_its_body(
    action: str, headers: tuple[str, ...], kind: str, refusal: tuple[int, str], autojump_clock: Any
) -> None:
    async with world() as w:
        client = await w.client(action, "Expect: 100-continue", *headers, kind=kind)
        assert await client.answer() == refusal


# ---- lines that are none


BAD_LINES = {
    b"1\n\nx\n": "line 3: not JSON: JSON is malformed: invalid character (byte 0) - at $.rows[1]",
    b'1\n"2"': "line 2: Expected `int`, got `str` - at $.rows[1]",
    b"1 2\n": "line 1: not JSON: JSON is malformed: trailing characters (byte 3) - at $.rows[0]",
    b"[" * 100 + b"\n": (
        "line 1: nested more than 64 levels deep, or brackets that do not match - at $.rows[0]"
    ),
    b'1\n"' + b"x" * (5 << 20): "line 2: longer than 4194304 bytes - at $.rows[1]",
    b'7\n"\xff"\n': "line 2: not JSON: it is not UTF-8 - at $.rows[1]",
    b'{"a": 1, "a": 2}\n': "line 1: not JSON: an object has the member 'a' twice - at $.rows[0]",
    b'1\n!"the disk is full"\n2\n': "the disk is full",
    b"1\n!no\n": "line 2: a stream is broken off by ! and a text - at $.rows[1]",
}


async def test_a_line_that_is_no_item_breaks_the_stream_off(autojump_clock: Any) -> None:
    async with world() as w:
        for body, why in BAD_LINES.items():
            client = await w.client("gather")
            with suppress(trio.BrokenResourceError):  # it is answered while the body comes
                await client.chunk(body)
                await client.chunk(b"")
            assert await client.answer() == (400, f"the input stream 'rows' broke off: {why}")
            assert w.noted[-1] == why


# ---- every other end


async def test_a_handler_that_returns_early_is_answered_and_the_rest_is_not_drained(
    autojump_clock: Any,
) -> None:
    async with world() as w:
        client = await w.client("gather?up_to=2")
        sent = 0
        with suppress(trio.BrokenResourceError), trio.move_on_after(30):
            while True:
                await client.chunk(b"1\n" * 10_000)
                sent += 20_000
        status, headers = await client.head()
        assert (status, headers["connection"]) == (200, "close")
        assert sent < 3 << 20
        assert await client.ended()


async def test_a_client_that_leaves_in_its_body_cancels_the_run(autojump_clock: Any) -> None:
    async with world() as w:
        client = await w.client("gather")
        await client.chunk(b"1\n2")
        await wait_all_tasks_blocked()
        await trio.aclose_forcefully(client.stream)
        await wait_all_tasks_blocked()
        assert w.noted == ["cancelled"]
        stays = await w.client("outlive")
        await stays.chunk(b"1\n2")
        await wait_all_tasks_blocked()
        await trio.aclose_forcefully(stays.stream)
        await wait_all_tasks_blocked()
        assert w.noted == ["cancelled", 1, "the connection ended"]


async def test_a_body_that_is_not_framed_as_it_says_cancels_the_run(autojump_clock: Any) -> None:
    async with world() as w:
        client = await w.client("gather")
        await client.chunk(b"1\n")
        await wait_all_tasks_blocked()
        await client.stream.send_all(b"no chunk\r\n")
        assert (await client.head())[0] == 400
        assert w.noted == ["cancelled"]


async def test_a_body_without_an_end_ends_with_the_deadline(autojump_clock: Any) -> None:
    async with world() as w:
        client = await w.client("gather", "LMOS-Remaining: 3")
        await client.chunk(b"1\n")
        status, _ = await client.answer()
        assert (status, trio.current_time()) == (503, pytest.approx(3, abs=0.1))
        assert w.noted == ["cancelled"]


async def test_silence_ends_a_body_that_an_empty_line_keeps_alive(autojump_clock: Any) -> None:
    async with world(door=DoorOptions(body_seconds=1, silence_seconds=10)) as w:
        client = await w.client("gather")
        for data in (b"1\n", b"\n", b"\n2", b"\n"):
            await client.chunk(data)
            await trio.sleep(9)
        assert client.got == b""
        status, _ = await client.head()
        assert (status, trio.current_time()) == (408, pytest.approx(37, abs=0.1))
        assert w.noted == ["cancelled"]


async def test_a_crash_is_answered_and_the_node_drains(autojump_clock: Any) -> None:
    leave = trio.Event()
    client: Client | None = None
    network = MemoryNetwork(65_536)

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        async with open_node(listen=HERE, network=network) as node:
            await node.start_child(ChildSpec("taker", partial(Taker, notes=[]), shutdown=5.0))
            task_status.started()
            await leave.wait()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        client = await World(None, network).client("gather")  # type: ignore[arg-type]
        await client.chunk(b"1\n")
        await wait_all_tasks_blocked()
        leave.set()
        await trio.sleep(2)
        await client.chunk(b"2\n")  # what has been accepted comes to its end
        await client.chunk(b"")
        assert await client.answer() == (200, [1, 2])
    assert trio.current_time() < 5


async def test_a_member_of_a_pool_takes_a_body(autojump_clock: Any) -> None:
    network = MemoryNetwork(65_536)
    async with open_node(listen=HERE, network=network) as node:
        await node.start_pool(Pool(partial(Taker, notes=[]), 2, name="taker"))
        w = World(node, network)
        assert [await w.ask("gather", b"1\n2") for _ in range(3)] == [(200, [1, 2])] * 3


# ---- access


async def test_access_is_checked_before_the_body_and_while_it_comes(
    tmp_path: Path, autojump_clock: Any
) -> None:
    for name in ("alice", "bob"):
        (tmp_path / name).write_text(f"token-{name}")
    scheme = Bearer({name: f"file:{tmp_path / name}" for name in ("alice", "bob")})
    security = Security(schemes=(scheme,), access={"taker": Access(invoke=("alice",))})
    async with world(security=security) as w:
        for headers, status in (((), 401), (("Authorization: Bearer token-bob",), 403)):
            refused = await w.client("gather", "Expect: 100-continue", *headers)
            assert (await refused.head())[0] == status
        client = await w.client("gather", "Authorization: Bearer token-alice")
        await client.chunk(b"1\n")
        await wait_all_tasks_blocked()
        (tmp_path / "alice").write_text("another")
        await trio.sleep(2)
        await client.chunk(b"2\n")
        assert (await client.head())[0] == 401
        assert w.noted == ["cancelled"]
