"""A client of the soak: `python -m tests.long.soak_client ORIGIN NAME CRASHES`. Obeys its standard input.

What may become of a request whose connection is cut, or whose agent crashes, is expected. Everything else is
wrong, and told with each sample.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import httpx2
import trio

from lmos_actors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    MailboxFull,
    NotFound,
    OutcomeUnknown,
    Ref,
    open_node,
)
from lmos_actors.errors import ActionCancelled, ConnectFailed
from tests.long.soak_agents import Boss, Ledger, Worker, leaves_of, look, obey, tell
from tests.long.soak_server import WORKERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node

EXPECTED = (AgentDied, AgentUnavailable, OutcomeUnknown, ConnectFailed, MailboxFull, NotFound)
EXPECTED += (httpx2.TransportError,)
PATIENCE = 40.0  # seconds after which a request is one that nobody answers


class Client:
    """Uses the agents of the server in every way, at a moderate rate."""

    def __init__(self, node: Node, origin: str, name: str, web: httpx2.AsyncClient) -> None:
        self.node, self.origin, self.name, self.web = node, origin, name, web
        self.random = Random(f"{name} {os.getpid()}")
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.workers: list[Ref[Worker]] = []
        self.sure = self.unsure = 0

    async def begin(self) -> None:
        """Get the refs that are kept."""
        for name in WORKERS:
            self.workers.append(await self.found(Worker, f"crew.{name}"))
        self.ledger = await self.found(Ledger, "ledger")
        self.boss = await self.found(Boss, "boss")

    async def found(self, cls: Any, name: str) -> Any:
        """Consume an agent, however often the connection is cut meanwhile."""
        with trio.fail_after(PATIENCE):
            while True:
                try:
                    return await self.node.consume(cls, f"{self.origin}/agents/{name}")
                except ConnectFailed:
                    self.counts["consume ConnectFailed"] += 1

    def note(self, text: str) -> None:
        """Take note of what must not be."""
        self.counts["wrong"] += 1
        if len(self.wrong) < 20:
            self.wrong.append(text)

    async def once(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Do one thing, and count what came of it."""
        name = fn.__name__
        try:
            with trio.fail_after(PATIENCE):
                await fn()
        except Exception as error:
            leaves = list(leaves_of(error))
            self.counts[f"{name} {type(leaves[0]).__name__}"] += 1
            if not all(isinstance(leaf, EXPECTED) for leaf in leaves):
                self.note(f"{name}: {error!r} {leaves!r}")
        else:
            self.counts[f"{name} ok"] += 1

    async def often(self, seconds: float, fn: Callable[[], Awaitable[None]]) -> None:
        """Do it again and again, so many seconds apart on average."""
        while True:
            await trio.sleep(self.random.expovariate(1 / seconds))
            await self.once(fn)

    def worker(self) -> Ref[Worker]:
        """Choose one."""
        return self.random.choice(self.workers)

    def same(self, what: str, got: object, wanted: object) -> None:
        """Take note of an answer that is another's."""
        if got != wanted:
            self.note(f"{what} gave {got!r}, not {wanted!r}")

    # ---- what it does

    async def add(self) -> None:
        a, b = self.random.randrange(10**6), self.random.randrange(10**6)
        ref = self.worker()
        if self.random.random() < 0.3:
            ref = ref.retrying()
        self.same("add", await ref.invoke(Worker.add, a, b), a + b)

    async def work(self) -> None:
        async with self.worker().begin(Worker.work, 0.3) as call:
            async for _ in call.progress:
                pass
            await call.result()

    async def cancel(self) -> None:
        async with self.worker().begin(Worker.work, 30.0) as call:
            await trio.sleep(0.1)
            if self.random.random() < 0.5:
                return  # leaving cancels it, too
            await call.cancel("soaked")
            try:
                await call.result()
            except ActionCancelled:
                return
            self.note("a cancelled run had a result")

    async def refuse(self) -> None:
        try:
            await self.worker().invoke(Worker.refuse)
        except ActionFailed:
            return
        self.note("a refusal had a result")

    async def count(self) -> None:
        to = self.random.choice((0, 1, 40, 200))
        seen = []
        async with self.worker().stream(Worker.count, to) as numbers:
            async for number in numbers:
                seen.append(number)
                if number == 100:  # and leave it there
                    return
        self.same("count", seen, list(range(to)))

    async def properties(self) -> None:
        ref = self.worker()
        await ref.write(Worker.level, self.random.randrange(1000))
        await ref.read(Worker.level)
        await ref.read_all()

    async def listen(self) -> None:
        ref = self.worker()
        with trio.move_on_after(self.random.uniform(0.5, 4)):
            async with (
                ref.observe(Worker.level) as levels,
                ref.subscribe(Worker.done) as ends,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self.drain, levels)
                nursery.start_soon(self.drain, ends)

    async def drain(self, feed: Any) -> None:
        async for _ in feed:
            self.counts["heard"] += 1

    async def listen_always(self) -> None:
        """Listen over crashes and cuts: it ends with the client."""
        async with trio.open_nursery() as nursery:
            for ref in self.workers:
                nursery.start_soon(self.hear, partial(ref.observe, Worker.level, gaps=True))
                nursery.start_soon(self.hear, partial(ref.subscribe_all, gaps=True))
                nursery.start_soon(self.hear, ref.monitor)

    async def hear(self, listening: Any) -> None:
        try:
            async with listening() as feed:
                await self.drain(feed)
        except EXPECTED as error:  # it could not begin
            self.counts[f"listen_always {type(error).__name__}"] += 1
            await trio.sleep(0.5)
            await self.hear(listening)
        else:
            self.note("a feed ended")

    async def crash(self) -> None:
        await self.worker().tell(Worker.crash)

    async def book(self) -> None:
        try:
            await self.ledger.invoke(Ledger.book, self.name)
        except OutcomeUnknown:
            self.unsure += 1
            raise
        self.sure += 1
        if self.sure % 20 == 0:
            total = await self.ledger.invoke(Ledger.total, self.name)
            if not self.sure <= total <= self.sure + self.unsure:
                self.note(f"{total} booked, {self.sure} answered, {self.unsure} unknown")

    async def guest(self) -> None:
        name = await self.boss.invoke(Boss.hire)
        ref = await self.node.consume(Worker, f"{self.origin}/agents/boss.{name}")
        try:
            self.same("a guest", await ref.invoke(Worker.add, 1, 2), 3)
        finally:
            self.node.release(ref)
            with trio.CancelScope(shield=True), trio.move_on_after(PATIENCE):
                await self.boss.retrying(attempts=None).invoke(Boss.fire, name)

    async def page(self) -> None:
        place = f"/agents/crew.{self.random.choice(WORKERS)}"
        answers = [
            await self.web.get(f"{place}/properties/level"),
            await self.web.put(f"{place}/properties/level", json=7),
            await self.web.post(f"{place}/actions/add", json={"a": 1, "b": 2}),
            await self.web.get(place),
        ]
        for answer in answers:
            self.counts[f"HTTP {answer.status_code}"] += 1
            crashed = answer.status_code == 500 and "agent-died" in answer.text
            if answer.status_code not in (200, 204, 503) and not crashed:
                self.note(f"{answer} {answer.text[:300]}")
        if answers[2].status_code == 200:
            self.same("add over HTTP", answers[2].json(), 3)

    async def sse(self) -> None:
        place = f"/agents/crew.{self.random.choice(WORKERS)}/events"
        with trio.move_on_after(self.random.uniform(0.5, 4)):
            async with self.web.stream("GET", place, headers={"Accept": "text/event-stream"}) as answer:
                async for _ in answer.aiter_lines():
                    self.counts["lines"] += 1


