"""Stops of agents, supervisors and nodes, and restarts, while a commit is open: each ends within its time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import Agent, AgentDied, AgentUnavailable, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.persistence import SimulatedStore
from tests.seeded import simulated_disk


class Counter(Agent, durable=True):
    n: int = 0

    @action
    def add(self) -> int:
        self.n += 1
        return self.n

    @action
    def crash(self) -> None:
        raise RuntimeError

    @action
    def get(self) -> int:
        return self.n


class Plain(Agent):
    @action
    def crash(self) -> None:
        raise RuntimeError

    @action
    def ping(self) -> int:
        return 1


@pytest.mark.parametrize(("commit", "answer"), [(3.0, 1), (1_000.0, "may be kept")])
@pytest.mark.parametrize("stopped", ["agent", "supervisor", "node"])
async def test_a_stop_while_a_commit_is_open(
    stopped: str, commit: float, answer: Any, autojump_clock: object
) -> None:
    """What is kept in time is answered; else the wait ends: 5 s for an agent, 10 s more for the store."""
    outcome: list[object] = []
    disk = simulated_disk(1, lambda: commit)
    tree = SupervisorSpec("root", [SupervisorSpec("group", [ChildSpec("counter", Counter)])])

    async def ask(ref: Any) -> None:
        try:
            outcome.append(await ref.invoke(Counter.add))
        except AgentDied as error:
            outcome.append("may be kept" if error.started else "not started")

    async with trio.open_nursery() as nursery:
        async with open_node(tree, store=SimulatedStore(disk)) as node:
            nursery.start_soon(ask, node.find(Counter, "group/counter"))
            await trio.sleep(1)
            began = trio.current_time()
            if stopped == "agent":
                await node.root.supervisor("group").terminate_child("counter")
            elif stopped == "supervisor":
                await node.root.terminate_child("group")
            assert trio.current_time() - began <= 5.5
        assert trio.current_time() - began <= 16
    assert outcome == [answer]
    assert trio.current_time() - began <= 16
    assert not disk.users


@pytest.mark.parametrize("stopped", ["nothing", "agent", "node"])
async def test_a_crash_while_a_commit_hangs_holds_up_no_sibling(stopped: str, autojump_clock: object) -> None:
    """The agent is unavailable until the commit has ended, and begins with what it kept."""
    disk = simulated_disk(1, lambda: 30.0)
    tree = SupervisorSpec("root", [ChildSpec("counter", Counter), ChildSpec("plain", Plain)])
    async with trio.open_nursery() as nursery, open_node(tree, store=SimulatedStore(disk)) as node:
        counter, plain = node.find(Counter, "counter"), node.find(Plain, "plain")
        if stopped != "node":
            nursery.start_soon(counter.invoke, Counter.add)
        else:
            counter.tell_nowait(Counter.add)
        await trio.sleep(1)
        began = trio.current_time()
        for crashed in (counter.invoke(Counter.crash), plain.invoke(Plain.crash)):
            with pytest.raises(AgentDied):
                await crashed
        await plain.ready()
        assert await plain.invoke(Plain.ping) == 1
        assert trio.current_time() - began < 2
        with pytest.raises(AgentUnavailable, match="it waits for its store"):
            await counter.invoke(Counter.get)
        if stopped == "agent":
            await node.root.terminate_child("counter")
            assert trio.current_time() - began < 7
            await trio.sleep(30)
        elif stopped == "nothing":
            await counter.ready()
            assert 28 < trio.current_time() - began < 32
            assert await counter.invoke(Counter.get) == 1
            assert node.statistics().restarts == 2
    if stopped == "node":
        assert trio.current_time() - began < 17
