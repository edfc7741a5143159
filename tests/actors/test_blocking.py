"""Circles of full mailboxes: which message is refused, where its sender learns of it, what is no circle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentError,
    ChildSpec,
    MailboxFull,
    MailboxOptions,
    Pool,
    Progress,
    Ref,
    SupervisorSpec,
    TraceLog,
    action,
    every,
    invoke_all,
    open_node,
)
from lmos_actors.actors import hold, release
from lmos_actors.testing import open_test_node, settle
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node
    from lmos_actors.simulation import VirtualClock

TIGHT = MailboxOptions(size=1)
SEAT = "waits for a seat for 'note' with"


class Peer(Agent, behaviours=("shut", "open"), mailbox=TIGHT):
    """Sends to others what its steps say; keeps the circles of the messages that were refused."""

    other: str = ""
    refused: tuple[tuple[str, ...], ...] = ()
    notes: int = 0

    def peer(self, name: str = "") -> Ref[Peer]:
        return self.find(Peer, name or self.other)

    @action
    def note(self) -> None:
        self.notes += 1

    @action(when=("open",), postpone=True)
    def enter(self) -> None:
        self.notes += 1

    @action
    def flood(self, count: int) -> None:
        for _ in range(count):
            self.send_note(self.other)

    @action
    def flood_all(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.send_note(name)

    def send_note(self, name: str) -> None:
        try:
            self.send(self.peer(name), Peer.note)
        except MailboxFull as error:
            self.refused += (error.circle,)

    @action
    async def go(self, steps: tuple[str, ...]) -> None:
        """Take steps such as `2 sleep`, `b tell`, `b ask` and `b go`, which takes the rest with it."""
        await self.take_steps(steps)

    @action(concurrency=2)
    async def go_beside(self, steps: tuple[str, ...]) -> None:
        await self.take_steps(steps)

    async def take_steps(self, steps: tuple[str, ...]) -> None:
        for place, (subject, verb) in enumerate(step.split() for step in steps):
            if verb == "go":
                await self.peer(subject).invoke(Peer.go, steps[place + 1 :])
                return
            try:
                with trio.CancelScope():  # that might end it: so circles of requests alone stand here
                    await VERBS[verb](self, subject)
            except MailboxFull as error:
                self.refused += (error.circle,)

    @action
    async def items(self) -> AsyncIterator[int]:
        for number in range(1000):
            yield number

    @action
    async def drip(self, name: str) -> AsyncIterator[int]:
        await self.take_steps((f"{name} tell",))
        yield 1

    @action
    async def report(self, progress: Progress[int], name: str) -> None:
        progress.report(1)
        await self.take_steps((f"{name} tell",))

    @action
    async def take(self, rows: AsyncIterator[int]) -> None:
        async for _ in rows:
            pass


class Serial(Peer, serial=True, mailbox=TIGHT):
    """Takes nothing while it runs."""


async def sleep(_: Peer, seconds: str) -> None:
    await trio.sleep(float(seconds))


async def begin(self: Peer, name: str) -> None:
    async with self.peer(name).begin(Peer.note) as call:
        await trio.sleep(0.01)
        await call.result()


async def tell_within(self: Peer, name: str) -> None:
    await self.peer(name).within(5).tell(Peer.note)


async def tell_for_a_while(self: Peer, name: str) -> None:
    with trio.move_on_after(5):
        await self.peer(name).tell(Peer.note)


async def both(self: Peer, name: str) -> None:
    await invoke_all([self.peer(name), self.peer(name)], Peer.note)


async def send(self: Peer, name: str) -> None:
    self.send_note(name)


async def fork(self: Peer, name: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(self.take_steps, (f"{name} tell",))
        nursery.start_soon(self.take_steps, (f"{name} tell",))


async def take_items(self: Peer, name: str) -> None:
    async with self.peer(name).stream(Peer.items) as items:
        async for _ in items:
            await self.take_steps(("0.1 sleep", f"{name} tell"))
            break


async def take_drips(self: Peer, name: str) -> None:
    async with self.peer(name).stream(Peer.drip, self.path) as items:
        async for _ in items:
            pass


async def take_progress(self: Peer, name: str) -> None:
    async with self.peer(name).begin(Peer.report, self.path) as call:
        async for _ in call.progress:
            pass
        await call.result()


async def feed(self: Peer, name: str) -> None:
    async def rows() -> AsyncIterator[int]:
        await self.take_steps(("0.1 sleep", f"{name} tell"))
        yield 1

    await self.peer(name).invoke(Peer.take, rows())


VERBS: dict[str, Callable[[Peer, str], Any]] = {
    "sleep": sleep,
    "tell": lambda self, name: self.peer(name).tell(Peer.note),
    "tell_go": lambda self, name: self.peer(name).tell(Peer.go, ()),
    "ask": lambda self, name: self.peer(name).invoke(Peer.note),
    "ask_within": lambda self, name: self.peer(name).within(5).invoke(Peer.note),
    "enter": lambda self, name: self.peer(name).invoke(Peer.enter),
    "beside": lambda self, name: self.peer(name).invoke(Peer.go_beside, ("1 sleep",)),
    "begin": begin,
    "both": both,
    "tell_within": tell_within,
    "tell_for_a_while": tell_for_a_while,
    "send": send,
    "fork": fork,
    "items": take_items,
    "drips": take_drips,
    "progress": take_progress,
    "feed": feed,
}


async def start(node: Node, *wishes: tuple[str, type[Peer], str]) -> list[Ref[Peer]]:
    """Start agents of those names and classes, each with the name of its other."""
    specs = [ChildSpec(name, partial(cls, other=other)) for name, cls, other in wishes]
    return [await node.start_child(spec) for spec in specs]


def agent(ref: Ref[Peer]) -> Peer:
    found: Peer = ref._link.agent  # type: ignore[attr-defined]
    return found


def check_over(node: Node, *peers: Ref[Peer]) -> None:
    """Check that nothing waits for a seat, nobody crashed, and the accounts add up."""
    for peer in peers:
        assert peer.mailbox_statistics().parked == 0
        now = peer.statistics()
        left = now.handled + now.cancelled + now.dropped + now.dead_lettered + now.waiting + now.running
        assert (now.accepted, now.restarts) == (left, 0)
    for circle in node.waiting_graph().cycles():
        assert "seat" not in {edge.kind for edge in circle}


# ---- agents that hold each other back by their turns


@pytest.mark.parametrize("logged", [False, True])
async def test_two_agents_that_flood_each_other(logged: bool, virtual_clock: VirtualClock) -> None:
    async with open_test_node(instrument=TraceLog() if logged else None) as node:
        a, b = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        a.tell_nowait(Peer.flood, 3)
        b.tell_nowait(Peer.flood, 3)
        await settle()
        circle = (
            "b (its turns) waits for a seat for 'note' with a",
            "a (its turns) waits for a seat for 'note' with b",
        )
        assert agent(a).refused == ()
        assert agent(b).refused == (circle, circle), "one has a seat, and two would close the circle"
        assert (agent(a).notes, agent(b).notes) == (1, 3)
        assert a.statistics().refused == 2
        assert not node.dead_letters
        check_over(node, a, b)


async def test_the_text_of_the_error_shows_the_circle(virtual_clock: VirtualClock) -> None:
    error = MailboxFull("b", 1, circle=("a waits for b", "b waits for a"))
    assert str(error) == (
        "mailbox of 'b' is full (1), and to wait for a seat would be a deadlock: a waits for b; b waits for a"
    )
    assert MailboxFull("b", 1).circle == ()


@pytest.mark.parametrize("count", [3, 60])
async def test_agents_in_a_ring(count: int, virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        names = [f"p{number:02}" for number in range(count)]
        peers = await start(node, *((name, Peer, names[n - count + 1]) for n, name in enumerate(names)))
        for peer in peers:
            peer.tell_nowait(Peer.flood, 3)
        await settle()
        last = names[-1]
        first, *rest = next(circle for peer in peers for circle in agent(peer).refused)
        assert first == f"{last} (its turns) waits for a seat for 'note' with p00"
        if count == 3:
            assert rest == [
                "p00 (its turns) waits for a seat for 'note' with p01",
                "p01 (its turns) waits for a seat for 'note' with p02",
            ]
        else:
            assert (len(rest), rest[-1]) == (49, "... and 11 more waits")
        assert [bool(agent(peer).refused) for peer in peers] == [False] * (count - 1) + [True]
        check_over(node, *peers)


async def test_a_turn_that_still_holds_its_seat_is_no_reason(virtual_clock: VirtualClock) -> None:
    """The seat of the turn that sends comes free with its end, and that is what the other waits for."""
    async with open_test_node() as node:
        a, b = await start(node, ("a", Peer, "b"), ("b", Peer, "a"))
        a.tell_nowait(Peer.flood, 1)
        b.tell_nowait(Peer.flood, 2)
        await settle()
        assert (agent(a).refused, agent(b).refused) == ((), ())
        assert (agent(a).notes, agent(b).notes) == (2, 1)
        check_over(node, a, b)


class Clock(Peer, mailbox=TIGHT):
    """Sends by a timer, whose turn has a seat of its own."""

    @every(1)
    def tick(self) -> None:
        self.send_note(self.other)

    @action
    def plan(self) -> None:
        self.send_after(2, self.peer(), Peer.note)


@pytest.mark.parametrize("first", ["timer", "message"])
async def test_a_turn_of_a_timer_gets_the_error_at_its_line(first: str, virtual_clock: VirtualClock) -> None:
    """A message that had its turn before it has left a seat, so then there is no circle."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Clock, "b"), ("b", Serial, "a"))
        nursery.start_soon(b.invoke, Peer.go, ("1.5 sleep", "a tell"))
        await settle()
        await b.tell(Peer.note)
        hold(a)
        if first == "message":
            await a.tell(Peer.flood, 0)
        await trio.sleep(1.2)  # the timer is due
        if first == "timer":
            await a.tell(Peer.flood, 0)
        await trio.sleep(0.5)
        assert a.mailbox_statistics().parked == 1
        release(a)
        await settle()
        circle = (f"a (its turns) {SEAT} b", f"b (run of 'go') {SEAT} a")
        assert agent(a).refused == ((circle,) if first == "timer" else ())
        assert not node.dead_letters
        check_over(node, a, b)
        nursery.cancel_scope.cancel()


