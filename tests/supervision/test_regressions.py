"""Faults of supervisors that were found once, by reading: each test failed before its fix."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest
import trio

from lmos_actors import Agent, AgentDied, Backoff, ChildSpec, StartFailed, SupervisorSpec, action
from lmos_actors.testing import open_test_node, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors import Ref


class Slow(Agent):
    """Takes a second to start."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        await trio.sleep(1)
        yield


async def test_agents_of_one_class_started_side_by_side_have_names_of_their_own(virtual_clock) -> None:
    """The name was chosen before it was the second one's turn, and taken when it was."""
    async with open_test_node() as node:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(node.start, Slow)
        assert [ref.path for ref in node.agents()] == ["slow", "slow-2", "slow-3"]


class Fragile(Agent):
    """Crashes when told to, and fails its next starts as often as it should."""

    failures: ClassVar[int] = 0

    def started(self) -> None:
        if self.failures:
            type(self).failures -= 1
            raise KeyError("start")

    @action
    def crash(self) -> None:
        raise KeyError("crash")


async def crash(ref: Ref[Fragile]) -> None:
    with pytest.raises(AgentDied):
        await ref.invoke(Fragile.crash)


async def test_a_delayed_restart_does_not_hide_others_from_who_waits_for_all_to_be_settled(
    virtual_clock,
) -> None:
    """After the first delayed restart of a supervisor's life, `settled` no longer waited for any other."""
    Fragile.failures = 0
    children = (ChildSpec("delayed", Fragile, backoff=Backoff(initial=1)), ChildSpec("prompt", Fragile))
    async with open_test_node(SupervisorSpec("root", children, max_restarts=1000)) as node:
        await crash(node.root.child("delayed"))
        await trio.sleep(5)
        Fragile.failures = 200
        await crash(node.root.child("prompt"))
        await node.root.settled()
        assert [info.status for info in node.root.which_children()] == ["running", "running"]


class Untidy(Agent):
    """Starts a task in `started()`, and then fails."""

    ended: ClassVar[int] = 0

    def started(self) -> None:
        self.nursery.start_soon(self.work)
        raise KeyError("start")

    async def work(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            type(self).ended += 1


async def test_a_start_has_failed_only_when_all_of_it_has_unwound(virtual_clock) -> None:
    """The name was free again while tasks of the agent that had had it were still there."""
    Untidy.ended = 0
    async with open_test_node() as node:
        for attempt in (1, 2):
            with pytest.raises(StartFailed):
                await node.start_child(ChildSpec("untidy", Untidy))
            assert Untidy.ended == attempt
        await settle()
        assert node.root.which_children() == []
