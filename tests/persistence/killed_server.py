"""The process that `test_killed_servers.py` starts: a server that kills itself at one of its commits."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import ChildSpec, SupervisorSpec, open_node
from lmos_actors.persistence import SqliteStore
from tests.persistence.killed_agents import Batches, Counter, Diary, Intake, JournalIntake

if TYPE_CHECKING:
    from collections.abc import Sequence

AGENTS = 4


class FatalStore(SqliteStore):
    """A store whose process ends with a commit: just before it is made, or just after."""

    def __init__(self, path: str, commits: int, *, after: bool) -> None:
        super().__init__(path)
        self._left = commits
        self._after = after

    def commit(self, batches: Sequence[Any], durability: Any) -> Any:
        self._left -= 1
        if not self._left and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = super().commit(batches, durability)
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


async def main(path: str, url: str, commits: int, when: str) -> None:
    store = FatalStore(path, commits, after=when == "after")
    counters = [ChildSpec(f"counter-{i}", Counter) for i in range(AGENTS)]
    takers = [
        ChildSpec("intake", Intake),
        ChildSpec("journal-intake", JournalIntake),
        ChildSpec("batches", Batches),
        ChildSpec("diary", Diary),
    ]
    tree = SupervisorSpec("main", [*counters, *takers])
    async with open_node(tree, listen=url, store=store, omnia=True):
        os.write(1, b"ready\n")
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
