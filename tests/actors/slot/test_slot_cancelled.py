"""Cancellation injected at every step of send, ask, spawn and stop.

An operation is run again and again; in the n-th run its scope is cancelled just before its task takes its
n-th step, just after it, or at the n-th twentieth of a second, until it ends
uncancelled. After each run the accounts add up, no task is left over, nothing
waits, and the agent still answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Event,
    MailboxOptions,
    NotFound,
    Property,
    Ref,
    SupervisorSpec,
    TraceLog,
    action,
    event,
    prop,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node
from tests.matrix import some

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node


class Victim(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()
    begun: int = 0
    ended: int = 0

    @action
    def turn(self) -> int:
        self.begun += 1
        self.ended += 1
        return self.begun

    @action
    async def run(self, seconds: float) -> None:
        self.begun += 1
        try:
            for _ in range(3):
                await trio.sleep(seconds / 3)
        finally:
            self.ended += 1

    @action
    async def items(self) -> AsyncIterator[int]:
        self.begun += 1
        try:
            for item in range(3):
                await trio.sleep(0.1)
                yield item
        finally:
            self.ended += 1

    @action
    def balance(self) -> int:
        return self.begun - self.ended


class Slow(Victim):
    """Takes a second to start and a second to end."""

    @asynccontextmanager
    async def lifespan(self):
        await trio.sleep(0.5)
        await trio.sleep(0.5)
        try:
            yield
        finally:
            await trio.sleep(0.5)
            await trio.sleep(0.5)


class StepCanceller(trio.abc.Instrument):
    """Cancels a scope before its task takes its n-th step, or when the task has just taken it and waits."""

    def __init__(self, after: int, by: str) -> None:
        self.left = after
        self.by = by
        self.task = trio.lowlevel.current_task()
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.step(task, "before")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.step(task, "after")

    def step(self, task: trio.lowlevel.Task, by: str) -> None:
        if task is self.task and by == self.by:
            self.left -= 1
            if not self.left:
                self.scope.cancel()


Operation = Any


async def ask_idle(node: Node, ref: Ref[Victim]) -> None:
    await ref.invoke(Victim.turn)
    await trio.lowlevel.checkpoint()
    await ref.within(5).invoke(Victim.turn)
    await trio.lowlevel.checkpoint()
    await ref.write(Victim.units, "kelvin")


async def ask_busy(node: Node, ref: Ref[Victim]) -> None:
    ref.tell_nowait(Victim.turn)
    await ref.invoke(Victim.turn)
    ref.tell_nowait(Victim.turn)
    await ref.read(Victim.units)


async def ask_run(node: Node, ref: Ref[Victim]) -> None:
    await ref.invoke(Victim.run, 0.3)
    await ref.within(5).invoke(Victim.run, 0.3)


async def ask_pending(node: Node, ref: Ref[Victim]) -> None:
    ref.tell_nowait(Victim.run, 0.3)
    ref.tell_nowait(Victim.run, 0.3)
    await ref.invoke(Victim.run, 0.3)


async def send(node: Node, ref: Ref[Victim]) -> None:
    for _ in range(4):
        await ref.tell(Victim.run, 0.2)
    for _ in range(4):
        await ref.tell(Victim.turn)
    await trio.sleep(0.3)


async def call(node: Node, ref: Ref[Victim]) -> None:
    async with ref.begin(Victim.run, 0.3) as made, ref.within(2).begin(Victim.turn) as other:
        await made.query()
        await made.result()
        await other.result()
    async with ref.begin(Victim.run, 0.3) as made:
        await made.cancel()


async def stream(node: Node, ref: Ref[Victim]) -> None:
    async with ref.stream(Victim.items) as items:
        async for _ in items:
            pass


async def listen(node: Node, ref: Ref[Victim]) -> None:
    async with (
        ref.observe(Victim.units) as readings,
        ref.subscribe(Victim.asked),
        ref.subscribe_all(),
        ref.monitor(),
    ):
        await readings.receive()
        await trio.sleep(0.1)


async def spawn(node: Node, ref: Ref[Victim]) -> None:
    made = await node.start(Victim)
    await trio.lowlevel.checkpoint()
    await made.invoke(Victim.turn)
    await trio.lowlevel.checkpoint()


async def spawn_slowly(node: Node, ref: Ref[Victim]) -> None:
    await node.start(Slow)


async def spawn_many(node: Node, ref: Ref[Victim]) -> None:
    await node.root.start_many(ChildSpec("many", Victim), 10)
    await node.root.start_many(ChildSpec("slow", Slow), 2)


async def spawn_tree(node: Node, ref: Ref[Victim]) -> None:
    tree = SupervisorSpec("branch", [ChildSpec("one", Slow), ChildSpec("two", Slow)])
    await node.start_supervisor(tree)


async def stop(node: Node, ref: Ref[Victim]) -> None:
    await node.start_child(ChildSpec("stopped", Slow))
    ref.tell_nowait(Victim.run, 0.3)
    await node.root.terminate_child("stopped")
    await node.root.restart_child("stopped")
    await node.root.terminate_child("stopped")
    await node.root.delete_child("stopped")


async def stop_busy(node: Node, ref: Ref[Victim]) -> None:
    busy = await node.start_child(ChildSpec("busy", Victim, shutdown=0.2))
    busy.tell_nowait(Victim.run, 0.9)
    busy.tell_nowait(Victim.run, 0.9)
    await trio.sleep(0.1)
    await node.root.terminate_child("busy")


async def wait_ready(node: Node, ref: Ref[Victim]) -> None:
    made = await node.start_child(ChildSpec("slow", Slow))
    await node.root.terminate_child("slow")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.root.restart_child, "slow")
        await made.ready()


OPERATIONS: list[Callable[[Node, Ref[Victim]], Awaitable[None]]] = [
    ask_idle, ask_busy, ask_run, ask_pending, send, call, stream, listen, spawn, spawn_slowly, spawn_many,
    spawn_tree, stop, stop_busy, wait_ready,
]  # fmt: skip


def balanced(refs: list[Ref[Any]]) -> None:
    for ref in refs:
        s = ref.statistics()
        assert s.accepted == s.handled + s.cancelled + s.dropped + s.dead_lettered + s.waiting + s.running, s
        assert min(attrs.astuple(s)[:9]) >= 0, s


async def inject(operation: Operation, after: int, by: str, traced: bool) -> bool:
    """Run the operation with one cancellation; say whether that came before its end."""
    log = TraceLog(keep=0) if traced else None
    async with open_test_node(instrument=log) as node:
        options = MailboxOptions(size=2)
        ref = await node.start_child(ChildSpec("victim", Victim, mailbox=options))
        await trio.sleep(0.01)
        tasks = task_names()
        canceller = StepCanceller(after, by)
        trio.lowlevel.add_instrument(canceller)
        if by == "time":
            canceller.scope.deadline = trio.current_time() + after * 0.05
        with canceller.scope:
            await operation(node, ref)
        trio.lowlevel.remove_instrument(canceller)
        balanced(node.agents())
        await trio.sleep(30)
        balanced(node.agents())
        for agent in node.agents():
            s = agent.statistics()
            assert (s.waiting, s.running) == (0, 0), s
            assert agent.mailbox_statistics().parked == 0
            assert s.state in ("running", "down"), s
        await still_works(node, ref)
        lifespans = sum(name.startswith("agent ") for name in task_names())
        assert lifespans == sum(isinstance_slow(agent) for agent in node.agents())
        extra = [name for name in task_names() if name not in tasks and not name.startswith("agent ")]
        kept = [f"supervisor {child.path}" for child in node.root.which_children() if child.kind != "agent"]
        assert [name for name in extra if not name.startswith("runner of") and name not in kept] == []
    return canceller.scope.cancelled_caught


def isinstance_slow(ref: Ref[Any]) -> bool:
    return isinstance(ref._link.agent, Slow)  # type: ignore[attr-defined]


async def still_works(node: Node, ref: Ref[Victim]) -> None:
    """The agent answers, no run of it is left open, nobody listens any more, and its supervisor goes on."""
    assert await ref.invoke(Victim.balance) == 0
    await ref.invoke(Victim.run, 0.1)
    sinks = ref._link.extra.sinks  # type: ignore[attr-defined]
    assert sinks is None or sinks.by_key == {}
    new = await node.start_child(ChildSpec("new", Slow))
    await new.invoke(Victim.turn)
    await node.root.terminate_child("new")
    await node.root.delete_child("new")
    for child in node.root.which_children():
        assert child.status in ("running", "stopped"), child
    for agent in node.agents():
        if agent.statistics().state == "running":
            assert await agent.invoke(Victim.balance) == 0


def task_names() -> list[str]:
    names = []
    root = trio.lowlevel.current_root_task()
    todo = [root] if root is not None else []
    while todo:
        task = todo.pop()
        names.append(task.name)
        todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return names


@pytest.mark.parametrize(
    ("operation", "by", "traced"),
    some(product(OPERATIONS, ("before", "after", "time"), (False, True)), of=5),  # each of the six ways
)
def test_cancelled_everywhere(operation: Operation, by: str, traced: bool) -> None:
    for after in range(1, 200):
        if not trio.run(inject, operation, after, by, traced, clock=VirtualClock()):
            break
    else:
        raise AssertionError("it never ended uncancelled")
    assert after > 1 or by != "after", "it was never cancelled"


async def test_a_tell_that_is_cancelled_while_it_waits_is_not_sent(virtual_clock) -> None:
    """A seat that becomes free in the same instant is not taken by a sender that is told Cancelled."""
    ran: list[str] = []

    class Taker(Agent, serial=True):
        @action
        async def hold(self) -> None:
            await trio.sleep(1)

        @action
        def take(self, name: str) -> None:
            ran.append(name)

    async with open_test_node() as node, trio.open_nursery() as nursery:
        options = MailboxOptions(size=1)
        taker = await node.start_child(ChildSpec("taker", Taker, mailbox=options))
        taker.tell_nowait(Taker.hold)
        await trio.sleep(0.1)
        taker.tell_nowait(Taker.take, "seated")
        scope = trio.CancelScope(deadline=1.0)

        async def send() -> None:
            with scope:
                await taker.tell(Taker.take, "cancelled")
                ran.append("told")

        nursery.start_soon(send)
        await trio.sleep(5)
        assert scope.cancelled_caught == ("cancelled" not in ran)
        assert ("told" in ran) == ("cancelled" in ran)


async def test_an_ask_whose_agent_ends_as_it_is_cancelled(virtual_clock) -> None:
    async with open_test_node() as node:
        victim = await node.start(Victim)
        with trio.move_on_after(0.5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.root.terminate_child, "victim")
                with pytest.raises((AgentDied, AgentUnavailable, NotFound)):
                    await victim.invoke(Victim.run, 60)
        await trio.sleep(10)
        assert scope.cancelled_caught or victim.statistics().state == "down"
        balanced([victim])
