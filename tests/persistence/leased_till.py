"""The process of `test_leases_for_real.py`: it serves an agent with a key, kept in a store."""

from __future__ import annotations

import os
import sys

import trio

from lmos_actors import Agent, ChildSpec, action, open_node


class Till(Agent, durable=True):
    """Counts what is sold."""

    sold: int = 0

    @action
    def sell(self) -> int:
        """Sell one more."""
        self.sold += 1
        return self.sold


async def main(store: str) -> None:
    async with open_node(listen="ws://127.0.0.1:0", store=store) as node:
        await node.start_child(ChildSpec("till", Till, key="1"))
        os.write(1, f"{node.urls[0]}\n".encode())
        await trio.sleep_forever()


if __name__ == "__main__":
    from tests.persistence import leased_till  # the store names the module of a class

    trio.run(leased_till.main, sys.argv[1])
