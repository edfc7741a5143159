"""Messages that are sent in the step of the one who has them, beside those that the writer sends."""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from lmos_actors.transport import (
    Connection,
    ConnectionOptions,
    DirectStream,
    Ended,
    accept,
    memory_pair,
    server_text,
)
from tests.transport.peer import CLOSE, HEAD, PING, PONG, TEXT, Recorder, frame, frames_of, mask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LARGE = b"x" * 3_000_000  # more than the buffers of a pair of sockets take
NORMAL = Ended(1000, "", "us", clean=True)
SHORT = ConnectionOptions(close_seconds=0.01)  # for peers that do not answer a Close


class Line:
    """A server's connection of ours over a socket, and the socket of its peer, which reads when it likes."""

    def __init__(self, connection: Connection, theirs: socket.socket) -> None:
        self.connection = connection
        self.handler = Recorder()
        self.handler.connection = connection
        self.theirs = theirs
        self.came = bytearray()
        self.ended: Ended | None = None
        self.over = trio.Event()

    async def run(self) -> None:
        try:
            self.ended = await self.connection.run(self.handler)
        finally:
            self.over.set()

    def flush(self, *messages: bytes) -> None:
        self.handler.out += messages
        self.connection.flush()

    def here(self) -> list[tuple[int, bytes]]:
        """All frames that have come, without waiting."""
        while True:
            try:
                data = self.theirs.recv(1 << 20)
            except BlockingIOError:
                break
            if not data:
                break
            self.came += data
        return frames_of(bytes(self.came), masked=False)

    async def receive(self, count: int) -> list[tuple[int, bytes]]:
        """Read until so many frames have come, or the end."""
        while len(frames_of(bytes(self.came), masked=False)) < count:
            await trio.lowlevel.wait_readable(self.theirs)
            data = self.theirs.recv(1 << 20)
            if not data:
                break
            self.came += data
        return frames_of(bytes(self.came), masked=False)

    async def finish(self) -> None:
        """Say Close, and wait for the end."""
        self.theirs.sendall(mask(frame(CLOSE, b"\x03\xe8")))
        await self.over.wait()


@asynccontextmanager
async def open_line(options: ConnectionOptions = SHORT) -> AsyncGenerator[Line]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        connection = await accept(
            DirectStream(ours), HEAD, subprotocol="lmosprotocol", peer="them", options=options
        )
        assert theirs.recv(4096).startswith(b"HTTP/1.1 101 ")
        line = Line(connection, theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.run)
            await trio.testing.wait_all_tasks_blocked()
            yield line
            nursery.cancel_scope.cancel()


def texts(*messages: bytes) -> list[tuple[int, bytes]]:
    return [(TEXT, message) for message in messages]


async def test_a_message_is_with_the_peer_when_flush_returns() -> None:
    async with open_line() as line:
        assert line.connection.is_quiet
        line.flush(b"first")
        assert line.here() == texts(b"first")
        await trio.testing.wait_all_tasks_blocked()
        line.flush(b"second", b"third")
        assert line.here() == texts(b"first", b"second", b"third")
        assert line.connection.statistics().messages_out == 3
        await line.finish()


async def test_what_a_task_flushes_again_before_it_waits_is_sent_together_by_the_writer() -> None:
    async with open_line() as line:
        for step in range(2):
            before = line.here()
            for number in range(100):
                line.flush(b"%d" % number)
            assert line.here() == [*before, *texts(b"0")]
            await trio.lowlevel.checkpoint()
            assert await line.receive(100 * (step + 1)) == texts(*[b"%d" % each for each in range(100)]) * (
                step + 1
            )
            await trio.testing.wait_all_tasks_blocked()
        await line.finish()


async def test_other_tasks_flush_at_once_meanwhile() -> None:
    async with open_line() as line, trio.open_nursery() as nursery:

        async def flush(message: bytes) -> None:
            line.flush(message)
            assert line.here()[-1] == (TEXT, message)

        for message in (b"one", b"two", b"three"):
            nursery.start_soon(flush, message)
        await trio.testing.wait_all_tasks_blocked()
        await line.finish()


