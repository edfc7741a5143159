"""What a `def` handler cannot await is an error at that line (T1); what nobody awaits has its verb's name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    Node,
    Pool,
    Property,
    Ref,
    SupervisorSpec,
    TraceLog,
    action,
    event,
    invoke_all,
    prop,
)
from lmos_actors.testing import open_test_node, settle

if TYPE_CHECKING:
    from lmos_actors.simulation import VirtualClock

LIMIT = 30.0


class Desk(Agent):
    units: Property[str] = prop(default="metre")
    asked: Event[str] = event()

    @action
    async def work(self) -> None:
        await trio.sleep(1)

    @action
    def note(self) -> None:
        pass

    @action
    async def count(self) -> AsyncIterator[int]:
        yield 1


class Caller(Agent):
    """Its turn does what the test wants; a test's function needs no schema."""

    todo: Any = None

    @action
    def turn(self) -> None:
        self.todo(self)


Verb = Callable[[Ref[Desk], Node, Any], object]

AWAITED: list[tuple[str, Verb]] = [
    ("ref.invoke", lambda ref, node, call: ref.invoke(Desk.note)),
    ("ref.tell", lambda ref, node, call: ref.tell(Desk.note)),
    ("ref.invoke", lambda ref, node, call: ref.within(1).invoke(Desk.note)),
    ("ref.tell", lambda ref, node, call: ref.within(1).tell(Desk.note)),
    ("ref.read", lambda ref, node, call: ref.read(Desk.units)),
    ("ref.read_all", lambda ref, node, call: ref.read_all()),
    ("ref.write", lambda ref, node, call: ref.write(Desk.units, "foot")),
    ("ref.write_many", lambda ref, node, call: ref.write_many(Desk.units.to("foot"))),
    ("ref.ready", lambda ref, node, call: ref.ready()),
    ("invoke_all", lambda ref, node, call: invoke_all([ref], Desk.note)),
    ("call.result", lambda ref, node, call: call.result()),
    ("call.query", lambda ref, node, call: call.query()),
    ("call.cancel", lambda ref, node, call: call.cancel("no more")),
    ("node.start", lambda ref, node, call: node.start(Desk)),
    ("node.start_child", lambda ref, node, call: node.start_child(ChildSpec("d", Desk))),
    ("node.start_supervisor", lambda ref, node, call: node.start_supervisor(SupervisorSpec("s"))),
    ("node.start_pool", lambda ref, node, call: node.start_pool(Pool(Desk, 2))),
    ("supervisor.start_child", lambda ref, node, call: node.root.start_child(ChildSpec("d", Desk))),
    ("supervisor.start_many", lambda ref, node, call: node.root.start_many(ChildSpec("d", Desk), 2)),
    ("supervisor.terminate_child", lambda ref, node, call: node.root.terminate_child("desk")),
    ("supervisor.restart_child", lambda ref, node, call: node.root.restart_child("desk")),
    ("supervisor.delete_child", lambda ref, node, call: node.root.delete_child("desk")),
]
ENTERED: list[tuple[str, Verb]] = [
    ("ref.begin", lambda ref, node, call: ref.begin(Desk.work)),
    ("ref.stream", lambda ref, node, call: ref.stream(Desk.count)),
    ("ref.observe", lambda ref, node, call: ref.observe(Desk.units)),
    ("ref.subscribe", lambda ref, node, call: ref.subscribe(Desk.asked)),
    ("ref.subscribe_all", lambda ref, node, call: ref.subscribe_all()),
    ("ref.monitor", lambda ref, node, call: ref.monitor()),
]


async def turn(verb: Verb) -> str:
    """Call a verb in a turn; give what the turn's asker is told."""
    async with open_test_node() as node:
        desk = await node.start(Desk)
        async with desk.begin(Desk.work) as call:
            caller = await node.start(Caller, todo=lambda _: verb(desk, node, call))
            with pytest.raises(AgentDied) as caught:
                await caller.invoke(Caller.turn)
            return str(caught.value)
    raise AssertionError


@pytest.mark.parametrize(("name", "verb"), AWAITED)
async def test_a_turn_cannot_await(name: str, verb: Verb, virtual_clock: VirtualClock) -> None:
    text = await turn(verb)
    assert f"{name}(...) has to be awaited, and the turn 'turn' of 'caller' that calls it is a def" in text
    assert f"(test_unawaited.py, line {verb.__code__.co_firstlineno})" in text


@pytest.mark.parametrize(("name", "verb"), ENTERED)
async def test_a_turn_cannot_enter(name: str, verb: Verb, virtual_clock: VirtualClock) -> None:
    text = await turn(verb)
    assert f"{name}(...) has to be entered by async with, and the turn 'turn' of 'caller'" in text
    assert f"(test_unawaited.py, line {verb.__code__.co_firstlineno})" in text


async def test_a_turn_cannot_await_the_start_of_a_task(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        caller = await node.start(Caller, todo=lambda agent: agent.nursery.start(trio.sleep, 1))
        with pytest.raises(AgentDied, match=r"self\.nursery\.start\(\.\.\.\) has to be awaited"):
            await caller.invoke(Caller.turn)


@pytest.mark.parametrize("way", ["asked", "told", "timer", "started", "traced"])
async def test_the_turn_is_named_however_it_came(way: str, virtual_clock: VirtualClock) -> None:
    errors: list[str] = []

    class Wrong(Agent):
        def forget(self) -> None:
            try:
                self.ref.invoke(Wrong.plan)
            except RuntimeError as exc:
                errors.append(str(exc))

        def started(self) -> None:
            self.forget()

        @action
        def plan(self) -> None:
            self.forget()
            self.after(1, self.forget)

    async with open_test_node(instrument=TraceLog() if way == "traced" else None) as node:
        ref = await node.start(Wrong)
        if way != "started":
            await (ref.tell if way == "told" else ref.invoke)(Wrong.plan)
            await trio.sleep(2)
    names = {"started": "started", "timer": "forget"}
    assert f"the turn '{names.get(way, 'plan')}' of 'wrong'" in errors[-1 if way in names else 1].replace(
        "test_the_turn_is_named_however_it_came.<locals>.Wrong.", ""
    )


@pytest.mark.parametrize(
    ("name", "forget"),
    [
        ("ref.invoke/read/write", lambda ref, call: ref.invoke(Desk.note)),
        ("ref.invoke/read/write", lambda ref, call: ref.within(1).read(Desk.units)),
        ("ref.tell", lambda ref, call: ref.tell(Desk.note)),
        ("ref.tell", lambda ref, call: ref.within(1).tell(Desk.note)),
        ("ref.ready", lambda ref, call: ref.ready()),
        ("invoke_all", lambda ref, call: invoke_all([ref], Desk.note)),
        ("call.result", lambda ref, call: call.result()),
        ("call.query", lambda ref, call: call.query()),
        ("call.cancel", lambda ref, call: call.cancel()),
    ],
)
@pytest.mark.parametrize("kind", ["slot", "traced", "found"])
async def test_in_a_run_python_names_the_verb(
    name: str, forget: Callable[[Any, Any], object], kind: str, virtual_clock: VirtualClock
) -> None:
    async with open_test_node(instrument=TraceLog() if kind == "traced" else None) as node:
        ref = await node.start(Desk)
        async with ref.begin(Desk.work) as call:
            await settle()
            with pytest.warns(RuntimeWarning, match=f"coroutine '{name}' was never awaited"):
                forget(node.find(Desk) if kind == "found" else ref, call)
