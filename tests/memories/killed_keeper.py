"""A process that remembers and forgets until it is killed, and prints what is kept once it is."""

from __future__ import annotations

import os
import sys

import trio

from lmos_actors.memories import Memories
from tests.memories.keepers import Keeper, keeper_on, with_options

PEOPLE = 4


async def main(store: str, start: int) -> None:
    async with keeper_on(store, kind=with_options(texts=20)) as keeper, trio.open_nursery() as nursery:
        for who in range(PEOPLE):
            nursery.start_soon(live, keeper, who, start)


async def live(keeper: Keeper, who: int, start: int) -> None:
    memories = Memories(keeper, f"user {who}")
    for number in range(start, start + 1_000_000):
        id = await memories.remember(f"fact number{number} of user{who}")
        os.write(1, f"{who} {number}\n".encode())
        if number % 7 == 0:
            await memories.forget(id)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
