"""A connection reads on while its handler keeps up; else later, as more may be what it waits for."""

from __future__ import annotations

import trio

from lmos_actors.transport import ConnectionOptions
from tests.transport.peer import Recorder, frame, server_end

TEXT = 1


class Slow(Recorder):
    """Takes note of how much had come each time it was asked whether it is behind."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.asked: list[int] = []

    def is_behind(self) -> bool:
        self.asked.append(len(self.got))
        return len(self.asked) < self.times


async def taken(handler: Slow, count: int) -> None:
    peer = await server_end(ConnectionOptions(), buffer=1 << 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.connection.run, handler)
        await peer.send(b"".join(frame(TEXT, b"%d" % number) for number in range(count)))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_while_it_is_behind_nothing_more_is_read(autojump_clock: trio.testing.MockClock) -> None:
    handler = Slow(times=20)
    await taken(handler, 200)
    first = handler.asked[0]
    assert handler.asked[:20] == [first] * 20
    assert first < 200
    assert handler.got == [str(number) for number in range(200)]


async def test_it_is_not_waited_for_without_end(autojump_clock: trio.testing.MockClock) -> None:
    handler = Slow(times=10**9)
    await taken(handler, 200)
    assert len(handler.got) == 200
    assert len(handler.asked) < 1000
