"""The limit for turns: bare agents on one dispatcher task, without anything a runtime adds.

Handlers are `def` where agents are told or asked one at a time, else `async def` ones that never wait.
Bounded mailboxes (64 waiting, the batch in hand apart), FIFO, 256 messages between checkpoints. No
supervision, accounts, checked values, deadlines or contexts: a runtime can only come near.
"""

from __future__ import annotations

from collections import deque
from inspect import iscoroutinefunction
from time import perf_counter as clock
from typing import Any, ClassVar

import trio
import trio.testing
from trio.lowlevel import Abort, checkpoint, current_task, reschedule, wait_task_rescheduled

from tests.benchmarks.limits_mailboxes import ASKS, SEATS, Ask, AskOf, Full, Gather

NO_MAIL: list[Any] = []
BUDGET = 256
RING = FAN = 1000


class Dispatcher:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.ready: deque[Bare] = deque()
        self.waiting: trio.lowlevel.Task | None = None
        self.crashes: list[tuple[Bare, Exception]] = []
        nursery.start_soon(self.run)

    def schedule(self, agent: Bare) -> None:
        agent.busy = True
        self.ready.append(agent)
        task = self.waiting
        if task is not None:
            self.waiting = None
            reschedule(task)

    def _abort(self, _: object) -> Abort:
        self.waiting = None
        return Abort.SUCCEEDED

    async def run(self) -> None:
        ready = self.ready
        while True:
            if not ready:
                self.waiting = current_task()
                await wait_task_rescheduled(self._abort)
            budget = BUDGET
            while ready and budget > 0:
                agent = ready.popleft()
                batch = agent.queue
                agent.queue = NO_MAIL
                if agent.parked:
                    agent.admit()
                budget -= len(batch)
                handlers = agent.handlers
                rest = iter(batch)
                try:
                    for message in rest:
                        envelope = None
                        if type(message) in ASKS:
                            envelope, message = message, message.message
                        handler, is_async = handlers[type(message)]
                        if is_async:
                            try:
                                handler(agent, message).send(None)
                            except StopIteration as stop:
                                if envelope is not None:
                                    envelope.reply(stop.value)
                        else:
                            value = handler(agent, message)
                            if envelope is not None:
                                envelope.reply(value)
                except Exception as exc:
                    agent.queue = [*rest, *agent.queue]
                    self.crashes.append((agent, exc))
                if agent.queue:
                    ready.append(agent)
                else:
                    agent.busy = False
            if ready:
                await checkpoint()


class Bare:
    __slots__ = ("busy", "dispatcher", "parked", "queue")
    handlers: ClassVar[dict[type, tuple[Any, bool]]] = {}

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.queue = NO_MAIL
        self.busy = False
        self.dispatcher = dispatcher
        self.parked: dict[trio.lowlevel.Task, Any] | None = None

    def __init_subclass__(cls) -> None:
        cls.handlers = {
            handler.handles: (handler, iscoroutinefunction(handler))
            for handler in vars(cls).values()
            if hasattr(handler, "handles")
        }

    def tell(self, message: Any) -> None:
        queue = self.queue
        if queue:
            if len(queue) >= SEATS:
                raise Full
            queue.append(message)
            return
        self.queue = [message]
        if not self.busy:
            self.busy = True
            dispatcher = self.dispatcher
            dispatcher.ready.append(self)
            task = dispatcher.waiting
            if task is not None:
                dispatcher.waiting = None
                reschedule(task)

    async def send(self, message: Any) -> None:
        try:
            self.tell(message)
        except Full:
            await self._park(message)

    async def _park(self, message: Any) -> None:
        if self.parked is None:
            self.parked = {}
        parked, me = self.parked, current_task()
        parked[me] = message

        def abort(_: object) -> Abort:
            del parked[me]
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def admit(self) -> None:
        parked = self.parked
        self.queue = queue = []
        while parked and len(queue) < SEATS:
            task = next(iter(parked))
            queue.append(parked.pop(task))
            reschedule(task)

    async def ask(self, message: Any) -> Any:
        envelope = Ask(message, current_task())
        try:
            self.tell(envelope)
        except Full:
            envelope.task = None
            await self._park(envelope)
            envelope.task = current_task()
        return await wait_task_rescheduled(envelope.abort)

    async def ask_inline(self, message: Any) -> Any:
        """An idle agent's handler runs in the asker's step."""
        handler, is_async = self.handlers[type(message)]
        if is_async or self.busy or self.queue:
            return await self.ask(message)
        self.busy = True
        try:
            return handler(self, message)
        finally:
            if self.queue:
                self.dispatcher.schedule(self)
            else:
                self.busy = False


def handles(kind: type) -> Any:
    """Mark the handler of messages of one type."""

    def mark(handler: Any) -> Any:
        handler.handles = kind
        return handler

    return mark


class BareEcho(Bare):
    __slots__ = ()

    @handles(int)
    def on(self, message: int) -> int:
        return message


class BareAsyncEcho(Bare):
    __slots__ = ()

    @handles(int)
    async def on(self, message: int) -> int:
        return message


class BareCounter(Bare):
    __slots__ = ("count",)

    @handles(int)
    def on(self, _message: int) -> None:
        self.count += 1

    @handles(str)
    def get(self, _message: str) -> int:
        return self.count


class BareHop(Bare):
    __slots__ = ("done", "next")

    @handles(int)
    async def on(self, message: int) -> None:
        if message:
            self.next.tell(message - 1)
        else:
            self.done.set()


async def tell(dispatcher: Dispatcher, n: int) -> float:
    agent = BareCounter(dispatcher)
    agent.count = 0
    began = clock()
    for i in range(n):
        try:
            agent.tell(i)
        except Full:
            await agent.send(i)
    assert await agent.ask("get") == n
    return n / (clock() - began)


async def ask(dispatcher: Dispatcher, n: int) -> float:
    agent = BareEcho(dispatcher)
    began = clock()
    for i in range(n):
        await agent.ask_inline(i)
        if not i & 255:
            await checkpoint()
    return n / (clock() - began)


async def fan(dispatcher: Dispatcher, n: int) -> float:
    agents = [BareAsyncEcho(dispatcher) for _ in range(FAN)]
    began = clock()
    for _ in range(n):
        gather = Gather(FAN)
        for place, agent in enumerate(agents):
            agent.tell(AskOf(1, gather, place))
        await gather.wait()
    return n * FAN / (clock() - began)


async def ring(dispatcher: Dispatcher, n: int) -> float:
    done = trio.Event()
    agents = [BareHop(dispatcher) for _ in range(RING)]
    for agent, following in zip(agents, agents[1:] + agents[:1], strict=True):
        agent.next, agent.done = following, done
    began = clock()
    agents[0].tell(n)
    await done.wait()
    return n / (clock() - began)


async def spawn(dispatcher: Dispatcher, n: int) -> float:
    began = clock()
    agents = [BareAsyncEcho(dispatcher) for _ in range(n)]
    await agents[-1].ask(1)
    return n / (clock() - began)


def on_dispatcher(program: Any, n: int) -> float:
    """Run one of the programs above in a trio run of its own."""

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            dispatcher = Dispatcher(nursery)
            await trio.testing.wait_all_tasks_blocked()
            value: float = await program(dispatcher, n)
            nursery.cancel_scope.cancel()
        return value

    return trio.run(main)
