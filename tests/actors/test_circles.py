"""Circles of requests: which are told, how, over how many nodes; and what only looks like one."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    ChildSpec,
    MailboxFull,
    MailboxOptions,
    Ref,
    TraceLog,
    action,
    invoke_all,
    open_node,
    simulate,
)
from lmos_actors.actors import slot_of
from lmos_actors.errors import AgentError, ConfigError, Deadlocked, DeadlockWarning, WouldDeadlock
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.security import Security
from lmos_actors.testing import open_test_node
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors import Node
    from lmos_actors.simulation import VirtualClock


class Ring(Agent):
    """Asks the next agent to do the same, and so on around."""

    following: list[Ref[Ring]]
    patience: float | None = None

    async def on(self, handle: Any) -> str:
        try:
            if self.patience is None:
                return await self.following[0].invoke(handle)
            with trio.move_on_after(self.patience):
                return await self.following[0].invoke(handle)
        except WouldDeadlock as error:
            return f"refused: {len(error.circle)} waits"
        return "gave up"

    @action
    async def alone(self) -> str:
        return await self.on(Ring.alone)

    @action(concurrency=3)
    async def three(self) -> str:
        return await self.on(Ring.three)


class Serial(Ring, serial=True):
    """Does one thing at a time."""


KINDS = {
    "concurrency 1": (Ring, Ring.alone),
    "concurrency 3": (Ring, Ring.three),
    "serial": (Serial, Ring.three),
}
each_ring = pytest.mark.parametrize("kind", KINDS)
each_length = pytest.mark.parametrize("length", [1, 2, 3])
each_place = pytest.mark.parametrize("place", ["near", "far"])


@asynccontextmanager
async def ring_of(
    kind: str,
    length: int,
    place: str,
    *,
    circles: Literal["warn", "fail"] = "warn",
    log: TraceLog | None = None,
    patience: float | None = None,
) -> AsyncGenerator[tuple[Ref[Ring], Any]]:
    """Open a ring of agents, of one node or of one each, for a block; the first has patience."""
    cls, handle = KINDS[kind]
    network, names = MemoryNetwork(), [f"r{number}" for number in range(length)]
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for name in names if place == "far" else ["one"]:
            options: Any = {"listen": f"ws://{name}", "network": network} if place == "far" else {}
            opened = open_node(circles=circles, instrument=log, **options)
            nodes.append(await stack.enter_async_context(opened))
        following: list[list[Ref[Ring]]] = [[] for _ in names]
        refs: list[Ref[Ring]] = []
        for number, name in enumerate(names):
            waits = patience if number == 0 else None
            spec = ChildSpec(name, partial(cls, following=following[number], patience=waits))
            refs.append(await nodes[number % len(nodes)].start_child(spec))
        for number, node in enumerate(nodes if place == "far" else []):
            after = names[(number + 1) % length]
            following[number].append(await node.consume(cls, f"http://{after}/agents/{after}"))
        for number in range(length if place == "near" else 0):
            following[number].append(refs[(number + 1) % length])
        yield refs[0], handle


def notes(log: TraceLog) -> list[dict[str, Any]]:
    return [record for record in map(json.loads, log.lines()) if record.get("kind") == "circle"]


def lines_in(text: str) -> list[str]:
    return re.findall(r"\(\S+test_circles\.py:\d+\)", text)


# ---- what is told


@each_place
@each_length
@each_ring
def test_on_virtual_time_it_is_deadlocked_at_once(kind: str, length: int, place: str) -> None:
    async def main() -> None:
        async with ring_of(kind, length, place) as (first, handle):
            await first.invoke(handle)

    with pytest.raises(Deadlocked, match="at 0 s of virtual time requests wait for each other") as caught:
        simulate(main)
    text = str(caught.value)
    waits = text.splitlines()[2:]
    assert len(waits) == len(lines_in(text)) == length
    assert {re.search(r"\b(r\d) \(run of", line).group(1) for line in waits} == {  # type: ignore[union-attr]
        f"r{number}" for number in range(length)
    }


@each_place
@each_length
@each_ring
def test_the_request_that_closes_it_may_fail(kind: str, length: int, place: str) -> None:
    async def main() -> str:
        async with ring_of(kind, length, place, circles="fail") as (first, handle):
            return await first.invoke(handle)
        raise AssertionError

    assert simulate(main) == f"refused: {length} waits"


@each_place
@each_length
@each_ring
def test_with_a_deadline_it_is_a_note_in_the_trace(kind: str, length: int, place: str) -> None:
    log = TraceLog()

    async def main() -> tuple[str, float]:
        async with ring_of(kind, length, place, log=log, patience=5.0) as (first, handle):
            return await first.invoke(handle), trio.current_time()
        raise AssertionError

    answer, when = simulate(main)
    assert answer == "gave up"
    assert when == pytest.approx(5.0)
    assert [note["ends"] for note in notes(log)] == ["deadline"]
    assert len(notes(log)[0]["waits"]) == length


@each_place
@pytest.mark.parametrize("kind", ["concurrency 1", "serial"])
async def test_in_real_time_it_is_a_warning_once(kind: str, place: str) -> None:
    with pytest.warns(DeadlockWarning) as told:
        await ask_until(kind, place, lambda: bool(told.list))
    (warning,) = told.list
    assert warning.filename == __file__
    assert str(warning.message).startswith("deadlock: r0 -> r1")
    assert len(lines_in(str(warning.message))) == 2


async def test_one_that_another_task_could_end_is_told_after_a_minute() -> None:
    log = TraceLog()
    async with clerks("near", log) as (a, b), trio.open_nursery() as nursery:
        nursery.start_soon(a.invoke, Clerk.fork, 1000.0, "")
        while not notes(log):
            await trio.lowlevel.checkpoint()
        slot = slot_of(a)
        (request,) = (each for line in slot.extra.pending.values() for each in line)
        with pytest.warns(DeadlockWarning, match="another task of a run in it goes on"):
            slot.rt.circles.look_at_request(request, 6)  # as the node does then
        nursery.cancel_scope.cancel()
    assert b.path == "b"


async def ask_until(kind: str, place: str, is_told: Callable[[], bool]) -> None:
    """Ask a ring of two until its circle is told, and then once more, when the same lines form another."""
    async with ring_of(kind, 2, place) as (first, handle):
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.invoke, handle)
                nursery.start_soon(first.invoke, handle)  # stands behind the circle, and closes none
                while not is_told():
                    await trio.lowlevel.checkpoint()
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()


# ---- circles of other shapes


class Clerk(Agent):
    """Does with others what its actions say."""

    others: list[Ref[Clerk]]

    @action
    async def hold(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return "held"

    @action
    async def back(self, number: int = 0) -> str:
        """Ask the other for an answer to the request that the other is busy with."""
        return await self.others[number].invoke(Clerk.back)

    @action
    async def walk(self, seconds: float, steps: int) -> str:
        """Go to and fro between the two."""
        await trio.sleep(seconds)
        return await self.others[0].invoke(Clerk.walk, 0.0, steps - 1) if steps else "there"

    @action
    async def fork(self, seconds: float, then: str) -> str:
        """Ask the other, who asks back, and sleep meanwhile; then cancel that, or crash, or wait on."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.others[0].invoke, Clerk.unfork)
            await trio.sleep(seconds)
            if then == "cancel":
                nursery.cancel_scope.cancel()
            if then == "crash":
                raise KeyError(then)
        return "slept"

    @action
    async def unfork(self) -> str:
        return await self.others[0].invoke(Clerk.fork, 0.0, "")

    @action
    async def gather(self) -> list[str]:
        return await invoke_all(self.others, Clerk.back, 0)

    @action
    async def call(self) -> str:
        """Begin a call, do other things, and wait for its result once the other waits for this."""
        async with self.others[0].begin(Clerk.uncall) as call:
            await trio.sleep(1.0)
            answer = await call.result()
        return answer

    @action
    async def uncall(self) -> str:
        return await self.others[0].invoke(Clerk.call)

    @action
    async def in_scope(self) -> str:
        with trio.CancelScope():
            return await self.others[0].invoke(Clerk.in_scope)

    @action
    async def within(self) -> str:
        return await self.others[0].within(5).invoke(Clerk.within)

    @action(concurrency=2)
    async def door(self, seconds: float, steps: int) -> str:
        await trio.sleep(seconds)
        return await self.others[0].invoke(Clerk.door, 0.0, steps - 1) if steps else "through"


