"""Agents with children, as users write them."""

from __future__ import annotations

from functools import partial

from lmos_actors import Agent, ChildSpec, Ref, Supervisor, SupervisorSpec, action


class Clerk(Agent):
    number: int = 0

    @action
    def file(self, page: str) -> int:
        return len(page)


class Desk(Agent):
    def supervises(self) -> SupervisorSpec:
        return SupervisorSpec("desk", [ChildSpec("archive", Clerk)], strategy="one_for_all")

    @action
    async def work(self) -> int:
        clerk: Ref[Clerk] = await self.start(Clerk, number=2)
        partly: Ref[Clerk] = await self.start(partial(Clerk, number=3))
        named: Ref[Clerk] = await self.start_child(ChildSpec("named", Clerk))
        inner: Supervisor = await self.start_supervisor(SupervisorSpec("inner"))
        deep: Ref[Clerk] = await inner.start_child(ChildSpec("deep", Clerk))
        kids: Supervisor = self.children
        await kids.terminate_child("named")
        self.nursery.start_soon(self.start, Clerk)
        pages = [await ref.invoke(Clerk.file, "page") for ref in (clerk, partly, named, deep)]
        return sum(pages)
