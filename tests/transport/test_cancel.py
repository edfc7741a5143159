"""Cancelled at any moment of its life, a connection leaves no task and no open stream."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from lmos_actors.errors import ConnectFailed
from lmos_actors.transport import ConnectionOptions, MemoryNetwork, accept, connect, endpoint_of, memory_pair
from tests.transport.peer import (
    CLOSE,
    ENDS,
    HEAD,
    PING,
    TEXT,
    Bin,
    Echo,
    Peer,
    answer_to,
    closing,
    frame,
    frames_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.transport import MemoryStream

OPTIONS = ConnectionOptions(heartbeat_seconds=2, heartbeat_grace=2, close_seconds=3)


class CancelAt(trio.abc.Instrument):
    """Cancels a scope after so many steps of one task and its children."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.scope = trio.CancelScope()
        self.root: trio.lowlevel.Task | None = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.root is not None and self._is_mine(task):
            self.left -= 1
            if not self.left:
                self.scope.cancel()

    def _is_mine(self, task: trio.lowlevel.Task) -> bool:
        while task is not self.root:
            if task.parent_nursery is None:
                return False
            task = task.parent_nursery.parent_task
        return True

    async def over(self, act: Callable[[], Awaitable[object]]) -> None:
        trio.lowlevel.add_instrument(self)
        try:
            self.root = trio.lowlevel.current_task()
            with self.scope:
                await act()
        finally:
            self.root = None
            trio.lowlevel.remove_instrument(self)


async def live(peer: Peer) -> None:
    """A life with all there is to it: messages both ways, slow reading, a heartbeat, a close."""
    try:
        await peer.send(frame(TEXT, b"a" * 500) + frame(PING, b"p"))
        await read(peer, 400)
        await peer.send(frame(TEXT, b"b", fin=False) + frame(0, b"c") + frame(2, b"d" * 300))
        await trio.sleep(1)
        await read(peer, 2000)
        await trio.sleep(3)
        await read(peer, 50)
        await peer.send(frame(10))
        peer.connection.close(4000, "enough")
        await read(peer, 100)
        await peer.send(frame(TEXT, b"late") + closing(4000))
        await peer.read_to_the_end()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await peer.stream.aclose()


async def read(peer: Peer, size: int) -> None:
    with trio.move_on_after(0.5):
        while size > 0:
            data = await peer.stream.receive_some(100)
            peer.sent += data
            size -= len(data) or size
            await trio.sleep(0.01)


def run_and_cancel(end: str, steps: int) -> tuple[Peer, bool]:
    """Whether the connection was cancelled before it had ended."""

    async def main() -> tuple[Peer, bool]:
        peer = await ENDS[end](OPTIONS, 600)
        cancel = CancelAt(steps)
        handler = Echo()
        handler.connection = peer.connection
        handler.out = [b"x" * 700, Bin(b"y" * 10)]

        async def run() -> None:
            peer.ended = await peer.connection.run(handler)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(live, peer)
            await cancel.over(run)
            assert peer.ours._closed
        assert trio.lowlevel.current_task().child_nurseries == []
        return peer, cancel.scope.cancelled_caught

    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("end", ENDS)
def test_a_connection_cancelled_anywhere(end: str) -> None:
    said: set[bytes] = set()
    cancelled = 0
    for steps in range(1, 500):
        peer, was_cancelled = run_and_cancel(end, steps)
        found = frames_of(bytes(peer.sent), masked=end == "client")
        said.update(payload[:2] for opcode, payload in found if opcode == CLOSE)
        assert len([opcode for opcode, _ in found if opcode == CLOSE]) <= 1
        cancelled += was_cancelled
        if not was_cancelled:
            break
    assert peer.ended is not None, "the story is longer than it was cancelled"
    assert cancelled > 20
    assert said == {b"\x03\xe9", b"\x0f\xa0"}


def test_a_handshake_cancelled_anywhere() -> None:
    for steps in range(1, 100):
        streams: list[MemoryStream] = []

        async def main(steps: int = steps, streams: list[MemoryStream] = streams) -> bool:
            network = MemoryNetwork(buffer=50)
            listener = await network.listen(endpoint_of("ws://here/"))

            async def serve() -> None:
                stream, _ = await listener.accept()
                streams.append(stream)
                request = b""
                while b"\r\n\r\n" not in request:
                    data = await stream.receive_some(30)
                    if not data:
                        break
                    request += data
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(answer_to(request))
                while await stream.receive_some():
                    pass
                await stream.aclose()

            async def act() -> None:
                connection = await connect(network, "ws://here/")
                await connection.aclose()

            cancel = CancelAt(steps)
            with trio.move_on_after(60) as limit:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(serve)
                    await cancel.over(act)
                    if not streams:
                        nursery.cancel_scope.cancel()
            assert not limit.cancelled_caught, "the client's stream was left open"
            return cancel.scope.cancelled_caught

        if not trio.run(main, clock=MockClock(autojump_threshold=0)):
            assert steps > 5
            return
    raise AssertionError("never done")


def test_an_answer_to_an_upgrade_cancelled_anywhere() -> None:
    for steps in range(1, 100):

        async def main(steps: int = steps) -> bool:
            ours, theirs = memory_pair(buffer=20)

            async def read() -> None:
                while await theirs.receive_some(10):
                    pass

            async def act() -> None:
                connection = await accept(ours, HEAD)
                await connection.aclose()

            cancel = CancelAt(steps)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await cancel.over(act)
            assert ours._closed
            return cancel.scope.cancelled_caught

        if not trio.run(main, clock=MockClock(autojump_threshold=0)):
            assert steps > 5
            return
    raise AssertionError("never done")


def test_a_cancelled_connection_waits_for_the_peers_close() -> None:
    async def main() -> None:
        peer = await ENDS["server"](OPTIONS)
        handler = Echo()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.connection.run, handler)
                await trio.sleep(1)
                scope.cancel()
                with trio.CancelScope(shield=True):
                    assert await peer.receive(1) == [(CLOSE, b"\x03\xe9")]
                    await peer.send(frame(TEXT, b"not taken any more"))
                    await trio.sleep(2)
                    assert not peer.ours._closed
                    await peer.send(closing(1001))
                    await peer.read_to_the_end()
        assert handler.got == []
        assert trio.current_time() < 5

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_cancelled_connection_waits_no_longer_than_it_says() -> None:
    async def main() -> None:
        peer = await ENDS["client"](OPTIONS)
        with trio.move_on_after(1):
            await peer.connection.run(Echo())
        assert trio.current_time() == pytest.approx(4)

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_many_connections_cancelled_together_wait_together() -> None:
    async def main() -> None:
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    peer = await ENDS["server"](OPTIONS)
                    nursery.start_soon(peer.connection.run, Echo())
        assert trio.current_time() == pytest.approx(4)

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_a_connection_refused_by_a_full_listener() -> None:
    network = MemoryNetwork()
    listener = await network.listen(endpoint_of("ws://here/"))
    for _ in range(1024):
        await network.connect(endpoint_of("ws://here/"), None)
    with pytest.raises(ConnectFailed, match="too many"):
        await network.connect(endpoint_of("ws://here/"), None)
    await listener.aclose()
