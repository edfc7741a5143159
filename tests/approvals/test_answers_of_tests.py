"""`answer_approval`: how tests answer what agents ask people."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import Agent, Ref, action
from lmos_actors.errors import Deadlocked
from lmos_actors.testing import answer_approval, open_test_node


class Desk(Agent):
    """Asks."""

    @action(concurrency=9)
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}", key=order)


def ask(nursery: trio.Nursery, desk: Ref[Desk], order: str, answers: dict[str, bool]) -> None:
    async def asked() -> None:
        answers[order] = await desk.invoke(Desk.refund, order)

    nursery.start_soon(asked)


async def test_it_waits_for_the_question_and_answers_it(virtual_clock: Any) -> None:
    answers: dict[str, bool] = {}
    async with open_test_node() as node:
        desk, other = await node.start(Desk), await node.start(Desk)
        async with trio.open_nursery() as nursery:
            ask(nursery, desk, "o-1", answers)
            ask(nursery, other, "o-2", answers)
            kept = await answer_approval(node, False, agent="desk-2", note="too late")
            assert (kept.agent, kept.key, kept.state, kept.note) == ("desk-2", "o-2", "refused", "too late")
            ask(nursery, desk, "o-3", answers)
            assert (await answer_approval(node, True, key="o-3")).agent == "desk"
            assert (await answer_approval(node, True)).key == "o-1"
    assert answers == {"o-1": True, "o-2": False, "o-3": True}


async def test_a_question_that_nobody_asks_ends_the_test(virtual_clock: Any) -> None:
    with pytest.raises(Deadlocked):
        async with open_test_node() as node:
            await answer_approval(node, True)
