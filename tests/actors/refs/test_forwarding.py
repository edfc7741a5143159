"""Refs that hand on to other links: their choice is made when a request begins, and all verbs follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import Agent, Call, Event, NotFound, Property, Ref, action, event, open_node, prop

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

Verb = Callable[[Ref["Desk"]], Any]


class Desk(Agent):
    level: Property[int] = prop(default=3)
    said: Event[int] = event()

    @action
    def twice(self, value: int) -> int:
        self.said.emit(value)
        return 2 * value


def begun(ref: Ref[Desk]) -> AbstractAsyncContextManager[Call[int, Any]]:
    return ref.begin(Desk.twice, 4)


ENTERED: dict[str, Verb] = {
    "begin": begun,
    "observe": lambda ref: ref.observe(Desk.level),
    "subscribe": lambda ref: ref.subscribe(Desk.said),
    "monitor": lambda ref: ref.monitor(),
    "link": lambda ref: ref.link(),
}
AWAITED: dict[str, Verb] = {
    "invoke": lambda ref: ref.invoke(Desk.twice, 4),
    "read": lambda ref: ref.read(Desk.level),
    "tell": lambda ref: ref.tell(Desk.twice, 4),
}
VIEWS: dict[str, Callable[[Ref[Desk]], Ref[Desk]]] = {
    "found": lambda ref: ref,
    "retrying": lambda ref: ref.retrying(),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("verb", ENTERED)
async def test_an_agent_that_comes_before_the_block_is_entered_is_found(verb: str, view: str) -> None:
    async with open_node() as node:
        ref = VIEWS[view](node.find(Desk))
        entered = ENTERED[verb](ref)
        await node.start(Desk)
        async with entered:
            assert await ref.invoke(Desk.twice, 2) == 4


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("verb", ENTERED)
async def test_entering_says_that_there_is_no_such_agent(verb: str, view: str) -> None:
    async with open_node() as node:
        entered = ENTERED[verb](VIEWS[view](node.find(Desk)))
        with pytest.raises(NotFound, match="Desk"):
            async with entered:
                pytest.fail("there is no agent")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("verb", AWAITED)
async def test_awaiting_finds_the_agent_that_has_come_since(verb: str, view: str) -> None:
    async with open_node() as node:
        coroutine = AWAITED[verb](VIEWS[view](node.find(Desk)))
        await node.start(Desk)
        await coroutine
        with pytest.raises(NotFound, match="nobody"):
            await AWAITED[verb](VIEWS[view](node.find(Desk, "nobody")))


async def test_counts_and_identity_are_those_of_the_agent() -> None:
    async with open_node() as node:
        found = node.find(Desk)
        assert found.path == "Desk"
        near = await node.start(Desk)
        assert found == found.retrying() == near
        assert found.path == "desk"
        found.tell_nowait(Desk.twice, 1)
        assert found.retrying().statistics() == near.statistics()
        assert found.mailbox_statistics().depth == 1
