"""`python -m tests.benchmarks.wire_crowd URL N`: N connections, each of which asks once.

Prints connections a second when all are there, and then keeps them until its input ends.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter as clock

import trio

from lmos_actors.transport import Connection, TcpNetwork, connect, raise_descriptor_limit

QUESTION = {
    "messageType": "readProperty",
    "thingID": "far",
    "messageID": "c370da58-69ae-4e83-bb5a-ac6cfb2fed54",
    "name": "nothing",
}


class One:
    """Asks for a property that is not there, and waits for the error."""

    def __init__(self) -> None:
        self.frame = [json.dumps(QUESTION).encode()]
        self.answered = trio.Event()

    def text(self, text: str) -> None:
        """Take the answer."""
        self.answered.set()

    def binary(self, data: bytes) -> None:
        """Take what does not come."""

    def frames(self, room: int) -> list[bytes]:
        """Give the question, once."""
        frames, self.frame = self.frame, []
        return frames


async def main(url: str, n: int) -> None:
    """Open them."""
    raise_descriptor_limit(20_000)
    limit = trio.CapacityLimiter(32)

    async def one(nursery: trio.Nursery) -> None:
        async with limit:
            connection: Connection = await connect(TcpNetwork(), f"{url.rstrip('/')}/ws")
            handler = One()
            nursery.start_soon(connection.run, handler)
            connection.wake()
            await handler.answered.wait()

    async with trio.open_nursery() as keeping:
        began = clock()
        async with trio.open_nursery() as nursery:
            for _ in range(n):
                nursery.start_soon(one, keeping)
        print(json.dumps(n / (clock() - began)), flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        keeping.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