@asynccontextmanager
async def clerks(place: str, log: TraceLog) -> AsyncGenerator[list[Ref[Clerk]]]:
    """Start two clerks that know each other, on one node or on two, for a block."""
    network = MemoryNetwork()
    async with AsyncExitStack() as stack:
        far = [{"listen": f"ws://{name}", "network": network} for name in ("one", "two")]
        nodes = [
            await stack.enter_async_context(open_node(instrument=log, **options))  # type: ignore[arg-type]
            for options in (far if place == "far" else [{}])
        ]
        lists: list[list[Ref[Clerk]]] = [[], []]
        specs = [ChildSpec(name, partial(Clerk, others=each)) for name, each in zip("ab", lists, strict=True)]
        a, b = await nodes[0].start_child(specs[0]), await nodes[-1].start_child(specs[1])
        if place == "far":
            lists[0].append(await nodes[0].consume(Clerk, "http://two/agents/b"))
            lists[1].append(await nodes[1].consume(Clerk, "http://one/agents/a"))
        else:
            lists[0].append(b)
            lists[1].append(a)
        yield [a, b]


async def two_that_cross(a: Ref[Clerk], b: Ref[Clerk]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(a.invoke, Clerk.walk, 1.0, 1)
        nursery.start_soon(b.invoke, Clerk.walk, 2.0, 1)


@each_place
@pytest.mark.parametrize(
    ("ask", "when"),
    [
        (two_that_cross, 2.0),  # two requests that have nothing to do with each other
        (lambda a, _: a.invoke(Clerk.call), 1.0),  # closed by a wait for what has been asked long ago
        (lambda a, _: a.invoke(Clerk.gather), 0.0),
        (lambda a, _: a.invoke(Clerk.fork, 5.0, ""), 7.0),  # certain once the run has nothing else to do
    ],
    ids=["cross", "call", "gather", "fork"],
)
def test_circles_of_other_shapes(place: str, ask: Any, when: float) -> None:
    async def main() -> None:
        async with clerks(place, TraceLog()) as (a, b):
            await ask(a, b)

    with pytest.raises(Deadlocked, match=rf"^at {when:g} s of virtual time requests wait for each other\n"):
        simulate(main)


def test_two_runs_of_one_node_in_a_circle_over_two() -> None:
    async def main() -> None:
        async with clerks("far", TraceLog()) as (a, b), trio.open_nursery() as nursery:
            nursery.start_soon(a.invoke, Clerk.back)
            nursery.start_soon(b.invoke, Clerk.back)

    with pytest.raises(Deadlocked, match="requests wait for each other"):
        simulate(main)


# ---- what only looks so


async def asks_one_that_is_busy(a: Ref[Clerk], b: Ref[Clerk]) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.invoke, Clerk.hold, 3.0)
        await trio.sleep(1.0)
        nursery.start_soon(b.invoke, Clerk.hold, 1.0)
    return await a.invoke(Clerk.hold, 0.0)


