"""The limit for `async def` actions: a bare agent that is one task, asked by another, one ask at a time."""

from __future__ import annotations

from time import perf_counter as clock
from typing import Any

import trio
from trio.lowlevel import Abort, checkpoint, current_task, reschedule, wait_task_rescheduled

from tests.benchmarks.limits_mailboxes import Ask

NO_MAIL: list[Any] = []


class TaskAgent:
    __slots__ = ("queue", "task")

    def __init__(self) -> None:
        self.queue = NO_MAIL
        self.task: trio.lowlevel.Task | None = None

    async def on(self, message: int) -> int:
        return message

    async def ask(self, message: int) -> int:
        envelope = Ask(message, current_task())
        if self.queue:
            self.queue.append(envelope)
        else:
            self.queue = [envelope]
            task = self.task
            if task is not None:
                self.task = None
                reschedule(task)
        value: int = await wait_task_rescheduled(envelope.abort)
        return value

    def _abort(self, _: object) -> Abort:
        self.task = None
        return Abort.SUCCEEDED

    async def run(self) -> None:
        while True:
            if not self.queue:
                self.task = current_task()
                await wait_task_rescheduled(self._abort)
            batch, self.queue = self.queue, NO_MAIL
            for envelope in batch:
                envelope.reply(await self.on(envelope.message))
            if self.queue:
                await checkpoint()


async def _ask(n: int) -> float:
    async with trio.open_nursery() as nursery:
        agent = TaskAgent()
        nursery.start_soon(agent.run)
        await checkpoint()
        began = clock()
        for i in range(n):
            await agent.ask(i)
        value = n / (clock() - began)
        nursery.cancel_scope.cancel()
    return value


def ask(n: int) -> float:
    """Asks a second."""
    return trio.run(_ask, n)
