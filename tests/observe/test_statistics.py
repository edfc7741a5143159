"""What `node.statistics()` counts, and that it counts without a call for each agent at rest."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentError,
    ChildSpec,
    MailboxOptions,
    Node,
    OutcomeUnknown,
    Pool,
    Ref,
    SupervisorSpec,
    action,
    invoke_all,
    open_node,
    simulate,
)
from lmos_actors.actors import Slot, hold, release, set_service_time, slot_of
from lmos_actors.errors import SupervisionError
from lmos_actors.supervision import agents_of, supervisors_of
from lmos_actors.testing import open_test_node, settle
from lmos_actors.transport import BudgetStatistics, ConnectionOptions, MemoryNetwork
from tests.observe.http_requests import samples

if TYPE_CHECKING:
    from types import FrameType

    from lmos_actors.testing import TestNode
    from lmos_actors.types import NodeStatistics

COUNTED = (
    "accepted", "handled", "cancelled", "dropped", "dead_lettered", "waiting", "running", "refused",
    "restarts",
)  # fmt: skip


class Busy(Agent, behaviours=("open", "shut")):
    """Does whatever leaves something in its accounts, and remembers whose task carried out its turns."""

    turns: ClassVar[list[object]] = []

    def started(self) -> None:
        self.join_group("all")

    @action
    def take(self, value: int) -> int:
        self.turns.append((self.ref.path, value, trio.current_time(), trio.lowlevel.current_task().name))
        return value

    @action
    async def count(self) -> AsyncIterator[int]:
        for number in range(3):
            yield number

    @action
    def own(self) -> None:
        self.send(self.ref, Busy.take, 7)

    @action
    def change(self) -> None:
        self.become("shut" if self.behaviour == "open" else "open")

    @action(when=("open",), postpone=True)
    def when_open(self) -> None:
        pass

    @action
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    def crash(self) -> None:
        raise ZeroDivisionError

    @action
    def later(self, seconds: float) -> None:
        self.after(seconds, self.nothing)

    @action
    def put_aside(self) -> None:
        self.stash()

    @action
    async def hire(self) -> None:
        await self.start(Busy)

    def nothing(self) -> None:
        pass


class Plain(Agent):
    """Has nothing but its turns."""

    @action
    def take(self, value: int) -> int:
        return value


class Fails(Agent):
    """Cannot start where it is the one that is to fail."""

    made: ClassVar[int] = 0
    fail_at: int

    def started(self) -> None:
        Fails.made += 1
        self.nursery.start_soon(trio.sleep, 1)
        if self.fail_at == Fails.made % 4:
            raise ZeroDivisionError


def summed(node: Node) -> dict[str, int]:
    """Add up what each agent says of itself."""
    each = [attrs.asdict(ref.statistics()) for ref in node.agents()]
    return {name: sum(numbers[name] for numbers in each) for name in COUNTED}


def counted(found: NodeStatistics) -> dict[str, int]:
    return {name: getattr(found, name) for name in COUNTED}


class Slow(Agent):
    """Takes its time."""

    @action
    async def take(self, text: str, seconds: float) -> int:
        await trio.sleep(seconds)
        return len(text)

    @action
    def give(self, size: int) -> str:
        return "x" * size


VERBS = (
    "ask", "tell", "refused", "work", "cancelled", "crash", "later", "put_aside", "change", "hire", "own",
    "stream", "flood", "group", "hold", "release", "slow", "at_once", "stop", "restart", "delete", "start",
    "begin_and_fail", "postponed", "hire_and_crash",
    "group_of_two", "resize", "pass", "ready",
)  # fmt: skip

steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 9), st.booleans()), max_size=25)


async def do(node: Node, verb: str, number: int) -> None:
    """Do one thing to one of the agents that are there now."""
    refs = node.agents()
    ref: Ref[Any] = refs[number % len(refs)]
    with suppress(AgentError, SupervisionError, trio.WouldBlock):
        match verb:
            case "ask" | "refused":
                await ref.invoke(Busy.take, number if verb == "ask" else "no number")  # type: ignore[arg-type]
            case "tell":
                await ref.tell(Busy.take, number)
            case "work":
                await ref.invoke(Busy.work, number / 4)
            case "cancelled":
                with trio.move_on_after(number / 8):
                    await ref.invoke(Busy.work, 2.0)
            case "put_aside":
                with trio.move_on_after(2):
                    await ref.invoke(Busy.put_aside)
            case "change":
                await ref.invoke(Busy.change)
            case "later":
                await ref.tell(Busy.later, number / 4)
            case "crash":
                await ref.invoke(Busy.crash)
            case "hire":
                await ref.invoke(Busy.hire)
            case "own":
                await ref.invoke(Busy.own)
            case "stream":
                async with ref.stream(Busy.count) as counted:
                    async for _ in counted:
                        await trio.sleep(0.125)
            case "flood":
                for place in range(number):
                    ref.tell_nowait(Busy.take, place)
            case "group":
                node.group("all", Busy).broadcast(Busy.take, number)
            case "postponed":
                with trio.move_on_after(1):
                    await ref.invoke(Busy.when_open)
            case "ready":
                await ref.ready()
            case _:
                await change(node, ref, verb, number)


async def change(node: Node, ref: Ref[Any], verb: str, number: int) -> None:
    """Do what is done to an agent from outside, or to the tree."""
    name = ref.path
    match verb:
        case "hold":
            hold(ref)
        case "release":
            with suppress(RuntimeError):
                release(ref)
        case "slow":
            set_service_time(ref, number / 8)
        case "at_once":
            await invoke_all(node.agents()[:number], Busy.take, number)
        case "stop":
            await node.root.terminate_child(name)
        case "restart":
            await node.root.restart_child(name)
        case "delete":
            await node.root.terminate_child(name)
            await node.root.delete_child(name)
        case "start":
            await (node.start(Busy) if number % 2 else node.root.start_many(ChildSpec("more", Busy), number))
        case "begin_and_fail":
            await node.root.start_many(ChildSpec("fails", partial(Fails, fail_at=number)), 3)
        case "hire_and_crash":
            await ref.invoke(Busy.hire)
            await ref.invoke(Busy.crash)
        case "group_of_two":
            spec = SupervisorSpec("two", [ChildSpec("a", Busy), ChildSpec("b", Busy)])
            below = await node.start_supervisor(attrs.evolve(spec, name=f"two-{number}"))
            await trio.sleep(number / 4)
            await node.root.terminate_child(below.label)
            await node.root.delete_child(below.label)
        case "resize":
            await node.root.supervisor("crew").pool("pool").resize(1 + number % 4)
        case _:
            await trio.sleep(number / 4)


def tree() -> SupervisorSpec:
    small = MailboxOptions(2, "drop_oldest")
    crew = SupervisorSpec(
        "crew", [ChildSpec("a", Busy), Pool(Busy, 2, name="pool")], strategy="one_for_all", max_restarts=100
    )
    passing = ChildSpec("c", Busy, restart="temporary")
    return SupervisorSpec(
        "root", [crew, ChildSpec("b", Busy, mailbox=small), passing], max_restarts=100, max_seconds=1
    )


def walked(node: Node) -> tuple[int, int, dict[str, int]]:
    return len(node.agents()), len(list(supervisors_of(node.root))), summed(node)


@given(steps)
def test_a_node_counts_what_its_agents_count(plan: list[tuple[str, int, bool]]) -> None:
    async def main() -> None:
        async with open_test_node(tree()) as node, trio.open_nursery() as nursery:
            await node.root.start_many(ChildSpec("many", Busy), 3)
            for verb, number, looks in plan:
                nursery.start_soon(do, node, verb, number)
                await settle()
                if looks:
                    found = node.statistics()
                    assert (found.agents, found.supervisors, counted(found)) == walked(node)
            await trio.sleep(5)
            found = node.statistics()
            assert (found.agents, found.supervisors, counted(found)) == walked(node)
            nursery.cancel_scope.cancel()
        assert node.statistics().agents == 0

    simulate(main)


@given(steps)
def test_looking_at_the_counts_changes_nothing(plan: list[tuple[str, int, bool]]) -> None:
    def turns(*, looks: bool) -> list[object]:
        async def main() -> list[object]:
            async with open_test_node(tree()) as node, trio.open_nursery() as nursery:
                Busy.turns, Fails.made = [], 0
                for verb, number, is_looked_at in plan:
                    nursery.start_soon(do, node, verb, number, name=f"{verb} {number}")
                    if looks and is_looked_at:
                        node.statistics()
                    await trio.sleep(0.125)
                nursery.cancel_scope.cancel()
                return [*Busy.turns, walked(node)]

        return simulate(main)

    assert turns(looks=True) == turns(looks=False)


@given(steps)
def test_a_scrape_counts_what_the_agents_count(plan: list[tuple[str, int, bool]]) -> None:
    async def main() -> None:
        async with open_node(tree(), metrics=True) as node, trio.open_nursery() as nursery:
            for verb, number, looks in plan:
                nursery.start_soon(do, node, verb, number)
                await settle()
                if looks:
                    await trio.sleep(2)  # a younger count is given again
                    await settle()
                    await compare_scrape(node)
            nursery.cancel_scope.cancel()

    simulate(main)


async def compare_scrape(node: Node) -> None:
    """Compare what a scrape says of where agents stand, what waits and what runs with a walk."""
    slots = list(agents_of(node.root))
    numbers = summed(node)
    found = samples(await node.metrics())
    statuses = Counter[str]()
    for key, value in found.items():
        if key[0] == "lmos_actors_agents":
            statuses[key[-1]] += int(value)
    assert +statuses == Counter(slot.status for slot in slots)
    depth = sum(slot.mailbox_statistics().depth for slot in slots)
    for name, wanted in (("runs", numbers["running"]), ("mailbox_depth", depth)):
        assert sum(value for key, value in found.items() if key[0] == f"lmos_actors_{name}") == wanted


def test_an_agent_at_rest_is_counted_without_a_call() -> None:
    async def main() -> int:
        async with open_test_node() as node:
            refs = await node.root.start_many(ChildSpec("plain", Plain), 1_000)
            for ref in refs[::2]:
                await ref.invoke(Plain.take, 1)
            return calls(partial(_count, node, 500))

    assert simulate(main) < 100


def test_an_agent_is_not_visited_again_before_it_does_something() -> None:
    async def main() -> list[int]:
        async with open_test_node() as node:
            refs = await node.root.start_many(ChildSpec("busy", Busy), 1_000)  # in a group: visited by calls
            _count(node, 0)
            made = [calls(partial(_count, node, 0))]
            for ref in refs[:10]:
                await ref.invoke(Busy.take, 1)
            return [*made, calls(partial(_count, node, 10))]

    assert max(simulate(main)) < 100


def test_the_count_keeps_no_agent_that_is_gone() -> None:
    async def main() -> None:
        async with open_test_node() as node:
            staying = await node.start(Plain)
            for _ in range(100):  # nobody asks for the statistics meanwhile
                passing = await node.root.start_many(ChildSpec("plain", Plain, restart="temporary"), 3)
                paths = [ref.path for ref in passing]
                del passing
                for path in paths:
                    await node.root.terminate_child(path)
            gc.collect()
            rt = slot_of(staying).rt
            slots = [each for each in gc.get_objects() if isinstance(each, Slot) and each.rt is rt]
            assert len(slots) <= 3
            assert node.statistics().agents == 1

    simulate(main)


def _count(node: TestNode, handled: int) -> None:
    found = node.statistics()
    assert (found.agents, found.handled) == (1_000, handled)


def calls(fn: Any) -> int:
    """Count the calls of functions written in Python that a call makes."""
    made = 0

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        fn()
    finally:
        sys.setprofile(before)
    return made


def test_what_peers_hold_of_the_memory_is_counted() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        narrow = ConnectionOptions(total_bytes=1 << 20)
        async with (
            open_node(listen="ws://server", network=network, connection=narrow) as server,
            open_node(network=network) as client,
            trio.open_nursery() as nursery,
        ):
            assert client.statistics().memory == BudgetStatistics(0, 256 << 20, 0)
            assert server.statistics().memory == BudgetStatistics(0, 1 << 20, 0)
            await server.start(Slow)
            slow = await client.consume(Slow, "ws://server/agents/slow")
            nursery.start_soon(slow.invoke, Slow.take, "x" * 200_000, 10.0)
            await trio.sleep(1)
            assert 200_000 < server.statistics().memory.bytes < 240_000  # charged in steps of an eighth
            await trio.sleep(20)
            assert server.statistics().memory.bytes == 0
            assert len(await slow.invoke(Slow.give, 300_000)) == 300_000
            await trio.sleep(1)
            assert server.statistics().memory.bytes == 0, "an answer that has been read is held no more"
            with suppress(OutcomeUnknown):
                await slow.invoke(Slow.take, "x" * 1_100_000, 10.0)
            assert server.statistics().memory == BudgetStatistics(0, 1 << 20, 1)

    simulate(main)
