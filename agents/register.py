"""A register that several replicas keep and that reads as if there were one, by quorums as of Attiya et al.

Every replica serves every key, and coordinates what it is asked for. To write, it asks a majority for their
newest version, and stores the value with a newer one at a majority. To read, it asks a majority, and stores
the newest answer at a majority before it returns it: else a later read at another replica could miss it. Two
majorities have a replica in common, so a read meets every write that was over before it. Where no majority
can be reached the operation fails, and whether a write has happened is then unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors import ActionFailed, Agent, AgentError, Property, Ref, action, prop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@attrs.frozen(order=True)
class Version:
    """The version of a value: of two with the same number, that of the higher replica is newer."""

    number: int = 0
    replica: int = -1


@attrs.frozen
class Stored:
    """A value with its version."""

    version: Version = Version()
    value: int = 0


class Replica(Agent):
    """One of several replicas of a register with keys, in which each key holds 0 at first."""

    number: int
    neighbours: tuple[Ref[Replica], ...] = ()
    patience: float = 0.3  # seconds for which a coordinator waits for a majority
    values: dict[str, Stored] = attrs.field(factory=dict[str, Stored])
    highest: int = 0
    given_up: Property[int] = prop(default=0, read_only=True, doc="Operations that found no majority.")

    # ---- what clients ask for

    @action(concurrency=64)
    async def read(self, key: str) -> int:
        """Return the value of a key. Fails where no majority is there."""
        newest = await self._newest(key)
        await self._store_at_majority(key, newest)
        return newest.value

    @action(concurrency=64)
    async def write(self, key: str, value: int) -> None:
        """Set the value of a key. Where it fails the write may have happened, or may happen later."""
        newest = await self._newest(key)
        # two writes that are coordinated here at once need versions of their own
        self.highest = max(self.highest, newest.version.number) + 1
        await self._store_at_majority(key, Stored(Version(self.highest, self.number), value))

    # ---- what replicas ask of each other

    @action(safe=True)
    def fetch(self, key: str) -> Stored:
        """Return what this replica has for a key."""
        return self.values.get(key, Stored())

    @action(idempotent=True)
    def store(self, key: str, stored: Stored) -> None:
        """Keep a value, unless there is a newer one."""
        if stored.version > self.fetch(key).version:
            self.values[key] = stored

    # ---- majorities

    async def _newest(self, key: str) -> Stored:
        answers = [self.fetch(key)]

        async def ask(replica: Ref[Replica]) -> None:
            answers.append(await replica.invoke(Replica.fetch, key))

        await self._majority(ask)
        return max(answers, key=lambda stored: stored.version)

    async def _store_at_majority(self, key: str, stored: Stored) -> None:
        self.store(key, stored)

        async def ask(replica: Ref[Replica]) -> None:
            await replica.invoke(Replica.store, key, stored)

        await self._majority(ask)

    async def _majority(self, ask: Callable[[Ref[Replica]], Awaitable[None]]) -> None:
        """Ask the others, until so many have answered that they are a majority with this one."""
        wanted = (len(self.neighbours) + 1) // 2
        answered = 0
        with trio.move_on_after(self.patience):
            async with trio.open_nursery() as nursery:

                async def ask_one(replica: Ref[Replica]) -> None:
                    nonlocal answered
                    try:
                        await ask(replica)
                    except AgentError:
                        return  # it is cut off, or away
                    answered += 1
                    if answered == wanted:
                        nursery.cancel_scope.cancel("a majority has answered")

                for neighbour in self.neighbours:
                    nursery.start_soon(ask_one, neighbour)
        if answered < wanted:
            self.given_up += 1
            raise ActionFailed(f"only {answered + 1} of {len(self.neighbours) + 1} replicas have answered")


class Client(Agent):
    """Reads and writes at random, at any replica, and goes on where an operation has failed."""

    number: int
    replicas: tuple[Ref[Replica], ...]
    keys: tuple[str, ...] = ("red", "green", "blue")
    pause: float = 0.01  # seconds between two operations, about
    done: Property[int] = prop(default=0, read_only=True, doc="Operations that were answered.")
    failed: Property[int] = prop(default=0, read_only=True)
    written: int = 0

    def started(self) -> None:
        self.nursery.start_soon(self._go_on)

    async def _go_on(self) -> None:
        while True:
            await trio.sleep(self.pause * (0.5 + self.random.random()))
            try:
                await self._do_one()
                self.done += 1
            except AgentError:
                self.failed += 1

    async def _do_one(self) -> None:
        replica = self.random.choice(self.replicas).within(3.0)
        key = self.random.choice(self.keys)
        if self.random.random() < 0.75:
            await replica.invoke(Replica.read, key)
        else:
            self.written += 1
            # a value that nobody else writes, so that it is known who wrote what a read returns
            await replica.invoke(Replica.write, key, 1_000 * (self.number + 1) + self.written)
