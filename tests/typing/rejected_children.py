"""What cannot be right about agents with children."""

from __future__ import annotations

from lmos_actors import Agent, ChildSpec, Ref, action


class Clerk(Agent):
    number: int = 0

    @action
    def file(self, page: str) -> int:
        return len(page)


class Other(Agent):
    @action
    def rest(self) -> None:
        pass


class Desk(Agent):
    @action
    async def work(self) -> None:
        await self.start(Clerk, number="two")  # E
        await self.start(Clerk, 2)  # E
        wrong: Ref[Other] = await self.start(Clerk)  # E
        await self.start_child(Clerk)  # E
        clerk = await self.start_child(ChildSpec("clerk", Clerk))
        await clerk.invoke(Other.rest)  # E
        await wrong.invoke(Other.rest)