RATES = {"add": 0.1, "work": 0.4, "cancel": 1, "refuse": 1, "count": 1, "properties": 0.5, "listen": 3}
RATES |= {"crash": 4, "book": 0.25, "guest": 3, "page": 1.5, "sse": 5}
"""Seconds between two of each, on average."""


async def use(origin: str, name: str, crashes: int) -> None:
    """Use the server until told to end, after so many dead letters."""
    timeout = httpx2.Timeout(PATIENCE)
    async with open_node() as node, httpx2.AsyncClient(base_url=origin, timeout=timeout) as web:
        client = Client(node, origin, name, web)
        await client.begin()
        for number in range(crashes):
            with suppress(*EXPECTED):
                await client.workers[number % 3].tell(Worker.crash)
            await trio.sleep(0.01)
        tell("ready")

        async def sample() -> Any:
            return {**look(node), "counts": client.counts, "wrong": client.wrong}

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.listen_always)
            for what, seconds in RATES.items():
                nursery.start_soon(client.often, seconds, getattr(client, what))
            await obey({"sample": sample, "end": sample})
            nursery.cancel_scope.cancel()
    tell(trio.lowlevel.current_statistics().tasks_living)


if __name__ == "__main__":
    logging.getLogger("lmos_actors").setLevel(logging.CRITICAL)
    trio.run(use, sys.argv[1], sys.argv[2], int(sys.argv[3]))
