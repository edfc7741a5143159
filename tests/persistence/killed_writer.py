"""A process that writes to a store until it is killed, and prints each ticket once it is committed."""

from __future__ import annotations

import os
import sys
from typing import Any

import trio

from lmos_actors.persistence import DeleteRange, Durability, Put, open_writer, store_of

WRITERS = 8


def writes_of(owner: int, number: int) -> list[Any]:
    """The batch of one turn: a snapshot, a fact, and now and then the end of the older facts."""
    text = f"{number:08}".encode()
    batch: list[Any] = [
        Put("state", str(owner), text),
        Put("copy", str(owner), text * (1 + number % 50)),
        Put("journal", f"{owner}/{number:08}", text),
    ]
    if number % 20 == 0:
        batch.append(DeleteRange("journal", f"{owner}/", f"{owner}/{number:08}"))
    return batch


async def main(address: str, start: int) -> None:
    async with open_writer(store_of(address)) as writer, trio.open_nursery() as nursery:

        async def write(owner: int) -> None:
            for number in range(start, start + 1_000_000):
                durability: Durability = "power" if number % 7 == 0 else "process"
                await writer.submit(writes_of(owner, number), durability).wait()
                os.write(1, f"{owner} {number}\n".encode())

        for owner in range(WRITERS):
            nursery.start_soon(write, owner)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