async def test_a_message_that_is_sent_later_is_a_dead_letter(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Clock, "b"), ("b", Serial, "a"))
        await a.tell(Clock.plan)
        nursery.start_soon(b.invoke, Peer.go, ("0.2 sleep", "a ask"))
        await settle()
        hold(a)
        await trio.sleep(0.5)
        await b.tell(Peer.note)
        await trio.sleep(2)
        (letter,) = node.dead_letters
        assert (letter.agent, letter.affordance, letter.sender) == ("b", "note", "a")
        assert (
            f"a (its turns) {SEAT} b; b (run of 'go') waits for the answer to 'note' from a" in letter.reason
        )
        release(a)
        await settle()
        check_over(node, a, b)
        nursery.cancel_scope.cancel()


# ---- runs


def in_each_others_way(verb: str) -> dict[str, tuple[str, ...]]:
    return {"a": ("1 sleep", f"b {verb}"), "b": ("2 sleep", f"a {verb}")}


async def run_serial(
    programs: dict[str, tuple[str, ...]], full: str, log: TraceLog | None = None
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Let agents of a serial class take their steps, with the mailboxes in `full` full from the start."""
    async with open_test_node(instrument=log) as node, trio.open_nursery() as nursery:
        peers = await start(node, *((name, Serial, "") for name in programs))
        for peer, steps in zip(peers, programs.values(), strict=True):
            nursery.start_soon(peer.invoke, Peer.go, steps)
        await settle()
        for peer in peers:
            if peer.path in full:
                await peer.tell(Peer.note)
        await trio.sleep(100)
        check_over(node, *peers)
        assert not node.waiting_graph().edges, "all have ended"
        nursery.cancel_scope.cancel()
        return {peer.path: agent(peer).refused for peer in peers}


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize(
    "verb", ["tell", "ask", "begin", "both", "tell_within", "ask_within", "tell_for_a_while", "fork"]
)
async def test_two_runs_that_wait_for_each_other(
    verb: str, logged: bool, virtual_clock: VirtualClock
) -> None:
    """Deadlines do not exempt: the message is refused when it closes the circle, and not 5 s later."""
    refused = await run_serial(in_each_others_way(verb), "ab", TraceLog() if logged else None)
    circle = (f"b (run of 'go') {SEAT} a", f"a (run of 'go') {SEAT} b")
    if verb.startswith(("ask", "tell")) and verb not in ("tell", "ask"):
        assert refused["b"] == (circle,)
    else:
        assert set(refused["b"]) == {circle}
    assert refused["a"] == ()
    assert trio.current_time() < 200


async def test_three_runs(virtual_clock: VirtualClock) -> None:
    refused = await run_serial(
        {"a": ("1 sleep", "b tell"), "b": ("2 sleep", "c tell"), "c": ("3 sleep", "a tell")}, "abc"
    )
    circle = (f"c (run of 'go') {SEAT} a", f"a (run of 'go') {SEAT} b", f"b (run of 'go') {SEAT} c")
    assert refused == {"a": (), "b": (), "c": (circle,)}


async def test_what_is_answered_in_the_circle(virtual_clock: VirtualClock) -> None:
    """A request that has a seat is part of the circle, and the message that has none is refused."""
    refused = await run_serial({"a": ("1 sleep", "b ask"), "b": ("2 sleep", "a tell")}, "a")
    circle = (f"b (run of 'go') {SEAT} a", "a (run of 'go') waits for the answer to 'note' from b")
    assert refused == {"a": (), "b": (circle,)}


async def test_a_request_that_closes_the_circle_is_kept(virtual_clock: VirtualClock) -> None:
    """The request has been accepted, so the message before it is refused, which has not."""
    refused = await run_serial({"a": ("2 sleep", "b ask"), "b": ("1 sleep", "a tell")}, "a")
    circle = (f"b (run of 'go') {SEAT} a", "a (run of 'go') waits for the answer to 'note' from b")
    assert refused == {"a": (), "b": (circle,)}


async def test_a_message_of_a_turn_is_a_dead_letter_once_its_line_has_gone_by(
    virtual_clock: VirtualClock,
) -> None:
    log = TraceLog()
    async with open_test_node(instrument=log) as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Peer, "b"), ("b", Serial, "a"))
        nursery.start_soon(b.invoke, Peer.go, ("2 sleep", "a ask"))
        await settle()
        await b.tell(Peer.note)
        await a.tell(Peer.flood, 2)  # holds a back while b sleeps
        await trio.sleep(1)
        assert b.mailbox_statistics().parked == 2
        await trio.sleep(2)
        circle = f"a (its turns) {SEAT} b; b (run of 'go') waits for the answer to 'note' from a"
        letters = [(each.agent, each.affordance, each.sender) for each in node.dead_letters]
        assert letters == [("b", "note", "a")] * 2
        assert all(each.reason.endswith(circle) for each in node.dead_letters)
        kinds = [record["kind"] for record in map(json.loads, log.lines()) if "kind" in record]
        assert [kind for kind in kinds if kind in ("refused", "dead_letter")] == [
            "refused",
            "dead_letter",
        ] * 2
        assert b.statistics().refused == 2
        check_over(node, a, b)


async def test_one_of_which_its_sender_learns_is_refused_first(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b, c = await start(node, ("a", Peer, "b"), ("b", Serial, "c"), ("c", Serial, "a"))
        for ref, steps in ((b, ("1 sleep", "c tell")), (c, ("2 sleep", "a ask"))):
            nursery.start_soon(ref.invoke, Peer.go, steps)
        await settle()
        await b.tell(Peer.note)
        await c.tell(Peer.note)
        await a.tell(Peer.flood, 1)  # its turns wait for b, whose run waits for c, whose run asks a
        await trio.sleep(5)
        assert not node.dead_letters
        assert [len(agent(ref).refused) for ref in (a, b, c)] == [0, 1, 0]
        check_over(node, a, b, c)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("verb", ["tell_go", "fork"])
async def test_a_run_that_waits_for_a_seat_with_its_own_agent(verb: str, virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        (a,) = await start(node, ("a", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.go, ("1 sleep", f"a {verb}"))
        await settle()
        await a.tell(Peer.go, ())  # in line for the action
        await trio.sleep(5)
        name = "go" if verb == "tell_go" else "note"
        assert set(agent(a).refused) == {(f"a (run of 'go') waits for a seat for {name!r} with itself",)}
        check_over(node, a)


async def test_a_message_to_itself_never_waits(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        (a,) = await start(node, ("a", Peer, "a"))
        nursery.start_soon(a.invoke, Peer.go, ("1 sleep", "a send"))
        await settle()
        await a.tell(Peer.go, ())
        await trio.sleep(5)
        assert (agent(a).refused, agent(a).notes) == ((), 1)


async def test_a_pool_and_its_boss(virtual_clock: VirtualClock) -> None:
    """A member is one agent of the circle; the pool sends on to another member after it."""
    spec = SupervisorSpec("root", [Pool(Serial, 2, name="p")])
    async with open_test_node(spec) as node, trio.open_nursery() as nursery:
        spec_of_boss = ChildSpec("boss", partial(Peer, other="p"), mailbox=MailboxOptions(size=8))
        boss = await node.start_child(spec_of_boss)
        pool = node.find(Serial, "p")
        for _ in range(2):
            nursery.start_soon(pool.invoke, Peer.go, ("1 sleep", "boss ask", "boss ask"))
        await settle()
        await pool.tell(Peer.note)
        await pool.tell(Peer.note)
        await trio.sleep(0.5)
        await boss.tell(Peer.flood, 2)
        await trio.sleep(5)
        assert {each.reason.partition(": ")[2] for each in node.dead_letters} == {
            f"boss (its turns) {SEAT} p/p-1; p/p-1 (run of 'go') waits for the answer to 'note' from boss",
            f"boss (its turns) {SEAT} p/p-2; p/p-2 (run of 'go') waits for the answer to 'note' from boss",
        }
        assert boss.statistics().waiting == 0
        check_over(node, boss)
        nursery.cancel_scope.cancel()


# ---- other ways to wait


@pytest.mark.parametrize(
    ("verb", "circle"),
    [
        ("items", (f"a (run of 'go') {SEAT} b", "b (run of 'items') waits for a seat for 'items' with a")),
        ("drips", (f"b (run of 'drip') {SEAT} a", "a (run of 'go') waits for the answer to 'drip' from b")),
        (
            "progress",
            (f"b (run of 'report') {SEAT} a", "a (run of 'go') waits for the answer to 'report' from b"),
        ),
        ("feed", (f"a (run of 'go') {SEAT} b", "b (run of 'take') waits for the next item of 'rows' from a")),
    ],
)
async def test_streams_in_the_circle(verb: str, circle: tuple[str, ...], virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Serial, "b"), ("b", Serial, "a"))
        nursery.start_soon(a.invoke, Peer.go, ("1 sleep", f"b {verb}"))
        await settle()
        if verb in ("items", "feed"):
            nursery.start_soon(fill_soon, b)
        else:
            await a.tell(Peer.note)
        await trio.sleep(5)
        assert circle in (*agent(a).refused, *agent(b).refused)
        check_over(node, a, b)
        nursery.cancel_scope.cancel()


async def fill_soon(ref: Ref[Peer]) -> None:
    """Take the one seat of an agent, after the begin of its run and before the message that finds none."""
    await trio.sleep(1.05)
    assert ref.statistics().running
    await ref.tell(Peer.note)


# ---- what is no circle


@pytest.mark.parametrize(
    ("steps", "seats"),
    [
        (("1 sleep",), "b"),  # the run ends
        (("0.5 sleep", "c ask"), "b"),  # c answers
        (("0.5 sleep", "c tell"), "bc"),  # c has a run that ends
        (("0.5 sleep", "c begin"), "b"),
        (("0.5 sleep", "a beside"), "b"),  # a serves others while it waits: it is not serial
    ],
)
async def test_what_goes_on_is_waited_for(
    steps: tuple[str, ...], seats: str, virtual_clock: VirtualClock
) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b, c = await start(node, ("a", Peer, ""), ("b", Serial, ""), ("c", Serial, ""))
        nursery.start_soon(b.invoke, Peer.go, steps)
        if "c" in seats:
            nursery.start_soon(c.invoke, Peer.go, ("3 sleep",))
        await settle()
        for ref in (b, c):
            if ref.path in seats:
                await ref.tell(Peer.note)
        nursery.start_soon(a.invoke, Peer.go, ("0.1 sleep", "b tell", "b tell"))
        await trio.sleep(20)
        assert [agent(ref).refused for ref in (a, b, c)] == [(), (), ()]
        check_over(node, a, b, c)


@pytest.mark.parametrize("policy", ["reject", "drop_oldest", "drop_newest"])
async def test_a_mailbox_at_which_nobody_waits_is_in_no_circle(
    policy: Any, virtual_clock: VirtualClock
) -> None:
    async with open_test_node() as node:
        peers = [
            await node.start_child(ChildSpec(name, partial(Peer, other=other), mailbox=options))
            for name, other, options in (
                ("a", "b", MailboxOptions(size=1, when_full=policy)),
                ("b", "a", TIGHT),
            )
        ]
        a, b = peers
        for ref in peers:
            ref.tell_nowait(Peer.flood, 3)
        await settle()
        assert agent(a).refused == ()
        assert set(agent(b).refused) <= {()}, "refused by the policy, which is no deadlock"
        check_over(node, a, b)


async def test_a_paused_agent_may_go_on(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Serial, "b"), ("b", Peer, "a"))
        hold(b)
        nursery.start_soon(b.tell, Peer.note)
        nursery.start_soon(a.invoke, Peer.go, ("1 sleep", "b tell"))
        await trio.sleep(5)
        assert b.mailbox_statistics().parked == 1
        release(b)
        await settle()
        assert (agent(a).refused, agent(b).notes) == ((), 2)


async def test_an_action_that_could_have_one_more_run_may_go_on(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b = await start(node, ("a", Peer, ""), ("b", Peer, ""))
        nursery.start_soon(a.invoke, Peer.go_beside, ("1 sleep", "b tell"))
        await b.tell(Peer.go_beside, ("2 sleep",))
        await b.tell(Peer.go_beside, ("2 sleep", "a ask"))
        await settle()
        hold(b)
        nursery.start_soon(b.tell, Peer.go_beside, ())
        await trio.sleep(10)
        assert agent(a).refused == ()
        release(b)
        await settle()
        check_over(node, a, b)


async def test_code_outside_agents_closes_no_circle(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        (a,) = await start(node, ("a", Serial, ""))
        with trio.move_on_after(5) as scope:
            async with a.stream(Peer.items) as items:
                async for _ in items:
                    await a.tell(Peer.note)
        assert scope.cancelled_caught, "nobody knows what user code does next"


async def test_who_waits_behind_a_deadlock_of_requests_closes_none(virtual_clock: VirtualClock) -> None:
    """A circle of requests stays, and is named; it is no business of those who wait behind it."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b, c = await start(node, ("a", Serial, ""), ("b", Serial, ""), ("c", Peer, ""))
        nursery.start_soon(a.invoke, Peer.go, ("1 sleep", "b ask"))
        nursery.start_soon(b.invoke, Peer.go, ("1 sleep", "a ask"))
        nursery.start_soon(c.invoke, Peer.go, ("2 sleep", "a tell"))
        await trio.sleep(5)
        assert [agent(ref).refused for ref in (a, b, c)] == [(), (), ()]
        (circle,) = node.waiting_graph().cycles()
        assert {edge.kind for edge in circle} == {"answer"}
        assert a.mailbox_statistics().parked == 1
        nursery.cancel_scope.cancel()


async def test_a_way_that_ends_in_such_a_deadlock_is_none_any_more(virtual_clock: VirtualClock) -> None:
    """A seat of b came free by its turns or by a run; the run has got into a deadlock of its own."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a, b, c = await start(node, ("a", Peer, "b"), ("b", Peer, "a"), ("c", Serial, ""))
        nursery.start_soon(b.invoke, Peer.go, ("1 sleep", "c go", "2 sleep", "c ask"))
        await settle()
        await b.tell(Peer.go, ())  # has the seat, in line for the run
        await a.tell(Peer.flood, 1)
        await settle()
        await a.tell(Peer.note)
        await trio.sleep(2)
        await trio.sleep(5)
        (circle,) = node.waiting_graph().cycles()
        assert [edge.waiter for edge in circle] == ["c"]
        assert [agent(ref).refused for ref in (a, b, c)] == [(), (), ()]
        assert not node.dead_letters, "a waits behind it, and closes no circle"
        nursery.cancel_scope.cancel()


# ---- cancel, and other nodes


@pytest.mark.parametrize("verb", ["tell", "ask", "begin", "both", "fork"])
async def test_a_sender_that_is_cancelled_leaves_no_circle(verb: str, virtual_clock: VirtualClock) -> None:
    """It is broken off at each step: before the circle, when it is about to close, and after it."""
    for tenths in (0, 5, 15, 25, 30):
        async with open_test_node() as node, trio.open_nursery() as nursery:
            a, b = await start(node, ("a", Serial, "b"), ("b", Serial, "a"))
            scope = trio.CancelScope()

            async def run_a(a: Ref[Peer] = a, scope: trio.CancelScope = scope) -> None:
                with scope:
                    await a.invoke(Peer.go, ("1 sleep", f"b {verb}", "5 sleep"))

            nursery.start_soon(run_a)
            nursery.start_soon(b.invoke, Peer.go, ("2 sleep", f"a {verb}"))
            await settle()
            await a.tell(Peer.note)
            await b.tell(Peer.note)
            await trio.sleep(tenths / 10)
            scope.cancel()
            await trio.sleep(20)
            assert bool(agent(b).refused) == (tenths > 20)
            assert agent(a).refused == ()
            check_over(node, a, b)
            assert not node.waiting_graph().edges


class Quiet(Agent, serial=True, mailbox=TIGHT):
    """Takes notes."""

    @action
    def note(self) -> None:
        pass


class Abroad(Quiet):
    """Tells an agent of another node more than that takes."""

    others: list[Ref[Quiet]]

    @action
    async def tell_many(self) -> str:
        try:
            for _ in range(5000):
                await self.others[0].within(3).tell(Quiet.note)
        except AgentError as error:
            return type(error).__name__
        return "all were sent"


async def test_between_nodes_a_deadline_ends_it(autojump_clock: object) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://one", network=network) as one,
        open_node(listen="ws://two", network=network) as two,
        trio.open_nursery() as nursery,
    ):
        from_one: list[Ref[Quiet]] = []
        from_two: list[Ref[Quiet]] = []
        a, b = await one.start(Abroad, others=from_one), await two.start(Abroad, others=from_two)
        from_one.append(await one.consume(Abroad, "http://two/agents/abroad"))
        from_two.append(await two.consume(Abroad, "http://one/agents/abroad"))
        got: list[str] = []

        async def tell_many(ref: Ref[Abroad]) -> None:
            got.append(await ref.invoke(Abroad.tell_many))

        nursery.start_soon(tell_many, a)
        nursery.start_soon(tell_many, b)
        await trio.sleep(2)
        assert got == [], "each waits for the other, and neither node sees the circle"
        await trio.sleep(5)
        assert "DeadlineExceeded" in got
        nursery.cancel_scope.cancel()


# ---- durable agents


async def test_the_message_of_a_durable_agent_is_a_dead_letter(virtual_clock: VirtualClock) -> None:
    """It leaves once the state is kept, so its line has gone by."""

    class Kept(Agent, durable=True, mailbox=TIGHT):
        count: int = 0

        @action
        def note(self) -> None:
            self.count += 1

        @action
        def flood(self, name: str) -> None:
            self.count += 1
            for _ in range(3):
                self.send(self.find(Kept, name), Kept.note)

    async with open_test_node(store="memory:") as node:
        a = await node.start_child(ChildSpec("a", Kept))
        b = await node.start_child(ChildSpec("b", Kept))
        a.tell_nowait(Kept.flood, "b")
        b.tell_nowait(Kept.flood, "a")
        await trio.sleep(5)
        assert node.dead_letters
        assert all("deadlock" in each.reason for each in node.dead_letters)
        for ref in (a, b):
            assert ref.mailbox_statistics().parked == 0
            assert ref.statistics().waiting == 0
        assert node.waiting_graph().edges == ()


@pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")
async def test_requests_with_a_key_wait_as_others_do(virtual_clock: VirtualClock) -> None:
    class Kept(Agent, durable=True, serial=True, mailbox=TIGHT):
        count: int = 0

        @action
        def note(self) -> None:
            self.count += 1

        @action(snapshot_safe=True)
        async def ask_by_key(self, name: str, seconds: float) -> str:
            await trio.sleep(seconds)
            try:
                await self.find(Kept, name).retrying(key=f"{name}-1").invoke(Kept.note)
            except MailboxFull as error:
                return "; ".join(error.circle)
            return ""

    async with open_test_node(store="memory:") as node, trio.open_nursery() as nursery:
        a = await node.start_child(ChildSpec("a", Kept))
        b = await node.start_child(ChildSpec("b", Kept))
        got: dict[str, str] = {}

        async def run(ref: Ref[Kept], other: str, seconds: float) -> None:
            got[ref.path] = await ref.invoke(Kept.ask_by_key, other, seconds)

        nursery.start_soon(run, a, "b", 1.0)
        nursery.start_soon(run, b, "a", 2.0)
        await trio.sleep(0.5)
        await a.tell(Kept.note)
        await b.tell(Kept.note)
        await trio.sleep(50)
        assert got == {
            "a": "",
            "b": f"b (run of 'ask_by_key') {SEAT} a; a (run of 'ask_by_key') {SEAT} b",
        }
        assert node.waiting_graph().edges == ()
