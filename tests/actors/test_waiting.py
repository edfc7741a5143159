"""The waiting graph (L4): each kind of wait, circles and what only looks so, reports of deadlocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from lmos_actors import (
    Agent,
    ChildSpec,
    DeadlineExceeded,
    MailboxOptions,
    Progress,
    Ref,
    SupervisorSpec,
    TraceLog,
    action,
    invoke_all,
    open_node,
    simulate,
)
from lmos_actors._core import current_environment
from lmos_actors.errors import Deadlocked
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import Waiting, WaitingGraph

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node

TIGHT = MailboxOptions(size=1)


async def stand(asked: Awaitable[object]) -> None:
    """Wait in a scope that might be cancelled: so a circle is not told, and stands to be looked at."""
    with trio.CancelScope():
        await asked


class Peer(Agent):
    """Does to the agent called `other` what its actions say."""

    other: str = ""

    def peer(self) -> Ref[Peer]:
        return self.find(Peer, self.other)

    @action
    async def hold(self, seconds: float = 1e6) -> None:
        await trio.sleep(seconds)

    @action
    async def ask_hold(self) -> None:
        await stand(self.peer().invoke(Peer.hold))

    @action
    async def ask_note(self) -> None:
        await stand(self.peer().invoke(Peer.note))

    @action
    async def tell_note(self) -> None:
        await self.peer().tell(Peer.note)

    @action
    async def ring(self) -> None:
        if not self.other:
            await trio.sleep_forever()
        await stand(self.peer().invoke(Peer.ring))

    @action(concurrency=2)
    async def pair(self, seconds: float = 0.0) -> None:
        if seconds:
            await trio.sleep(seconds)
        else:
            await stand(self.peer().invoke(Peer.pair))

    @action
    async def ask_back(self) -> None:
        await stand(self.peer().invoke(Peer.ask_hold))

    @action
    async def count(self) -> AsyncIterator[int]:
        for number in range(1000):
            yield number

    @action
    async def drip(self) -> AsyncIterator[int]:
        await trio.sleep_forever()
        yield 1

    @action
    async def use_drip(self) -> None:
        async with self.peer().stream(Peer.drip) as items:
            async for _ in items:
                pass

    @action
    async def use_stream_and_ask(self) -> None:
        async with self.peer().stream(Peer.count) as items:
            async for _ in items:
                await stand(self.peer().invoke(Peer.note))

    @action
    async def fork(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.peer().invoke, Peer.hold)
            nursery.start_soon(self.ref.invoke, Peer.fork)

    @action
    async def report(self, progress: Progress[int]) -> None:
        progress.report(1)
        await trio.sleep_forever()

    @action
    async def use_call(self) -> None:
        async with self.peer().begin(Peer.hold) as call:
            await call.result()

    @action
    async def use_progress(self) -> None:
        async with self.peer().begin(Peer.report) as call:
            async for _ in call.progress:
                pass

    @action
    async def use_stream(self) -> None:
        async with self.peer().stream(Peer.count) as items:
            async for _ in items:
                await stand(self.peer().invoke(Peer.hold))

    @action
    async def use_all(self) -> None:
        await invoke_all([self.peer(), self.peer()], Peer.hold)

    @action
    async def relay(self, steps: tuple[str, ...]) -> None:
        """Go through steps such as `2 sleep`, `b note` and `c relay`, which takes the rest with it."""
        for place, (subject, verb) in enumerate(step.split() for step in steps):
            if verb == "sleep":
                await trio.sleep(float(subject))
            elif verb == "note":
                await self.find(Peer, subject).tell(Peer.note)
            else:
                await stand(self.find(Peer, subject).invoke(Peer.relay, steps[place + 1 :]))
                return

    @action
    def note(self) -> None:
        pass

    @action
    def flood(self, count: int) -> None:
        for _ in range(count):
            self.send(self.peer(), Peer.note)


class Tight(Peer, mailbox=TIGHT):
    """Has one seat."""


class Serial(Peer, serial=True, mailbox=TIGHT):
    """Takes nothing while it runs, and has one seat."""


async def start(node: Node, *wishes: tuple[str, type[Peer], str]) -> list[Ref[Peer]]:
    """Start agents of those names and classes, each with the name of its other."""
    specs = [ChildSpec(name, partial(cls, other=other)) for name, cls, other in wishes]
    return [await node.start_child(spec) for spec in specs]


def agents_only(graph: WaitingGraph) -> list[Waiting]:
    return [edge for edge in graph.edges if edge.waiter is not None]


def circles(graph: WaitingGraph) -> list[list[str | None]]:
    return [[edge.waiter for edge in circle] for circle in graph.cycles()]


# ---- each kind of wait


@pytest.mark.parametrize(
    ("verb", "affordance"),
    [
        (Peer.ask_hold, "hold"),
        (Peer.use_call, "hold"),
        (Peer.use_progress, "report"),
        (Peer.use_drip, "drip"),
        (Peer.ring, "ring"),
    ],
)
@pytest.mark.parametrize("log", [None, TraceLog()])
async def test_a_run_waits_for_an_answer(
    verb, affordance: str, log: TraceLog | None, virtual_clock: VirtualClock
) -> None:
    async with open_test_node(instrument=log) as node, trio.open_nursery() as nursery:
        a, b, _ = await start(node, ("a", Peer, "b"), ("b", Peer, "c"), ("c", Peer, "c"))
        await b.tell(Peer.pair, 1e6)
        nursery.start_soon(a.invoke, verb)
        await settle()
        graph = node.waiting_graph()
        assert Waiting("a", "b", "answer", affordance, verb.name) in graph.edges
        assert (
            Waiting(None, "a", "answer", verb.name, "lmos_actors.actors.refs._ref.Ref.invoke") in graph.edges
        )
        nursery.cancel_scope.cancel()


async def test_invoke_all_waits_for_each(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, _ = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.use_all)
        await settle()
        assert agents_only(node.waiting_graph()) == [
            Waiting("a", "b", "answer", "hold", "use_all"),
            Waiting("a", "b", "concurrency", "hold", "use_all"),
        ]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("verb", [Peer.tell_note, Peer.ask_note])
async def test_a_run_waits_for_a_seat(verb, virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Peer, "b"), ("b", Serial, "a"))
        nursery.start_soon(b.invoke, Peer.hold)
        await settle()
        await b.tell(Peer.note)
        nursery.start_soon(a.invoke, verb)
        await settle()
        graph = node.waiting_graph()
        assert agents_only(graph) == [Waiting("a", "b", "seat", "note", verb.name)]
        assert graph.cycles() == ()
        assert f"a (run of '{verb.name}') waits for a seat for 'note' with b" in str(graph)
        nursery.cancel_scope.cancel()


async def test_a_run_waits_for_the_concurrency_of_an_action(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        nursery.start_soon(b.invoke, Peer.hold)
        await settle()
        nursery.start_soon(a.invoke, Peer.ask_hold)
        await settle()
        graph = node.waiting_graph()
        assert agents_only(graph) == [Waiting("a", "b", "concurrency", "hold", "ask_hold")]
        assert "a (run of 'ask_hold') waits for room for one more run of 'hold' in b" in str(graph)
        nursery.cancel_scope.cancel()


async def test_a_turn_is_held_back_by_a_seat(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Peer, "b"), ("b", Serial, "a"))
        nursery.start_soon(b.invoke, Peer.hold)
        await settle()
        await a.tell(Peer.flood, 3)
        await settle()
        graph = node.waiting_graph()
        assert agents_only(graph) == [Waiting("a", "b", "seat", "note")] * 2
        assert "a (its turns) waits for a seat for 'note' with b" in str(graph)
        nursery.cancel_scope.cancel()


async def test_a_stream_waits_for_its_consumer_and_a_consumer_for_its_stream(
    virtual_clock: VirtualClock,
) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.use_stream)
        await settle()
        assert agents_only(node.waiting_graph()) == [
            Waiting("a", "b", "answer", "hold", "use_stream"),
            Waiting("b", "a", "seat", "count", "count"),
        ]
        assert node.waiting_graph().cycles() == (), "hold ends by itself"
        async with b.stream(Peer.count):
            await settle()
            assert Waiting("a", "b", "answer", "hold", "use_stream") in node.waiting_graph().edges
        nursery.cancel_scope.cancel()


# ---- circles


async def ring_of(cls: type[Peer], names: list[str]) -> None:
    """Let each agent wait for the next, and wait for them."""
    async with open_test_node() as node:
        peers = await start(node, *((name, cls, names[i - len(names) + 1]) for i, name in enumerate(names)))
        await peers[0].invoke(Peer.ring)


@pytest.mark.parametrize("cls", [Peer, Serial])
async def test_an_agent_that_waits_for_itself(cls: type[Peer], virtual_clock: VirtualClock) -> None:
    with pytest.raises(Deadlocked) as caught:
        await ring_of(cls, ["a"])
    lines = str(caught.value).splitlines()
    assert lines[1] == "deadlock: a waits for itself"
    what = (
        "the answer to 'ring' from itself" if cls is Serial else "room for one more run of 'ring' in itself"
    )
    assert lines[2] == f"  a (run of 'ring') waits for {what}"


async def test_a_serial_agent_that_asks_itself_for_a_turn_waits_for_itself(
    virtual_clock: VirtualClock,
) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Serial, "a"), ("b", Peer, "b"))
        nursery.start_soon(a.invoke, Peer.ask_note)
        await b.invoke(Peer.ask_note)  # not serial: its turns go on
        await settle()
        assert circles(node.waiting_graph()) == [["a"]]
        nursery.cancel_scope.cancel()


async def test_turns_that_wait_hold_no_run_back(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, _, c = await start(node, ("a", Serial, "b"), ("b", Peer, "c"), ("c", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.ask_back)  # a: answer of b.ask_hold, which asks c.hold
        nursery.start_soon(c.invoke, Peer.hold, 5.0)
        await settle()
        await a.tell(Peer.note)  # the one seat of a
        assert node.waiting_graph().cycles() == (), "c.hold ends by itself"
        await c.tell(Peer.flood, 1)
        await settle()
        graph = node.waiting_graph()
        assert Waiting("c", "a", "seat", "note") in graph.edges
        assert graph.cycles() == (), "c's turns wait, its runs do not"
        nursery.cancel_scope.cancel()


async def test_answer_and_concurrency_in_one_circle(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, _, c = await start(node, ("a", Serial, "b"), ("b", Peer, "c"), ("c", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.relay, ("b relay", "1 sleep", "c relay"))
        await settle()
        nursery.start_soon(c.invoke, Peer.relay, ("a relay",))
        await settle()
        assert node.waiting_graph().cycles() == ()
        await trio.sleep(2)
        (circle,) = node.waiting_graph().cycles()
        assert circle == (
            Waiting("a", "b", "answer", "relay", "relay"),
            Waiting("b", "c", "concurrency", "relay", "relay"),
            Waiting("c", "a", "answer", "relay", "relay"),
        )
        nursery.cancel_scope.cancel()


async def test_a_stream_and_its_consumer_in_a_circle(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        _, b = await start(node, ("a", Serial, "b"), ("b", Peer, "a"))
        nursery.start_soon(b.invoke, Peer.use_stream_and_ask)
        await settle()
        assert node.waiting_graph().cycles() == (
            (
                Waiting("a", "b", "seat", "count", "count"),
                Waiting("b", "a", "answer", "note", "use_stream_and_ask"),
            ),
        )
        nursery.cancel_scope.cancel()


async def test_a_run_needs_all_that_it_waits_for(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, _ = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.fork)
        await settle()
        assert len(agents_only(node.waiting_graph())) == 2
        assert circles(node.waiting_graph()) == [["a"]], "that b.hold will end does not help"
        nursery.cancel_scope.cancel()


async def test_runs_of_other_actions_make_no_room(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        (a,) = await start(node, ("a", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.hold)
        nursery.start_soon(a.invoke, Peer.ring)
        await settle()
        assert circles(node.waiting_graph()) == [["a"]]
        nursery.cancel_scope.cancel()


async def test_a_ring_of_a_hundred_is_named_where_the_run_ends(virtual_clock: VirtualClock) -> None:
    with pytest.raises(Deadlocked) as caught:
        await ring_of(Peer, [f"p{number:02}" for number in range(100)])
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("deadlock: p00 -> p01 -> p02 -> ")
    assert lines[1].endswith("-> p49 -> ... 50 more ... -> p00")
    assert lines[2] == "  p00 (run of 'ring') waits for the answer to 'ring' from p01"
    assert "  ... and 50 more" in lines
    assert len(lines) < 60


@pytest.mark.slow
async def test_a_ring_deeper_than_pythons_stack(virtual_clock: VirtualClock) -> None:
    count = 2000
    async with open_test_node() as node, trio.open_nursery() as nursery:
        names = [f"p{number}" for number in range(count)]
        peers = await start(node, *((n, Peer, names[(i + 1) % count]) for i, n in enumerate(names)))
        nursery.start_soon(peers[0].invoke, Peer.ring)
        await settle()
        assert circles(node.waiting_graph()) == [names]
        nursery.cancel_scope.cancel()


async def test_two_rings_and_who_waits_for_them(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        wishes = {"a": "b", "b": "a", "c": "d", "d": "e", "e": "c", "f": "a"}
        peers = await start(node, *((name, Peer, other) for name, other in wishes.items()))
        for peer in (*reversed(peers), peers[0]):
            nursery.start_soon(peer.invoke, Peer.ring)
        await settle()
        graph = node.waiting_graph()
        assert circles(graph) == [["a", "b"], ["c", "d", "e"]]
        assert [edge.waiter for edge in agents_only(graph)] == ["a", "b", "c", "d", "e", "f"]
        assert str(graph).splitlines()[-1].startswith("user code"), "circles, agents, the others"
        nursery.cancel_scope.cancel()


@given(others=st.lists(st.none() | st.integers(0, 11), min_size=1, max_size=12))
def test_every_circle_is_found_once(others: list[int | None]) -> None:
    """Each agent's one run waits for another's, or sleeps: circles are those of the function."""

    async def main() -> None:
        async with open_test_node() as node, trio.open_nursery() as nursery:
            names = [f"p{number:02}" for number in range(len(others))]
            links = [None if other is None else names[other % len(names)] for other in others]
            peers = await start(node, *((n, Peer, o or "") for n, o in zip(names, links, strict=True)))
            for peer in peers:
                nursery.start_soon(peer.invoke, Peer.ring)
            await settle()
            assert circles(node.waiting_graph()) == reference(dict(zip(names, links, strict=True)))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=VirtualClock())


def reference(links: dict[str, str | None]) -> list[list[str | None]]:
    found: list[list[str | None]] = []
    for start_name in sorted(links):
        path: list[str | None] = []
        here: str | None = start_name
        while here is not None and here not in path:
            path.append(here)
            here = links[here]
        if here == start_name and min(filter(None, path)) == start_name:
            found.append(path)
    return found


# ---- what is no circle


async def test_agents_that_call_back_are_in_no_circle(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, _ = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.ask_back)
        await settle()
        graph = node.waiting_graph()
        assert agents_only(graph) == [
            Waiting("a", "b", "answer", "ask_hold", "ask_back"),
            Waiting("b", "a", "answer", "hold", "ask_hold"),
        ]
        assert graph.cycles() == (), "a.hold runs beside a.ask_back"
        nursery.cancel_scope.cancel()


async def test_one_free_run_of_several_is_enough(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        (a,) = await start(node, ("a", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.pair, 5.0)
        await settle()
        nursery.start_soon(a.invoke, Peer.pair)
        await settle()
        assert agents_only(node.waiting_graph()) == [Waiting("a", "a", "concurrency", "pair", "pair")]
        assert node.waiting_graph().cycles() == (), "the run that sleeps will make room"
        await trio.sleep(6)
        graph = node.waiting_graph()
        assert circles(graph) == [["a", "a"], ["a"]], "one waits for the other's answer, which waits for room"
        assert str(graph).startswith("deadlock: a waits for itself\n")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["cancelled", "deadline", "left", "answered"])
async def test_what_is_over_is_no_wait(way: str, virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        (b,) = await start(node, ("b", Peer, "b"))
        await b.tell(Peer.hold, 2.0)
        await settle()

        async def wait() -> None:
            if way == "deadline":
                await b.within(1.0).invoke(Peer.hold)
            elif way == "left":
                async with b.begin(Peer.hold) as call:
                    await call.result()
            else:
                await b.invoke(Peer.hold, 0.0)

        with trio.move_on_after(1.5 if way in ("cancelled", "left") else 5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(quietly, wait)
                await settle()
                assert len(node.waiting_graph().edges) == 1
        await settle()
        assert node.waiting_graph() == WaitingGraph(())
        assert str(node.waiting_graph()) == "no agent or task waits for another"


async def quietly(fn: Callable[[], Awaitable[None]]) -> None:
    with suppress(DeadlineExceeded):
        await fn()


async def test_one_way_messages_that_were_accepted_are_no_waits(virtual_clock: VirtualClock) -> None:
    async with open_test_node(instrument=TraceLog()) as node:
        a, b = await start(node, ("a", Peer, "b"), ("b", Serial, "a"))
        await b.tell(Peer.hold)
        await a.tell(Peer.tell_note)
        await settle()
        assert node.waiting_graph().edges == ()
        assert b.mailbox_statistics().depth == 1


class Door(Agent, behaviours=("shut", "open")):
    """Is entered when it is open."""

    @action(when=("shut",))
    def open_up(self) -> None:
        self.become("open")

    @action(when=("open",), postpone=True)
    def enter(self) -> None:
        pass


class Counter(Door, serial=True):
    """A door with a clerk, who does one thing at a time."""

    @action
    async def call(self) -> None:
        await stand(self.find(Guest).invoke(Guest.visit))


class Guest(Agent):
    @action
    async def visit(self) -> None:
        await stand(self.find(Door).invoke(Door.enter))


async def test_a_message_that_is_put_aside_is_waited_for(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door, guest = await node.start(Door), await node.start(Guest)
        nursery.start_soon(guest.invoke, Guest.visit)
        await settle()
        graph = node.waiting_graph()
        assert agents_only(graph) == [Waiting("guest", "door", "answer", "enter", "visit")]
        assert graph.cycles() == ()
        await door.invoke(Door.open_up)
        await settle()
        assert node.waiting_graph().edges == ()


async def test_what_is_put_aside_may_be_in_a_circle(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        counter, guest = await node.start(Counter), await node.start(Guest)
        nursery.start_soon(guest.invoke, Guest.visit)
        await settle()
        nursery.start_soon(counter.invoke, Counter.call)
        await settle()
        assert node.waiting_graph().cycles() == (
            (
                Waiting("counter", "guest", "concurrency", "visit", "call"),
                Waiting("guest", "counter", "answer", "enter", "visit"),
            ),
        )
        nursery.cancel_scope.cancel()


# ---- text and reports


async def test_the_text_is_bounded(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        (a,) = await start(node, ("a", Peer, "a"))
        for _ in range(200):
            nursery.start_soon(a.invoke, Peer.hold)
        await settle()
        graph = node.waiting_graph()
        assert len(graph.edges) == 200
        lines = str(graph).splitlines()
        assert len(lines) == 51
        assert lines[-1] == "... and 150 more waits"
        nursery.cancel_scope.cancel()


async def test_many_deadlocks_are_counted(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        names = [f"p{number}" for number in range(80)]
        for peer in await start(node, *((name, Peer, name) for name in names)):
            nursery.start_soon(peer.invoke, Peer.ring)
        await settle()
        lines = str(node.waiting_graph()).splitlines()
        assert len([line for line in lines if line.startswith("deadlock")]) == 50
        assert lines[-2:] == ["... and 30 more deadlocks", "... and 110 more waits"]
        nursery.cancel_scope.cancel()


def blocked_on_a_mock_clock() -> None:
    trio.run(ring_of, Peer, ["a", "b"], clock=MockClock(autojump_threshold=0))


def blocked_on_a_virtual_clock() -> None:
    trio.run(ring_of, Peer, ["a", "b"], clock=VirtualClock())


async def in_a_world() -> None:
    async with open_node() as node:
        a, _ = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        await a.invoke(Peer.ring)


def blocked_in_a_world() -> None:
    simulate(in_a_world)


@pytest.mark.parametrize(
    "run",
    [blocked_on_a_mock_clock, blocked_on_a_virtual_clock, blocked_in_a_world],
    ids=lambda run: run.__name__,
)
def test_a_blocked_run_ends_with_the_graph(run: Callable[[], None]) -> None:
    with pytest.raises(Deadlocked) as caught:
        run()
    assert "\ndeadlock: a -> b -> a\n" in str(caught.value)
    assert "\nuser code (" in str(caught.value)


async def test_a_node_that_is_closed_is_described_no_more(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        ambient = current_environment()
        assert ambient is not None
        others = len(ambient.describe)
        async with open_node(SupervisorSpec("root")) as inner:
            assert len(ambient.describe) == others + 1
            assert [describe() for describe in ambient.describe] == [""] * (others + 1)
            assert inner is not node
        assert len(ambient.describe) == others
