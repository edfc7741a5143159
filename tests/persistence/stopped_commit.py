"""The process of `test_stopped_commit.py`: it serves an agent, and stands still in a commit (SIGSTOP)."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import trio

from lmos_actors import Agent, ChildSpec, action, open_node
from lmos_actors.persistence import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.persistence import Batch, Conflict, Durability

STOPS_IN = 2
"""The number of the commit."""


class Counter(Agent, durable=True):
    """Counts."""

    n: int = 0

    @action
    def add(self) -> int:
        """Count one more."""
        self.n += 1
        return self.n


class StoreThatStops(SqliteStore):
    """A store in a file, which has its process stopped in one of its commits."""

    commits = 0

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        self.commits += 1
        if self.commits == STOPS_IN:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().commit(batches, durability)


async def main(path: str) -> None:
    async with open_node(listen="ws://127.0.0.1:0", store=StoreThatStops(path)) as node:
        await node.start_child(ChildSpec("counter", Counter))
        os.write(1, f"{node.urls[0]}\n".encode())
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