async def test_what_was_left_to_the_writer_goes_first() -> None:
    async with open_line() as line:
        line.handler.send(b"first")
        assert not line.connection.is_quiet
        line.flush(b"second")
        assert line.here() == []
        line.handler.send(b"third")
        assert await line.receive(3) == texts(b"first", b"second", b"third")
        await trio.testing.wait_all_tasks_blocked()
        line.flush(b"fourth")
        assert line.here() == texts(b"first", b"second", b"third", b"fourth")
        await line.finish()


async def test_what_a_stopped_peer_does_not_take_is_sent_by_the_writer_whole_and_in_order() -> None:
    async with open_line() as line:
        line.flush(LARGE)
        assert not line.connection.is_quiet
        line.flush(b"second")
        await trio.testing.wait_all_tasks_blocked()
        line.flush(b"third")
        assert await line.receive(3) == texts(LARGE, b"second", b"third")
        await trio.testing.wait_all_tasks_blocked()
        assert line.connection.is_quiet
        line.flush(b"fourth")
        assert line.here()[3:] == texts(b"fourth")
        await line.finish()


async def test_a_text_that_many_connections_share_is_sent_by_all_in_their_order() -> None:
    shared, long = server_text(b"to all"), server_text(LARGE)
    slow = ConnectionOptions(close_seconds=0.01, fast_frames=False)
    async with open_line() as one, open_line() as two, open_line(slow) as three:
        lines = (one, two, three)
        for line in lines:
            line.flush(shared)
            assert line is three or line.here() == texts(b"to all")
        await trio.testing.wait_all_tasks_blocked()
        for line in lines:
            line.flush(long)
            line.flush(shared, b"to one")
        for line in lines:
            assert (await line.receive(4))[1:] == texts(LARGE, b"to all", b"to one")
            assert line.connection.statistics().messages_out == 4
            assert line.connection.statistics().bytes_out == len(line.came)
            await line.finish()


async def test_more_than_one_batch_is_sent() -> None:
    messages = [b"%05d" % number + b"x" * 1000 for number in range(300)]
    async with open_line() as line:
        line.flush(*messages)
        assert await line.receive(len(messages)) == texts(*messages)
        await line.finish()


async def test_others_have_turns_while_a_peer_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    send_now = DirectStream.send_now

    def take(stream: DirectStream, data: bytes) -> int:
        if len(data) < 65_536:
            return send_now(stream, data)
        sizes.append(len(data))
        return len(data)

    monkeypatch.setattr(DirectStream, "send_now", take)
    async with open_line() as line:
        line.handler.send(*[b"x" * 65_536] * 40)
        turns = 0
        while len(sizes) < 40:
            before = len(sizes)
            await trio.lowlevel.checkpoint()
            assert len(sizes) <= before + 8  # four, and four more if the writer is last, then first
            turns += 1
        assert turns < 20
        await line.finish()


async def test_a_sender_that_is_cancelled_tears_no_frame() -> None:
    async with open_line() as line:
        with trio.CancelScope() as scope:
            scope.cancel()
            line.flush(LARGE)
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        line.flush(b"second")
        assert await line.receive(2) == texts(LARGE, b"second")
        await line.finish()


async def test_close_waits_for_what_flush_has_begun() -> None:
    async with open_line() as line:
        line.flush(LARGE)
        line.connection.close(1000)
        line.flush(b"second")
        frames = await line.receive(3)
        assert frames == [*texts(LARGE, b"second"), (CLOSE, b"\x03\xe8")]
        await line.finish()
        assert line.ended == NORMAL


async def test_a_handler_that_closes_while_it_is_flushed() -> None:
    async with open_line() as line:
        take = line.handler.frames

        def frames(room: int) -> list[bytes]:
            line.connection.close(1000)
            return take(room)

        line.handler.frames = frames  # type: ignore[method-assign]
        line.flush(b"last")
        assert await line.receive(2) == [*texts(b"last"), (CLOSE, b"\x03\xe8")]
        await line.finish()
        assert line.ended == NORMAL


