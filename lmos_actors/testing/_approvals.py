"""Answers that tests give to the approval requests of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.approvals import Approval, Approvals

if TYPE_CHECKING:
    from lmos_actors.node import Node


async def answer_approval(
    node: Node, approved: bool, /, *, agent: str | None = None, key: str | None = None, note: str = ""
) -> Approval:
    """Wait until an agent asks for an approval (`self.approve`), answer it, and return its record.

    If several approvals wait, the oldest is answered. `agent` limits the choice to the agent at that path,
    `key` to approvals with that key. Raises ActionFailed if the approval is decided meanwhile, NotFound at
    the node's end.
    """
    approvals = node.find(Approvals)
    await approvals.ready()
    async with approvals.observe(Approvals.waiting) as numbers:
        async for _ in numbers:
            for each in await approvals.invoke(Approvals.entries, "waiting", 10_000):
                if agent in (None, each.agent) and key in (None, each.key):
                    verb = Approvals.accept if approved else Approvals.refuse
                    return await approvals.invoke(verb, each.id, note)
    raise RuntimeError("the node has ended, and no agent has asked")
