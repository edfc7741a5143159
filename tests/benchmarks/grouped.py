"""The agents of `groups.py`, in a file that imports nothing else."""

import os
from time import perf_counter as clock

from lmos_actors import Agent, AgentUnavailable, NotFound, OutcomeUnknown, Ref, action


class Clerk(Agent):
    """Answers."""

    @action
    def echo(self, text: str) -> str:
        """Return a text."""
        return text

    @action(safe=True)
    def pid(self) -> int:
        """Return the number of its process."""
        return os.getpid()


class Desk(Agent):
    """Asks an agent of another group."""

    clerk: Ref[Clerk]

    @action
    async def rate(self, count: int) -> float:
        """Return how many questions in a second are answered, one after another."""
        began = clock()
        for _ in range(count):
            await self.clerk.invoke(Clerk.echo, "Will it be warm enough to sit outside?")
        return count / (clock() - began)

    @action
    async def once(self) -> bool:
        """Ask once; return whether there was an answer."""
        try:
            await self.clerk.invoke(Clerk.echo, "Will it?")
        except (AgentUnavailable, NotFound, OutcomeUnknown):
            return False
        return True