async def test_a_handler_that_fails_while_it_is_flushed_ends_the_connection_alone() -> None:
    def frames(room: int) -> list[bytes]:
        raise ValueError("no frames")

    async def body() -> None:
        async with open_line() as line:
            line.handler.frames = frames  # type: ignore[method-assign]
            line.flush(b"never")
            assert await line.receive(1) == [(CLOSE, b"\x03\xf3")]
            await line.finish()

    with pytest.raises(ExceptionGroup) as caught:
        await body()
    assert [type(error) for error in caught.value.exceptions] == [ValueError]


async def test_a_peer_that_is_gone_ends_the_connection_and_not_the_sender() -> None:
    async with open_line() as line:
        line.theirs.close()
        line.flush(b"nobody takes it")
        line.flush(b"nor this")
        await line.over.wait()
        assert line.ended is not None
        assert line.ended.by == "broken"
        line.flush(b"too late")


async def test_a_connection_that_is_cancelled_while_a_frame_is_half_written_says_no_more() -> None:
    async with open_line() as line:
        line.flush(LARGE)
    assert line.ended is None
    theirs = bytes(line.came)
    assert CLOSE not in [kind for kind, _ in frames_of(theirs, masked=False)]


async def test_answers_to_pings_go_with_what_is_flushed() -> None:
    async with open_line() as line:
        line.theirs.sendall(mask(frame(PING, b"there?")))
        assert await line.receive(1) == [(PONG, b"there?")]
        await trio.testing.wait_all_tasks_blocked()
        line.connection.on_ping(b"again?")
        line.flush(b"first")
        assert await line.receive(3) == [(PONG, b"there?"), (PONG, b"again?"), *texts(b"first")]
        await line.finish()


async def test_while_more_has_come_than_was_taken_the_writer_sends() -> None:
    quiet: list[bool] = []
    async with open_line() as line:

        def answer(_: object) -> None:
            quiet.append(line.connection.is_quiet)
            line.flush(b"answer")

        line.handler.on_message = answer
        line.theirs.sendall(mask(frame(TEXT, b"1") + frame(TEXT, b"2") + frame(TEXT, b"3")))
        assert await line.receive(3) == texts(b"answer", b"answer", b"answer")
        line.theirs.sendall(mask(frame(TEXT, b"4")))
        assert (await line.receive(4))[3:] == texts(b"answer")
        assert quiet == [False, False, False, True]
        await line.finish()


async def test_in_memory_the_writer_sends_everything() -> None:
    ours, theirs = memory_pair()
    connection = await accept(ours, HEAD, subprotocol="lmosprotocol", peer="them", options=SHORT)
    assert (await theirs.receive_some()).startswith(b"HTTP/1.1 101 ")
    handler = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run, handler)
        await trio.testing.wait_all_tasks_blocked()
        assert not connection.is_quiet
        handler.out.append(b"first")
        connection.flush()
        assert not theirs.has_news()
        assert frames_of(await theirs.receive_some(), masked=False) == texts(b"first")
        nursery.cancel_scope.cancel()


async def test_over_tls_the_writer_sends_everything() -> None:
    authority = trustme.CA()
    there = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(there)  # pyright: ignore[reportUnknownMemberType]
    here = ssl.create_default_context()
    authority.configure_trust(here)  # pyright: ignore[reportUnknownMemberType]
    ours, theirs = map(DirectStream, socket.socketpair())
    peer = trio.SSLStream(theirs, here, server_hostname="localhost", https_compatible=True)
    handler = Recorder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send_all, HEAD)
        stream = trio.SSLStream(ours, there, server_side=True, https_compatible=True)
        head: Any = await stream.receive_some()
        connection = await accept(stream, bytes(head), subprotocol="lmosprotocol", peer="them", options=SHORT)
        assert (await peer.receive_some()).startswith(b"HTTP/1.1 101 ")
        nursery.start_soon(connection.run, handler)
        await trio.testing.wait_all_tasks_blocked()
        came = b""
        for message in (b"first", b"second"):
            assert not connection.is_quiet
            handler.out.append(message)
            connection.flush()
        while len(frames_of(came, masked=False)) < 2:
            came += await peer.receive_some()
        assert frames_of(came, masked=False) == texts(b"first", b"second")
        nursery.cancel_scope.cancel()
    await trio.aclose_forcefully(peer)