async def has_a_run_to_spare(a: Ref[Clerk], b: Ref[Clerk]) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(a.invoke, Clerk.door, 2.0, 0)
        await trio.sleep(1.0)
        nursery.start_soon(a.invoke, Clerk.door, 0.0, 2)  # comes back to this while the other still sleeps
    return await b.invoke(Clerk.hold, 0.0)


async def is_cancelled_before(a: Ref[Clerk], b: Ref[Clerk]) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.invoke, Clerk.walk, 2.0, 1)
        with trio.move_on_after(1.0):
            await a.invoke(Clerk.walk, 0.0, 1)  # as `two_that_cross`, but gone before the circle closes
    return await b.invoke(Clerk.hold, 0.0)


@each_place
@pytest.mark.parametrize("ask", [asks_one_that_is_busy, has_a_run_to_spare, is_cancelled_before])
def test_what_goes_on_is_not_told(place: str, ask: Any) -> None:
    log = TraceLog()

    async def main() -> str:
        async with clerks(place, log) as (a, b):
            found: str = await ask(a, b)
            return found
        raise AssertionError

    assert simulate(main) == "held"
    assert notes(log) == []


@each_place
@pytest.mark.parametrize(
    ("ask", "ends", "when"),
    [
        (lambda a, _: a.invoke(Clerk.within), "deadline", 5.0),
        (lambda a, _: a.invoke(Clerk.in_scope), "scope", 30.0),
        (lambda a, _: a.invoke(Clerk.fork, 3.0, "cancel"), "task", 3.0),
        (lambda a, _: a.invoke(Clerk.fork, 5.0, "crash"), "task", 5.0),
    ],
    ids=["within", "scope", "cancel", "crash"],
)
def test_what_may_end_is_a_note_alone(place: str, ask: Any, ends: str, when: float) -> None:
    log = TraceLog()

    async def main() -> float:
        async with clerks(place, log) as (a, b):
            with trio.move_on_after(30):  # of nobody in the circle: that alone would not count
                await ask(a, b)
            return trio.current_time()
        raise AssertionError

    assert (main_ends(main), [note["ends"] for note in notes(log)]) == (when, [ends])


