"""The limit for durable turns: bare agents that are tasks, and one thread that commits what they hand over.

The rows, the transactions and the PRAGMAs are those of `limits_sqlite`. All that is handed over during a
commit is the next one.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import Abort, current_task, current_trio_token, reschedule, wait_task_rescheduled

from tests.benchmarks.limits_sqlite import Row, connected, put, row
from tests.benchmarks.limits_tasks import TaskAgent

if TYPE_CHECKING:
    from collections.abc import Sequence


class Commits:
    """The rows that wait for the next commit, the tasks that wait for theirs, and the thread that writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[Row] = []
        self._tasks: list[trio.lowlevel.Task] = []
        self._committing: list[trio.lowlevel.Task] = []
        self._work = SimpleQueue[list[Row] | None]()
        self._token = current_trio_token()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    async def keep(self, one: Row) -> None:
        """Wait until a row is committed."""
        self._rows.append(one)
        self._tasks.append(current_task())
        if not self._committing:
            self._begin()
        await wait_task_rescheduled(lambda _: Abort.FAILED)

    def end(self) -> None:
        """End the thread."""
        self._work.put(None)
        self._thread.join()

    def _begin(self) -> None:
        self._committing, self._tasks = self._tasks, []
        rows, self._rows = self._rows, []
        self._work.put(rows)

    def _done(self) -> None:
        kept, self._committing = self._committing, []
        for task in kept:
            reschedule(task)
        if self._rows:
            self._begin()

    def _write(self) -> None:
        db = connected(self._path)
        while rows := self._work.get():
            put(db, rows)
            self._token.run_sync_soon(self._done)
        db.close()


class Account(TaskAgent):
    """An agent that answers once its row is kept."""

    __slots__ = ("balance", "commits", "name")

    def __init__(self, name: str, commits: Commits) -> None:
        super().__init__()
        self.name = name
        self.balance = 0
        self.commits = commits

    async def on(self, message: int) -> int:
        self.balance += message
        await self.commits.keep(row(self.name, self.balance))
        return self.balance


async def _turns(agents: int, n: int) -> float:
    with TemporaryDirectory() as folder:
        commits = Commits(f"{folder}/bare.db")
        async with trio.open_nursery() as nursery:
            accounts = [Account(f"account-{number}", commits) for number in range(min(agents, n))]
            for account in accounts:
                nursery.start_soon(account.run)
            began = clock()
            await _ask_all(accounts, n // len(accounts))
            value = n // len(accounts) * len(accounts) / (clock() - began)
            nursery.cancel_scope.cancel()
        commits.end()
    return value


async def _ask_all(accounts: Sequence[Account], times: int) -> None:
    """Ask each account so often, from a task of its own."""

    async def ask(account: Account) -> None:
        for number in range(times):
            assert await account.ask(1) == number + 1

    async with trio.open_nursery() as nursery:
        for account in accounts:
            nursery.start_soon(ask, account)


def turns(agents: int, n: int) -> float:
    """Turns a second: `n` of them, each agent asked by a task, again once it has answered."""
    return trio.run(_turns, agents, n)
