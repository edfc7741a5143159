"""A vote that several proposers hold at once and that ends alike for all: Paxos, for one decision.

A value is chosen once a majority of acceptors has accepted it in one ballot. Whoever holds a ballot first
asks a majority what it has accepted so far, and has to propose the newest of that instead of its own value.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import trio
from msgspec import Struct

from lmos_actors import ActionFailed, Agent, AgentError, Property, Ref, action, prop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class Promise(Struct, frozen=True):
    """An acceptor's answer: the ballot in which it accepted a value last, 0 if never, and that value."""

    ballot: int
    value: str


class Acceptor(Agent):
    """Remembers what it has promised and accepted."""

    promised: Property[int] = prop(default=0, read_only=True)
    accepted: Property[int] = prop(default=0, read_only=True)
    value: Property[str] = prop(default="", read_only=True)

    @action
    def prepare(self, ballot: int) -> Promise:
        """Promise to take no part in older ballots."""
        if ballot <= self.promised:
            raise ActionFailed(f"ballot {self.promised} has been promised")
        self.promised = ballot
        return Promise(self.accepted, self.value)

    @action
    def accept(self, ballot: int, value: str) -> None:
        """Accept a value, unless a newer ballot has begun."""
        if ballot < self.promised:
            raise ActionFailed(f"ballot {self.promised} has been promised")
        self.promised = self.accepted = ballot
        self.value = value


class Proposer(Agent):
    """Has its value chosen, or learns which one has been. `number`, below 1000, tells proposers apart."""

    acceptors: tuple[Ref[Acceptor], ...]
    number: int
    patience: float = 1.0
    chosen: Property[str] = prop(default="", read_only=True)
    ballots: Property[int] = prop(default=0, read_only=True)

    @action
    async def propose(self, value: str) -> str:
        """Hold ballots until a value is chosen, and give it."""
        while not self.chosen:
            self.ballots += 1
            ballot = self.ballots * 1_000 + self.number
            if not await self.vote(ballot, value):
                # another proposer is at it: whoever waits longer lets it finish
                await trio.sleep(self.patience * self.random.random())
        return self.chosen

    async def vote(self, ballot: int, value: str) -> bool:
        """Hold one ballot; tell whether a value was chosen in it."""
        promises = await self.ask_all(lambda acceptor: acceptor.invoke(Acceptor.prepare, ballot))
        if not self.is_majority(promises):
            return False
        latest = max(promises, key=lambda promise: promise.ballot)
        wanted = latest.value if latest.ballot else value
        accepted = await self.ask_all(lambda acceptor: acceptor.invoke(Acceptor.accept, ballot, wanted))
        if not self.is_majority(accepted):
            return False
        self.chosen = wanted
        return True

    def is_majority(self, answers: list[T]) -> bool:
        return 2 * len(answers) > len(self.acceptors)

    async def ask_all(self, ask: Callable[[Ref[Acceptor]], Awaitable[T]]) -> list[T]:
        """Ask all acceptors at once; give the answers of those that agree, and are there."""
        answers: list[T] = []

        async def ask_one(acceptor: Ref[Acceptor]) -> None:
            with suppress(AgentError):
                answers.append(await ask(acceptor.within(self.patience)))

        async with trio.open_nursery() as nursery:
            for acceptor in self.acceptors:
                nursery.start_soon(ask_one, acceptor)
        return answers