def main_ends(main: Any) -> float:
    """Return when it ends, by an answer or as a deadline has ended agents that did not expect it."""
    try:
        return round(float(simulate(main)), 1)
    except AgentError:
        return 5.0


class Tight(Clerk, serial=True, mailbox=MailboxOptions(size=1)):
    """Has one seat, and does one thing at a time."""

    @action
    async def twice(self) -> int:
        """Ask itself twice; return how many waits the refusal of the second shows."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.ref.invoke, Clerk.hold, 0.0)
                nursery.start_soon(self.ref.invoke, Clerk.hold, 0.0)
        except* MailboxFull as refused:
            (error,) = refused.exceptions
            assert isinstance(error, MailboxFull)
            found = len(error.circle)
        return found


@pytest.mark.parametrize("circles", ["warn", "fail"])
async def test_a_wait_for_a_seat_is_refused_as_ever(
    circles: Literal["warn", "fail"], virtual_clock: VirtualClock
) -> None:
    async with open_test_node(circles=circles) as node:
        tight = await node.start(Tight, others=[])
        assert await tight.invoke(Tight.twice) == 1


def test_a_node_that_does_not_say_what_it_waits_for_is_in_no_circle() -> None:
    offers = tuple(word for word in SessionOptions().offers if word != "waits")
    log = TraceLog()

    async def main() -> None:
        network = MemoryNetwork()
        async with (
            open_node(listen="ws://one", network=network, instrument=log) as one,
            open_node(listen="ws://two", network=network, session=SessionOptions(offers=offers)) as two,
        ):
            lists: list[list[Ref[Clerk]]] = [[], []]
            a, _ = await one.start(Clerk, others=lists[0]), await two.start(Clerk, others=lists[1])
            lists[0].append(await one.consume(Clerk, "http://two/agents/clerk"))
            lists[1].append(await two.consume(Clerk, "http://one/agents/clerk"))
            with trio.move_on_after(60):
                await a.invoke(Clerk.back)

    simulate(main)
    assert notes(log) == []


def test_a_guarded_node_tells_no_names() -> None:
    log = TraceLog()

    async def main() -> None:
        network, security = MemoryNetwork(), Security(crash_details=False)
        async with (
            open_node(listen="ws://one", network=network, instrument=log, circles="fail") as one,
            open_node(listen="ws://two", network=network, security=security) as two,
        ):
            lists: list[list[Ref[Ring]]] = [[], []]
            a, _ = await one.start(Ring, following=lists[0]), await two.start(Ring, following=lists[1])
            lists[0].append(await one.consume(Ring, "http://two/agents/ring"))
            lists[1].append(await two.consume(Ring, "http://one/agents/ring"))
            assert await a.invoke(Ring.alone) == "refused: 2 waits"

    simulate(main)
    (note,) = notes(log)
    assert "ws://two/ws: an agent waits; which one, the node does not say" in note["waits"]


@pytest.mark.parametrize("wrong", ["maybe", True, None])
async def test_an_option_that_is_none(wrong: Any, virtual_clock: VirtualClock) -> None:
    with pytest.raises(ConfigError, match=re.escape("open_node(circles=...): is 'warn' or 'fail'")):
        async with open_node(circles=wrong):
            pass
